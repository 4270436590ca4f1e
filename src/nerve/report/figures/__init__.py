"""Figures, one function each. To add one: a function in the file of its section, and its name in `SECTIONS`.

its name           what `nerve.report.plot` calls it
its docstring      a title, a blank line and the caption: what is shown, then what to look for
it takes           `ReportData`
it returns         a figure, and sentences with the numbers of these results, which end the caption, or ""
it raises          `NothingToDraw`, with a sentence, where the results lack what it shows
"""

from __future__ import annotations

import base64
import inspect
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from nerve.report.figures.colours import DARK, RC
from nerve.report.report_data import NothingToDraw, ReportData

__all__ = ["FIGURES", "SECTIONS", "Drawn", "NothingToDraw", "draw", "drawn", "function_of", "svg"]

# a file each, in the order of the page
SECTIONS = {
    "cohorts": ("cohort_overview", "group_mean_fc", "likeness"),
    "pretraining": ("patch_layout", "loss_curves", "reconstruction", "reconstruction_error"),
    "prediction": ("forest", "scatter", "null_distribution", "learning_curves", "motion"),
    "comparison": ("comparison_matrix", "sweep"),
    "interpretation": tuple(
        f"interpretation_{name}" for name in ("weights", "brain", "attention", "importance")
    ),
}
FIGURES = {
    name: f"nerve.report.figures.{section}" for section, names in SECTIONS.items() for name in names
}  # modules


@dataclass
class Drawn:
    """A figure ready for a page."""

    name: str
    title: str
    caption: str
    source: str  # a data: address
    figure: Figure

    def shrink(self, dpi: int) -> None:
        """Become a PNG, where that is smaller."""
        stream = io.BytesIO()
        with mpl.rc_context(RC):
            self.figure.savefig(
                stream, format="png", dpi=dpi, facecolor="white", metadata={"Software": None}
            )
        self.source = min(self.source, _address("image/png", stream.getvalue()), key=len)


def function_of(name: str) -> Callable[[ReportData], tuple[Figure, str]]:
    """The function that draws one of `FIGURES`."""
    return getattr(import_module(FIGURES[name]), name)


def draw(name: str, results: ReportData) -> Figure:
    """Draw one of `FIGURES` in the style of the report."""
    with mpl.rc_context(RC):
        return function_of(name)(results)[0]


def drawn(name: str, results: ReportData) -> Drawn:
    """Draw a figure with its title and caption."""
    with mpl.rc_context(RC):
        figure, details = function_of(name)(results)
    title, _, caption = str(inspect.getdoc(function_of(name))).partition(".\n\n")
    source = _address("image/svg+xml", svg(figure).encode())
    return Drawn(name, title, " ".join(f"{caption} {details}".split()), source, figure)


def svg(figure: Figure) -> str:
    """The figure as SVG whose ink turns light where the reader's screen is dark."""
    stream, canvas = io.StringIO(), FigureCanvasSVG(figure)
    with mpl.rc_context(
        RC
    ):  # what `savefig` does, which draws everything twice where there is a layout
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.set_dpi(110)
        canvas.print_svg(stream, metadata={"Date": None, "Creator": "nerve"})
    text = re.sub(
        r"<!--.*?-->|^ +", "", stream.getvalue(), flags=re.DOTALL | re.MULTILINE
    )  # a quarter smaller
    start = text.index("<svg")
    pairs = [(kind, light, dark) for light, dark in DARK.items() for kind in ("fill", "stroke")]
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}' for kind, light, dark in pairs
    )
    end = text.index(">", start) + 1
    return (
        f"{text[start:end]}<style>@media (prefers-color-scheme:dark){{{rules}}}</style>{text[end:]}"
    )


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
