"""`nerve experiment`: prepare, plan, run what is not done, collect, and say how it went."""

from __future__ import annotations

from pathlib import Path

from nerve.evaluation.results import ResultsFolder
from nerve.evaluation.rows import NULL
from nerve.experiments.collect import collect, runs_table
from nerve.experiments.launch import Report, launch, nothing
from nerve.experiments.store import DONE, FAILED, fingerprint
from nerve.experiments.work import Encode, FromModel
from nerve.experiments.workspace import Workspace
from nerve.files import read_json, write_json
from nerve.interpret import interpret_to
from nerve.methods.nerve import NERVE


class Experiment(Workspace):
    """A workspace whose runs are done, collected and interpreted."""

    def run(
        self, launcher: str = "local", jobs: int | None = None, report: Report = nothing, command: str = ""
    ) -> ResultsFolder:
        """Run what is not done, then write the results; failed runs are listed, they do not stop the others."""
        launch(self, launcher, jobs, report)
        results = collect(self, command)
        if self.config.interpret:
            self._interpret()
        return results

    def failures(self) -> list[str]:
        """One line per failed run, with its reason."""
        table = runs_table(self)
        return [f"{row.run}: {row.reason}" for row in table[table["status"] == FAILED].itertuples()]

    def _interpret(self) -> None:
        """Maps of the last NERVE row, over its seeds, on the first cohort; written once for the same encoders."""
        models, name = self._nerve_models(), next(iter(self.config.cohorts))
        mark = self.folder / "interpretation" / "of.json"
        _, protocol = self.people(name)
        targets = protocol.targets if self.config.kind == "evaluation" else protocol.targets[:1]  # one of many will do
        wanted = fingerprint([sorted(models), name, targets, protocol.as_dict()])
        if not models or (mark.is_file() and read_json(mark) == wanted):
            return
        encoders = [NERVE.from_pretrained(path, device=self.config.device) for path in models.values()]
        interpret_to(
            self.folder, encoders, self.cohort(name), targets, protocol.covariates,
            n_folds=protocol.n_folds, seed=protocol.seed, motion=protocol.motion,
        )  # fmt: skip
        write_json(mark, wanted)

    def _nerve_models(self) -> dict[str, Path]:
        """What the models of the last NERVE line that is trained are known by → their folders or archives."""
        found: dict[str, dict[str, Path]] = {}
        for task in self.plan.tasks:
            if task.row.method != "nerve" or task.row.kind == NULL or self.store.status(task.id) != DONE:
                continue
            if isinstance(task, Encode):
                found.setdefault(task.row.line, {})[task.id] = self.store.run_folder(task.id)
            elif isinstance(task, FromModel):
                found.setdefault(task.row.line, {})[task.content] = Path(task.path)
        return list(found.values())[-1] if found else {}
