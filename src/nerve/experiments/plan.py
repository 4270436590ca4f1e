"""Config → runs. Each run is identified by the fingerprint of what determines it; shared work is one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveError, listed
from nerve.evaluation.features import NAMED
from nerve.evaluation.rows import NULL, SELF_SUPERVISED, SUPERVISED, Row, line_label
from nerve.experiments.config import ExperimentConfig, MethodConfig
from nerve.experiments.store import content_hash
from nerve.experiments.work import (
    Encode,
    Encoded,
    InFolds,
    Named,
    Probe,
    Recipe,
    Task,
    Train,
    given,
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
            probe, about = given(entry.features)
            line, content = f"features-{number}", content_hash(entry.features)
            row = Row(row=line, line=line, label=entry.name, group=entry.group, **about)
            yield from self._probes(
                row, probe, path=entry.features, content=content, scope=entry.scope
            )
            return
        variants, random = (
            entry.variants(),
            "seed" in method_class(str(entry.method))._get_param_names(),
        )
        if entry.select:
            self._check_choice(entry)
        for k, some in enumerate([variants] if entry.select else [[one] for one in variants]):
            line = f"{entry.method}-{number}" + (f"-{k}" if len(variants) > 1 else "")
            for seed in self.config.seeds if random else self.config.seeds[:1]:
                recipes = [self._recipe(entry, settings, seed) for _, settings in some]
                row = self._row(line, entry, recipes[0], some[0][0])
                yield from self._trained(_chosen(row, entry) if entry.select else row, *recipes)
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

    def _trained(self, row: Row, *recipes: Recipe) -> Iterator[Task]:
        """A supervised network inside each fold; an encoder once, or, strictly, inside each fold; and its probes.

        Of several recipes, variants of one another, every fold chooses one.
        """
        recipe = recipes[0]
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
            encoders = [Encode(recipe=one, row=row, on=self.pool) for one in recipes]
            yield from encoders
            yield from self._probes(row, Encoded, needs=tuple(task.id for task in encoders))

    def _check_choice(self, entry: MethodConfig) -> None:
        """Refuse `select` where there is no encoder to choose, or every fold has encoders of its own."""
        scopes = {self.config.protocol_of(name).pretrain_scope for name in self.config.cohorts}
        recentred = any(settings.get("recentre") for _, settings in entry.variants())
        if (
            method_class(str(entry.method)).role != SELF_SUPERVISED
            or scopes != {"all"}
            or recentred
        ):
            raise NerveError(
                f"Row {entry.name!r}: `select` chooses among variants of an encoder with pretrain_scope: all and "
                "without `recentre`; list the variants as rows instead."
            )

    # ---- parts

    def _row(self, line: str, entry: MethodConfig, recipe: Recipe, swept: dict[str, Any]) -> Row:
        """The row of a recipe: its settings are those that differ from the preset, and those that were swept."""
        method = recipe.make()
        has_preset = recipe.method not in NAMED and method.has_presets()
        if recipe.method in NAMED:  # the protocol has its settings
            protocols = [self.config.protocol_of(name) for name in self.config.cohorts]
            given = recipe.settings.items()
            differences = {
                name: value
                for name, value in given
                if any(getattr(one, name) != value for one in protocols)
            }
        else:
            differences = method.differences(method.described_parameters(), recipe.preset)
        return Row(
            row=f"{line}-s{recipe.seed}" if len(self.config.seeds) > 1 else line,
            line=line,
            method=recipe.method,
            label=entry.label or method.title,
            kind=method.role,
            group=entry.group,
            view=method.view,
            variant=", ".join(f"{name}={value}" for name, value in swept.items() if name != "view"),
            settings=swept | differences,
            preset=recipe.preset if has_preset else "",
            title=method.title,
            swept=",".join(swept),
            seed=recipe.seed,
        )

    def _recipe(self, entry: MethodConfig, settings: Mapping[str, Any], seed: int) -> Recipe:
        files = {}
        for name, value in settings.items():  # a table of regions for `patching`, say
            if isinstance(value, str) and Path(value).is_file():
                files[name] = content_hash(value)
        return Recipe(
            str(entry.method), entry.preset or self.config.preset, dict(settings), seed, files
        )

    def _probes(self, row: Row, kind: type[Probe], **own: Any) -> Iterator[Task]:
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


def _chosen(row: Row, entry: MethodConfig) -> Row:
    """The row of which every fold chooses a variant: what is chosen among stands in place of the values."""
    swept = {name: values for name, values in entry.settings.items() if isinstance(values, list)}
    among = {
        name: f"chosen in each fold from {', '.join(map(str, values))}"
        for name, values in swept.items()
    }
    return replace(row, settings=row.settings | among, swept="", variant="chosen in each fold")
