"""An experiment: its runs are done, collected into the results folder and interpreted.

Collected are rows, predictions, scores, comparisons and the paper's table.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError
from nerve._utils.files import read_json, read_tsv, write_json, write_markdown, write_tsv
from nerve._utils.privacy import printable_table, shared_command
from nerve.evaluation.protocol import FIELDS
from nerve.evaluation.protocol_text import participants_summary, protocol_text, rows_on
from nerve.evaluation.resampling import adjusted_p, permutation_p
from nerve.evaluation.results import ResultsFolder, write_results
from nerve.evaluation.rows import (
    GIVEN,
    NULL,
    REFERENCE,
    SELF_SUPERVISED,
    Row,
    pretraining_use,
    rows_table,
)
from nerve.evaluation.sites import site_table
from nerve.evaluation.statistics import all_comparisons, motion_table, score_table
from nerve.experiments.launch import Report, launch, nothing
from nerve.experiments.store import DONE, FAILED, fingerprint, versions
from nerve.experiments.work import Encode, FromModel, Task
from nerve.experiments.workspace import Workspace
from nerve.interpret import interpret_to
from nerve.interpret.output import FOLDER, INPUTS
from nerve.methods import METHODS, method_class
from nerve.methods.nerve import NERVE
from nerve.report.table_formats import write_tables

PLACE = ["cohort", "target", "row"]
RUNS = ["id", "kind", "line", "cohort", "target", "run", "status", "seconds", "reason"]
COHORTS = [
    "cohort",
    "label",
    "n",
    "n_regions",
    "parcellation",
    "fingerprint",
    "pretrained_on",
    "simulated",
]
# options whose values a command that is written down shows: no paths, and no values of columns
SHOWN_OPTIONS = {
    f"--{name.replace('_', '-')}" for name, one in FIELDS.items() if one.type != "bool"
} - {"--combat-on"}
SHOWN_OPTIONS |= {"--preset", "--launcher", "--jobs", "--device"}
Found = Mapping[str, dict[str, Any]]  # what the runs that are done have returned, by id


class Experiment(Workspace):
    """A workspace whose runs are done, collected and interpreted."""

    def run(
        self,
        launcher: str = "local",
        jobs: int | None = None,
        report: Report = nothing,
        command: str = "",
    ) -> ResultsFolder:
        """Run what is not done, then write the results; failed runs are listed, they do not stop the others."""
        launch(self, launcher, jobs, report)
        results = collect(self, command)
        self._interpret()
        return results

    def failures(self) -> list[str]:
        """One line per failed run, with its reason."""
        table = runs_table(self)
        return [f"{row.run}: {row.reason}" for row in table[table["status"] == FAILED].itertuples()]

    def _interpret(self) -> None:
        """Maps of the last NERVE row, over its seeds, on the first cohort.

        They are written once for the same models, data, targets, protocol and code.
        """
        folder = self.folder / FOLDER
        models = self._nerve_models() if self.config.interpret else {}
        if not models:
            if (folder / INPUTS).is_file():  # maps of a row that is no more
                shutil.rmtree(folder)
            return
        name = next(iter(self.config.cohorts))
        _, protocol = self.people(name)
        targets = (
            protocol.targets if self.config.kind == "evaluation" else protocol.targets[:1]
        )  # one of many will do
        data, code = self.inputs()
        settings = [name, targets, protocol.as_dict()]
        wanted = fingerprint([sorted(models.values()), data[name], code, *settings])
        if (folder / INPUTS).is_file() and read_json(folder / INPUTS) == wanted:
            return
        encoders = [NERVE.from_pretrained(path, device=self.config.device) for path in models]
        interpret_to(
            self.folder, encoders, self.cohort(name), targets, protocol.covariates,
            n_folds=protocol.n_folds, seed=protocol.seed, motion=protocol.motion,
        )  # fmt: skip
        write_json(folder / INPUTS, wanted)

    def _nerve_models(self) -> dict[Path, str]:
        """The models (folders or archives) of the last NERVE line that is trained → the run that each determines."""
        known = [
            task
            for task in self.plan.tasks
            if isinstance(task, Encode | FromModel) and task.row.kind != NULL
        ]
        done = [
            task
            for task in known
            if task.row.method == "nerve" and self.store.status(task.id) == DONE
        ]
        models = {}
        for task in [task for task in done if task.row.line == done[-1].row.line]:
            path = (
                Path(task.path) if isinstance(task, FromModel) else self.store.run_folder(task.id)
            )
            models[path] = task.id
        return models


def collect(workspace: Workspace, command: str = "") -> ResultsFolder:
    """Write the results folder from the runs that are done; runs.tsv says how each run stands."""
    folder, plan = workspace.folder, workspace.plan
    workspace.check_inputs()
    write_tsv(folder / "runs.tsv", printable_table(runs_table(workspace)))
    ended = {task.id: workspace.store.manifest(task.id) or {} for task in plan.unique}
    good = {run_id: one for run_id, one in ended.items() if one.get("status") == DONE}
    found = {
        run_id: one["result"] | {"seconds": one["cpu_seconds"]} for run_id, one in good.items()
    }
    done = [task for task in plan.tasks if task.cohort and task.id in found]
    if not done:
        raise NerveError(f"{folder}: no run has made predictions; runs.tsv says why.")
    rows = rows_table(_described(row, plan.tasks, found) for row in plan.rows)
    predictions, nulls, curves = (
        _gathered(workspace, done, name) for name in ("predictions", "null", "curve")
    )
    permuted = predictions["row"].isin(rows.loc[rows["kind"] == NULL, "row"])
    null_models, predictions = predictions[permuted], predictions[~permuted].reset_index(drop=True)
    scores, comparisons = _scored(workspace, predictions, rows)
    scores = _placed(scores, done, found)
    if len(nulls):
        scores["p"] = _p(scores, nulls, PLACE)
        scores["q"] = scores["p"].groupby([scores["cohort"], scores["row"]]).transform(adjusted_p)
    if len(
        null_models
    ):  # one-sided p of each row's r against the r of models with permuted networks
        permuted_scores = score_table(null_models, n_bootstrap=0)
        scores["p_permuted_networks"] = _p(scores, permuted_scores, ["cohort", "target"])
        scores = pd.concat([scores, permuted_scores], ignore_index=True)
    cohorts = _cohorts(workspace, rows, scores)
    about = _about(workspace, found, command)
    results = ResultsFolder(
        about, rows, cohorts, _folds(workspace), predictions, scores, comparisons
    )
    results.nulls = nulls if len(nulls) else results.nulls
    results.curves = curves if len(curves) else results.curves
    with workspace.store.turn("results"):  # another process may be writing the same results
        workspace.check_inputs()
        write_results(folder, results)
        _write_texts(workspace, results)
    return results


def _write_texts(workspace: Workspace, results: ResultsFolder) -> None:
    """protocol.md and the paper's table in three formats, made from the same tables."""
    texts = []
    for name, summary in results.about["participants"].items():
        rows = rows_on(name, results.rows, results.scores)
        texts.append(protocol_text(workspace.people(name)[1], summary, rows))
    write_markdown(workspace.folder / "protocol.md", "\n".join(texts))
    write_tables(workspace.folder)


def runs_table(workspace: Workspace) -> pd.DataFrame:
    """One row per run: id, kind, line, cohort, target, what it is, status, seconds, reason."""
    rows = []
    for task in workspace.plan.unique:
        manifest = workspace.store.manifest(task.id) or {}
        what = [task.id, task.kind, task.row.line, task.cohort, task.target, task.label]
        rows.append(
            [
                *what,
                workspace.store.status(task.id),
                manifest.get("seconds"),
                manifest.get("reason", ""),
            ]
        )
    return pd.DataFrame(rows, columns=RUNS)


def _described(row: Row, tasks: Sequence[Task], results: Found) -> Row:
    """The row, with what its runs found out: width, time, scope, cohorts trained on, substitutes."""
    mine = [task for task in tasks if task.row.row == row.row and task.id in results]
    found = [results[task.id] for task in mine]
    scopes: dict[str, list[str]] = {}  # scope → cohorts that are tested
    pools: dict[str, list[str]] = {}  # cohorts that are trained on → cohorts that are tested
    for task in mine:
        if task.cohort:
            tested = scopes.setdefault(results[task.id]["scope"], [])
            tested += (
                [task.cohort] if task.cohort not in tested else []
            )  # a network has one run per target
            pools.setdefault(_in_words(results[task.id].get("trained_on") or {}), []).append(
                task.cohort
            )
    each_scope = "; ".join(f"{scope} ({', '.join(cohorts)})" for scope, cohorts in scopes.items())
    each_pool = "; ".join(
        f"{pool} where {', '.join(cohorts)} is tested" for pool, cohorts in pools.items() if pool
    )
    return replace(
        row,
        width=max((one.get("width", 0) for one in found), default=0),
        seconds=round(sum(one["seconds"] for one in found), 2),
        scope=next(iter(scopes), row.scope) if len(scopes) < 2 else each_scope,
        trained_on=next(iter(pools), "") if len(pools) < 2 else each_pool,
        adapted="; ".join(dict.fromkeys(one["adapted"] for one in found if one.get("adapted"))),
    )


def _in_words(trained_on: Mapping[str, int]) -> str:
    """Cohorts with their numbers of participants."""
    return ", ".join(f"{name} ({count})" for name, count in trained_on.items())


def _gathered(workspace: Workspace, done: list[Task], name: str) -> pd.DataFrame:
    """One table of all runs that wrote it, with the row that asked for it."""
    parts = []
    for task in done:
        path = workspace.store.run_folder(task.id) / f"{name}.tsv"
        if path.is_file():
            part = read_tsv(path, dtype={"participant": str, "target": str})
            parts.append(part.assign(cohort=task.cohort, row=task.row.row))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    if "whole" in table:
        table["whole"] = table["whole"].fillna("")
    return table[[*PLACE, *table.columns.difference(PLACE, sort=False)]]


def _scored(
    workspace: Workspace, predictions: pd.DataFrame, rows: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of every cohort, with the correlation with motion and within sites; and comparisons."""
    scores, comparisons = [], []
    for name, part in predictions.groupby("cohort", sort=False):
        people, protocol = workspace.people(str(name))
        families = (
            None if people.groups is None else dict(zip(people.ids, people.groups, strict=True))
        )
        table = score_table(part, protocol.n_bootstrap, protocol.seed, families)
        if people.motion:
            motion = motion_table(
                part, dict(zip(people.ids, people.table[people.motion], strict=True))
            )
            table = table.merge(motion, how="left", on=PLACE)
        if people.sites is not None and len(set(people.sites)) > 1:
            inside = site_table(part, dict(zip(people.ids, people.sites, strict=True)))
            table = table.merge(inside, how="left", on=PLACE)
        scores.append(table)
        comparisons.append(
            all_comparisons(part, rows, protocol.n_bootstrap, protocol.seed, families)
        )
    return pd.concat(scores, ignore_index=True), pd.concat(comparisons, ignore_index=True)


def _placed(scores: pd.DataFrame, done: list[Task], found: Found) -> pd.DataFrame:
    """Scores with whom an encoder had seen, what it substituted there, how well it tells sites apart."""
    names = ["scope", "adapted", "site_accuracy"]
    places = []
    for task in done:
        result = found[task.id]
        trained_on = _in_words(result.get("trained_on") or {})
        places.append(
            [task.cohort, task.row.row, *(result.get(name) for name in names), trained_on]
        )
    table = pd.DataFrame(places, columns=["cohort", "row", *names, "trained_on"]).drop_duplicates(
        ["cohort", "row"]
    )
    scores = scores.merge(table, how="left", on=["cohort", "row"])
    first = [*PLACE, "scope", "trained_on", "adapted"]
    return scores[[*first, *scores.columns.difference(first, sort=False)]]


def _p(scores: pd.DataFrame, nulls: pd.DataFrame, place: list[str]) -> list[float]:
    """One-sided p of every r among those of the null at its place."""
    null = {key: part["r"].to_numpy(float) for key, part in nulls.groupby(place)}
    keys = list(scores[place].itertuples(index=False, name=None))
    return [
        permutation_p(null[key], r) if key in null else np.nan
        for key, r in zip(keys, scores["r"], strict=True)
    ]


def _cohorts(workspace: Workspace, rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """One row per cohort; `pretrained_on` follows from the scopes that its rows have there."""
    kinds, table = dict(zip(rows["row"], rows["kind"], strict=True)), []
    for name, about in workspace.config.cohorts.items():
        cohort = workspace.cohort(name)
        mine = scores.loc[scores["cohort"] == name, ["row", "scope"]].drop_duplicates()
        learned = [kinds[row] in (SELF_SUPERVISED, GIVEN) for row in mine["row"]]
        seen = pretraining_use(mine["scope"], mine.loc[learned, "scope"])
        what = [name, about.label or name, len(cohort), cohort.n_regions, cohort.parcellation.name]
        table.append([*what, workspace.folder_fingerprint(name), seen, about.simulate is not None])
    return pd.DataFrame(table, columns=COHORTS)


def _folds(workspace: Workspace) -> pd.DataFrame:
    parts = []
    for name in workspace.config.cohorts:
        people, _ = workspace.people(name)
        for repeat, folds in enumerate(people.folds):
            table = pd.DataFrame(
                {"cohort": name, "participant": people.ids, "repeat": repeat, "fold": folds}
            )
            parts.append(table[folds >= 0])
    return pd.concat(parts, ignore_index=True)


def _about(workspace: Workspace, found: Found, command: str) -> dict[str, Any]:
    config, (data, code), plan = workspace.config, workspace.inputs(), workspace.plan
    people = {name: workspace.people(name) for name in config.cohorts}
    participants = {name: participants_summary(who) for name, (who, _) in people.items()}
    for task in plan.unique:
        said = found.get(task.id, {}).get("notes", [])
        notes = participants[task.cohort]["notes"] if said else []
        notes += [note for note in said if note not in notes]
    methods = dict.fromkeys(
        row.method for row in plan.rows if row.kind not in (GIVEN, REFERENCE)
    )  # works to cite
    return {
        "title": config.title or config.name,
        "kind": config.kind,
        "layout": config.layout,
        "command": shared_command(command, SHOWN_OPTIONS, METHODS),
        "parcellation": workspace.parcellation.name,
        "protocols": {name: protocol.as_dict() for name, (_, protocol) in people.items()},
        "participants": participants,
        "target_labels": {
            name: dict(cohort.target_labels) for name, cohort in config.cohorts.items()
        },
        "citations": {name: method_class(name).citation for name in methods},
        "seeds": list(config.seeds),
        "versions": versions(),
        "code": code,
        "data": data,
    }
