"""`nerve experiment`: prepare, plan, run what is not done, collect, and say how it went."""

from __future__ import annotations

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
from nerve.experiments.store import DONE, FAILED, content_hash
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

    folders = nerve_folders(workspace, plan)
    name = next(iter(workspace.config.cohorts))
    mark = workspace.folder / "interpretation" / "of.json"
    wanted = {"encoders": [content_hash(folder / "config.json") for folder in folders], "cohort": name}
    if not folders or (mark.is_file() and read_json(mark) == wanted):
        return
    _, protocol = workspace.people(name)
    models = [NERVE.load(folder, device=workspace.config.device) for folder in folders]
    interpret_to(
        workspace.folder, models, workspace.cohort(name), protocol.targets[:1], protocol.covariates,
        n_folds=protocol.n_folds, seed=protocol.seed, motion=protocol.motion,
    )  # fmt: skip
    write_json(mark, wanted)


def nerve_folders(workspace: Workspace, plan: Plan) -> list[Path]:
    """The folders of the models of the last NERVE line that is trained."""
    found: dict[str, list[Path]] = {}
    for task in plan.tasks:
        if task.row.method != "nerve" or task.row.kind == NULL or workspace.store.status(task.id) != DONE:
            continue
        given = getattr(getattr(task.work, "features", None), "path", None)
        if task.work.kind == "encode" or given:
            folder = Path(given) if given else workspace.store.run_folder(task.id)
            found.setdefault(task.row.line, []).append(folder)
    return list(found.values())[-1] if found else []


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
