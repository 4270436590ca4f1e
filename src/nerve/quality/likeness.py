"""Whether a cohort looks like the one that a model was trained on: the same regions, values and preprocessing.

A model takes any cohort whose labels fit. Fisher z for r, a global signal that was regressed out in one of the two, or
rows in another order than their labels say do not stop it, and make its features worthless. So a model keeps the group
mean of its training cohort and three numbers, of ten participants at least, and a cohort is compared with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nerve.checks import problem
from nerve.cohort import Cohort
from nerve.quality.order import check_order

FEWEST = 10  # participants of whom a mean is kept, or compared
_MOST = 256  # participants that are looked at
ALIKE = 0.7  # correlation of two group means below which they are not of the same thing
SPREAD = 1.5  # times wider or narrower
NEGATIVE = 0.2  # difference between shares of negative values
_BEYOND = 1.002  # no correlation is larger, however it was rounded


@dataclass(frozen=True)
class Signature:
    """What FC of a cohort looks like on the whole; nobody can be told from it.

    Parameters
    ----------
    mean : (R (R - 1) / 2,) array
        Group mean of FC above the diagonal.
    n : int
        Participants that it is the mean of.
    spread : float
        Standard deviation of the entries of a matrix, on average.
    negative : float
        Share of negative entries: about a half after global-signal regression, a tenth to a third without.
    largest : float
        The largest absolute entry of anybody.
    """

    mean: np.ndarray
    n: int
    spread: float
    negative: float
    largest: float

    @classmethod
    def of(cls, cohort: Cohort) -> Self | None:
        """Of some hundred participants of a cohort, None if there are fewer than ten."""
        n = min(len(cohort), _MOST)
        if n < FEWEST:
            return None
        entries = cohort.inputs("upper", np.linspace(0, len(cohort) - 1, n).astype(int))
        numbers = float(entries.std(axis=1).mean()), float((entries < 0).mean()), float(np.abs(entries).max())
        return cls(entries.mean(axis=0, dtype=float).astype(np.float32), n, *numbers)

    def numbers(self) -> dict[str, float]:
        """All but the mean, as JSON."""
        return {"n": self.n, "spread": self.spread, "negative": self.negative, "largest": self.largest}

    @classmethod
    def saved(cls, mean: np.ndarray, numbers: Any, where: object) -> Self:
        """The inverse of `numbers`; what is no number is refused."""
        try:
            n, *rest = (float(numbers[name]) for name in ("n", "spread", "negative", "largest"))
            if not np.isfinite([n, *rest, *mean]).all() or n < FEWEST or rest[0] <= 0:
                raise ValueError("not finite, or of too few participants")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise problem(where, f"its signature of the training cohort cannot be read ({error})") from error
        return cls(mean, int(n), *rest)


def likeness(trained: Signature, cohort: Cohort) -> tuple[str, list[str]]:
    """How alike a cohort and a training cohort are in a few words, and a sentence per clear difference.

    Parameters
    ----------
    trained : Signature
        Of the training cohort.
    cohort : Cohort
        In the region order of the model.
    """
    found = Signature.of(cohort)
    if found is None:
        return f"not compared: fewer than {FEWEST} participants", []
    r = float(np.corrcoef(trained.mean, found.mean)[0, 1]) if found.mean.std() > 0 else 0.0
    said = [*_order(r, cohort, found), *_values(trained, found), *_global_signal(trained, found)]
    return f"group means correlate by {r:.2f}", said


def _order(r: float, cohort: Cohort, found: Signature) -> list[str]:
    if r >= ALIKE:
        return []
    mean = np.eye(cohort.n_regions)
    above = np.triu_indices(cohort.n_regions, 1)
    mean[above] = mean[above[::-1]] = found.mean
    better = check_order(mean, cohort.parcellation).better
    hint = f"The rows look as if they were in the order of {better}" if better else "Other regions or another order"
    return [
        f"The group mean correlates by {r:.2f} with that of the model's training cohort, expected {ALIKE} or more. "
        f"{hint}: check the labels of the regions (`nerve check`)."
    ]


def _values(trained: Signature, found: Signature) -> list[str]:
    if found.largest > _BEYOND >= trained.largest:
        return [
            f"Values go up to {found.largest:.2f}, expected correlations as in the model's training cohort: these may "
            "be Fisher z. Ingest again with --values z."
        ]
    ratio = found.spread / trained.spread
    if 1 / SPREAD < ratio < SPREAD:
        return []
    return [
        f"The entries of a matrix spread by {found.spread:.3f}, {trained.spread:.3f} in the model's training cohort: "
        "another measure (partial correlations, say), filter or length of scan."
    ]


def _global_signal(trained: Signature, found: Signature) -> list[str]:
    if abs(found.negative - trained.negative) <= NEGATIVE:
        return []
    here, there = ("this cohort", "the model's training cohort")
    regressed, kept = (here, there) if found.negative > trained.negative else (there, here)
    return [
        f"{found.negative:.0%} of the entries are negative, {trained.negative:.0%} in the model's training cohort, as "
        f"if the global signal had been regressed out in {regressed} and not in {kept}."
    ]
