"""Figures, one per file. To add one: a module here with the four names below, and one line in `FIGURES`.

SECTION                       cohorts, pretraining, prediction, comparison or interpretation
TITLE                         what it shows, in a few words
caption(results) -> str       what is shown, then what to look for
draw(results) -> Figure       raises `NothingToDraw`, with a sentence, where the results lack what it shows
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from nerve.checks import one_of
from nerve.report.figures.style import DARK, RC
from nerve.report.results import NothingToDraw, Results

__all__ = ["FIGURES", "Drawn", "NothingToDraw", "draw", "drawn", "svg"]

# name -> module, in the order of the page
FIGURES = {
    name: f"nerve.report.figures.{name}"
    for name in (
        *("cohort_overview", "group_mean_fc", "likeness"),
        *("patch_layout", "loss_curves", "reconstruction", "reconstruction_error"),
        *("forest", "scatter", "null_distribution", "learning_curves", "motion"),
        *("comparison_matrix", "sweep"),
        *("interpretation_weights", "interpretation_brain", "interpretation_attention", "interpretation_importance"),
    )
}


@dataclass(frozen=True)
class Drawn:
    """A figure ready for a page."""

    name: str
    title: str
    caption: str
    source: str  # a data: address
    figure: Figure

    def as_image(self) -> Drawn:
        """The same as a PNG, for a page that would be too large otherwise."""
        stream = io.BytesIO()
        with mpl.rc_context(_known(RC)):
            self.figure.savefig(stream, format="png", dpi=120, facecolor="white", metadata={"Software": None})
        return replace(self, source=_address("image/png", stream.getvalue()))


def draw(name: str, results: Results) -> Figure:
    """Draw one of `FIGURES` in the style of the report."""
    module = import_module(FIGURES[one_of("figure", name, list(FIGURES))])
    with mpl.rc_context(_known(RC)):
        return module.draw(results)


def drawn(name: str, results: Results) -> Drawn:
    """Draw a figure with its title and caption."""
    module = import_module(FIGURES[name])
    figure = draw(name, results)
    source = _address("image/svg+xml", svg(figure).encode())
    return Drawn(name, module.TITLE, module.caption(results), source, figure)


def svg(figure: Figure) -> str:
    """The figure as SVG whose ink turns light where the reader's screen is dark."""
    stream = io.StringIO()
    with mpl.rc_context(_known(RC)):
        _arrange(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": "nerve"}, dpi=110)
    text = re.sub(r"<!--.*?-->|^ +", "", stream.getvalue(), flags=re.DOTALL | re.MULTILINE)  # a quarter smaller
    start = text.index("<svg")
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    end = text.index(">", start) + 1
    return f"{text[start:end]}<style>@media (prefers-color-scheme:dark){{{rules}}}</style>{text[end:]}"


def _arrange(figure: Figure) -> None:
    """Give panels and words their places now; `savefig` would draw the whole figure once more in order to."""
    engine = figure.get_layout_engine()
    if engine is not None:
        FigureCanvasSVG(figure)  # letters are as wide as in the SVG
        engine.execute(figure)
        figure.set_layout_engine("none")


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _known(settings: Mapping[str, Any]) -> Any:
    """The settings that this matplotlib knows."""
    return {name: value for name, value in settings.items() if name in mpl.rcParams}
