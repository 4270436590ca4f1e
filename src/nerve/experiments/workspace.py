"""An experiment's folder as runs see it: the resolved config, its cohorts in one region order, its participants."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import yaml

from nerve._utils.errors import NerveError, known_columns, problem
from nerve._utils.files import claim, read_json, write_json, write_text
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.evaluate import EvaluatedCohort
from nerve.evaluation.participants import Participants, prepare_participants
from nerve.evaluation.protocol import Protocol, as_names
from nerve.evaluation.transfer import prepare_transfer, shared_participants
from nerve.experiments.config import ExperimentConfig, check_methods, config_path, load_config
from nerve.experiments.plan import Planner
from nerve.experiments.store import Store, code_version, fingerprint

RESOLVED = "experiment.yaml"


class Workspace:
    """A folder with a resolved config; cohorts are opened when asked for."""

    def __init__(self, folder: str | os.PathLike[str], config: ExperimentConfig) -> None:
        self.folder, self.config = Path(folder), config
        self.store = Store(self.folder)
        self._on_disk = cache(lambda name: Cohort.load(self.path(name)))
        self._fingerprint = cache(self._find_fingerprint)
        self.cohort = lru_cache(maxsize=4)(self._cohort)
        self.prepared = lru_cache(maxsize=4)(self._prepared)

    @classmethod
    def prepare(
        cls, config: ExperimentConfig | str | os.PathLike[str], folder: str | os.PathLike[str]
    ) -> Self:
        """An experiment from its file or object: cohorts are checked or simulated, and all runs are planned."""
        base = Path.cwd()
        if not isinstance(config, ExperimentConfig):
            base = config_path(config).resolve().parent
            config = load_config(config)
        workspace = cls(claim(folder), _with_absolute_paths(config, base))
        resolved = workspace.config.model_dump(mode="json")
        write_text(workspace.folder / RESOLVED, yaml.safe_dump(resolved, sort_keys=False))
        for name, cohort in workspace.config.cohorts.items():
            if cohort.simulate is not None:
                workspace._simulate(name, cohort.simulate)
        fingerprints = {name: workspace._fingerprint(name) for name in workspace.config.cohorts}
        write_json(
            workspace.folder / "inputs.json", {"cohorts": fingerprints, "code": code_version()}
        )
        workspace._check()
        return workspace

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """An experiment that was prepared before."""
        if not (Path(folder) / RESOLVED).is_file():
            raise NerveError(
                f"{folder}: holds no {RESOLVED}, expected the folder of `nerve experiment CONFIG --out`."
            )
        return cls(folder, load_config(Path(folder) / RESOLVED))

    def _check(self) -> None:
        """Refuse settings and columns that the cohorts do not allow, before anything is trained."""
        for name in self.config.cohorts:
            self.participants(name)
        check_methods(self.config, "The experiment", self.parcellation)
        known = {
            str(column) for name in self.config.cohorts for column in self.cohort(name).participants
        }
        for entry in self.config.methods:
            for _, settings in entry.variants():
                for name in ("recentre", "phenotypes"):
                    known_columns(as_names(settings.get(name)), known, f"{entry.name}: {name}")

    @cached_property
    def plan(self) -> Planner:
        """All runs."""
        return Planner(self.config, *self.inputs())

    @property
    def counts(self) -> Counter[str]:
        """How many runs are done, waiting, running, failed or not available."""
        return Counter(self.store.status(task.id) for task in self.plan.unique)

    def inputs(self) -> tuple[dict[str, str], str]:
        """The fingerprint of each cohort as it entered the experiment, and the version of the code.

        Both are written when the experiment is prepared, so that every worker plans the same runs.
        """
        path = self.folder / "inputs.json"
        content = read_json(path)
        cohorts = content.get("cohorts") if isinstance(content, dict) else None
        if (
            not isinstance(cohorts, dict)
            or set(cohorts) != set(self.config.cohorts)
            or "code" not in content
        ):
            raise problem(
                path, "it is not that of this experiment", remedy="Run `nerve experiment` again."
            )
        return dict(cohorts), str(content["code"])

    def _find_fingerprint(self, name: str) -> str:
        """What determines a cohort here: its contents, the region order and the renamed columns."""
        settings, cohort = self.config.cohorts[name], self._on_disk(name)
        elsewhere = [self._fingerprint(settings.train_on)] if settings.train_on else []
        contents = [cohort.fingerprint, cohort.measure]
        return fingerprint([*contents, self.parcellation.fingerprint, settings.columns, *elsewhere])

    def folder_fingerprint(self, name: str) -> str:
        """The fingerprint of a cohort as it lies on disk, neither reordered nor renamed."""
        return self._on_disk(name).fingerprint

    def check_inputs(self) -> None:
        """Refuse if the code or any cohort is no longer what the experiment was prepared with."""
        self.check_code()
        for name in self.config.cohorts:
            self.check_cohort(name)

    def check_cohort(self, name: str) -> None:
        """Refuse a cohort whose folder no longer holds what the experiment was prepared with."""
        elsewhere = self.config.cohorts[name].train_on
        if elsewhere is not None:
            self.check_cohort(elsewhere)
        self._on_disk(name).check_unchanged()  # since this process has opened it
        if self._fingerprint(name) != self.inputs()[0][name]:
            found = f"cohort {name!r} was changed after the experiment was started"
            raise problem(self.path(name), found, remedy="Start the experiment again.")

    def check_code(self) -> None:
        """Refuse to compute with other code than the experiment was prepared with."""
        if self.inputs()[1] != code_version():
            found = "the package was changed after the experiment was started"
            raise problem(self.folder, found, remedy="Start the experiment again.")

    @cached_property
    def parcellation(self) -> Parcellation:
        """The region order of the experiment: the one that it names, or that of its first cohort."""
        if self.config.parcellation is not None:
            return load_parcellation(self.config.parcellation)
        return self._on_disk(next(iter(self.config.cohorts))).parcellation

    def path(self, name: str) -> Path:
        """The folder of a cohort."""
        path = self.config.cohorts[name].path
        return self.folder / "cohorts" / name if path is None else Path(path)

    def _cohort(self, name: str) -> Cohort:
        settings = self.config.cohorts[name]
        cohort = copy(self._on_disk(name).align(self.parcellation))
        cohort.name = name
        if not settings.timeseries:
            cohort.timeseries = None
        cohort.participants = _renamed(cohort.participants, settings.columns, name)
        return cohort

    def participants(self, name: str) -> tuple[Participants, Protocol]:
        """The participants of a cohort, with the folds that every row is given, and the protocol resolved."""
        return self.prepared(name)[1:]

    def evaluated(self, name: str) -> EvaluatedCohort:
        """A cohort with its participants and protocol, as results describe it."""
        settings = self.config.cohorts[name]
        participants, protocol = self.participants(name)
        return EvaluatedCohort(
            self.cohort(name),
            participants,
            protocol,
            label=settings.label or name,
            fingerprint=self.folder_fingerprint(name),
            simulated=settings.simulate is not None,
        )

    def scope_of(self, name: str, trained_on: Iterable[str]) -> str:
        """Which of the tested participants of a cohort an encoder has seen: a name of `evaluation.rows.SCOPES`.

        Parameters
        ----------
        name : str
            The cohort that is tested.
        trained_on : names of cohorts
            What the encoder was trained on.
        """
        data, seen = self.inputs()[0], np.zeros(len(self.cohort(name)), bool)
        for other in trained_on:
            # equal by fingerprint: a cohort may stand under two names
            if data[other] == data[name]:
                seen |= True
            else:
                seen |= shared_participants(self.cohort(name), self.cohort(other))
        if seen.all():
            return "all"
        return "some" if seen.any() else "other_people"

    def _prepared(self, name: str) -> tuple[Cohort, Participants, Protocol]:
        """A cohort (behind the one that is trained on, where that is another), its participants, the protocol."""
        protocol, elsewhere = self.config.protocol_of(name), self.config.cohorts[name].train_on
        if elsewhere is None:
            return self.cohort(name), *prepare_participants(self.cohort(name), protocol)
        return prepare_transfer(self.cohort(elsewhere), self.cohort(name), protocol)

    def _simulate(self, name: str, arguments: dict[str, Any]) -> None:
        """Simulate a cohort once, also when several processes ask; other arguments make it again."""
        path = self.path(name)
        given = {
            "parcellation": self.config.parcellation or "schaefer400-17",
            "name": name,
            **arguments,
        }
        wanted = fingerprint([given, code_version()])
        with self.store.turn(f"cohort-{name}"):
            if (path / "cohort.json").is_file() and Cohort.load(path).notes.get(
                "arguments"
            ) == wanted:
                return
            known_columns(
                arguments,
                inspect.signature(simulate_cohort).parameters,
                f"simulate of cohort {name!r}",
            )
            try:
                cohort = simulate_cohort(**given)
            except (TypeError, OverflowError) as error:
                raise NerveError(
                    f"simulate of cohort {name!r}: a value is of the wrong kind ({error})."
                ) from error
            cohort.notes["arguments"] = wanted
            cohort.save(path, overwrite=True)


def _renamed(table: pd.DataFrame, columns: dict[str, str], name: str) -> pd.DataFrame:
    """Columns by our names; one that `nerve ingest` has renamed already is taken as it is."""
    missing = {
        ours: theirs
        for ours, theirs in columns.items()
        if theirs in table.columns or ours not in table.columns
    }
    known_columns(missing.values(), table.columns, f"participants of {name!r}")
    kept = [column for column in table if column in missing.values() or column not in missing]
    return table[kept].rename(columns={theirs: ours for ours, theirs in missing.items()})


def _with_absolute_paths(config: ExperimentConfig, base: Path) -> ExperimentConfig:
    """Paths beside the experiment file or else, for a file that came with the package, where one is."""

    def settled(part: Any, name: str) -> Any:
        path = getattr(part, name)
        if path is None:
            return part
        beside, here = (base / path).resolve(), Path(path).resolve()
        return part.model_copy(
            update={name: str(here if not beside.exists() and here.exists() else beside)}
        )

    cohorts = {name: settled(cohort, "path") for name, cohort in config.cohorts.items()}
    methods = [settled(one, "features") for one in config.methods]
    config = config.model_copy(update={"cohorts": cohorts, "methods": methods})
    own = (
        config.parcellation is not None and (base / config.parcellation).is_file()
    )  # a table of the user's
    return settled(config, "parcellation") if own else config
