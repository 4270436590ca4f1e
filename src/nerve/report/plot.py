"""The report's figures, one function each, for notebooks and papers.

Each takes the folder of an experiment, an evaluation or a run, the `Results` of `nerve.evaluate`,
or (where participants and FC are all that is needed) a `Cohort`, and returns a matplotlib figure:

    nerve.plot.forest("out/demo").savefig("forest.pdf")
    nerve.plot.group_mean_fc(cohort)
    nerve.plot.patch_layout("schaefer400-17")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nerve._utils.errors import problem
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation, load_parcellation, parcellation_names
from nerve.evaluation.results import Results
from nerve.report.figures import FIGURES, draw, function_of
from nerve.report.load import load_results
from nerve.report.report_data import ReportData, cohort_facts

Source = ReportData | Results | Cohort | Parcellation | str | os.PathLike[str]


def as_report_data(source: Source) -> ReportData:
    """Make what figures read from any of the objects that they accept.

    Parameters
    ----------
    source : ReportData, Results, Cohort, Parcellation, path or str
        A path is a folder of results or a cohort; a str may also be the name of a parcellation.

    Returns
    -------
    ReportData
        What the figures read.
    """
    if isinstance(source, ReportData):
        return source
    if isinstance(source, Results):
        return ReportData.from_results(source)
    if isinstance(source, Cohort):
        return ReportData(title=source.name, cohorts={source.name: cohort_facts(source)})
    if isinstance(source, Parcellation):
        return ReportData(parcellation=source)
    path = Path(source)
    name = str(source)
    if not path.exists() and name.partition("+")[0] in parcellation_names():
        return ReportData(parcellation=load_parcellation(name))
    if (path / "cohort.json").is_file():
        return as_report_data(Cohort.load(path))
    if not path.is_dir():
        raise problem(
            source,
            "there is no such folder",
            expected="results, a cohort or the name of a parcellation",
        )
    return load_results(path)


def _plot_function(name: str) -> Callable[[Source], Figure]:
    """The function `nerve.plot.NAME`, documented by the caption of its figure."""

    def plot(source: Source) -> Figure:
        import matplotlib.pyplot  # noqa: F401 - with it, IPython shows a figure that a cell returns

        return draw(name, as_report_data(source))

    plot.__name__ = name
    plot.__qualname__ = name
    caption = getdoc(function_of(name))
    plot.__doc__ = f"{caption}\n\nParameters\n----------\nsource : folder, Results or Cohort"
    return plot


def __getattr__(name: str) -> Any:
    if name in FIGURES:
        return _plot_function(name)
    raise AttributeError(
        f"module 'nerve.report.plot' has no attribute {name!r}, it has {', '.join(FIGURES)}"
    )


def __dir__() -> list[str]:
    return [*FIGURES, "as_report_data"]
