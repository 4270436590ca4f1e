"""`nerve experiment`: prepare, plan, run what is not done, collect, and say how it went."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nerve.evaluation.results import ResultsFolder
from nerve.evaluation.rows import NULL
from nerve.experiments.collect import collect, runs_table
from nerve.experiments.config import ExperimentConfig, config_path, load_config
from nerve.experiments.launch import Report, launch, statuses
from nerve.experiments.plan import Plan, make_plan
from nerve.experiments.store import DONE, FAILED
from nerve.experiments.work import FromModel
from nerve.experiments.workspace import Workspace
from nerve.files import read_json, write_json


@dataclass(frozen=True)
class Experiment:
    """A prepared experiment: its folder and its plan."""

    workspace: Workspace
    plan: Plan

    @property
    def counts(self) -> Counter[str]:
        """How many runs are done, waiting, running, failed or not available."""
        return Counter(statuses(self.workspace, self.plan).values())

    def run(
        self, launcher: str = "local", jobs: int | None = None, report: Report | None = None, command: str = ""
    ) -> ResultsFolder:
        """Run what is not done, then write the results; failed runs are listed, they do not stop the others."""
        launch(self.workspace, self.plan, launcher, jobs, report)
        results = collect(self.workspace, self.plan, command)
        if self.workspace.config.interpret:
            interpret(self.workspace, self.plan)
        return results

    def failures(self) -> list[str]:
        """One line per failed run, with its reason."""
        table = runs_table(self.workspace, self.plan)
        return [f"{row.run}: {row.reason}" for row in table[table["status"] == FAILED].itertuples()]


def interpret(workspace: Workspace, plan: Plan) -> None:
    """Maps of the last NERVE row, over its seeds, on the first cohort; written once for the same encoders."""
    from nerve.interpret import interpret_to
    from nerve.methods.nerve import NERVE

    models = nerve_models(workspace, plan)
    name = next(iter(workspace.config.cohorts))
    mark = workspace.folder / "interpretation" / "of.json"
    _, protocol = workspace.people(name)
    targets = protocol.targets if workspace.config.kind == "evaluation" else protocol.targets[:1]  # one of many will do
    wanted = {"encoders": sorted(models), "cohort": name, "targets": list(targets), "protocol": protocol.as_dict()}
    wanted = json.loads(json.dumps(wanted, default=str))
    if not models or (mark.is_file() and read_json(mark) == wanted):
        return
    encoders = [NERVE.from_pretrained(path, device=workspace.config.device) for path in models.values()]
    interpret_to(
        workspace.folder, encoders, workspace.cohort(name), targets, protocol.covariates,
        n_folds=protocol.n_folds, seed=protocol.seed, motion=protocol.motion,
    )  # fmt: skip
    write_json(mark, wanted)


def nerve_models(workspace: Workspace, plan: Plan) -> dict[str, Path]:
    """What the models of the last NERVE line that is trained are known by → their folders or archives."""
    found: dict[str, dict[str, Path]] = {}
    for task in plan.tasks:
        if task.row.method != "nerve" or task.row.kind == NULL or workspace.store.status(task.id) != DONE:
            continue
        given = getattr(task.work, "features", None)
        if task.work.kind == "encode":
            found.setdefault(task.row.line, {})[task.id] = workspace.store.run_folder(task.id)
        elif isinstance(given, FromModel):
            found.setdefault(task.row.line, {})[given.content] = Path(given.path)
    return list(found.values())[-1] if found else {}


def prepare(config: ExperimentConfig | str | os.PathLike[str], folder: str | os.PathLike[str]) -> Experiment:
    """An experiment from its file or object, with cohorts checked or simulated and all runs planned."""
    base = Path.cwd()
    if not isinstance(config, ExperimentConfig):
        base = config_path(config).resolve().parent
        config = load_config(config)
    workspace = Workspace.prepare(config, folder, base)
    for name in workspace.config.cohorts:
        workspace.people(name)  # a misspelt column is refused before anything is trained
    return Experiment(workspace, make_plan(workspace.config, *workspace.inputs()))


def reopen(folder: str | os.PathLike[str]) -> Experiment:
    """An experiment that was prepared before."""
    workspace = Workspace.open(folder)
    return Experiment(workspace, make_plan(workspace.config, *workspace.inputs()))
