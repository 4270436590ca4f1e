"""Time series → functional connectivity, Fisher's z, and what the entries of a matrix measure.

A time series is a (volumes, regions) array. A region whose series is constant has no correlation
with anything: its row and column are NaN, never 0, so that quality control sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from nerve._utils.errors import NerveError, one_of

Estimator = Callable[[np.ndarray], np.ndarray]
MIN_VOLUMES = 10
_LARGEST_R = 1 - 1e-7

# name -> in words, and as BIDS writes it (`meas-`)
MEASURES: dict[str, tuple[str, str]] = {
    "pearson": ("Pearson correlations (r)", "PearsonCorrelation"),
    "fisher_z": ("Fisher z", "FisherZ"),
    "partial": ("partial correlations", "PartialCorrelation"),
    "covariance": ("covariances", "Covariance"),
    "coherence": ("coherences", "Coherence"),
    "mutual_information": ("mutual information", "MutualInformation"),
    "streamlines": ("streamline counts", "StreamlineCount"),
    "fractional_anisotropy": ("mean fractional anisotropies", "FractionalAnisotropy"),
    "other": ("values of another kind", "Other"),
}
CORRELATIONS = ("pearson", "partial")  # within [-1, 1], with a unit diagonal
_STRUCTURAL = ("streamlines", "fractional_anisotropy")  # from tractography, not from time series
# what `nerve ingest --measure` may name: Fisher z is said with --values z and becomes r
STATED_MEASURES = tuple(name for name in MEASURES if name != "fisher_z")
# smallest and largest value that a measure can have, where that is neither r nor open on both sides
RANGES = {
    "coherence": (0.0, 1.0),
    "mutual_information": (0.0, float("inf")),
    "streamlines": (0.0, float("inf")),
    "fractional_anisotropy": (0.0, 1.0),
}
# measure → what its values are; those of other measures are "other", whose range is not checked
VALUES = {"pearson": "r", "partial": "r", "fisher_z": "z"}

_WORDS = {
    "pearson": ("pearson", "pearsoncorrelation", "pearsonr", "correlation", "corr", "r"),
    "fisher_z": ("fisherz", "fisherzcorrelation", "fisherztransformed", "pearsonfisherz", "z"),
    "partial": ("partial", "partialcorrelation", "partialpearsoncorrelation", "pcorr"),
    "covariance": ("covariance", "cov"),
    "coherence": ("coherence", "coh", "msc", "magnitudesquaredcoherence"),
    "mutual_information": ("mutualinformation", "mutualinfo", "mi"),
    "streamlines": (
        "streamlines", "streamline", "streamlinecount", "streamlinecounts", "streamlinescount",
        "numberofstreamlines", "nos", "count", "siftcount", "fibercount",
    ),
    "fractional_anisotropy": (
        "fractionalanisotropy", "meanfractionalanisotropy", "fa", "meanfa", "wfa",
    ),
}  # fmt: skip


def measure_of(word: str) -> str:
    """The measure that a file means by a word, `other` where it is not known.

    Parameters
    ----------
    word : str

    Returns
    -------
    str
        A name in `MEASURES`.

    Examples
    --------
    >>> words = ("pearsoncorrelation", "Fisher-z", "Pearson correlation", "tractLength")
    >>> [measure_of(word) for word in words]
    ['pearson', 'fisher_z', 'pearson', 'other']
    """
    plain = re.sub(r"[^a-z]", "", word.lower())
    return next((name for name, words in _WORDS.items() if plain in words), "other")


def in_words(measure: str) -> str:
    """`Fisher z` for `fisher_z`."""
    return MEASURES[measure][0]


def pearson(series: np.ndarray) -> np.ndarray:
    """Pearson correlation of every pair of regions, with a unit diagonal.

    Parameters
    ----------
    series : (volumes, regions)

    Returns
    -------
    (regions, regions)

    Examples
    --------
    >>> pearson(np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])).round(3).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    unit = _standardised(series) / np.sqrt(len(series))
    return _unit_diagonal(unit.T @ unit)


def ledoit_wolf(series: np.ndarray) -> np.ndarray:
    """Correlation shrunk towards the identity by Ledoit and Wolf (nilearn's "correlation")."""
    return _expand(series, _shrunk_covariance)


def partial(series: np.ndarray) -> np.ndarray:
    """Partial correlation: inverse of the Ledoit–Wolf covariance of the standardised series."""
    return _expand(series, lambda usable: _partial_of(_shrunk_covariance(usable)))


CONNECTIVITY: dict[str, Estimator] = {
    "pearson": pearson,
    "partial": partial,
    "ledoit_wolf": ledoit_wolf,
}


def connectivity_from_series(series: np.ndarray, kind: str = "pearson") -> np.ndarray:
    """FC of one participant.

    Parameters
    ----------
    series : (volumes, regions) array
    kind : {"pearson", "partial", "ledoit_wolf"}

    Returns
    -------
    (regions, regions)
    """
    series = np.asarray(series, float)
    if series.ndim != 2:
        raise NerveError(f"The time series has shape {series.shape}, expected (volumes, regions).")
    if len(series) < MIN_VOLUMES:
        raise NerveError(
            f"The time series has {len(series)} usable volumes, expected at least {MIN_VOLUMES}."
        )
    return CONNECTIVITY[one_of("kind", kind, list(CONNECTIVITY))](_moderate(series))


def _moderate(series: np.ndarray) -> np.ndarray:
    """Every region divided by a power of two (exact), so that no square overflows."""
    _, exponents = np.frexp(np.abs(series).max(axis=0))
    return np.ldexp(series, -exponents)


def kept_volumes(motion: np.ndarray, threshold: float, n_volumes: int) -> np.ndarray:
    """Tell which volumes have little motion.

    Parameters
    ----------
    motion : (n_volumes,) or (n_volumes - 1,) array
        Framewise displacement in mm; NaN (the first volume) counts as 0.
    threshold : float
        The most, in mm.
    n_volumes : int
        Of the series.

    Returns
    -------
    (n_volumes,) array of bool
    """
    motion = np.nan_to_num(np.asarray(motion, float).ravel())
    if len(motion) == n_volumes - 1:  # FSL and C-PAC may leave out the first volume
        motion = np.concatenate([[0.0], motion])
    if len(motion) != n_volumes:
        raise NerveError(
            f"The motion file has {len(motion)} values for {n_volumes} volumes, expected one per "
            "volume."
        )
    return motion <= threshold


def constant_regions(series: np.ndarray) -> np.ndarray:
    """Positions of the regions whose series does not vary (or is not finite)."""
    series = np.asarray(series, float)
    with np.errstate(invalid="ignore"):
        spread = series.std(axis=0)
        scale = np.abs(series).max(axis=0, initial=0.0)
        return np.flatnonzero(~(spread > 1e-10 * np.maximum(scale, 1e-30)))


def fisher_z(r: np.ndarray) -> np.ndarray:
    """Fisher's z = arctanh(r); r of ±1 (the diagonal) is kept finite."""
    return np.arctanh(np.clip(r, -_LARGEST_R, _LARGEST_R))


def inverse_fisher_z(z: np.ndarray) -> np.ndarray:
    """Pearson r = tanh(z), with the diagonal of square matrices set to 1."""
    r = np.tanh(z)
    return _unit_diagonal(r) if r.ndim >= 2 and r.shape[-1] == r.shape[-2] else r


def partial_from_fc(fc: np.ndarray, shrinkage: float = 0.1) -> np.ndarray:
    """Compute partial correlations from FC alone: the inverse of (1 - shrinkage) FC + shrinkage I.

    Parameters
    ----------
    fc : (…, R, R) array
    shrinkage : float

    Returns
    -------
    (…, R, R) array
    """
    fc = np.asarray(fc, float)
    return _partial_of((1 - shrinkage) * fc + shrinkage * np.eye(fc.shape[-1]))


def _standardised(series: np.ndarray) -> np.ndarray:
    series = np.array(series, float)
    series[:, constant_regions(series)] = np.nan
    centred = series - series.mean(axis=0)
    return centred / centred.std(axis=0)


def _shrunk_covariance(series: np.ndarray) -> np.ndarray:
    from sklearn.covariance import ledoit_wolf as estimate

    return estimate(_standardised(series))[0]


def _partial_of(covariance: np.ndarray) -> np.ndarray:
    precision = np.linalg.inv(covariance)
    scale = np.sqrt(np.einsum("...ii->...i", precision))
    return _unit_diagonal(-precision / (scale[..., :, None] * scale[..., None, :]))


def _expand(series: np.ndarray, estimate: Estimator) -> np.ndarray:
    """Estimate on the regions that vary; NaN rows and columns for the others."""
    n_regions = series.shape[1]
    usable = np.setdiff1d(np.arange(n_regions), constant_regions(series))
    fc = np.full((n_regions, n_regions), np.nan)
    if len(usable):
        fc[np.ix_(usable, usable)] = _unit_diagonal(estimate(series[:, usable]))
    return fc


def _unit_diagonal(fc: np.ndarray) -> np.ndarray:
    fc = np.clip(fc, -1.0, 1.0)
    diagonal = np.arange(fc.shape[-1])
    fc[..., diagonal, diagonal] = np.where(np.isnan(fc[..., diagonal, diagonal]), np.nan, 1.0)
    return fc
