"""The report's figures, one function each, for notebooks and papers.

Each takes the folder of an experiment, an evaluation or a run, the `Results` of `nerve.evaluate`, or (where participants and FC are all that
is needed) a `Cohort`, and returns a matplotlib figure:

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


def results_of(source: Source) -> ReportData:
    """What a figure shows, from whatever it may be asked to show."""
    if isinstance(source, ReportData):
        return source
    if isinstance(source, Results):
        return ReportData.of(source)
    if isinstance(source, Cohort):
        return ReportData(title=source.name, cohorts={source.name: cohort_facts(source)})
    named = (
        isinstance(source, str)
        and not Path(source).exists()
        and source.partition("+")[0] in parcellation_names()
    )
    if named or isinstance(source, Parcellation):
        return ReportData(parcellation=load_parcellation(source))  # type: ignore[arg-type]
    if (Path(source) / "cohort.json").is_file():
        return results_of(Cohort.load(source))
    if not Path(source).is_dir():
        raise problem(
            source,
            "there is no such folder",
            expected="results, a cohort or the name of a parcellation",
        )
    return load_results(source)


def _figure(name: str) -> Callable[[Source], Figure]:
    def plot(source: Source) -> Figure:
        import matplotlib.pyplot  # noqa: F401 - with it, IPython shows a figure that a cell returns

        return draw(name, results_of(source))

    plot.__name__ = plot.__qualname__ = name
    plot.__doc__ = (
        f"{getdoc(function_of(name))}\n\nParameters\n----------\nsource : folder, Results or Cohort"
    )
    return plot


def __getattr__(name: str) -> Any:
    if name in FIGURES:
        return _figure(name)
    raise AttributeError(
        f"module 'nerve.report.plot' has no attribute {name!r}, it has {', '.join(FIGURES)}"
    )


def __dir__() -> list[str]:
    return [*FIGURES, "results_of"]
