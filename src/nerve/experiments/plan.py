"""Config → runs. Each run is identified by the fingerprint of what determines it; shared work is one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nerve.checks import NerveError, listed
from nerve.evaluation.features import NAMED
from nerve.evaluation.rows import NULL, SELF_SUPERVISED, SUPERVISED, Row, line_label
from nerve.experiments.config import ExperimentConfig, MethodConfig
from nerve.experiments.store import content_hash, fingerprint
from nerve.experiments.work import (
    Chosen,
    Encode,
    Encoded,
    Evaluated,
    InFolds,
    Named,
    Probe,
    Recipe,
    Spec,
    Train,
    Work,
    given_features,
)


@dataclass(frozen=True)
class Task:
    """One run: what it does, and the row of the tables that it is for.

    Parameters
    ----------
    work : Encode, Probe or Train
        What is computed; its key, plain JSON, determines the result and says nothing about how it is called.
    row : Row
    cohort : str
        Whose targets it predicts; none for the training of an encoder.
    needs : tuple of str
        Ids of runs that must be done before.
    """

    work: Work
    row: Row
    cohort: str = ""
    needs: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(self.work.key())

    @property
    def label(self) -> str:
        """What progress and status call it."""
        seed = f"seed {self.row.seed}" if self.row.seed else ""
        parts = [line_label(self.row), seed, self.cohort, self.work.target]
        return f"{self.work.kind} " + " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class Plan:
    """Runs in an order in which each comes after what it needs, and the rows that they are for."""

    tasks: tuple[Task, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order of the config."""
        return tuple({task.row.row: task.row for task in self.tasks}.values())

    @cached_property
    def unique(self) -> tuple[Task, ...]:
        """One task per id: rows that ask for the same run share it."""
        return tuple({task.id: task for task in reversed(self.tasks)}.values())[::-1]

    def waves(self) -> list[list[Task]]:
        """Runs that may go at the same time, wave after wave."""
        ready = [[task for task in self.unique if not task.needs], [task for task in self.unique if task.needs]]
        return [wave for wave in ready if wave]


class Planner:
    """The runs of an experiment.

    Parameters
    ----------
    config : ExperimentConfig
    data : mapping
        The fingerprint of each cohort as it enters the experiment.
    code : str
        The version of the code that computes.
    """

    def __init__(self, config: ExperimentConfig, data: Mapping[str, str], code: str) -> None:
        self.config, self.data, self.code = config, data, code
        self.pooled = {name: data[name] for name, cohort in config.cohorts.items() if cohort.pretrain}

    def plan(self) -> Plan:
        """All runs; two lines that a reader could not tell apart are refused."""
        tasks = [
            task
            for number, entry in enumerate(self.config.methods)
            for task in self._tasks(number, entry)
            if not task.cohort or entry.cohorts is None or task.cohort in entry.cohorts
        ]
        lines = {task.row.line: line_label(task.row) for task in tasks if task.row.kind != NULL}
        twice = sorted({label for label in lines.values() if list(lines.values()).count(label) > 1})
        if twice:
            raise NerveError(f"Two rows are called {listed(twice)}: give each a `label` of its own.")
        return Plan(tuple(tasks))

    def _tasks(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        if entry.features is not None:
            yield from self._given(number, entry)
        elif entry.method in NAMED:
            yield from self._named(number, entry)
        elif entry.select:
            yield from self._selected(number, entry)
        else:
            for k, (swept, settings) in enumerate(entry.variants()):
                for seed in self._seeds(entry):
                    row = self._row(number, entry, k, swept, settings, seed)
                    yield from self._trained(row, self._recipe(entry, settings, seed))
        yield from self._permuted(number, entry)

    # ---- rows

    def _named(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        """Raw FC, its components, covariates: computed by the evaluation itself."""
        row = self._row(number, entry, 0, {}, entry.settings, self.config.seeds[0])
        for name in self.config.cohorts:
            yield self._probe(row, name, Named(str(entry.method), dict(entry.settings)))

    def _given(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        """Features that exist: of a trained model, or a table."""
        spec = given_features(str(entry.features), entry.scope, content_hash(str(entry.features)))
        row = Row(f"features-{number}", f"features-{number}", spec.method, entry.name, spec.kind, entry.group)
        for name in self.config.cohorts:
            yield self._probe(replace(row, view=spec.view), name, spec)

    def _trained(self, row: Row, recipe: Recipe) -> Iterator[Task]:
        """A supervised network inside each fold; an encoder once, or, strictly, inside each fold; and its probes."""
        if row.kind == SUPERVISED:
            for name in self.config.cohorts:
                for target in self.config.protocol_of(name).targets:
                    yield Task(Train(recipe, self._evaluated(name), target), row, name)
            return
        encode = self._encode(recipe)
        strict = self.config.protocol_of(next(iter(self.config.cohorts))).pretrain_scope == "train_folds"
        # with everyone's means the participants of a site sum to zero: who is tested would be known from the others
        if strict or recipe.settings.get("recentre"):
            for name in self.config.cohorts:
                yield self._probe(row, name, InFolds(encode))
            return
        if not self.pooled:
            raise NerveError(
                f"Row {line_label(row)!r} needs a cohort to be trained on, expected at least one without "
                "`pretrain: false`."
            )
        first = Task(encode, row)
        yield first
        for name in self.config.cohorts:
            yield self._probe(row, name, Encoded(first.id), (first.id,))

    def _selected(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        """The encoders of all variants, and one probe per seed and cohort that chooses among them in every fold."""
        if self._kind(entry) != SELF_SUPERVISED or any(
            self.config.protocol_of(name).pretrain_scope != "all" for name in self.config.cohorts
        ):
            raise NerveError(
                f"Row {entry.name!r}: `select` chooses among variants of an encoder with pretrain_scope: all; list the "
                "variants as rows instead."
            )
        for seed in self._seeds(entry):
            row = self._row(number, entry, 0, {}, entry.variants()[0][1], seed)
            row = replace(row, variant="chosen in each fold")
            encoders = [Task(self._encode(self._recipe(entry, one, seed)), row) for _, one in entry.variants()]
            yield from encoders
            ids = tuple(task.id for task in encoders)
            for name in self.config.cohorts:
                yield self._probe(row, name, Chosen(ids), ids)

    def _permuted(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        """Null models: regions assigned to networks at random, one permutation per model, with the model's own seed."""
        seed = self.config.seeds[0]
        for k in range(entry.permutations):
            settings = entry.variants()[0][1] | {"patching": f"permuted{k}"}
            row = self._row(number, entry, 0, {}, settings, seed)
            row = replace(row, row=f"null-{number}-{k}", line=f"null-{number}", label="Permutation", kind=NULL,
                          group="null", variant="")  # fmt: skip
            yield from self._trained(row, self._recipe(entry, settings, seed))

    # ---- parts

    def _row(
        self, number: int, entry: MethodConfig, k: int, swept: dict[str, Any], settings: dict[str, Any], seed: int
    ) -> Row:
        method = self._recipe(entry, settings, seed).make("cpu")
        line = f"{entry.method}-{number}" + (f"-{k}" if len(entry.variants()) > 1 else "")
        variant = ", ".join(f"{name}={value}" for name, value in swept.items() if name != "view")
        return Row(
            row=f"{line}-s{seed}" if len(self.config.seeds) > 1 else line,
            line=line,
            method=str(entry.method),
            label=entry.label or method.title,
            kind=method.role,
            group=entry.group,
            view=method.view,
            variant=variant,
            settings=swept,
            preset="" if entry.method in NAMED else entry.preset or self.config.preset,
            seed=seed,
        )

    def _recipe(self, entry: MethodConfig, settings: Mapping[str, Any], seed: int) -> Recipe:
        return Recipe(str(entry.method), entry.preset or self.config.preset, dict(settings), seed)

    def _kind(self, entry: MethodConfig) -> str:
        from nerve.methods import method_class

        return str(method_class(str(entry.method)).role)

    def _seeds(self, entry: MethodConfig) -> list[int]:
        from nerve.methods import method_class

        random = "seed" in method_class(str(entry.method))._get_param_names()
        return self.config.seeds if random else self.config.seeds[:1]

    def _encode(self, recipe: Recipe) -> Encode:
        series = {name: self.config.cohorts[name].timeseries for name in self.pooled}
        return Encode(recipe, self.pooled, series, self.code)

    def _probe(self, row: Row, cohort: str, features: Spec, needs: tuple[str, ...] = ()) -> Task:
        return Task(Probe(features, self._evaluated(cohort)), row, cohort, needs)

    def _evaluated(self, name: str) -> Evaluated:
        protocol = self.config.protocol_of(name).deciding()
        return Evaluated(name, self.data[name], self.config.cohorts[name].timeseries, protocol, self.code)


def make_plan(config: ExperimentConfig, data: Mapping[str, str], code: str) -> Plan:
    """The runs of an experiment; see `Planner`."""
    return Planner(config, data, code).plan()
