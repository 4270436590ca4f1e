"""Config → runs: which runs an experiment has, and which rows of the tables they are for.

A run is identified by what determines it (`run_key`). Rows that need the same run share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from nerve._utils.errors import NerveError, listed
from nerve.evaluation.feature_sets import NAMED
from nerve.evaluation.rows import NULL, SUPERVISED, Row, line_label
from nerve.experiments.config import ExperimentConfig, MethodConfig
from nerve.experiments.encoders import learns_in_folds
from nerve.experiments.method_rows import file_row, is_model, method_row
from nerve.experiments.run_key import Recipe, cohort_in_key, content_hash, pool_in_key
from nerve.experiments.tasks import (
    EncoderTask,
    NetworkTask,
    PredictionFromEncoder,
    PredictionFromFoldEncoders,
    PredictionFromNamedFeatures,
    PredictionFromSavedModel,
    PredictionFromTable,
    PredictionTask,
    Task,
)
from nerve.methods import method_class


class ExperimentPlan:
    """The runs of an experiment, each after the runs that it needs, and their rows.

    Parameters
    ----------
    config : ExperimentConfig
        The comparison.
    data : mapping
        The fingerprint of each cohort as it enters the experiment.
    code : str
        The version of the package, and a hash of every file of it.
    """

    def __init__(self, config: ExperimentConfig, data: Mapping[str, str], code: str) -> None:
        self.config = config
        self.data = data
        self.code = code
        self.pool = pool_in_key(config, data, code)  # what encoders are trained on

    @cached_property
    def tasks(self) -> list[Task]:
        """The runs of every row; two rows that a reader could not tell apart are refused."""
        tasks: list[Task] = []
        for number, entry in enumerate(self.config.methods):
            tasks += self._entry_tasks(number, entry)
        labels = {task.row.line: line_label(task.row) for task in tasks if task.row.kind != NULL}
        all_labels = list(labels.values())
        repeated = sorted({label for label in all_labels if all_labels.count(label) > 1})
        if repeated:
            raise NerveError(
                f"Two rows are called {listed(repeated)}: give each a `label` of its own."
            )
        return tasks

    @cached_property
    def unique_tasks(self) -> list[Task]:
        """One task per run: the first of those that share it."""
        by_id: dict[str, Task] = {}
        for task in self.tasks:
            by_id.setdefault(task.id, task)
        return list(by_id.values())

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the config."""
        return list({task.row.row: task.row for task in self.tasks}.values())

    def _entry_tasks(self, number: int, entry: MethodConfig) -> Iterator[Task]:
        """The runs of one entry of `methods`: its variants, seeds and null models."""
        cohorts = list(self.config.cohorts)
        if entry.cohorts is not None:
            cohorts = [name for name in cohorts if name in entry.cohorts]
        if entry.features is not None:
            yield from self._file_tasks(number, entry, entry.features, cohorts)
            return
        method = str(entry.method)
        variants = entry.variants()
        is_random = "seed" in method_class(method)._get_param_names()
        seeds = self.config.seeds if is_random else self.config.seeds[:1]
        for variant, (swept, settings) in enumerate(variants):
            line = f"{method}-{number}"
            if len(variants) > 1:
                line += f"-{variant}"
            for seed in seeds:
                recipe = self._recipe(entry, settings, seed)
                row = self._row(line, entry, recipe, swept)
                yield from self._method_tasks(row, recipe, cohorts, entry.scope)

        # null models: regions assigned to networks at random, with the seed of the model itself
        for permutation in range(entry.permutations):
            settings = variants[0][1] | {"patching": f"permuted{permutation}"}
            recipe = self._recipe(entry, settings, self.config.seeds[0])
            row = replace(
                self._row(f"null-{number}", entry, recipe, {}),
                row=f"null-{number}-{permutation}",
                label="Permutation",
                kind=NULL,
                group="null",
            )
            yield from self._method_tasks(row, recipe, cohorts)

    def _file_tasks(
        self, number: int, entry: MethodConfig, path: str, cohorts: list[str]
    ) -> Iterator[Task]:
        """The runs of a trained model, or of a table of features."""
        content = content_hash(path)
        row = replace(
            file_row(f"features-{number}", path),
            label=entry.name,
            group=entry.group,
        )
        task_class = PredictionFromSavedModel if is_model(path) else PredictionFromTable
        yield from self._predictions(
            task_class, row, cohorts, path=path, content=content, scope=entry.scope
        )

    def _method_tasks(
        self, row: Row, recipe: Recipe, cohorts: list[str], scope: str = "not stated"
    ) -> Iterator[Task]:
        """The runs of one row of a method: its training, and its predictions on each cohort."""
        if recipe.method in NAMED:  # computed by the evaluation itself
            yield from self._predictions(
                PredictionFromNamedFeatures,
                row,
                cohorts,
                name=recipe.method,
                settings=recipe.settings,
            )
        elif row.kind == SUPERVISED:
            for name in cohorts:
                for target in self.config.protocol_of(name).targets:
                    yield NetworkTask(
                        recipe=recipe,
                        row=row,
                        determined_by=cohort_in_key(self.config, name, self.data, self.code),
                        cohort=name,
                        target=target,
                        scope=scope,
                    )
        else:
            yield from self._encoder_tasks(row, recipe, cohorts)

    def _encoder_tasks(self, row: Row, recipe: Recipe, cohorts: list[str]) -> Iterator[Task]:
        """The runs of a method that learns without labels: on all participants, or in each fold."""
        in_folds = []
        on_all = []
        for name in cohorts:
            protocol = self.config.protocol_of(name)
            if learns_in_folds(protocol, recipe.settings.get("recentre")):
                in_folds.append(name)
            else:
                on_all.append(name)
        yield from self._predictions(
            PredictionFromFoldEncoders, row, in_folds, recipe=recipe, pool=self.pool
        )
        if not on_all:
            return
        if not self.pool["pretrained_on"]:
            raise NerveError(
                f"Row {line_label(row)!r} needs a cohort to be trained on, expected at least one "
                "without `pretrain: false`."
            )
        encoder = EncoderTask(recipe=recipe, row=row, determined_by=self.pool)
        yield encoder
        yield from self._predictions(PredictionFromEncoder, row, on_all, needs=(encoder.id,))

    def _predictions(
        self, task_class: type[PredictionTask], row: Row, cohorts: list[str], **fields: Any
    ) -> Iterator[Task]:
        """One run per cohort that predicts its targets from the features of a row."""
        for name in cohorts:
            determined_by = cohort_in_key(self.config, name, self.data, self.code)
            yield task_class(row=row, determined_by=determined_by, cohort=name, **fields)

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
            row,
            line=line,
            label=entry.label or row.title,
            group=entry.group,
            seed=recipe.seed,
        )

    def _recipe(self, entry: MethodConfig, settings: Mapping[str, Any], seed: int) -> Recipe:
        """What is trained for one variant and seed."""
        preset = entry.preset or self.config.preset
        return Recipe.with_file_hashes(str(entry.method), preset, settings, seed)
