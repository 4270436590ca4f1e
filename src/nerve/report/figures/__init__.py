"""Figures, one function each.

To add one: a function in the file of its section, and its name in `SECTIONS`.

its name           what `nerve.report.plot` calls it
its docstring      a title, a blank line and the caption: what is shown, then what to look for
it takes           `ReportData`
it returns         a figure, and sentences with the numbers of these results, which end the caption
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

__all__ = [
    "FIGURES",
    "SECTIONS",
    "DrawnFigure",
    "NothingToDraw",
    "draw",
    "draw_with_caption",
    "function_of",
    "svg",
]

# One file per section, in the order of the page.
SECTIONS = {
    "findings": ("forest",),
    "prediction": ("scatter", "null_distribution", "learning_curves", "motion"),
    "comparison": ("comparison_matrix", "sweep"),
    "cohorts": ("cohort_overview", "group_mean_fc", "common_space", "likeness"),
    "pretraining": ("patch_layout", "loss_curves", "reconstruction", "reconstruction_error"),
    "interpretation": (
        "interpretation_weights",
        "interpretation_brain",
        "interpretation_attention",
        "interpretation_importance",
    ),
}


def _modules_of_figures() -> dict[str, str]:
    modules = {}
    for section, names in SECTIONS.items():
        for name in names:
            modules[name] = f"nerve.report.figures.{section}"
    return modules


# Figure → module.
FIGURES = _modules_of_figures()


@dataclass
class DrawnFigure:  # numpydoc ignore=PR02
    """A figure ready for a page.

    Parameters
    ----------
    name : str
        One of `FIGURES`.
    title, caption : str
        What stands below it.
    source : str
        The picture as a data: address.
    figure : Figure
        What it was made from.
    """

    name: str
    title: str
    caption: str
    source: str
    figure: Figure

    def shrink(self, dpi: int) -> None:
        """Replace the SVG by a PNG, if that is smaller."""
        stream = io.BytesIO()
        with mpl.rc_context(RC):
            self.figure.savefig(
                stream, format="png", dpi=dpi, facecolor="white", metadata={"Software": None}
            )
        png = _data_address("image/png", stream.getvalue())
        if len(png) < len(self.source):
            self.source = png


def function_of(name: str) -> Callable[[ReportData], tuple[Figure, str]]:
    """The function that draws one of `FIGURES`."""
    return getattr(import_module(FIGURES[name]), name)


def draw(name: str, results: ReportData) -> Figure:
    """Draw one of `FIGURES` in the style of the report."""
    with mpl.rc_context(RC):
        figure, _ = function_of(name)(results)
    return figure


def draw_with_caption(name: str, results: ReportData) -> DrawnFigure:
    """Draw one of `FIGURES` for a page, with its title and caption."""
    function = function_of(name)
    with mpl.rc_context(RC):
        figure, details = function(results)
    title, _, text = str(inspect.getdoc(function)).partition(".\n\n")
    caption = " ".join(f"{text} {details}".split())
    source = _data_address("image/svg+xml", svg(figure).encode())
    return DrawnFigure(name, title, caption, source, figure)


def svg(figure: Figure) -> str:
    """The figure as SVG; its ink turns light where the reader's screen is dark."""
    stream = io.StringIO()
    canvas = FigureCanvasSVG(figure)
    # As `savefig` does, which would draw everything twice to find the layout.
    with mpl.rc_context(RC):
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.set_dpi(110)
        canvas.print_svg(stream, metadata={"Date": None, "Creator": "nerve"})
    # Without comments and indentation it is a quarter smaller.
    text = re.sub(r"<!--.*?-->|^ +", "", stream.getvalue(), flags=re.DOTALL | re.MULTILINE)
    rules = ""
    for light, dark in DARK.items():
        for property_name in ("fill", "stroke"):
            selector = f'[style*="{property_name}: {light}"]'
            rules += f"{selector}{{{property_name}:{dark}!important}}"
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    start = text.index("<svg")
    end = text.index(">", start) + 1
    return f"{text[start:end]}{style}{text[end:]}"


def _data_address(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
