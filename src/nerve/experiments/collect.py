"""Runs → the results folder: rows, predictions, scores, comparisons and the paper's table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.evaluation.permutation import adjusted_p, permutation_p
from nerve.evaluation.protocol_text import participants_summary, protocol_text
from nerve.evaluation.results import ResultsFolder, write_results
from nerve.evaluation.rows import GIVEN, NULL, REFERENCE, SELF_SUPERVISED, rows_table
from nerve.evaluation.sites import site_table
from nerve.evaluation.statistics import all_comparisons, motion_table, score_table, with_lines
from nerve.experiments.plan import Plan, Task
from nerve.experiments.store import DONE, versions
from nerve.experiments.work import FromModel
from nerve.experiments.workspace import Workspace
from nerve.files import read_tsv, write_markdown, write_tsv
from nerve.report.privacy import Scrubber

PLACE = ["cohort", "target", "row"]


def collect(workspace: Workspace, plan: Plan, command: str = "") -> ResultsFolder:
    """Write the results folder from the runs that are done; runs.tsv says how each run stands."""
    folder = workspace.folder
    write_tsv(folder / "runs.tsv", runs_table(workspace, plan))
    done = [task for task in plan.tasks if task.cohort and workspace.store.status(task.id) == DONE]
    if not done:
        raise NerveError(f"{folder}: no run has made predictions; runs.tsv says why.")
    rows = rows_table(_described_rows(workspace, plan))
    predictions = _gathered(workspace, done, "predictions.tsv")
    null = predictions["row"].isin(rows.loc[rows["kind"] == NULL, "row"])
    nulls = _gathered(workspace, done, "null.tsv")
    scores = _scores(workspace, predictions[~null], nulls, _by_place(workspace, done))
    if null.any():
        permuted = score_table(predictions[null], n_bootstrap=0)
        scores = pd.concat([_against_permuted(scores, permuted), permuted], ignore_index=True)
    results = ResultsFolder(
        about=_about(workspace, plan, command),
        rows=rows,
        cohorts=_cohorts(workspace, plan),
        folds=_folds(workspace),
        predictions=predictions[~null].reset_index(drop=True),
        scores=scores,
        comparisons=_comparisons(workspace, predictions[~null], rows),
    )
    for name, table in (("nulls", nulls), ("curves", _gathered(workspace, done, "curve.tsv"))):
        if len(table):
            setattr(results, name, table)
    while True:  # another process may be writing the same results
        with workspace.store.lock("results") as mine:
            if mine:
                write_results(folder, results)
                _write_texts(workspace, results)
                return results
        workspace.store.wait_for(["results"])


def _write_texts(workspace: Workspace, results: ResultsFolder) -> None:
    """protocol.md and the paper's table in three formats, made from the same tables."""
    from nerve.report.table_formats import write_tables

    texts = []
    for name, protocol in results.about["protocols"].items():
        scopes = results.scores[results.scores["cohort"] == name].groupby("row")["scope"].first()
        rows = results.rows.assign(scope=results.rows["row"].map(scopes).fillna(results.rows["scope"]))
        given = workspace.config.protocol_of(name)
        known = {key: value for key, value in protocol.items() if hasattr(given, key)}
        texts.append(protocol_text(replace(given, **known), results.about["participants"][name], rows))
    write_markdown(workspace.folder / "protocol.md", "\n".join(texts))
    write_tables(workspace.folder)


def runs_table(workspace: Workspace, plan: Plan) -> pd.DataFrame:
    """One row per run: id, kind, line, cohort, target, what it is, status, seconds, reason."""
    rows = []
    for task in plan.unique:
        manifest = workspace.store.manifest(task.id) or {}
        rows.append(
            {
                "id": task.id,
                "kind": task.work.kind,
                "line": task.row.line,
                "cohort": task.cohort,
                "target": task.work.target,
                "run": task.label,
                "status": workspace.store.status(task.id),
                "seconds": manifest.get("seconds"),
                "reason": manifest.get("reason", ""),
            }
        )
    return pd.DataFrame(rows)


def _described_rows(workspace: Workspace, plan: Plan) -> list[Any]:
    """The rows, with what their runs found out: width, time, scope, substitutes."""
    results: dict[str, list[dict[str, Any]]] = {}
    for task in plan.tasks:
        manifest = workspace.store.manifest(task.id)
        if manifest is not None and manifest["status"] == DONE:
            results.setdefault(task.row.row, []).append(manifest["result"] | {"seconds": manifest["cpu_seconds"]})
    rows = []
    for row in plan.rows:
        found = results.get(row.row, [])
        adapted = "; ".join(dict.fromkeys(one["adapted"] for one in found if one.get("adapted")))
        scopes = [one["scope"] for one in found if "scope" in one]
        rows.append(
            replace(
                row,
                width=max((one.get("width", 0) for one in found), default=0),
                seconds=round(sum(one["seconds"] for one in found), 2),
                scope=scopes[0] if scopes else row.scope,
                adapted=adapted,
            )
        )
    return rows


def _gathered(workspace: Workspace, done: list[Task], name: str) -> pd.DataFrame:
    """One table of all runs that wrote it, with the row that asked for it."""
    parts = []
    for task in done:
        path = workspace.store.run_folder(task.id) / name
        if path.is_file():
            part = read_tsv(path, dtype={"participant": str, "target": str})
            parts.append(part.assign(cohort=task.cohort, row=task.row.row))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    if "whole" in table:
        table["whole"] = table["whole"].fillna("")
    return table[[*PLACE, *(column for column in table.columns if column not in PLACE)]]


def _by_place(workspace: Workspace, done: list[Task]) -> pd.DataFrame:
    """cohort, row → whom its encoder had seen, what it substituted there, how well it tells sites apart."""
    rows = []
    for task in done:
        result = (workspace.store.manifest(task.id) or {})["result"]
        known = {name: result.get(name) for name in ("scope", "adapted", "site_accuracy")}
        rows.append({"cohort": task.cohort, "row": task.row.row, **known})
    return pd.DataFrame(rows).drop_duplicates(["cohort", "row"])


def _scores(workspace: Workspace, predictions: pd.DataFrame, nulls: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Scores of every cohort, with permutation p where targets were permuted and the correlation with motion."""
    parts = []
    for name, part in predictions.groupby("cohort", sort=False):
        people, protocol = workspace.people(str(name))
        scores = score_table(part, protocol.n_bootstrap, protocol.seed, _families(people))
        if people.motion:
            motion = motion_table(part, dict(zip(people.ids, people.table[people.motion], strict=True)))
            scores = scores.merge(motion, how="left", on=PLACE)
        if people.sites is not None and len(set(people.sites)) > 1:
            inside = site_table(part, dict(zip(people.ids, people.sites, strict=True)))
            scores = scores.merge(inside, how="left", on=PLACE)
        parts.append(scores)
    scores = pd.concat(parts, ignore_index=True).merge(places, how="left", on=["cohort", "row"])
    scores = scores[[*PLACE, "scope", "adapted", *scores.columns.difference([*PLACE, "scope", "adapted"], sort=False)]]
    if nulls.empty:
        return scores
    null = {key: part["r"].to_numpy(float) for key, part in nulls.groupby(PLACE)}
    keys = zip(*(scores[column] for column in PLACE), scores["r"], strict=True)
    scores["p"] = [permutation_p(null[key[:3]], key[3]) if key[:3] in null else np.nan for key in keys]
    scores["q"] = scores["p"].groupby([scores["cohort"], scores["row"]]).transform(adjusted_p)
    return scores


def _against_permuted(scores: pd.DataFrame, permuted: pd.DataFrame) -> pd.DataFrame:
    """One-sided p of each row's r against the r of models with permuted networks."""
    null = {key: part["r"].to_numpy(float) for key, part in permuted.groupby(["cohort", "target"])}
    places = zip(scores["cohort"], scores["target"], scores["r"], strict=True)
    p = [permutation_p(null[c, t], r) if (c, t) in null else np.nan for c, t, r in places]
    return scores.assign(p_permuted_networks=p)


def _comparisons(workspace: Workspace, predictions: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    parts = []
    for name, part in with_lines(predictions, rows).groupby("cohort", sort=False):
        people, protocol = workspace.people(str(name))
        parts.append(all_comparisons(part, rows, protocol.n_bootstrap, protocol.seed, _families(people)))
    return pd.concat(parts, ignore_index=True)


def _families(people: Any) -> dict[Any, Any] | None:
    return None if people.groups is None else dict(zip(people.ids, people.groups, strict=True))


def _pool(workspace: Workspace, plan: Plan) -> list[str]:
    """The cohorts that encoders were trained on here; none where all models came from elsewhere."""
    trained = [
        task
        for task in plan.tasks
        if task.row.kind == SELF_SUPERVISED and not isinstance(getattr(task.work, "features", None), FromModel)
    ]
    return [name for name, cohort in workspace.config.cohorts.items() if cohort.pretrain and trained]


def _cohorts(workspace: Workspace, plan: Plan) -> pd.DataFrame:
    rows, pool = [], _pool(workspace, plan)
    for name, about in workspace.config.cohorts.items():
        cohort = workspace.cohort(name)
        rows.append(
            {
                "cohort": name,
                "label": about.label or name,
                "n": len(cohort),
                "n_regions": cohort.n_regions,
                "parcellation": cohort.parcellation.name,
                "fingerprint": workspace.inputs()[0][name],
                "pretrained_on": name in pool,
                "simulated": about.simulate is not None,
            }
        )
    return pd.DataFrame(rows)


def _folds(workspace: Workspace) -> pd.DataFrame:
    parts = []
    for name in workspace.config.cohorts:
        people, _ = workspace.people(name)
        for repeat, folds in enumerate(people.folds):
            table = pd.DataFrame({"cohort": name, "participant": people.ids, "repeat": repeat, "fold": folds})
            parts.append(table[folds >= 0])
    return pd.concat(parts, ignore_index=True)


def _about(workspace: Workspace, plan: Plan, command: str) -> dict[str, Any]:
    from nerve.methods import method_class

    config, (data, code) = workspace.config, workspace.inputs()
    people = {name: workspace.people(name) for name in config.cohorts}
    participants = {name: participants_summary(who) for name, (who, _) in people.items()}
    for task in plan.unique:
        said = ((workspace.store.manifest(task.id) or {}).get("result") or {}).get("notes", [])
        notes = participants[task.cohort]["notes"] if said else []
        notes += [note for note in said if note not in notes]
    methods = dict.fromkeys(row.method for row in plan.rows if row.kind not in (GIVEN, REFERENCE))  # works to cite
    return {
        "title": config.title or config.name,
        "kind": config.kind,
        "layout": config.layout,
        "command": Scrubber([]).clean(command),  # folders are nobody's business
        "parcellation": workspace.parcellation.name,
        "protocols": {name: protocol.as_dict() for name, (_, protocol) in people.items()},
        "participants": participants,
        "target_labels": {name: dict(cohort.target_labels) for name, cohort in config.cohorts.items()},
        "pretrained_on": _pool(workspace, plan),
        "citations": {name: method_class(name).paper for name in methods},
        "seeds": list(config.seeds),
        "versions": versions(),
        "code": code,
        "data": data,
    }
