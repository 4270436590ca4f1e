"""An experiment: its folder, resolved config, cohorts in one region order, and its runs."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

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
from nerve.evaluation.results import Results
from nerve.evaluation.transfer import prepare_transfer, shared_participants
from nerve.experiments.collect import collect, interpret_last_nerve, runs_table
from nerve.experiments.config import ExperimentConfig, check_methods, config_path, load_config
from nerve.experiments.encoders import scope_of_seen
from nerve.experiments.launch import StatusCallback, ignore_status, launch
from nerve.experiments.plan import ExperimentPlan
from nerve.experiments.run_key import code_version, cohort_fingerprint, fingerprint
from nerve.experiments.run_store import FAILED, RunStore
from nerve.methods import PRETRAINED
from nerve.methods.recentring import is_by_cohort

RESOLVED_CONFIG = "experiment.yaml"
_INPUTS = "inputs.json"
_OPEN_COHORTS = 4  # the most that are kept in memory with their tables and folds


class Inputs(NamedTuple):  # numpydoc ignore=PR02
    """What an experiment was prepared with.

    Parameters
    ----------
    data : dict
        The fingerprint of each cohort as it enters the experiment.
    code : str
        The version of the package, and a hash of every file of it.
    """

    data: dict[str, str]
    code: str


class Experiment:
    """A folder with a resolved config; cohorts are opened when asked for.

    Parameters
    ----------
    folder : path
        Of the experiment. `Experiment.prepare` and `Experiment.open` make one.
    config : ExperimentConfig
        With absolute paths.
    """

    def __init__(self, folder: str | os.PathLike[str], config: ExperimentConfig) -> None:
        self.folder = Path(folder)
        self.config = config
        self.store = RunStore(self.folder)
        # caches belong to the object, so that they end with it
        self._on_disk = cache(lambda name: Cohort.load(self.cohort_folder(name)))
        self._fingerprint = cache(self._find_fingerprint)
        self.cohort = lru_cache(maxsize=_OPEN_COHORTS)(self._open_cohort)
        self.prepared = lru_cache(maxsize=_OPEN_COHORTS)(self._prepare_cohort)

    # ---- making one

    @classmethod
    def prepare(
        cls, config: ExperimentConfig | str | os.PathLike[str], folder: str | os.PathLike[str]
    ) -> Self:
        """Make an experiment: cohorts are checked or simulated, and all runs can be planned.

        Parameters
        ----------
        config : ExperimentConfig or path
            The comparison; relative paths are looked for beside the file, then in the current
            folder.
        folder : path
            To write. Runs that it holds already are kept.

        Returns
        -------
        Experiment
            Its runs are planned and not computed.
        """
        base = Path.cwd()
        if not isinstance(config, ExperimentConfig):
            base = config_path(config).resolve().parent
            config = load_config(config)
        experiment = cls(claim(folder), _with_absolute_paths(config, base))
        resolved = experiment.config.model_dump(mode="json")
        write_text(experiment.folder / RESOLVED_CONFIG, yaml.safe_dump(resolved, sort_keys=False))
        for name, cohort in experiment.config.cohorts.items():
            if cohort.simulate is not None:
                experiment._simulate(name, cohort.simulate)
        fingerprints = {name: experiment._fingerprint(name) for name in experiment.config.cohorts}
        # every worker plans the same runs from this file
        inputs = {"cohorts": fingerprints, "code": code_version()}
        write_json(experiment.folder / _INPUTS, inputs)
        experiment._check_settings()
        return experiment

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open an experiment that was prepared before.

        Parameters
        ----------
        folder : path
            Of the experiment.

        Returns
        -------
        Experiment
            With the runs that it has.
        """
        path = Path(folder) / RESOLVED_CONFIG
        if not path.is_file():
            raise NerveError(
                f"{folder}: holds no {RESOLVED_CONFIG}, expected the folder of `nerve experiment "
                "CONFIG --out`."
            )
        return cls(folder, load_config(path))

    def _check_settings(self) -> None:
        """Refuse settings and columns that the cohorts do not allow, before anything is trained."""
        columns: set[str] = set()
        for name in self.config.cohorts:
            self.participants(name)
            columns.update(str(column) for column in self.cohort(name).participants)
        check_methods(self.config, "The experiment", self.parcellation)
        for entry in self.config.methods:
            for _, settings in entry.variants():
                recentre = settings.get("recentre")
                if is_by_cohort(recentre):  # "cohort+site": only what follows is a column
                    recentre = str(recentre).partition("+")[2]
                known_columns(as_names(recentre), columns, f"{entry.name}: recentre")
                phenotypes = as_names(settings.get("phenotypes"))
                known_columns(phenotypes, columns, f"{entry.name}: phenotypes")

    # ---- its runs

    @cached_property
    def plan(self) -> ExperimentPlan:
        """The runs of the experiment."""
        return ExperimentPlan(self.config, *self.inputs())

    @property
    def counts(self) -> Counter[str]:
        """How many runs are done, waiting, running, failed or not available."""
        return Counter(self.store.status(task.id) for task in self.plan.unique_tasks)

    def run(
        self,
        launcher: str = "local",
        jobs: int | None = None,
        on_status: StatusCallback = ignore_status,
        command: str = "",
    ) -> Results:
        """Do the runs that are not done, then write the results.

        Parameters
        ----------
        launcher : str
            "local" or "slurm".
        jobs : int, optional
            Runs at a time on this machine; one per core or graphics card by default.
        on_status : callable
            Called with a task and its status whenever a run begins or ends.
        command : str
            The command that was typed, for the report.

        Returns
        -------
        Results
            Of the runs that are done. Failed runs are listed by `failures`; they do not stop the
            others.
        """
        launch(self, launcher, jobs, on_status)
        results = collect(self, command)
        interpret_last_nerve(self)
        return results

    def failures(self) -> list[str]:
        """One line per failed run, with its reason."""
        table = runs_table(self)
        failed = table[table["status"] == FAILED]
        return [f"{row.run}: {row.reason}" for row in failed.itertuples()]

    # ---- what it was prepared with

    def inputs(self) -> Inputs:
        """Read what the experiment was prepared with."""
        path = self.folder / _INPUTS
        content = read_json(path)
        data = content.get("cohorts") if isinstance(content, dict) else None
        if (
            not isinstance(data, dict)
            or set(data) != set(self.config.cohorts)
            or "code" not in content
        ):
            raise problem(
                path, "it is not that of this experiment", remedy="Run `nerve experiment` again."
            )
        return Inputs(dict(data), str(content["code"]))

    def check_inputs(self) -> None:
        """Refuse if code or cohorts are no longer what the experiment was prepared with."""
        self.check_code()
        for name in self.config.cohorts:
            self.check_cohort(name)

    def check_cohort(self, name: str) -> None:
        """Refuse a cohort whose folder no longer holds what the experiment was prepared with."""
        trained_on = self.config.cohorts[name].train_on
        if trained_on is not None:
            self.check_cohort(trained_on)
        self._on_disk(name).check_unchanged()  # since this process has opened it
        if self._fingerprint(name) != self.inputs().data[name]:
            raise problem(
                self.cohort_folder(name),
                f"cohort {name!r} was changed after the experiment was started",
                remedy="Start the experiment again.",
            )

    def check_code(self) -> None:
        """Refuse to compute with other code than the experiment was prepared with."""
        if self.inputs().code != code_version():
            raise problem(
                self.folder,
                "the package was changed after the experiment was started",
                remedy="Start the experiment again.",
            )

    def _find_fingerprint(self, name: str) -> str:
        """The fingerprint of a cohort as it enters the experiment."""
        settings = self.config.cohorts[name]
        trained_on = self._fingerprint(settings.train_on) if settings.train_on else None
        return cohort_fingerprint(
            self._on_disk(name), self.parcellation, settings.columns, trained_on
        )

    # ---- its cohorts

    @cached_property
    def parcellation(self) -> Parcellation:
        """The region order of all cohorts: the one that the config names, or that of the first."""
        if self.config.parcellation is not None:
            return load_parcellation(self.config.parcellation)
        return self._on_disk(next(iter(self.config.cohorts))).parcellation

    def cohort_folder(self, name: str) -> Path:
        """The folder of a cohort."""
        path = self.config.cohorts[name].path
        return self.folder / "cohorts" / name if path is None else Path(path)

    def participants(self, name: str) -> tuple[Participants, Protocol]:
        """The participants of a cohort with their folds, and its protocol, resolved."""
        _, participants, protocol = self.prepared(name)
        return participants, protocol

    def evaluated(self, name: str) -> EvaluatedCohort:
        """A cohort with its participants and protocol, as results describe it."""
        settings = self.config.cohorts[name]
        participants, protocol = self.participants(name)
        return EvaluatedCohort(
            self.cohort(name),
            participants,
            protocol,
            label=settings.label or name,
            fingerprint=self._on_disk(name).fingerprint,
            simulated=settings.simulate is not None,
        )

    def scope_of(self, name: str, trained_on: Iterable[str]) -> str:
        """Say which of the tested participants of a cohort an encoder has seen.

        Parameters
        ----------
        name : str
            The cohort that is tested.
        trained_on : names of cohorts
            What the encoder was trained on.

        Returns
        -------
        str
            A name of `evaluation.rows.SCOPES`.
        """
        data = self.inputs().data
        is_seen = np.zeros(len(self.cohort(name)), bool)
        for other in trained_on:
            # cohorts are compared by fingerprint: one may be listed under two names
            if data[other] == data[name]:
                is_seen[:] = True
            else:
                is_seen |= shared_participants(self.cohort(name), self.cohort(other))
        return scope_of_seen(is_seen)

    def _open_cohort(self, name: str) -> Cohort:
        """A cohort in the region order and with the column names of the experiment."""
        settings = self.config.cohorts[name]
        cohort = copy(self._on_disk(name).align(self.parcellation))
        cohort.name = name
        if not settings.timeseries:
            cohort.timeseries = None
        cohort.participants = _renamed(cohort.participants, settings.columns, name)
        return cohort

    def _prepare_cohort(self, name: str) -> tuple[Cohort, Participants, Protocol]:
        """A cohort with its folds; where another one is trained on, that one followed by it."""
        protocol = self.config.protocol_of(name)
        trained_on = self.config.cohorts[name].train_on
        if trained_on is None:
            participants, resolved = prepare_participants(self.cohort(name), protocol)
            return self.cohort(name), participants, resolved
        return prepare_transfer(self.cohort(trained_on), self.cohort(name), protocol)

    def _simulate(self, name: str, arguments: dict[str, Any]) -> None:
        """Simulate a cohort, unless it was simulated with these arguments and this code."""
        path = self.cohort_folder(name)
        all_arguments = {
            "parcellation": self.config.parcellation or "schaefer400-17",
            "name": name,
            **arguments,
        }
        wanted = fingerprint([all_arguments, code_version()])
        with self.store.wait_for_lock(f"cohort-{name}"):
            exists = (path / "cohort.json").is_file()
            if exists and Cohort.load(path).notes.get("arguments") == wanted:
                return
            parameters = inspect.signature(simulate_cohort).parameters
            known_columns(arguments, parameters, f"simulate of cohort {name!r}")
            try:
                cohort = simulate_cohort(**all_arguments)
            except (TypeError, OverflowError) as error:
                raise NerveError(
                    f"simulate of cohort {name!r}: a value is of the wrong kind ({error})."
                ) from error
            cohort.notes["arguments"] = wanted
            cohort.save(path, overwrite=True)


def _renamed(table: pd.DataFrame, columns: dict[str, str], name: str) -> pd.DataFrame:
    """Rename columns to our names; one that `nerve ingest` has renamed already stays as it is."""
    to_rename = {
        ours: theirs
        for ours, theirs in columns.items()
        if theirs in table.columns or ours not in table.columns
    }
    known_columns(to_rename.values(), table.columns, f"participants of {name!r}")
    # where the table also has a column of our name, the renamed one takes its place
    replaced = to_rename.keys() - to_rename.values()
    kept = [column for column in table if column not in replaced]
    return table[kept].rename(columns={theirs: ours for ours, theirs in to_rename.items()})


def _with_absolute_paths(config: ExperimentConfig, base: Path) -> ExperimentConfig:
    """Make paths absolute: beside the experiment file, or else in the current folder."""

    def absolute(path: str | None) -> str | None:
        if path is None:
            return None
        beside = (base / path).resolve()
        here = Path(path).resolve()
        return str(here if not beside.exists() and here.exists() else beside)

    def model_path(model: str | None) -> str | None:
        """The path of a trained model; the name of one that comes with the package stays."""
        path = absolute(model)
        return path if path is not None and Path(path).exists() else model

    cohorts = {
        name: cohort.model_copy(update={"path": absolute(cohort.path)})
        for name, cohort in config.cohorts.items()
    }
    methods = []
    for entry in config.methods:
        changes: dict[str, Any] = {"features": absolute(entry.features)}
        if PRETRAINED in entry.settings:
            models = entry.settings[PRETRAINED]
            swept = isinstance(models, list)
            paths = [model_path(model) for model in (models if swept else [models])]
            changes["settings"] = entry.settings | {PRETRAINED: paths if swept else paths[0]}
        methods.append(entry.model_copy(update=changes))
    parcellation = config.parcellation
    if parcellation is not None and (base / parcellation).is_file():  # a table of the user's
        parcellation = absolute(parcellation)
    return config.model_copy(
        update={"cohorts": cohorts, "methods": methods, "parcellation": parcellation}
    )
