"""The paper's table from what a folder holds: the experiment's file says rows, columns and names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nerve.report.results import Results
from nerve.report.tables import ResultsTable, results_table

FIRST_COLUMN = {"methods": "Method", "tokenizers": "Tokenizer", "parcellations": "Parcellation"}
PERMUTED = "Permutation"


SCOPES = {"all": "all people, unlabelled", "train_folds": "training folds only"}


def paper_table(results: Results) -> ResultsTable | None:
    """The table of a loaded folder, or None where nothing was predicted."""
    if results.scores.empty or not {"r", "r_half_width"} <= set(results.scores.columns):
        return None
    return build_table(
        results.config,
        results.scores,
        results.comparisons,
        results.null_scores,
        rows=list(results.groups),
        groups=results.groups,
        columns=_columns(results),
        adapted=_by_place(results.facts.get("adapted", {}), results),
        failed=set(_by_place(_failed(results), results)),
    )


def build_table(
    config: Mapping[str, Any],
    scores: pd.DataFrame,
    comparisons: pd.DataFrame,
    null_scores: pd.DataFrame,
    *,
    rows: Sequence[str] = (),
    groups: Mapping[str, str] | None = None,
    columns: Sequence[tuple[str, str]] | None = None,
    adapted: Mapping[tuple[str, str], str] | None = None,
    failed: Collection[tuple[str, str]] = (),
) -> ResultsTable:
    """The table of an experiment's layout, from its file (as a mapping) and what was scored."""
    signed = config.get("layout") == "parcellations"
    rows = list(rows) or list(dict.fromkeys(scores["method"]))
    daggers = spreads = None
    if len(null_scores):
        over_models = null_scores.groupby(["cohort", "target", "method"], sort=False)["r"].agg(["mean", "std"])
        spreads = over_models.rename(columns={"mean": "r", "std": "spread"}).fillna({"spread": 0.0}).reset_index()
        scores = pd.concat([scores, spreads.assign(variant="", r_half_width=np.nan)], ignore_index=True)
        if "p_permuted_networks" in scores:
            daggers = scores.rename(columns={"p": "p_target", "p_permuted_networks": "p"}).dropna(subset=["p"])
        rows = [PERMUTED, *(row for row in rows if row != PERMUTED)]
    best = comparisons[comparisons["best_two"]] if "best_two" in comparisons and not signed else None
    scope = (config.get("protocol") or {}).get("pretrain_scope")
    return results_table(
        scores,
        best,
        rows=rows,
        groups=groups,
        columns=columns,
        names=_names(config),
        daggers=daggers,
        spreads=spreads,
        adapted=adapted,
        failed=failed,
        title=str(config.get("title") or ""),
        signed=signed,
        first_column=FIRST_COLUMN.get(str(config.get("layout")), "Method"),
        notes=[f"Encoders were pretrained on {SCOPES[scope]} (pretrain_scope: {scope})."] if scope in SCOPES else [],
    )


def _columns(results: Results) -> list[tuple[str, str]]:
    asked = [(str(n), str(t)) for n, about in results.config.get("cohorts", {}).items() for t in about["targets"]]
    return asked or results.columns


def _names(config: Mapping[str, Any]) -> dict[str | tuple[str, str], str]:
    names: dict[str | tuple[str, str], str] = {}
    for name, about in config.get("cohorts", {}).items():
        names[name] = str(about.get("label") or name)
        names |= {(name, target): str(label) for target, label in (about.get("target_labels") or {}).items()}
    return names


def _failed(results: Results) -> dict[str, str]:
    runs = results.runs
    if runs.empty or "status" not in runs.columns:
        return {}
    failed = runs[runs["status"] == "failed"]
    return dict(zip(failed["run"], failed["reason"], strict=True))


def _by_place(runs: Mapping[str, str], results: Results) -> dict[tuple[str, str], str]:
    """What a run is called → (cohort, row) of the table that it belongs to."""
    found = {}
    for label, text in runs.items():
        words = label.partition(" ")[2].split(" · ")
        for cohort in results.config.get("cohorts", {}):
            if cohort in words[1:]:
                found[str(cohort), words[0]] = text
    return found
