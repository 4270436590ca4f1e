"""An experiment: its runs are done, collected into the results folder and interpreted.

Collected are rows, predictions, scores, comparisons and the paper's table.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError
from nerve._utils.files import read_json, write_json, write_markdown, write_tsv
from nerve._utils.privacy import printable_table, shared_command
from nerve.evaluation.evaluate import EvaluatedCohort, combine
from nerve.evaluation.protocol import FIELDS
from nerve.evaluation.protocol_text import protocol_text, rows_on
from nerve.evaluation.results import Results
from nerve.evaluation.rows import NULL
from nerve.experiments.evaluate import citations_of
from nerve.experiments.launch import Report, launch, nothing
from nerve.experiments.store import DONE, FAILED, fingerprint, versions
from nerve.experiments.work import Encode, FromModel, load_evaluation
from nerve.experiments.workspace import Workspace
from nerve.interpret import interpret_to
from nerve.interpret.output import FOLDER, INPUTS
from nerve.methods import METHODS
from nerve.methods.nerve import NERVE
from nerve.report.table_formats import write_tables

RUNS = ["id", "kind", "line", "cohort", "target", "run", "status", "seconds", "reason"]
# options whose values a command that is written down shows: no paths, and no values of columns
SHOWN_OPTIONS = {
    f"--{name.replace('_', '-')}" for name, one in FIELDS.items() if one.type != "bool"
} - {"--combat-on"}
SHOWN_OPTIONS |= {"--preset", "--launcher", "--jobs", "--device"}


class Experiment(Workspace):
    """A workspace whose runs are done, collected and interpreted."""

    def run(
        self,
        launcher: str = "local",
        jobs: int | None = None,
        report: Report = nothing,
        command: str = "",
    ) -> Results:
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
        _, protocol = self.participants(name)
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


def collect(workspace: Workspace, command: str = "") -> Results:
    """Write the results folder from the runs that are done; runs.tsv says how each run stands."""
    folder, plan, store = workspace.folder, workspace.plan, workspace.store
    workspace.check_inputs()
    write_tsv(folder / "runs.tsv", printable_table(runs_table(workspace)))
    manifests = {task.id: store.manifest(task.id) or {} for task in plan.unique}
    done = [task for task in plan.tasks if manifests[task.id].get("status") == DONE]
    evaluations = []
    encoder_seconds: dict[str, float] = {}
    for task in done:
        seconds = manifests[task.id]["cpu_seconds"]
        if task.cohort:
            facts = manifests[task.id]["result"] | {"seconds": seconds}
            run_folder = store.run_folder(task.id)
            evaluations.append(load_evaluation(task.row, task.cohort, run_folder, facts))
        else:
            encoder_seconds[task.row.row] = encoder_seconds.get(task.row.row, 0.0) + seconds
    if not evaluations:
        raise NerveError(f"{folder}: no run has made predictions; runs.tsv says why.")
    cohorts = [workspace.evaluated(name) for name in workspace.config.cohorts]
    results = combine(evaluations, cohorts, plan.rows, _about(workspace, command), encoder_seconds)
    with workspace.store.turn("results"):  # another process may be writing the same results
        workspace.check_inputs()
        results.save(folder)
        write_texts(folder, results, cohorts)
    return results


def write_texts(folder: Path, results: Results, cohorts: Sequence[EvaluatedCohort]) -> None:
    """Write protocol.md, and the paper's table in three formats, from the same tables."""
    texts = []
    for one in cohorts:
        rows = rows_on(one.name, results.rows, results.scores)
        summary = results.about["participants"][one.name]
        texts.append(protocol_text(one.protocol, summary, rows))
    write_markdown(folder / "protocol.md", "\n".join(texts))
    write_tables(folder)


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


def _about(workspace: Workspace, command: str) -> dict[str, Any]:
    config, (data, code), plan = workspace.config, workspace.inputs(), workspace.plan
    return {
        "title": config.title or config.name,
        "kind": config.kind,
        "layout": config.layout,
        "command": shared_command(command, SHOWN_OPTIONS, METHODS),
        "parcellation": workspace.parcellation.name,
        "target_labels": {
            name: dict(cohort.target_labels) for name, cohort in config.cohorts.items()
        },
        "citations": citations_of(plan.rows),
        "seeds": list(config.seeds),
        "versions": versions(),
        "code": code,
        "data": data,
    }
