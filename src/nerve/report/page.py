"""The page report.html: one self-contained file, which can be mailed and opens in any browser."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

import nerve
from nerve._utils.files import check_may_write, record_written, write_text
from nerve._utils.privacy import Identifiers
from nerve.data.cohort import Cohort
from nerve.evaluation.rows import rows_of
from nerve.report.findings import find, shared_cautions
from nerve.report.glossary import TERMS, explain, link_terms, term_id
from nerve.report.load import load_results
from nerve.report.report_data import ReportData
from nerve.report.sections import make_sections
from nerve.report.tables import number
from nerve.report.words import citations

NAME = "report.html"


def write_report(
    folder: str | os.PathLike[str],
    cohorts: Mapping[str, Cohort] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write report.html beside what it reads.

    Parameters
    ----------
    folder : path
        What `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.
    cohorts : mapping, optional
        Cohorts by name, where they are not in the folder; the page then shows who took part and
        the mean FC.
    overwrite : bool
        Replace a report.html that was changed, or that nerve did not write.

    Returns
    -------
    Path
        The page.
    """
    path = Path(folder) / NAME
    check_may_write(path, overwrite=overwrite)
    write_text(path, render_page(load_results(folder, cohorts)))
    record_written(path)
    return path


def render_page(results: ReportData) -> str:
    """The page as text. Everything that comes from users is escaped by the template."""
    script = _template_text("script.js")
    # The page may run its own script and nothing else, and may fetch nothing at all.
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    works = citations(results)
    findings = find(results)
    return _template().render(
        sections=make_sections(results, has_citations=bool(works)),
        findings=findings,
        shared_cautions=shared_cautions(findings),
        terms=TERMS,
        citations=works,
        settings_text=_settings_text(results),
        counts=_counts_in_words(results),
        results=results,
        style=Markup(_template_text("style.css")),
        script=Markup(script),
        script_hash=script_hash,
        version=nerve.__version__,
    )


@functools.cache
def _template() -> Template:
    """The compiled page.html, made once per process."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["code"] = lambda text: _mark_code(escape(text))
    environment.filters["terms"] = lambda text: _mark_code(link_terms(text))
    environment.filters["explain"] = explain
    environment.filters["term_id"] = term_id
    environment.filters["number"] = number
    return environment.from_string(_template_text("page.html"))


def _template_text(name: str) -> str:
    return (files("nerve") / "report" / "templates" / name).read_text("utf-8")


def _mark_code(text: Markup) -> Markup:
    """Set words between backticks as code, in a text that is already escaped.

    Examples
    --------
    >>> _mark_code(escape("run `nerve check` <now>"))
    Markup('run <code>nerve check</code> &lt;now&gt;')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(text)))


def _counts_in_words(results: ReportData) -> str:
    """The line below the title: numbers of participants, cohorts, targets, methods and runs."""
    protocols = results.about.get("protocols", {})
    counts = {
        "participant": sum(facts.n for facts in results.cohorts.values()),
        "cohort": len(results.cohorts),
        "target": sum(len(protocol["targets"]) for protocol in protocols.values()),
        "method": len(results.lines),
        "epoch": 0,
    }
    if results.is_run and results.encoders:
        counts["epoch"] = len(results.encoders[0].history)
    phrases = []
    for word, count in counts.items():
        if count:
            plural = "" if count == 1 else "s"
            phrases.append(f"{count:,} {word}{plural}")
    if len(results.runs):
        for status, count in results.runs["status"].value_counts().items():
            plural = "" if count == 1 else "s"
            phrases.append(f"{count:,} run{plural} {status}")
    return " · ".join(phrases)


def _settings_text(results: ReportData) -> str:
    """The protocol of every cohort, or the settings of a training run, as YAML."""
    run_settings: Mapping[str, Any] = {}
    if results.is_run and results.encoders:
        run_settings = results.encoders[0].settings
    settings = json.loads(
        json.dumps(run_settings or results.about.get("protocols", {}), default=str)
    )
    if not settings:
        return ""
    # `pretrain_scope` is about encoders that are trained in this evaluation. Where none is, it
    # would contradict the scopes of the rows.
    trained_here = any(row.trained_on and not row.trained_before for row in rows_of(results.lines))
    if not run_settings and not trained_here:
        for protocol in settings.values():
            protocol.pop("pretrain_scope", None)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return Identifiers([]).removed_from(text)
