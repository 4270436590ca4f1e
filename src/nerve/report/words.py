"""What was run, in words: paragraphs for a methods section, and what to cite."""

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
from nerve.evaluation.sites import site_verdict
from nerve.report.report_data import EncoderRun, ReportData


def methods_text(results: ReportData) -> list[str]:
    """Paragraphs on what was compared, what was trained on whom, and how each cohort was evaluated."""
    return [part for part in (_compared(results), _learned(results), *_protocols(results)) if part]


def seen(results: ReportData) -> list[str]:
    """A sentence per pretraining scope: which lines learned from whom, and in which cohorts."""
    if results.scores.empty or "scope" not in results.scores:
        return []
    places = results.scores.loc[
        results.scores["scope"] != "none", ["scope", "cohort", "line"]
    ].drop_duplicates()
    sentences = []
    for scope, words in SCOPES.items():
        of_cohort = (
            places[places["scope"] == scope]
            .groupby("cohort", sort=False)["line"]
            .agg(tuple)
            .to_dict()
        )
        for lines in dict.fromkeys(of_cohort.values()):
            where = [
                results.cohort_label(str(cohort))
                for cohort, theirs in of_cohort.items()
                if theirs == lines
            ]
            only = f" in {listed(where, most=20)}" if len(results.cohorts) > 1 else ""
            names = "; ".join(map(results.name_in_table, lines))
            sentences.append(f"{words[0].upper()}{words[1:]} (scope {scope}){only}: {names}.")
    return sentences


def site_notices(results: ReportData) -> list[str]:
    """A sentence per cohort and target whose best r lies, in good part, between sites."""
    if "r_within_site" not in results.scores:
        return []
    said = []
    for column in results.columns:
        if best := results.best(*column, among=results.lines.index):
            r, inside = (results.by_place[*column, best][name] for name in ("r", "r_within_site"))
            verdict = site_verdict(r, inside)
            words = f"{results.column_name(*column)}: r = {r:.2f} of {results.label(best)} is {inside:.2f} within sites"
            said += [f"{words}: {verdict}."] if "between" in verdict else []
    return said


def learning_notices(encoders: Sequence[EncoderRun]) -> list[str]:
    """A sentence on encoders whose training has learned next to nothing; those with the same error share one."""
    labels: dict[str, list[str]] = {}
    for encoder in encoders:
        if encoder.doubt:
            labels.setdefault(encoder.doubt, []).append(encoder.label)
    return [f"{'; '.join(names)}: {doubt}" for doubt, names in labels.items()]


def run_text(config: Mapping[str, Any]) -> str:
    """A paragraph on a single training run."""
    given, data, pool = (
        config["parameters"],
        config["data"],
        listed(config["data"]["cohorts"], most=20),
    )
    said = f"{config['method']} was trained on {data['n_training']:,} participants of {pool}"
    said += f", with {data['n_validation']:,} more held out," if data["n_validation"] else ""
    said += f" in {config['parcellation']['name']}"
    said += f" on the {given['view']} view" if given.get("view", "fc") != "fc" else ""
    if "tokenizer" in given:
        said += f" with the {given['tokenizer']} tokenizer, {given['mask_ratio']:.0%} of the patches masked"
    settings = settings_in_words(
        str(config.get("preset") or ""), setting_phrases(config.get("differences") or {})
    )
    how = "; ".join(part for part in (settings, f"seed {given['seed']}") if part)
    return f"{said}, for {given['epochs']} epochs in batches of {given['batch_size']} ({how})."


def citations(results: ReportData) -> list[dict[str, str]]:
    """What these results rest on: the paper of each method that is in them, the parcellation, the statistics."""
    about, methods = (
        results.about,
        list(dict.fromkeys([*results.rows["method"], results.about.get("method", "")])),
    )
    known = json.loads((files("nerve") / "report/templates/citations.json").read_text("utf-8"))
    works = [known["nerve"]] if "nerve" in methods else []
    theirs = about.get("citations") or {}
    works += [
        {"text": str(theirs[name]), "bibtex": ""}
        for name in methods
        if theirs.get(name) and name != "nerve"
    ]
    used = {
        "schaefer2018 yeo2011": "schaefer" in str(about.get("parcellation", "")),
        "he2020 benjamini1995": not results.is_run and len(results.scores),
        "johnson2007": any(
            protocol.get("combat") for protocol in about.get("protocols", {}).values()
        ),
    }
    return works + [known[key] for keys, are in used.items() if are for key in keys.split()]


def blocks(markdown: str) -> list[str]:
    """Paragraphs of a Markdown text without its headings; a list stays with the words that lead to it.

    Examples
    --------
    >>> blocks("# How\\n\\nWe did.\\n\\nRows:\\n\\n- a\\n- b\\n\\n- c\\n")
    ['We did.', 'Rows:\\n- a\\n- b\\n- c']
    """
    found: list[str] = []
    for block in filter(None, (block.strip() for block in markdown.split("\n\n"))):
        if block.startswith("- ") and found:
            found[-1] += f"\n{block}"
        elif not block.startswith("#"):
            found.append(block)
    return found


def _compared(results: ReportData) -> str:
    lines, cohorts = list(results.lines.index), results.cohorts.values()
    said = (
        f"We {'compared' if len(lines) > 1 else 'evaluated'} {'; '.join(map(results.label, lines))}"
    )
    said += f" on {listed((facts.label for facts in cohorts), most=20)}"
    regions = results.about.get("parcellation")
    said += f", in the region order of {regions}." if regions else "."
    simulated = [facts.label for facts in cohorts if facts.simulated]
    return said + (
        f" Simulated, with a known answer: {listed(simulated, most=20)}." if simulated else ""
    )


def _learned(results: ReportData) -> str:
    """What was trained, where and on whom: settings, view and width of each line, the cohorts and the seeds."""
    lines = results.lines[results.lines["kind"].isin([SELF_SUPERVISED, SUPERVISED])]
    if lines.empty:
        return ""
    rows = rows_of(lines)
    before = [_described(results, row) for row in rows if is_given(row)]
    here = [_described(results, row) for row in rows if not is_given(row)]
    pools: dict[str, list[str]] = {}  # what was trained on → lines
    for row in rows:
        if row.trained_on:
            pools.setdefault(row.trained_on, []).append(results.name_in_table(row.line))
    on = "; ".join(f"on {pool}: {', '.join(names)}" for pool, names in pools.items())
    seeds = results.about.get("seeds", [])
    parts = {
        f"Trained before this evaluation: {'; '.join(before)}.": before,
        f"Trained here: {'; '.join(here)}.": here,
        f"Encoders were pretrained without labels (cohort, participants) {on}.": on,
        f"Seed{'s' * (len(seeds) > 1)}: {listed(seeds)}.": seeds and here,
    }
    return " ".join(sentence for sentence, holds in parts.items() if holds)


def is_given(row: Row) -> bool:
    """Whether a row is of a trained model, or a table, that the user has given: nothing of it was trained here."""
    return row.given


def _described(results: ReportData, row: Row) -> str:
    """A line with all its settings."""
    view_is_unsaid = (
        row.view == "fc" and "view" not in row.settings
    )  # any other is part of the name
    parts = {
        settings_text(row): True,
        f"{row.view} view": row.kind == SELF_SUPERVISED and view_is_unsaid,
        f"{row.width} numbers per participant": row.width,
    }
    details = "; ".join(part for part, holds in parts.items() if part and holds)
    return f"{results.name(row.line)} ({details})" if details else results.name(row.line)


def _protocols(results: ReportData) -> list[str]:
    """How each cohort was evaluated; what is the same for all is said once."""
    about = results.about
    told = {}
    for name, protocol in about.get("protocols", {}).items():
        scores = pd.concat([results.scores, results.null_scores])
        rows = rows_on(name, results.rows, scores)
        text = protocol_text(Protocol(**protocol), about["participants"][name], rows)
        told[name] = blocks(text)
    shared = set.intersection(*map(set, told.values())) if told else set()
    own = [f"{results.cohort_label(name)}: {block}" if len(told) > 1 else block
           for name, theirs in told.items() for block in theirs if block not in shared]  # fmt: skip
    return own + [block for block in next(iter(told.values()), []) if block in shared]
