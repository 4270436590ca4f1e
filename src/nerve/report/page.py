"""report.html: one self-contained page, made from files, that opens from a mail attachment."""

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

import yaml
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

import nerve
from nerve._utils.files import check_may_write, record_written, write_text
from nerve._utils.privacy import Identifiers
from nerve.data.cohort import Cohort
from nerve.evaluation.rows import rows_of
from nerve.report.load import load_results
from nerve.report.report_data import ReportData
from nerve.report.sections import sections
from nerve.report.tables import number
from nerve.report.words import citations, is_given

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
        Cohorts by name, where they are not in the folder: they add who took part and the mean FC.
    overwrite : bool
        Replace a report.html that is not as nerve wrote it.

    Returns
    -------
    Path
        The page.
    """
    path = Path(folder) / NAME
    check_may_write(path, overwrite=overwrite)
    write_text(path, page(load_results(folder, cohorts)))
    record_written(path)
    return path


def page(results: ReportData) -> str:
    """The page as text. Everything that comes from users is escaped by the template."""
    style, script = _text("style.css"), _text("script.js")
    # the page may run its own script and nothing else, and may fetch nothing at all
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template().render(
        sections=sections(results),
        citations=citations(results),
        settings_text=_settings_text(results),
        headline=headline(results),
        results=results,
        style=Markup(style),
        script=Markup(script),
        script_hash=digest,
        version=nerve.__version__,
    )


@functools.cache
def template() -> Template:
    """page.html, compiled once per process."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"code": with_code, "number": number}
    return environment.from_string(_text("page.html"))


def _text(name: str) -> str:
    return (files("nerve") / "report" / "templates" / name).read_text("utf-8")


def with_code(text: object) -> Markup:
    """Text with what stands between backticks set as code; everything in it is escaped.

    Examples
    --------
    >>> with_code("run `nerve check` <now>")
    Markup('run <code>nerve check</code> &lt;now&gt;')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def headline(results: ReportData) -> list[tuple[str, str]]:
    """The few numbers at the top."""
    counts = {
        "participant": sum(facts.n for facts in results.cohorts.values()),
        "cohort": len(results.cohorts),
        "target": sum(len(one["targets"]) for one in results.about.get("protocols", {}).values()),
        "method": len(results.lines),
        "epoch": len(results.encoders[0].history) if results.is_run and results.encoders else 0,
    }
    found = [(f"{count:,}", word + "s" * (count != 1)) for word, count in counts.items() if count]
    if len(results.runs):
        ended = results.runs["status"].value_counts()
        found += [
            (f"{count:,}", f"run{'s' * (count != 1)} {status}") for status, count in ended.items()
        ]
    return found


def _settings_text(results: ReportData) -> str:
    """The protocol of every cohort, or the settings of a training run, as YAML."""
    of_run = results.encoders[0].settings if results.is_run and results.encoders else {}
    shown = json.loads(json.dumps(of_run or results.about.get("protocols", {}), default=str))
    # it says how encoders are trained here: where all were given, their own scope stands beside them
    trained_here = any(row.trained_on and not is_given(row) for row in rows_of(results.lines))
    for protocol in shown.values() if shown and not of_run and not trained_here else ():
        protocol.pop("pretrain_scope", None)
    text = (
        yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, default_flow_style=None)
        if shown
        else ""
    )
    return Identifiers([]).removed_from(text)
