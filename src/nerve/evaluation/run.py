"""Predictions of one feature set on a cohort, out of fold: the table that everything downstream reads."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveWarning, listed, naming_participants
from nerve._utils.privacy import for_screen
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.evaluation.features import Features, Prepared, feature_sets
from nerve.evaluation.krylov import pays
from nerve.evaluation.own_probe import checked_probe, probe_name
from nerve.evaluation.people import People, prepare_people
from nerve.evaluation.predict import null_correlations, out_of_fold_predictions
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.transfer import prepare_transfer

NAMED_BY = ["cohort", "target", "method", "variant", "seed"]
PREDICTED = ["cohort", "target", "participant", "fold", "observed", "predicted", "observed_raw"]


def evaluate(
    features: Any,
    cohort: Cohort,
    protocol: Protocol,
    *,
    test: Cohort | None = None,
    probe: Any = None,
    method: str | None = None,
    variant: str = "",
    model_seed: int | None = None,
) -> pd.DataFrame:
    """The predictions table of every feature set; `nerve.evaluate` says what features may be."""
    if test is None:
        people, protocol = prepare_people(cohort, protocol)
    else:
        cohort, people, protocol = prepare_transfer(cohort, test, protocol)
    sets = feature_sets(features, cohort, method)
    if probe is not None:
        for one in sets:
            one.probe = checked_probe(probe)
        variant = variant or probe_name(probe)
    notes = [
        *people.notes,
        *(note for one in sets for note in feature_notes(one, people, protocol)),
    ]
    for note in dict.fromkeys(notes):
        warnings.warn(for_screen(note), NerveWarning, stacklevel=2)
    names: dict[str, Any] = {
        "variant": variant,
        "seed": protocol.seed if model_seed is None else model_seed,
    }
    parts = []
    for one in progress_bar(sets, label="evaluation", unit="feature sets"):
        with naming_participants(people.ids):
            prepared = one.prepare(cohort, people, protocol)
        parts.append(predict_one(one, prepared, people, protocol).assign(method=one.name, **names))
    table = pd.concat(parts, ignore_index=True)
    return table[[*NAMED_BY, *table.columns.difference(NAMED_BY, sort=False)]]


def feature_notes(features: Features, people: People, protocol: Protocol) -> list[str]:
    """What a user should be told of one feature set."""
    notes = list(features.notes)
    if protocol.regress_features and protocol.covariates:
        notes.append(
            "Covariates are regressed from the features too: with a non-linear probe this can leak confounds into the "
            "prediction instead of removing them. Compare with regress_features=False."
        )
    n, n_folds = len(people.ids), len(np.unique(people.folds[0]))
    if features.is_approximate(n, protocol):
        notes.append(
            f"{features.name}: with more than {protocol.exact_up_to:,} participants the kernel goes through "
            f"{protocol.n_landmarks:,} of them (Nyström) and is approximate: r may fall by some hundredths."
        )
    elif pays(n - n // n_folds, people.targets.shape[1], protocol.n_inner_folds):
        notes.append(
            f"With {n:,} participants, a kernel of all of them is solved by Lanczos' method instead of a "
            "decomposition; `python -m benchmarks thousands` compares both."
        )
    return notes


def predict_one(
    features: Features, prepared: Prepared, people: People, protocol: Protocol
) -> pd.DataFrame:
    """The predictions of one feature set, over all repeats: columns `PREDICTED`, and repeat if there are several.

    `prepared` is what `features.prepare` gave: it is made once for all that is computed of one feature set.
    Where a column has three or more classes, each is a target, and `whole` names the column. Where another cohort is
    trained on, `training_mean` is the mean of its values after covariates.
    """
    parts, options = [], _options(features, people) | {"groups": people.inner_groups}
    model, source = prepared
    with naming_participants(people.ids):
        for repeat, folds in enumerate(people.folds):
            parts.append(
                out_of_fold_predictions(model, source, folds=folds, **options).assign(repeat=repeat)
            )
    table = pd.concat(parts, ignore_index=True)
    _warn_of_no_difference(table, features.name)
    whole = [people.whole.get(target, "") for target in table["target"]]
    table = table.assign(
        cohort=people.cohort, participant=people.ids[table["position"].to_numpy(int)], whole=whole
    )
    more = {
        "whole": people.whole,
        "training_mean": people.trained_on,
        "repeat": protocol.n_repeats > 1,
    }
    return table[[*PREDICTED, *(name for name, there in more.items() if there)]]


def null_of_one(
    features: Features, prepared: Prepared, people: People, protocol: Protocol
) -> pd.DataFrame:
    """Correlations of permuted targets on the folds of the first repeat: columns target and r."""
    options = _options(features, people) | {
        "groups": people.groups,
        "blocks": people.sites,
        "seed": protocol.seed,
    }
    options |= {"n_permutations": protocol.n_permutations}
    model, source = prepared
    with naming_participants(people.ids):
        null = null_correlations(model, source, folds=people.folds[0], **options)
    return pd.concat(
        [pd.DataFrame({"target": name, "r": values}) for name, values in null.items()],
        ignore_index=True,
    )


def _options(features: Features, people: People) -> dict[str, Any]:
    """What predictions of targets, permuted or not, are made with."""
    covariates = people.covariates if features.removes_covariates else None
    targets = people.without(features.missing).targets
    return {
        "targets": targets,
        "covariates": covariates,
        "order": people.order,
        "whole": people.whole,
    }


def _warn_of_no_difference(table: pd.DataFrame, name: str) -> None:
    """Say of which targets everyone in a fold is predicted to be alike: r then only compares means of folds."""
    folds = table.groupby(["target", "repeat", "fold"], sort=False)["predicted"].agg(
        ["size", "min", "max"]
    )
    spread = (folds["max"] - folds["min"])[folds["size"] > 1].groupby("target", sort=False).max()
    least = (
        1e-6 * table.groupby("target")["observed"].std()
    )  # features of float32 differ by more where they differ
    if alike := [str(target) for target in spread.index if spread[target] <= least[target]]:
        said = f"{name}: everyone in a fold is predicted to be alike in {listed(alike)}; the features say nothing of it"
        warnings.warn(
            f"{said}, and its r only compares means of folds.", NerveWarning, stacklevel=3
        )
