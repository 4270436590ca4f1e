"""An experiment's folder as runs see it: the resolved config, its cohorts in one region order, its participants."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from nerve.checks import NerveError, known_columns, problem
from nerve.cohort import Cohort
from nerve.evaluation.people import People, prepare_people
from nerve.evaluation.transfer import prepare_transfer
from nerve.experiments.config import CohortConfig, ExperimentConfig
from nerve.experiments.store import Store, code_version, fingerprint
from nerve.files import claim, read_json, write_json, write_text
from nerve.parcellation import Parcellation, load_parcellation
from nerve.protocol import Protocol

RESOLVED = "experiment.yaml"


class Workspace:
    """A folder with a resolved config; cohorts are opened when asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.store = Store(self.folder)
        self.cohort = lru_cache(maxsize=4)(self._cohort)
        self.prepared = lru_cache(maxsize=4)(self._prepared)

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: str | os.PathLike[str], base: Path | None = None) -> Workspace:
        """Write the resolved config, simulate the cohorts that are to be simulated, and check the others."""
        workspace = cls(claim(folder))
        resolved = _with_absolute_paths(config, base or Path.cwd())
        write_text(workspace.folder / RESOLVED, yaml.safe_dump(resolved.model_dump(mode="json"), sort_keys=False))
        workspace.config = resolved
        for name, cohort in resolved.cohorts.items():
            if cohort.simulate is not None:
                workspace._simulate(name, cohort.simulate)
        fingerprints = {name: workspace.data_fingerprint(name) for name in resolved.cohorts}
        write_json(workspace.folder / "inputs.json", {"cohorts": fingerprints, "code": code_version()})
        return workspace

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Workspace:
        """An experiment that was prepared before."""
        from nerve.experiments.config import load_config

        workspace = cls(folder)
        if not (workspace.folder / RESOLVED).is_file():
            raise NerveError(f"{folder}: holds no {RESOLVED}, expected the folder of `nerve experiment CONFIG --out`.")
        workspace.config = load_config(workspace.folder / RESOLVED)
        return workspace

    config: ExperimentConfig

    def inputs(self) -> tuple[dict[str, str], str]:
        """The fingerprint of each cohort as it entered the experiment, and the version of the code.

        Both are written when the experiment is prepared, so that every worker plans the same runs.
        """
        path = self.folder / "inputs.json"
        content = read_json(path)
        cohorts = content.get("cohorts") if isinstance(content, dict) else None
        if not isinstance(cohorts, dict) or set(cohorts) != set(self.config.cohorts) or "code" not in content:
            raise problem(
                path, "it is not that of this experiment", remedy="Run `nerve experiment CONFIG --out` again."
            )
        return dict(cohorts), str(content["code"])

    def data_fingerprint(self, name: str) -> str:
        """What is known to determine a cohort here: its contents, the region order and the renamed columns."""
        settings = self.config.cohorts[name]
        contents = Cohort.load(self.path(name)).fingerprint  # of what lies on disk now
        elsewhere = [self.data_fingerprint(settings.train_on)] if settings.train_on else []
        return fingerprint([contents, self.parcellation.fingerprint, settings.columns, *elsewhere])

    @cached_property
    def parcellation(self) -> Parcellation:
        """The region order of the experiment: the one that it names, or that of its first cohort."""
        if self.config.parcellation is not None:
            return load_parcellation(self.config.parcellation)
        return Cohort.load(self.path(next(iter(self.config.cohorts)))).parcellation

    def path(self, name: str) -> Path:
        """The folder of a cohort."""
        path = self.config.cohorts[name].path
        return self.folder / "cohorts" / name if path is None else Path(path)

    def _cohort(self, name: str) -> Cohort:
        settings = self.config.cohorts[name]
        cohort = Cohort.load(self.path(name)).align(self.parcellation)
        cohort.name = name
        if not settings.timeseries:
            cohort.timeseries = None
        cohort.participants = _renamed(cohort.participants, settings.columns, name)
        return cohort

    def people(self, name: str) -> tuple[People, Protocol]:
        """The participants of a cohort, with the folds that every row is given, and the protocol resolved."""
        _, people, protocol = self.prepared(name)
        return people, protocol

    def _prepared(self, name: str) -> tuple[Cohort, People, Protocol]:
        """A cohort (behind the one that is trained on, where that is another), its participants, the protocol."""
        protocol, elsewhere = self.config.protocol_of(name), self.config.cohorts[name].train_on
        if elsewhere is None:
            return self.cohort(name), *prepare_people(self.cohort(name), protocol)
        return prepare_transfer(self.cohort(elsewhere), self.cohort(name), protocol)

    def _simulate(self, name: str, arguments: dict[str, Any]) -> None:
        """Simulate a cohort once, also when several processes ask; other arguments make it again."""
        path, lock = self.path(name), f"cohort-{name}"
        wanted = fingerprint(arguments)
        while not _is_made_of(path, wanted):
            with self.store.lock(lock) as mine:
                if mine and not _is_made_of(path, wanted):  # another may have made it since
                    cohort = simulated(name, arguments, self.config.parcellation or "schaefer400-17")
                    cohort.notes["arguments"] = wanted
                    cohort.save(path, overwrite=True)
            if not mine:
                self.store.wait_for([lock])


def _is_made_of(path: Path, arguments: str) -> bool:
    """Whether a cohort is there, simulated with these arguments (their fingerprint)."""
    return (path / "cohort.json").is_file() and Cohort.load(path).notes.get("arguments") == arguments


def _renamed(table: pd.DataFrame, columns: dict[str, str], name: str) -> pd.DataFrame:
    """Columns by our names; one that `nerve ingest` has renamed already is taken as it is."""
    missing = {ours: theirs for ours, theirs in columns.items() if theirs in table.columns or ours not in table.columns}
    known_columns(missing.values(), table.columns, f"participants of {name!r}")
    kept = [column for column in table if column in missing.values() or column not in missing]
    return table[kept].rename(columns={theirs: ours for ours, theirs in missing.items()})


def simulated(name: str, arguments: dict[str, Any], parcellation: str) -> Cohort:
    """A simulated cohort; a misspelt argument is refused by name."""
    import inspect

    from nerve.simulate import simulate_cohort

    known = inspect.signature(simulate_cohort).parameters
    known_columns(arguments, known, f"simulate of cohort {name!r}")
    try:
        return simulate_cohort(**{"parcellation": parcellation, "name": name, **arguments})
    except (TypeError, OverflowError) as error:
        raise NerveError(f"simulate of cohort {name!r}: a value is of the wrong kind ({error}).") from error


def _with_absolute_paths(config: ExperimentConfig, base: Path) -> ExperimentConfig:
    def settled(cohort: CohortConfig) -> CohortConfig:
        if cohort.path is None:
            return cohort
        return cohort.model_copy(update={"path": _found(base, cohort.path)})

    cohorts = {name: settled(cohort) for name, cohort in config.cohorts.items()}
    methods = [
        one if one.features is None else one.model_copy(update={"features": _found(base, one.features)})
        for one in config.methods
    ]
    parcellation = config.parcellation
    if parcellation is not None and (base / parcellation).is_file():  # a table of the user's own
        parcellation = str((base / parcellation).resolve())
    return config.model_copy(update={"cohorts": cohorts, "methods": methods, "parcellation": parcellation})


def _found(base: Path, path: str) -> str:
    """An absolute path: beside the experiment file, or else, for a file that came with the package, where one is."""
    beside = (base / path).resolve()
    here = Path(path).resolve()
    return str(here if not beside.exists() and here.exists() else beside)
