"""What the entries of a connectivity matrix measure, and the words that files have for it."""

from __future__ import annotations

import re

# name -> in words, and as BIDS writes it (`meas-`)
MEASURES: dict[str, tuple[str, str]] = {
    "pearson": ("Pearson correlations (r)", "PearsonCorrelation"),
    "fisher_z": ("Fisher z", "FisherZ"),
    "partial": ("partial correlations", "PartialCorrelation"),
    "covariance": ("covariances", "Covariance"),
    "streamlines": ("streamline counts", "StreamlineCount"),
    "other": ("values of another kind", "Other"),
}
CORRELATIONS = ("pearson", "partial")  # within [-1, 1], with a unit diagonal
VALUES = {"pearson": "r", "partial": "r", "fisher_z": "z"}  # of other measures the range is not checked

_WORDS = {
    "pearson": ("pearson", "pearsoncorrelation", "pearsonr", "correlation", "corr", "r"),
    "fisher_z": ("fisherz", "fisherzcorrelation", "fisherztransformed", "pearsonfisherz", "z"),
    "partial": ("partial", "partialcorrelation", "partialpearsoncorrelation", "pcorr"),
    "covariance": ("covariance", "cov"),
    "streamlines": ("streamlines", "streamline", "streamlinecount", "streamlinecounts"),
}


def measure_of(word: str) -> str:
    """The measure that a file means by a word, `other` where it is not known.

    Examples
    --------
    >>> [measure_of(word) for word in ("pearsoncorrelation", "Fisher-z", "Pearson correlation", "tractLength")]
    ['pearson', 'fisher_z', 'pearson', 'other']
    """
    plain = re.sub(r"[^a-z]", "", word.lower())
    return next((name for name, words in _WORDS.items() if plain in words), "other")


def in_words(measure: str) -> str:
    """`Fisher z` for `fisher_z`."""
    return MEASURES[measure][0]
