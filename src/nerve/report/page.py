"""report.html: one self-contained page, made from files, that opens from a mail attachment."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import shlex
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

import nerve
from nerve.cohort import Cohort
from nerve.files import write_text
from nerve.report.figures import Drawn
from nerve.report.load import load_results
from nerve.report.paper_table import paper_table
from nerve.report.privacy import Scrubber
from nerve.report.results import Results
from nerve.report.sections import (
    Section,
    cohorts_table,
    comparisons_table,
    encoders_table,
    exclusions_table,
    figures_of,
    interpretation_tables,
    paper_cells,
    provenance_tables,
    scores_table,
)
from nerve.report.words import citations

NAME = "report.html"
log = logging.getLogger("nerve.report")
BUDGET = 3_500_000  # characters of all figures; with tables the page stays below 5 MB


def write_report(folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None) -> Path:
    """Write report.html beside what it reads.

    Parameters
    ----------
    folder : path
        What `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote, complete or not.
    cohorts : mapping, optional
        Cohorts by name, where the folder does not say where they are.
    """
    path = Path(folder) / NAME
    write_text(path, page(load_results(folder, cohorts)))
    return path


def page(results: Results) -> str:
    """The page as text. Everything that comes from users is escaped by the template."""
    templates = files("nerve") / "report" / "templates"
    style, script = ((templates / name).read_text("utf-8") for name in ("style.css", "script.js"))
    environment = Environment(
        loader=DictLoader({"page": (templates / "page.html").read_text("utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # the page may run its own script and nothing else, and may fetch nothing at all
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    problems = list(results.problems)
    parts = {
        "sections": sections(results, problems),
        "citations": _part(problems, "citations", lambda: citations(results.config, results.kind), []),
        "command": _part(problems, "command", lambda: _command(results), ""),
        "settings_text": _part(problems, "settings", lambda: _settings_text(results), ""),
        "paragraphs": [_blocks(text) for text in results.methods_text],
        "headline": _part(problems, "headline", lambda: headline(results), []),
    }
    return environment.get_template("page").render(
        **parts,
        problems=problems,
        results=results,
        style=Markup(style),
        script=Markup(script),
        script_hash=digest,
        version=nerve.__version__,
    )


def _part(problems: list[str], name: str, make: Callable[[], Any], otherwise: Any) -> Any:
    """What `make` gives; damaged settings, or a fault of ours, must not cost the reader the rest of the page."""
    try:
        return make()
    except Exception as fault:
        log.debug("%s could not be made", name, exc_info=True)
        said = f"The part of {name} could not be made ({type(fault).__name__}): is a file damaged?"
        problems.append(said)
        return otherwise


def sections(results: Results, problems: list[str]) -> list[Section]:
    """The sections between methods and provenance; what cannot be made is added to the problems."""
    drawn = {name: figures_of(name, results) for name in _TITLES}
    small = _within_budget([figure for figures, _ in drawn.values() for figure in figures])
    makers: dict[str, Callable[[], list[Any]]] = {
        "cohorts": lambda: [cohorts_table(results), exclusions_table(results)],
        "pretraining": lambda: [encoders_table(list(results.encoders))],
        "prediction": lambda: [scores_table(results)],
        "comparison": lambda: [comparisons_table(results)],
        "interpretation": lambda: interpretation_tables(results),
    }
    tables = {name: _part(problems, f"tables of {name}", make, []) for name, make in makers.items()}
    paper = _part(problems, "the table of results", lambda: _paper(results), None)
    made = []
    for name, (title, lead) in _TITLES.items():
        figures, missing = drawn[name]
        kept = [table for table in tables[name] if table is not None]
        cells = paper if name == "prediction" else None
        figures = [small[figure.name] for figure in figures]
        made.append(Section(name, title, lead, figures, kept, missing, cells))
    provenance = _part(problems, "provenance", lambda: provenance_tables(results), [])
    made.append(Section("provenance", "Provenance", "", [], provenance))
    return made


def _paper(results: Results) -> dict[str, Any] | None:
    table = paper_table(results)
    return None if table is None else paper_cells(table)


def _within_budget(figures: list[Drawn]) -> dict[str, Drawn]:
    """Figures by name; the largest become images, one after another, until all fit a page that can be mailed."""
    kept = {figure.name: figure for figure in figures}
    for figure in sorted(figures, key=lambda one: len(one.source), reverse=True):
        if sum(len(one.source) for one in kept.values()) <= BUDGET:
            break
        image = figure.as_image()
        if len(image.source) < len(figure.source):
            kept[figure.name] = image
    return kept


def headline(results: Results) -> list[tuple[str, str]]:
    """The few numbers at the top."""
    found = []
    if results.cohorts:
        found.append((f"{sum(facts.n for facts in results.cohorts.values()):,}", "people"))
        found.append((str(len(results.cohorts)), "cohort" + "s" * (len(results.cohorts) > 1)))
    if results.columns:
        found.append((str(len(results.columns)), "target" + "s" * (len(results.columns) > 1)))
        found.append((str(len(results.models)), "method" + "s" * (len(results.models) > 1)))
    if len(results.runs) and "status" in results.runs.columns:
        counts = results.runs["status"].value_counts()
        found += [(str(number), f"runs {status}") for status, number in counts.items()]
    elif results.encoders and results.kind == "run":
        found.append((f"{len(results.encoders[0].history)}", "epochs"))
    return found


def _command(results: Results) -> str:
    command = {"experiment": "nerve experiment experiment.yaml --out DIR", "run": "nerve pretrain COHORT --out DIR"}
    if results.kind in command:
        return command[results.kind]
    settings = results.config.get("settings", {})
    features = ",".join(str(one["name"]) for one in results.config.get("features", []))
    words = ["nerve", "evaluate", "COHORT", "--features", features, "--targets", ",".join(settings.get("targets", []))]
    if settings.get("covariates"):
        words += ["--covariates", ",".join(settings["covariates"])]
    return shlex.join([*words, "--out", "DIR"])


def _settings_text(results: Results) -> str:
    """The resolved configuration as YAML, folders of cohorts left out."""
    if results.kind == "run":
        return _yaml(dict(results.encoders[0].settings)) if results.encoders else ""
    if not results.config:
        return ""
    cohorts = {
        name: {key: value for key, value in about.items() if key != "path"}
        for name, about in results.config.get("cohorts", {}).items()
    }
    shown = dict(results.config) | ({"cohorts": cohorts} if cohorts else {})
    return _yaml(shown)


def _yaml(content: dict[str, Any]) -> str:
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    return Scrubber([]).clean(text)


def _blocks(text: str) -> dict[str, object]:
    """A paragraph, or a list with the words that lead to it."""
    lines = text.splitlines()
    items = [line.removeprefix("- ").replace("**", "") for line in lines if line.startswith("- ")]
    return {"words": " ".join(line for line in lines if not line.startswith("- ")), "items": items}


_TITLES = {
    "cohorts": ("Cohorts", "Who was studied, who was left out, and whether regions stand in the order they should."),
    "pretraining": ("Pretraining", "What the encoders learned before they were asked to predict anything."),
    "prediction": ("Prediction", "How well behaviour is predicted in people whom the model has not seen."),
    "comparison": ("Comparison and ablations", "Which differences between methods and settings are more than chance."),
    "interpretation": ("Interpretation", "What the models rely on."),
}
