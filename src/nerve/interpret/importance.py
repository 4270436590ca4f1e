"""Which network pairs carry a prediction: occlusion (what the model needs) and patterns (where the signal is seen).

Patterns are Haufe's: weights of a model say what cancels noise, patterns say where the predicted signal is seen. For a
linear model ŷ = wᵀx the pattern is Σ_x w / var(ŷ) = cov(x, ŷ) / var(ŷ) (Haufe et al., 2014). The covariance can be
formed for any model and in any space: here between FC and the out-of-fold predictions of kernel ridge on whatever
features, so that it maps an embedding back to network pairs. We divide by the standard deviation of ŷ, which gives the
change of FC that goes with one standard deviation of the prediction.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, NerveWarning, listed
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.evaluation import adjusted_p
from nerve.evaluation.bootstrap import (
    interval,
    resample_counts,
    two_sided_p,
    weighted_correlations,
)
from nerve.evaluation.participants import Participants, prepare_participants
from nerve.evaluation.protocol import Protocol, as_names, known_fields
from nerve.interpret.occlusion import (
    OccludedPredictions,
    chunks,
    embedding_of,
    occluded_predictions,
)
from nerve.interpret.stability import as_encoders, stability


def patch_importance(
    features: Any,
    cohort: Cohort,
    targets: str | Sequence[str],
    covariates: str | Sequence[str] = (),
    *,
    patching: Patching | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Occlusion and Haufe's pattern of every network pair, out of fold, with bootstrap intervals over participants.

        drop_p = r(observed, predicted) - r(observed, predicted with patch p hidden)
        pattern_p = mean over the entries x of patch p of cov(x, ŷ) / sd(ŷ)

    The two answer different questions. Occlusion finds what the fitted model cannot do without: of pairs that tell the
    same, none may be missed. A pattern finds where FC goes with the prediction, also where other pairs tell it already.

    Parameters
    ----------
    features : "raw", a fitted encoder, or several that differ in the seed
        FC above the diagonal, or what `transform` gives. Predictions are those of `nerve.evaluate`: same folds and λ.
    cohort : Cohort
    targets, covariates : names of columns of the participants table
    patching : Patching, optional
        Patches to hide; by default those of the encoder, else one for each pair of networks.
    **options
        Fields of `nerve.Protocol`: groups, n_folds, n_repeats, kernel, seed, n_bootstrap, motion …

    Returns
    -------
    DataFrame
        One row per target and patch, largest drop first: target, network_a, network_b, n (participants), r, r_low,
        r_high, r_occluded, drop, drop_low, drop_high (95 %), p, q (over the target's patches), stability (of drops over
        seeds), pattern, pattern_low, pattern_high, pattern_rms, pattern_stability, n_seeds (seeds ×
        repeats of the folds).

    Notes
    -----
    Intervals cover the choice of participants, given the fitted models; `stability` covers the choice of the seed.
    """
    asked = known_fields(options, "patch_importance()")
    protocol = Protocol(targets=as_names(targets), covariates=as_names(covariates), **asked)
    if protocol.combat or protocol.regress_features:
        raise NerveError("patch_importance hides patches before the features are made, expected combat and "
                         "regress_features to be off: leave them out.")  # fmt: skip
    raw = isinstance(features, str)
    if raw and features != "raw":
        raise NerveError(
            f"features are {features!r}, expected 'raw' or a fitted encoder (`nerve.NERVE.load(folder)`)."
        )
    encoders = [features] if raw else as_encoders(features)
    cohort = cohort if raw else encoders[0].align_to_fitted(cohort)
    patching = (
        patching
        or getattr(encoders[0], "patching_", None)
        or Patching.from_parcellation(cohort.parcellation)
    )
    people, protocol = prepare_participants(cohort, protocol)
    maps = []
    for number, encoder in enumerate(encoders, 1):
        embedding = embedding_of(encoder, cohort, patching)
        for repeat, folds in enumerate(people.folds, 1):
            label = f"occlusion, model {number} of {len(encoders)}, repeat {repeat} of {len(people.folds)}"
            maps.append(occluded_predictions(embedding, cohort, people, folds, protocol, label))
    packed = (
        patching.pack(cohort.inputs("fc", rows)).astype(float)
        for rows in chunks(np.arange(len(cohort)))
    )
    means = np.concatenate([patching.means(some, empty=0.0) for some in packed])  # (n, P)
    sizes = np.mean(
        [pattern_sizes(cohort, one.intact, one.folds, patching) for one in maps], axis=0
    )  # (P, T)
    parts = {
        str(name): _target_rows(t, maps, means, sizes, people, patching, protocol)
        for t, name in enumerate(people.targets.columns)
    }
    table = pd.concat(parts, names=["target"]).reset_index("target").reset_index(drop=True)
    _warn_of_nothing(table)
    return table


def _warn_of_nothing(table: pd.DataFrame) -> None:
    first = table.drop_duplicates("target")
    lost = first[first["r_low"] <= 0]
    if len(lost):
        named = listed(
            f"{target} (r = {r:+.2f})" for target, r in zip(lost["target"], lost["r"], strict=True)
        )
        said = f"{named}: the prediction cannot be told from chance, and maps of such a model explain nothing."
        warnings.warn(said, NerveWarning, stacklevel=3)


def _target_rows(
    t: int,
    maps: list[OccludedPredictions],
    means: np.ndarray,
    sizes: np.ndarray,
    people: Participants,
    patching: Patching,
    protocol: Protocol,
) -> pd.DataFrame:
    """The rows of one target; every resample of participants is the same for all patches and seeds."""
    used = np.flatnonzero(np.isfinite(maps[0].observed[:, t]))
    families = None if people.groups is None else people.groups[used]
    drawn = resample_counts(len(used), protocol.n_bootstrap, protocol.seed, families)
    counts = np.concatenate([np.ones((1, len(used))), drawn])  # everyone once: the estimate itself
    r = np.stack([_correlations(counts, one, used, t) for one in maps])  # (seeds, 1 + B, 1 + P)
    drops = r[:, :, :1] - r[:, :, 1:]  # (seeds, 1 + B, P)
    patterns = np.stack(
        [_patterns(counts, one, means, used, t) for one in maps]
    )  # (seeds, 1 + B, P)
    p = np.array([two_sided_p(column) for column in drops[:, 1:].mean(axis=0).T])
    columns = {
        "n": len(used),
        **{column: value[0] for column, value in _with_interval("r", r[:, :, :1]).items()},
        "r_occluded": r[:, 0, 1:].mean(axis=0),
        **_with_interval("drop", drops),
        "p": p,
        "q": adjusted_p(p),
        "stability": stability(drops[:, 0]),
        **_with_interval("pattern", patterns),
        "pattern_rms": sizes[:, t],
        "pattern_stability": stability(patterns[:, 0]),
        "n_seeds": len(maps),
    }
    pairs = pd.DataFrame(
        np.array(patching.group_names)[patching.pairs], columns=["network_a", "network_b"]
    )
    return pairs.assign(**columns).sort_values("drop", ascending=False, kind="stable")


def _with_interval(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """The mean over seeds and its bootstrap interval, from (seeds, 1 + B, P)."""
    mean = values.mean(axis=0)  # (1 + B, P)
    bounds = np.array([interval(column) for column in mean[1:].T]).reshape(-1, 2)
    return {name: mean[0], f"{name}_low": bounds[:, 0], f"{name}_high": bounds[:, 1]}


def _correlations(
    counts: np.ndarray, found: OccludedPredictions, used: np.ndarray, t: int
) -> np.ndarray:
    """(1 + B, 1 + P) r of the intact predictions, then of those with each patch hidden."""
    predicted = np.column_stack([found.intact[used, t], found.occluded[:, used, t].T])  # (n, 1 + P)
    observed = np.repeat(found.observed[used, t][:, None], predicted.shape[1], axis=1)
    return weighted_correlations(counts, observed, predicted)


def _patterns(
    counts: np.ndarray, one: OccludedPredictions, means: np.ndarray, used: np.ndarray, t: int
) -> np.ndarray:
    """(1 + B, P) covariance of each patch's mean FC with the standardised prediction, in every resample."""
    score = standardised_in_folds(one.intact[used, t][:, None], one.folds[used])  # (n, 1)
    total = counts.sum(axis=1, keepdims=True)
    centred = means[used] - means[used].mean(axis=0)  # (n, P)
    mean_score = counts @ score / total  # (1 + B, 1)
    spread = np.sqrt(np.maximum(counts @ score**2 / total - mean_score**2, 1e-12))
    return (counts @ (centred * score) / total - (counts @ centred / total) * mean_score) / spread


def pattern_sizes(
    cohort: Cohort, predicted: np.ndarray, folds: np.ndarray, patching: Patching
) -> np.ndarray:
    """(P, T) root mean square, over the entries of a patch, of the covariance of FC with out-of-fold predictions.

    Effects of both signs do not cancel in it. The diagonal of FC is not counted.

    Parameters
    ----------
    predicted : (n, T) array
        NaN for participants who are left out.
    folds : (n,) integers
        Predictions of different folds come from different models: they are centred fold by fold.
    """
    score = standardised_in_folds(predicted, folds)  # (n, T)
    total = np.zeros((patching.n_entries, score.shape[1]))
    for rows in chunks(np.flatnonzero(score.any(axis=1))):
        total += patching.pack(cohort.inputs("fc", rows)).T.astype(float) @ score[rows]
    counted = np.maximum(np.isfinite(predicted).sum(axis=0), 1)  # (T,)
    return np.sqrt(patching.means((total / counted).T ** 2, empty=0.0).T)


def standardised_in_folds(predicted: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Predictions centred within folds, divided by their overall deviation; 0 where missing. (n, T)."""
    table = pd.DataFrame(predicted)
    centred = table - table.groupby(folds).transform("mean")
    deviation = np.sqrt((centred**2).mean())
    return (centred / deviation.where(deviation > 0, 1.0)).fillna(0.0).to_numpy()
