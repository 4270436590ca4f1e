"""Config → runs: which runs an experiment has, and which rows of the tables they are for.

A run is identified by the fingerprint of what determines it. Rows that need the same run share it.
"""

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
from nerve.experiments.fingerprints import content_hash
from nerve.experiments.method_rows import file_row, is_model, method_row
from nerve.experiments.tasks import (
    EncoderProbe,
    EncoderTask,
    FoldEncoderProbe,
    ModelProbe,
    NamedProbe,
    NetworkTask,
    ProbeTask,
    Recipe,
    TableProbe,
    Task,
)
from nerve.methods import PRETRAINED, method_class
from nerve.methods.pretrained import find_model


class ExperimentPlan:
    """The runs of an experiment, each after what it needs, and the rows that they are for.

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
        pooled = [name for name, cohort in config.cohorts.items() if cohort.pretrain]
        # what encoders are trained on, as it enters the key of a run
        self.pool = {
            "pretrained_on": {name: data[name] for name in pooled},
            "timeseries": {name: config.cohorts[name].timeseries for name in pooled},
            "code": code,
        }

    @cached_property
    def tasks(self) -> list[Task]:
        """The runs of every row; two rows that a reader could not tell apart are refused."""
        tasks = []
        for number, entry in enumerate(self.config.methods):
            for task in self._entry_tasks(number, entry):
                if not task.cohort or entry.cohorts is None or task.cohort in entry.cohorts:
                    tasks.append(task)
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
        if entry.features is not None:
            yield from self._file_tasks(number, entry, entry.features)
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
                yield from self._method_tasks(row, recipe, entry.scope)

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
            yield from self._method_tasks(row, recipe)

    def _file_tasks(self, number: int, entry: MethodConfig, path: str) -> Iterator[Task]:
        """The runs of a trained model, or of a table of features."""
        content = content_hash(path)
        row = replace(
            file_row(f"features-{number}", path),
            label=entry.name,
            group=entry.group,
        )
        probe = ModelProbe if is_model(path) else TableProbe
        yield from self._probes(row, probe, path=path, content=content, scope=entry.scope)

    def _method_tasks(self, row: Row, recipe: Recipe, scope: str = "not stated") -> Iterator[Task]:
        """The runs of one row of a method: where it is trained, and where it predicts."""
        first_cohort = next(iter(self.config.cohorts))
        pretrain_scope = self.config.protocol_of(first_cohort).pretrain_scope
        if recipe.method in NAMED:  # computed by the evaluation itself
            yield from self._probes(row, NamedProbe, name=recipe.method, settings=recipe.settings)
        elif row.kind == SUPERVISED:
            for name in self.config.cohorts:
                for target in self.config.protocol_of(name).targets:
                    yield NetworkTask(
                        recipe=recipe,
                        row=row,
                        determined_by=self._cohort_key(name),
                        cohort=name,
                        target=target,
                        scope=scope,
                    )
        # With the means of all participants, those of a site sum to zero: a tested participant
        # could be computed from the others. So means are learned inside each fold.
        elif pretrain_scope == "train_folds" or recipe.settings.get("recentre"):
            yield from self._probes(row, FoldEncoderProbe, recipe=recipe, pool=self.pool)
        elif not self.pool["pretrained_on"]:
            raise NerveError(
                f"Row {line_label(row)!r} needs a cohort to be trained on, expected at least one "
                "without `pretrain: false`."
            )
        else:
            encoder = EncoderTask(recipe=recipe, row=row, determined_by=self.pool)
            yield encoder
            yield from self._probes(row, EncoderProbe, needs=(encoder.id,))

    def _probes(self, row: Row, probe: type[ProbeTask], **fields: Any) -> Iterator[Task]:
        """One run per cohort that predicts its targets from the features of a row."""
        for name in self.config.cohorts:
            yield probe(row=row, determined_by=self._cohort_key(name), cohort=name, **fields)

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
        """What is trained for one variant and seed, with hashes of the files that it names."""
        files = {}
        for name, value in settings.items():  # a table of regions for `patching`, say
            if name == PRETRAINED and value is not None:
                files[name] = content_hash(find_model(value))
            elif isinstance(value, str) and Path(value).is_file():
                files[name] = content_hash(value)
        preset = entry.preset or self.config.preset
        return Recipe(str(entry.method), preset, dict(settings), seed, files)

    def _cohort_key(self, name: str) -> dict[str, Any]:
        """A cohort under its protocol, as it enters the key of a run."""
        return {
            "data": self.data[name],
            "timeseries": self.config.cohorts[name].timeseries,
            "protocol": self.config.protocol_of(name).prediction_settings(),
            "code": self.code,
        }
