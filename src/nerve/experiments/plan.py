"""Config → runs. Each run is identified by the fingerprint of what determines it; shared work is one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveError, listed
from nerve.evaluation.feature_sets import NAMED
from nerve.evaluation.rows import NULL, SUPERVISED, Row, line_label
from nerve.experiments.config import ExperimentConfig, MethodConfig
from nerve.experiments.method_rows import given_row, is_model, method_row
from nerve.experiments.store import content_hash
from nerve.experiments.work import (
    Encode,
    Encoded,
    FromModel,
    FromTable,
    InFolds,
    KeptModel,
    Named,
    Recipe,
    Task,
    Train,
)
from nerve.methods import method_class


class Planner:
    """The runs of an experiment, each after what it needs, and the rows that they are for.

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
        pooled = [name for name, cohort in config.cohorts.items() if cohort.pretrain]
        series = {name: config.cohorts[name].timeseries for name in pooled}
        self.pool = {
            "pretrained_on": {name: data[name] for name in pooled},
            "timeseries": series,
            "code": code,
        }

    @cached_property
    def tasks(self) -> list[Task]:
        """All runs, for every row that asks for them; two lines that a reader could not tell apart are refused."""
        tasks = [
            task
            for number, entry in enumerate(self.config.methods)
            for task in self._tasks(number, entry)
            if not task.cohort or entry.cohorts is None or task.cohort in entry.cohorts
        ]
        lines = {task.row.line: line_label(task.row) for task in tasks if task.row.kind != NULL}
        twice = sorted({label for label in lines.values() if list(lines.values()).count(label) > 1})
        if twice:
            raise NerveError(
                f"Two rows are called {listed(twice)}: give each a `label` of its own."
            )
        return tasks

    @cached_property
    def unique(self) -> list[Task]:
        """One task per id: rows that ask for the same run share it."""
        return list({task.id: task for task in reversed(self.tasks)}.values())[::-1]

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the config."""
        return list({task.row.row: task.row for task in self.tasks}.values())

    def _tasks(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        if entry.features is not None:  # of a trained model, or a table
            line, content = f"features-{number}", content_hash(entry.features)
            probe = FromModel if is_model(entry.features) else FromTable
            row = replace(given_row(line, entry.features), label=entry.name, group=entry.group)
            yield from self._probes(
                row, probe, path=entry.features, content=content, scope=entry.scope
            )
            return
        variants, random = (
            entry.variants(),
            "seed" in method_class(str(entry.method))._get_param_names(),
        )
        for k, (swept, settings) in enumerate(variants):
            line = f"{entry.method}-{number}" + (f"-{k}" if len(variants) > 1 else "")
            for seed in self.config.seeds if random else self.config.seeds[:1]:
                recipe = self._recipe(entry, settings, seed)
                yield from self._trained(self._row(line, entry, recipe, swept), recipe)
        for k in range(
            entry.permutations
        ):  # regions assigned to networks at random, with the model's own seed
            recipe = self._recipe(
                entry, variants[0][1] | {"patching": f"permuted{k}"}, self.config.seeds[0]
            )
            row = self._row(f"null-{number}", entry, recipe, {})
            row = replace(
                row, row=f"null-{number}-{k}", label="Permutation", kind=NULL, group="null"
            )
            yield from self._trained(row, recipe)

    def _trained(self, row: Row, recipe: Recipe) -> Iterator[Task]:
        """A supervised network inside each fold; an encoder once, or, strictly, inside each fold; and its probes."""
        strict = (
            self.config.protocol_of(next(iter(self.config.cohorts))).pretrain_scope == "train_folds"
        )
        if recipe.method in NAMED:  # computed by the evaluation itself
            yield from self._probes(row, Named, name=recipe.method, settings=recipe.settings)
        elif row.kind == SUPERVISED:
            for name in self.config.cohorts:
                for target in self.config.protocol_of(name).targets:
                    yield Train(
                        recipe=recipe, row=row, on=self._evaluated(name), cohort=name, target=target
                    )
        # with everyone's means the participants of a site sum to zero: who is tested would be known from the others
        elif strict or recipe.settings.get("recentre"):
            yield from self._probes(row, InFolds, recipe=recipe, pool=self.pool)
        elif not self.pool["pretrained_on"]:
            raise NerveError(
                f"Row {line_label(row)!r} needs a cohort to be trained on, expected at least one without "
                "`pretrain: false`."
            )
        else:
            encoder = Encode(recipe=recipe, row=row, on=self.pool)
            yield encoder
            yield from self._probes(row, Encoded, needs=(encoder.id,))

    # ---- parts

    def _row(self, line: str, entry: MethodConfig, recipe: Recipe, swept: dict[str, Any]) -> Row:
        """The row of a recipe."""
        row = method_row(
            f"{line}-s{recipe.seed}" if len(self.config.seeds) > 1 else line,
            recipe.method,
            recipe.make(),
            recipe.preset,
            recipe.settings,
            swept,
            [self.config.protocol_of(name) for name in self.config.cohorts],
        )
        return replace(
            row, line=line, label=entry.label or row.title, group=entry.group, seed=recipe.seed
        )

    def _recipe(self, entry: MethodConfig, settings: Mapping[str, Any], seed: int) -> Recipe:
        files = {}
        for name, value in settings.items():  # a table of regions for `patching`, say
            if isinstance(value, str) and Path(value).is_file():
                files[name] = content_hash(value)
        return Recipe(
            str(entry.method), entry.preset or self.config.preset, dict(settings), seed, files
        )

    def _probes(self, row: Row, kind: type[KeptModel], **own: Any) -> Iterator[Task]:
        for name in self.config.cohorts:
            yield kind(row=row, on=self._evaluated(name), cohort=name, **own)

    def _evaluated(self, name: str) -> dict[str, Any]:
        """A cohort under its protocol, as it enters the key of a run."""
        series, protocol = (
            self.config.cohorts[name].timeseries,
            self.config.protocol_of(name).deciding(),
        )
        return {
            "data": self.data[name],
            "timeseries": series,
            "protocol": protocol,
            "code": self.code,
        }
