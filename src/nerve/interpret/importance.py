"""Which network pairs carry a prediction: occlusion and patterns.

Occlusion shows what the model needs, a pattern shows where the predicted signal is seen. Weights
show neither, since some of them only cancel noise (Haufe et al., 2014). For a linear model ŷ = wᵀx
the pattern is Σ_x w / var(ŷ) = cov(x, ŷ) / var(ŷ). The covariance can be computed for any model and
in any space: here between FC and the out-of-fold predictions of kernel ridge from any features,
which maps an embedding back to network pairs. We divide by the standard deviation of ŷ, which gives
the change of FC that goes with one standard deviation of the prediction.
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
    embedding_of,
    occluded_predictions,
    row_chunks,
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
    """Occlusion and Haufe's pattern of every network pair, out of fold.

        drop_p = r(observed, predicted) - r(observed, predicted with patch p hidden)
        pattern_p = mean over the entries x of patch p of cov(x, ŷ) / sd(ŷ)

    The two answer different questions. Occlusion shows what the fitted model cannot do without:
    where several pairs carry the same information, hiding one of them may change nothing. A pattern
    shows where FC goes with the prediction, also where other pairs carry the same information.
    Both have bootstrap intervals over participants.

    Parameters
    ----------
    features : "raw", a fitted encoder, or several that differ in the seed
        FC above the diagonal, or what `transform` gives. Predictions are those of `nerve.evaluate`:
        same folds and λ.
    cohort : Cohort
        The participants.
    targets, covariates : str or sequence of str
        Columns of the participants table.
    patching : Patching, optional
        Patches to hide; by default those of the encoder, else one for each pair of networks.
    **options
        Fields of `nerve.Protocol`: groups, n_folds, n_repeats, kernel, seed, n_bootstrap, motion …

    Returns
    -------
    DataFrame
        One row per target and patch, largest drop first: target, network_a, network_b, n
        (participants), r, r_low, r_high, r_occluded, drop, drop_low, drop_high (95 %), p, q (over
        the target's patches), stability (of drops over seeds), pattern, pattern_low, pattern_high,
        pattern_rms, pattern_stability, n_seeds (seeds × repeats of the folds).

    Notes
    -----
    Intervals cover the choice of participants, given the fitted models; `stability` covers the
    choice of the seed.
    """
    fields = known_fields(options, "patch_importance()")
    protocol = Protocol(targets=as_names(targets), covariates=as_names(covariates), **fields)
    if protocol.combat or protocol.regress_features:
        raise NerveError(
            "patch_importance hides patches before the features are made, expected combat and "
            "regress_features to be off: leave them out."
        )
    if isinstance(features, str):
        if features != "raw":
            raise NerveError(
                f"features are {features!r}, expected 'raw' or a fitted encoder "
                "(`nerve.NERVE.load(folder)`)."
            )
        encoders: list[Any] = [features]
    else:
        encoders = as_encoders(features)
        cohort = encoders[0].align_to_fitted(cohort)
    if patching is None:
        patching = getattr(encoders[0], "patching_", None)
    if patching is None:
        patching = Patching.from_parcellation(cohort.parcellation)

    participants, protocol = prepare_participants(cohort, protocol)
    n_repeats = len(participants.folds)
    predictions = []  # one per seed and repeat
    for number, encoder in enumerate(encoders, 1):
        embedding = embedding_of(encoder, cohort, patching)
        for repeat, folds in enumerate(participants.folds, 1):
            label = f"occlusion, model {number} of {len(encoders)}, repeat {repeat} of {n_repeats}"
            predictions.append(
                occluded_predictions(embedding, cohort, participants, folds, protocol, label)
            )

    patch_means = _patch_means(cohort, patching)  # (n, P)
    sizes = []
    for occluded in predictions:
        sizes.append(pattern_sizes(cohort, occluded.intact, occluded.folds, patching))
    mean_sizes = np.mean(sizes, axis=0)  # (P, T)
    parts = []
    for column, name in enumerate(participants.targets.columns):
        rows = _target_rows(
            column,
            predictions,
            patch_means,
            mean_sizes[:, column],
            participants,
            patching,
            protocol,
        )
        rows.insert(0, "target", str(name))
        parts.append(rows)
    table = pd.concat(parts, ignore_index=True)
    _warn_of_chance_level(table)
    return table


def pattern_sizes(
    cohort: Cohort, predicted: np.ndarray, folds: np.ndarray, patching: Patching
) -> np.ndarray:
    """Size of the pattern in each patch, whatever its sign.

    The root mean square, over the entries of a patch, of the covariance of FC with out-of-fold
    predictions. Effects of both signs do not cancel in it. The diagonal of FC is not counted.

    Parameters
    ----------
    cohort : Cohort
        The participants.
    predicted : (n, T) array
        NaN for participants who are left out.
    folds : (n,) integers
        Predictions of different folds come from different models: they are centred fold by fold.
    patching : Patching
        The patches.

    Returns
    -------
    (P, T) array
        One size per patch and target.
    """
    score = _standardise_in_folds(predicted, folds)  # (n, T)
    total = np.zeros((patching.n_entries, score.shape[1]))  # (S, T)
    for rows in row_chunks(np.flatnonzero(score.any(axis=1))):
        packed = patching.pack(cohort.inputs("fc", rows)).astype(float)  # (k, S)
        total += packed.T @ score[rows]
    n_predicted = np.maximum(np.isfinite(predicted).sum(axis=0), 1)  # (T,)
    covariance = (total / n_predicted).T  # (T, S)
    return np.sqrt(patching.means(covariance**2, empty=0.0).T)


def _patch_means(cohort: Cohort, patching: Patching) -> np.ndarray:
    """(n, P) mean FC of each patch."""
    parts = []
    for rows in row_chunks(np.arange(len(cohort))):
        packed = patching.pack(cohort.inputs("fc", rows)).astype(float)  # (k, S)
        parts.append(patching.means(packed, empty=0.0))
    return np.concatenate(parts)


def _target_rows(
    column: int,
    predictions: list[OccludedPredictions],
    patch_means: np.ndarray,
    sizes: np.ndarray,
    participants: Participants,
    patching: Patching,
    protocol: Protocol,
) -> pd.DataFrame:
    """The rows of one target; all patches and seeds share the bootstrap resamples."""
    used = np.flatnonzero(np.isfinite(predictions[0].observed[:, column]))
    families = None if participants.groups is None else participants.groups[used]
    resamples = resample_counts(len(used), protocol.n_bootstrap, protocol.seed, families)
    # The first row counts every participant once: the estimate itself.
    counts = np.concatenate([np.ones((1, len(used))), resamples])  # (1 + B, n)
    r = np.stack([_correlations(counts, occluded, used, column) for occluded in predictions])
    # r is (seeds, 1 + B, 1 + P); drops and patterns are (seeds, 1 + B, P)
    drops = r[:, :, :1] - r[:, :, 1:]
    patterns = np.stack(
        [_patterns(counts, occluded, patch_means, used, column) for occluded in predictions]
    )
    r_mean, r_low, r_high = _mean_and_interval(r[:, :, :1])
    drop, drop_low, drop_high = _mean_and_interval(drops)
    pattern, pattern_low, pattern_high = _mean_and_interval(patterns)
    resampled_drops = drops[:, 1:].mean(axis=0)  # (B, P)
    p = np.array([two_sided_p(of_patch) for of_patch in resampled_drops.T])
    names = np.array(patching.group_names)[patching.pairs]  # (P, 2)
    table = pd.DataFrame(names, columns=["network_a", "network_b"]).assign(
        n=len(used),
        r=r_mean[0],
        r_low=r_low[0],
        r_high=r_high[0],
        r_occluded=r[:, 0, 1:].mean(axis=0),
        drop=drop,
        drop_low=drop_low,
        drop_high=drop_high,
        p=p,
        q=adjusted_p(p),
        stability=stability(drops[:, 0]),
        pattern=pattern,
        pattern_low=pattern_low,
        pattern_high=pattern_high,
        pattern_rms=sizes,
        pattern_stability=stability(patterns[:, 0]),
        n_seeds=len(predictions),
    )
    return table.sort_values("drop", ascending=False, kind="stable")


def _mean_and_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds, and the ends of its bootstrap interval, from (seeds, 1 + B, P)."""
    mean = values.mean(axis=0)  # (1 + B, P)
    bounds = np.array([interval(of_patch) for of_patch in mean[1:].T]).reshape(-1, 2)  # (P, 2)
    return mean[0], bounds[:, 0], bounds[:, 1]


def _correlations(
    counts: np.ndarray, predictions: OccludedPredictions, used: np.ndarray, column: int
) -> np.ndarray:
    """(1 + B, 1 + P) r of the intact predictions, then of those with each patch hidden."""
    intact = predictions.intact[used, column]  # (n,)
    occluded = predictions.occluded[:, used, column].T  # (n, P)
    predicted = np.column_stack([intact, occluded])  # (n, 1 + P)
    observed = predictions.observed[used, column][:, None]  # (n, 1)
    return weighted_correlations(counts, np.repeat(observed, predicted.shape[1], axis=1), predicted)


def _patterns(
    counts: np.ndarray,
    predictions: OccludedPredictions,
    patch_means: np.ndarray,
    used: np.ndarray,
    column: int,
) -> np.ndarray:
    """(1 + B, P) covariance of each patch's mean FC with the standardised prediction."""
    intact = predictions.intact[used, column][:, None]  # (n, 1)
    score = _standardise_in_folds(intact, predictions.folds[used])  # (n, 1)
    centred = patch_means[used] - patch_means[used].mean(axis=0)  # (n, P)
    total = counts.sum(axis=1, keepdims=True)  # (1 + B, 1)
    mean_score = counts @ score / total  # (1 + B, 1)
    variance = counts @ score**2 / total - mean_score**2
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    mean_product = counts @ (centred * score) / total  # (1 + B, P)
    product_of_means = (counts @ centred / total) * mean_score
    return (mean_product - product_of_means) / deviation


def _standardise_in_folds(predicted: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """(n, T) centred within folds, divided by the overall deviation; 0 where missing."""
    table = pd.DataFrame(predicted)
    centred = table - table.groupby(folds).transform("mean")
    deviation = np.sqrt((centred**2).mean())
    return (centred / deviation.where(deviation > 0, 1.0)).fillna(0.0).to_numpy()


def _warn_of_chance_level(table: pd.DataFrame) -> None:
    """Warn of targets that are predicted no better than by chance: there is nothing to explain."""
    targets = table.drop_duplicates("target")
    at_chance = targets[targets["r_low"] <= 0]
    if len(at_chance):
        named = listed(f"{row.target} (r = {row.r:+.2f})" for row in at_chance.itertuples())
        warnings.warn(
            f"{named}: the prediction cannot be told from chance, and maps of such a model explain "
            "nothing.",
            NerveWarning,
            stacklevel=3,
        )
