"""Paragraphs for a methods section, and what to cite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import pandas as pd

from nerve._utils.errors import listed
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.protocol_text import protocol_text, rows_on
from nerve.evaluation.rows import (
    SCOPES,
    SELF_SUPERVISED,
    SUPERVISED,
    Row,
    rows_of,
    setting_phrases,
    settings_in_words,
    settings_text,
)
from nerve.report.report_data import EncoderRun, ReportData

# Each is printed once, where a view other than FC itself is first named.
VIEWS = {
    "tangent": "Tangent view: the model reads how FC of a participant differs from FC of the group "
    "(in the tangent space of positive definite matrices), not FC itself.",
    "shrunk": "Shrunk view: the model reads how FC of a participant differs from FC of the group "
    "(in the tangent space of positive definite matrices); directions in which participants differ "
    "by little more than noise are shrunk towards the group.",
}
_SCOPE = "Scope: which of the test participants were in the pretraining data of a row."


def methods_text(results: ReportData) -> list[str]:
    """Paragraphs on what was compared, what was trained on whom, and how it was evaluated."""
    paragraphs = [
        _comparison_paragraph(results),
        _training_paragraph(results),
        *_protocol_paragraphs(results),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def scope_sentences(results: ReportData) -> list[str]:
    """What a scope is, then one sentence per scope: which rows have it, and in which cohorts."""
    if results.scores.empty or "scope" not in results.scores:
        return []
    pretrained = results.scores[results.scores["scope"] != "none"]
    places = pretrained[["scope", "cohort", "line"]].drop_duplicates()
    sentences = []
    for scope, words in SCOPES.items():
        of_scope = places[places["scope"] == scope]
        lines_of = of_scope.groupby("cohort", sort=False)["line"].agg(tuple).to_dict()
        for lines in dict.fromkeys(lines_of.values()):
            cohorts = [
                results.cohort_label(str(cohort))
                for cohort in lines_of
                if lines_of[cohort] == lines
            ]
            where = f" in {listed(cohorts, most=20)}" if len(results.cohorts) > 1 else ""
            names = "; ".join(results.name_in_table(line) for line in lines)
            sentences.append(f"{words[0].upper()}{words[1:]} (scope {scope}){where}: {names}.")
    return [_SCOPE, *sentences] if sentences else []


def view_sentences(rows: Sequence[Row]) -> list[str]:
    """What each view is that rows name, other than FC itself."""
    views = dict.fromkeys(row.view for row in rows)
    return [VIEWS[view] for view in views if view in VIEWS]


def learning_notices(encoders: Sequence[EncoderRun]) -> list[str]:
    """One sentence per warning about training, with all encoders that it is about."""
    labels: dict[str, list[str]] = {}  # warning → encoders
    for encoder in encoders:
        if encoder.warning:
            labels.setdefault(encoder.warning, []).append(encoder.label)
    return [f"{'; '.join(names)}: {warning}" for warning, names in labels.items()]


def run_text(config: Mapping[str, Any]) -> str:
    """A paragraph on a single training run, from its config.json."""
    parameters = config["parameters"]
    data = config["data"]
    cohorts = listed(data["cohorts"], most=20)
    view = parameters.get("view", "fc")
    text = f"{config['method']} was trained on {data['n_training']:,} participants of {cohorts}"
    if data["n_validation"]:
        text += f", with {data['n_validation']:,} more held out,"
    text += f" in {config['parcellation']['name']}"
    if view != "fc":
        text += f" on the {view} view"
    if "tokenizer" in parameters:
        text += (
            f" with the {parameters['tokenizer']} tokenizer, "
            f"{parameters['mask_ratio']:.0%} of the patches masked"
        )
    phrases = setting_phrases(config.get("differences") or {})
    settings = settings_in_words(str(config.get("preset") or ""), phrases)
    details = f"seed {parameters['seed']}"
    if settings:
        details = f"{settings}; {details}"
    text += f", for {parameters['epochs']} epochs in batches of {parameters['batch_size']}"
    text += f" ({details})."
    return f"{text} {VIEWS[view]}" if view in VIEWS else text


def citations(results: ReportData) -> list[dict[str, str]]:
    """Works to cite: papers of the methods, of the parcellation and of the statistics."""
    about = results.about
    known = json.loads((files("nerve") / "report/templates/citations.json").read_text("utf-8"))
    methods = dict.fromkeys([*results.rows["method"], about.get("method", "")])
    works = []
    if "nerve" in methods:
        works.append(known["nerve"])
    method_citations = about.get("citations") or {}
    for name in methods:
        if method_citations.get(name) and name != "nerve":
            works.append({"text": str(method_citations[name]), "bibtex": ""})
    keys = []
    if "schaefer" in str(about.get("parcellation", "")):
        keys += ["schaefer2018", "yeo2011"]
    if not results.is_run and len(results.scores):
        keys += ["he2020", "benjamini1995"]
    if any(protocol.get("combat") for protocol in about.get("protocols", {}).values()):
        keys.append("johnson2007")
    return works + [known[key] for key in keys]


def _paragraphs_of(markdown: str) -> list[str]:
    """Paragraphs of a Markdown text without its headings.

    Parameters
    ----------
    markdown : str
        Paragraphs, headings and lists.

    Returns
    -------
    list of str
        A list belongs to the paragraph before it.

    Examples
    --------
    >>> _paragraphs_of("# How\\n\\nWe did.\\n\\nRows:\\n\\n- a\\n- b\\n\\n- c\\n")
    ['We did.', 'Rows:\\n- a\\n- b\\n- c']
    """
    paragraphs: list[str] = []
    for block in markdown.split("\n\n"):
        text = block.strip()
        if text.startswith("- ") and paragraphs:
            paragraphs[-1] += f"\n{text}"
        elif text and not text.startswith("#"):
            paragraphs.append(text)
    return paragraphs


def _comparison_paragraph(results: ReportData) -> str:
    """What was compared on which cohorts; views and scopes are explained here, before their use."""
    verb = "compared" if len(results.lines) > 1 else "evaluated"
    labels = "; ".join(results.label(line) for line in results.lines.index)
    cohorts = results.cohorts.values()
    where = f"On {listed((facts.label for facts in cohorts), most=20)}"
    parcellation = results.about.get("parcellation")
    if parcellation:
        where += f", in the region order of {parcellation}"
    sentences = [
        f"{where}, we {verb}: {labels}.",
        *view_sentences(rows_of(results.lines)),
        *scope_sentences(results)[:1],
    ]
    simulated = [facts.label for facts in cohorts if facts.simulated]
    if simulated:
        sentences.append(f"Simulated, with a known answer: {listed(simulated, most=20)}.")
    return " ".join(sentences)


def _training_paragraph(results: ReportData) -> str:
    """What was trained: settings, view and width of each row, training cohorts, seeds."""
    lines = results.lines[results.lines["kind"].isin([SELF_SUPERVISED, SUPERVISED])]
    if lines.empty:
        return ""
    rows = rows_of(lines)
    before = [_describe(results, row) for row in rows if row.trained_before]
    here = [_describe(results, row) for row in rows if not row.trained_before]
    names_of: dict[str, list[str]] = {}  # cohorts that rows were trained on → names of the rows
    for row in rows:
        if row.trained_on:
            names_of.setdefault(row.trained_on, []).append(results.name_in_table(row.line))
    seeds = results.about.get("seeds", [])
    sentences = []
    if before:
        sentences.append(f"Trained before this evaluation: {'; '.join(before)}.")
    if here:
        sentences.append(f"Trained here: {'; '.join(here)}.")
    if names_of:
        pools = "; ".join(f"on {pool}: {', '.join(names)}" for pool, names in names_of.items())
        sentences.append(f"Encoders were pretrained without labels (cohort, participants) {pools}.")
    if seeds and here:
        sentences.append(f"{'Seed' if len(seeds) == 1 else 'Seeds'}: {listed(seeds)}.")
    return " ".join(sentences)


def _describe(results: ReportData, row: Row) -> str:
    """The name of a row, with all its settings."""
    details = [settings_text(row)]
    # Any other view is part of the name.
    if row.kind == SELF_SUPERVISED and row.view == "fc" and "view" not in row.settings:
        details.append("on FC itself")
    if row.width:
        details.append(f"{row.width} numbers per participant")
    words = "; ".join(detail for detail in details if detail)
    name = results.name(row.line)
    return f"{name} ({words})" if words else name


def _protocol_paragraphs(results: ReportData) -> list[str]:
    """How each cohort was evaluated; paragraphs that all cohorts share come once, at the end."""
    about = results.about
    scores = pd.concat([results.scores, results.null_scores])
    paragraphs_of_cohort = {}
    for name, protocol in about.get("protocols", {}).items():
        rows = rows_on(name, results.rows, scores)
        text = protocol_text(Protocol(**protocol), about["participants"][name], rows)
        paragraphs_of_cohort[name] = _paragraphs_of(text)
    if not paragraphs_of_cohort:
        return []
    shared = set.intersection(*map(set, paragraphs_of_cohort.values()))
    own = []
    for name, texts in paragraphs_of_cohort.items():
        start = f"{results.cohort_label(name)}: " if len(paragraphs_of_cohort) > 1 else ""
        own += [f"{start}{text}" for text in texts if text not in shared]
    first = next(iter(paragraphs_of_cohort.values()))
    return own + [text for text in first if text in shared]
