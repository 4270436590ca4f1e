"""Runs → one predictions table → scores, comparisons and the paper's table. Pure functions of what runs wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.evaluation.output import folds_table
from nerve.evaluation.permutation import benjamini_hochberg, permutation_p
from nerve.evaluation.statistics import COLUMNS, all_comparisons, motion_table, score_table
from nerve.experiments.plan import PERMUTED, Plan, Task
from nerve.experiments.store import DONE, FAILED
from nerve.experiments.workspace import Workspace
from nerve.files import read_tsv, write_text, write_tsv
from nerve.report.paper_table import build_table
from nerve.report.table_formats import to_csv, to_latex, to_markdown
from nerve.report.tables import extended_table


def collect(workspace: Workspace, plan: Plan) -> dict[str, Any]:
    """Write predictions.tsv, scores.tsv, comparisons.tsv, folds.tsv, runs.tsv and tables/ from the runs that are done.

    Returns the tables by name, and the `ResultsTable` under ``"table"``.
    """
    folder, config = workspace.folder, workspace.config
    runs = runs_table(workspace, plan)
    write_tsv(folder / "runs.tsv", runs)
    predictions = gather(workspace, plan)
    if predictions.empty:
        raise NerveError(f"{folder}: no run has made predictions; runs.tsv says why.")
    real, null = predictions[predictions["method"] != PERMUTED], predictions[predictions["method"] == PERMUTED]
    scores = _scores(workspace, plan, real)
    null_scores = score_table(null, n_bootstrap=0) if len(null) else null
    if len(null_scores):
        scores = _against_permuted(scores, null_scores)
    comparisons = _comparisons(workspace, real)
    adapted = adaptations(workspace, plan)
    failed = {(task.cohort, task.row) for task in plan.tasks if workspace.store.status(task.id) == FAILED}
    table = build_table(
        config.model_dump(mode="json"),
        scores,
        comparisons,
        null_scores,
        rows=plan.rows,
        groups=plan.groups,
        columns=[(name, target) for name, cohort in config.cohorts.items() for target in cohort.targets],
        adapted=adapted,
        failed=failed,
    )
    write_tsv(folder / "predictions.tsv", real)
    write_tsv(folder / "scores.tsv", scores)
    write_tsv(folder / "comparisons.tsv", comparisons)
    write_tsv(folder / "null_scores.tsv", null_scores) if len(null_scores) else None
    write_tsv(folder / "folds.tsv", _folds(workspace))
    for ending, text in {"md": to_markdown(table), "tex": to_latex(table), "csv": to_csv(table)}.items():
        write_text(folder / "tables" / f"table.{ending}", text)
    write_tsv(folder / "tables" / "extended.tsv", extended_table(scores))
    return {"table": table, "scores": scores, "comparisons": comparisons, "runs": runs, "null_scores": null_scores}


def gather(workspace: Workspace, plan: Plan) -> pd.DataFrame:
    """The predictions of all runs that are done, with the names of the rows that asked for them."""
    parts = []
    for task in plan.tasks:
        if task.kind == "encode" or workspace.store.status(task.id) != DONE:
            continue
        part = read_tsv(workspace.store.run_folder(task.id) / "predictions.tsv", dtype={"participant": str})
        parts.append(part.assign(cohort=task.cohort, method=task.row, variant=task.variant, seed=task.seed))
    if not parts:
        return pd.DataFrame(columns=[*COLUMNS, "observed_raw"])
    return pd.concat(parts, ignore_index=True)[[*COLUMNS, "observed_raw"]]


def runs_table(workspace: Workspace, plan: Plan) -> pd.DataFrame:
    """One row a run: id, kind, what it is, status, seconds, reason."""
    rows = []
    for task in plan.unique:
        manifest = workspace.store.manifest(task.id) or {}
        rows.append(
            {
                "id": task.id,
                "kind": task.kind,
                "run": task.label,
                "status": workspace.store.status(task.id),
                "seconds": manifest.get("seconds"),
                "reason": manifest.get("reason", ""),
            }
        )
    return pd.DataFrame(rows)


def adaptations(workspace: Workspace, plan: Plan) -> dict[tuple[str, str], str]:
    """(cohort, row) → the substitute that the method had to make there."""
    found = {}
    for task in plan.tasks:
        manifest = workspace.store.manifest(task.id) if task.cohort else None
        adapted = ((manifest or {}).get("result") or {}).get("adapted", "")
        if adapted:
            found[task.cohort, task.row] = adapted
    return found


def _scores(workspace: Workspace, plan: Plan, predictions: pd.DataFrame) -> pd.DataFrame:
    """Scores of every cohort, with permutation p where targets were permuted and the correlation with motion."""
    protocol = workspace.config.protocol
    parts = []
    for name, part in predictions.groupby("cohort", sort=False):
        people, settings = workspace.people(str(name))
        families = None if people.groups is None else dict(zip(people.ids, people.groups, strict=True))
        scores = score_table(part, protocol.n_bootstrap, protocol.seed, families)
        if settings.motion:
            motion = motion_table(part, dict(zip(people.ids, people.table[settings.motion], strict=True)))
            scores = scores.merge(motion, how="left")
        parts.append(scores)
    scores = pd.concat(parts, ignore_index=True)
    scores["p"] = [_target_p(workspace, plan, row) for row in scores.to_dict("records")]
    if scores["p"].notna().any():
        known = scores["p"].notna()
        for _, index in scores[known].groupby(["cohort", "method", "variant"], dropna=False).groups.items():
            scores.loc[index, "q"] = benjamini_hochberg(scores.loc[index, "p"])
    return scores


def _target_p(workspace: Workspace, plan: Plan, row: Mapping[Any, Any]) -> float:
    """Permutation p of a target, from the null that the run kept."""
    for task in plan.tasks:
        if _stands_in(task, row):
            path = workspace.store.run_folder(task.id) / "null.tsv"
            if path.is_file():
                return permutation_p(read_tsv(path)[row["target"]].to_numpy(float), row["r"])
    return float("nan")


def _stands_in(task: Task, row: Mapping[Any, Any]) -> bool:
    place = (task.cohort, task.row, task.variant, task.seed)
    return task.kind == "probe" and place == (row["cohort"], row["method"], row["variant"], row["seed"])


def _against_permuted(scores: pd.DataFrame, null_scores: pd.DataFrame) -> pd.DataFrame:
    """One-sided p of each model's r against the r of models with permuted networks."""
    null = {key: part["r"].to_numpy(float) for key, part in null_scores.groupby(["cohort", "target"])}
    p = [
        permutation_p(null[cohort, target], r) if (cohort, target) in null else np.nan
        for cohort, target, r in zip(scores["cohort"], scores["target"], scores["r"], strict=True)
    ]
    return scores.assign(p_permuted_networks=p)


def _comparisons(workspace: Workspace, predictions: pd.DataFrame) -> pd.DataFrame:
    protocol = workspace.config.protocol
    parts = []
    for name, part in predictions.groupby("cohort", sort=False):
        people, _ = workspace.people(str(name))
        families = None if people.groups is None else dict(zip(people.ids, people.groups, strict=True))
        parts.append(all_comparisons(part, protocol.n_bootstrap, protocol.seed, families))
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _folds(workspace: Workspace) -> pd.DataFrame:
    parts = [folds_table(workspace.people(name)[0]).assign(cohort=name) for name in workspace.config.cohorts]
    return pd.concat(parts, ignore_index=True)
