"""report.html: one self-contained page, made from files, that opens from a mail attachment."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

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
    Table,
    checks_table,
    cohorts_table,
    comparisons_table,
    encoders_table,
    exclusions_table,
    figures_of,
    interpretation_tables,
    provenance_tables,
    scores_table,
)
from nerve.report.tables import number
from nerve.report.words import citations

NAME = "report.html"
BUDGET = 3_500_000  # characters of all figures; with tables the page stays below 5 MB


def write_report(folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None) -> Path:
    """Write report.html beside what it reads.

    Parameters
    ----------
    folder : path
        What `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.
    cohorts : mapping, optional
        Cohorts by name, where they are not in the folder: they add who took part and the mean FC.
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
    environment.filters |= {"code": with_code, "number": number}
    # the page may run its own script and nothing else, and may fetch nothing at all
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page").render(
        sections=sections(results),
        citations=citations(results),
        command=results.about.get("command", ""),
        settings_text=_settings_text(results),
        paragraphs=[_block(text) for text in results.methods_text],
        headline=headline(results),
        results=results,
        style=Markup(style),
        script=Markup(script),
        script_hash=digest,
        version=nerve.__version__,
    )


def with_code(text: object) -> Markup:
    """Text with what stands between backticks set as code; everything in it is escaped.

    Examples
    --------
    >>> with_code("run `nerve check` <now>")
    Markup('run <code>nerve check</code> &lt;now&gt;')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def sections(results: Results) -> list[Section]:
    """The sections between methods and provenance."""
    drawn = {name: figures_of(name, results) for name in _TITLES}
    small = _within_budget([figure for figures, _ in drawn.values() for figure in figures])
    tables: dict[str, list[Table | None]] = {
        "cohorts": [cohorts_table(results), exclusions_table(results), checks_table(results)],
        "pretraining": [encoders_table(results)],
        "prediction": [scores_table(results)],
        "comparison": [comparisons_table(results)],
        "interpretation": [*interpretation_tables(results)],
    }
    paper = paper_table(results)
    made = []
    for name, (title, lead) in _TITLES.items():
        figures, missing = drawn[name]
        kept = [table for table in tables[name] if table is not None]
        of_paper = paper if name == "prediction" else None
        made.append(Section(name, title, lead, [small[figure.name] for figure in figures], kept, missing, of_paper))
    return [*made, Section("provenance", "Provenance", "", [], provenance_tables(results))]


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
    counts = {
        "participant": sum(facts.n for facts in results.cohorts.values()),
        "cohort": len(results.cohorts),
        "target": len([name for name in results.columns if not results.is_class(*name)]),
        "method": len(results.lines),
        "epoch": len(results.encoders[0].history) if results.is_run and results.encoders else 0,
    }
    found = [(f"{count:,}", word + "s" * (count != 1)) for word, count in counts.items() if count]
    if len(results.runs):
        ended = results.runs["status"].value_counts()
        found += [(f"{count:,}", f"run{'s' * (count != 1)} {status}") for status, count in ended.items()]
    return found


def _settings_text(results: Results) -> str:
    """The protocol of every cohort, or the settings of a training run, as YAML."""
    shown = results.about.get("protocols", {})
    if results.is_run and results.encoders:
        shown = dict(results.encoders[0].settings)
    if not shown:
        return ""
    plain = json.loads(json.dumps(shown, default=str))
    return Scrubber([]).clean(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=None))


def _block(text: str) -> dict[str, object]:
    """A paragraph, or a list with the words that lead to it."""
    lines = text.splitlines()
    items = [line.removeprefix("- ").replace("**", "") for line in lines if line.startswith("- ")]
    return {"words": " ".join(line for line in lines if not line.startswith("- ")), "items": items}


_TITLES = {
    "cohorts": ("Cohorts", "Who was studied, who was left out, and whether regions stand in the order they should."),
    "pretraining": ("Pretraining", "What the encoders learned before they were asked to predict anything."),
    "prediction": ("Prediction", "How well targets are predicted in participants whom the model has not seen."),
    "comparison": ("Comparison and ablations", "Which differences between methods and settings are more than chance."),
    "interpretation": ("Interpretation", "What the models rely on."),
}
