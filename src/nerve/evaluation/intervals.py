"""95 % intervals and p values of out-of-fold scores, corrected for folds that share participants.

Every participant is tested once and trains the models of the other folds. Resampling participants
with their predictions held fixed cannot see that, and gives intervals that are too narrow.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

# how much wider intervals of few participants (or families) are: √(1 + this / how many)
_SMALL_SAMPLE = 12
_LEVEL = 0.95


def overlap_factor(n_folds: int, n_units: int) -> float:
    """How much larger the standard error of an out-of-fold score is than resampling says.

    Each participant is tested once and trains the models of the other folds, which resampling
    participants with their predictions held fixed cannot see. Nadeau and Bengio (2003) multiply
    the variance over K folds, whose training sets overlap, by 1 + K / (K − 1). For a ridge and many
    folds theory gives the same: where nothing is predictable, r is close to a quadratic form
    Σ yᵢ aᵢⱼ yⱼ with symmetric a, whose variance is twice what resampling sees. With few
    participants it is larger still; √(1 + 12 / n) was found in simulations (`studies.nulls`).

    Parameters
    ----------
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    float
        The factor.

    Examples
    --------
    >>> round(overlap_factor(10, 60), 2), round(overlap_factor(10, 1000), 2)
    (1.59, 1.46)
    """
    overlap = 1 + n_folds / (n_folds - 1) if n_folds > 1 else 1.0
    small_sample = 1 + _SMALL_SAMPLE / n_units
    return float(np.sqrt(overlap * small_sample))


def cross_validation_interval(
    score: float, centre: float, standard_error: float, n_folds: int, n_units: int
) -> tuple[float, float]:
    """95 % interval of an out-of-fold r, or of 2 AUC − 1, for new participants of the same kind.

    Its centre is the mean over folds, because the r of all folds together is below 0 where nothing
    can be predicted, and the mean over folds is not. Its width is that of resampling times
    `overlap_factor`, on Fisher's z scale. It is extended to the score itself where the score lies
    outside.

    Parameters
    ----------
    score : float
        Of all folds together.
    centre : float
        The mean over folds; NaN where folds are too small.
    standard_error : float
        Of the score, over resampled participants.
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    low, high : float
        The interval.

    Examples
    --------
    >>> low, high = cross_validation_interval(0.3, 0.32, 0.09, n_folds=10, n_units=100)
    >>> round(low, 2), round(high, 2)
    (0.03, 0.56)
    """
    if not np.isfinite(score) or not np.isfinite(standard_error):
        return np.nan, np.nan
    if not np.isfinite(centre):
        centre = score
    almost_one = 1 - 1e-6
    z = np.arctanh(np.clip(centre, -almost_one, almost_one))
    slope = 1 - min(abs(score), almost_one) ** 2  # dr / dz
    quantile = student_t.isf((1 - _LEVEL) / 2, n_units - 1)
    half_width = quantile * overlap_factor(n_folds, n_units) * standard_error / slope
    low = min(score, np.tanh(z - half_width))
    high = max(score, np.tanh(z + half_width))
    return float(low), float(high)


def corrected_difference(
    difference: float, resampled: np.ndarray, n_folds: int, n_units: int
) -> tuple[float, float, float]:
    """95 % interval and two-sided p of a difference between two rows, corrected for overlap.

    Student's t of the difference, whose standard error over paired resamples is multiplied by
    `overlap_factor`.

    Parameters
    ----------
    difference : float
        Of two scores.
    resampled : (resamples,) array
        The difference in every resample of participants (or families).
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    low, high, p : float
        The interval and p; p is 1 where the rows are the same in every resample.

    Examples
    --------
    >>> resampled = np.random.default_rng(0).normal(0.1, 0.04, 1000)
    >>> low, high, p = corrected_difference(0.1, resampled, n_folds=10, n_units=200)
    >>> low < 0 < high, 0.05 < p < 0.2
    (True, True)
    """
    resampled = resampled[np.isfinite(resampled)]
    if not len(resampled) or not np.isfinite(difference):
        return np.nan, np.nan, np.nan
    standard_error = float(resampled.std()) * overlap_factor(n_folds, n_units)
    if standard_error == 0:
        return difference, difference, float(difference == 0)
    half_width = float(student_t.isf((1 - _LEVEL) / 2, n_units - 1)) * standard_error
    p = float(2 * student_t.sf(abs(difference) / standard_error, n_units - 1))
    return difference - half_width, difference + half_width, p
