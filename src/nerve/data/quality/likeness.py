"""Whether a cohort looks like the one that a model was trained on.

A model takes any cohort whose labels fit. Fisher z for r, a global signal that was regressed out in
one of the two, or rows in another order than their labels say do not stop it, and make its features
worthless. So a model keeps the group mean of its training cohort and three numbers, of ten
participants at least, and a cohort is compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from nerve._utils.errors import problem
from nerve._utils.files import read_json, write_json, write_npy
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import open_npy
from nerve.data.quality.order import check_order

# files of a comparison that a report shows
NUMBERS = "likeness.json"
_MEANS = "likeness.npy"

# participants of whom a mean is kept, compared or shown: the mean of one is the participant
FEWEST = 10
_MOST = 256  # participants of a cohort that enter its signature
ALIKE = 0.7  # correlation of two group means below which they are not of the same thing
_SPREAD = 1.5  # times wider or narrower
_NEGATIVE = 0.2  # difference between shares of negative values
_BEYOND = 1.002  # no correlation is larger, however it was rounded


@dataclass(frozen=True)
class Signature:  # numpydoc ignore=PR02
    """What FC of a cohort looks like on the whole; it shows no single participant.

    Parameters
    ----------
    mean : (R (R - 1) / 2,) array
        Group mean of FC above the diagonal.
    n : int
        Participants that it is the mean of.
    spread : float
        Standard deviation of the entries of a matrix, on average.
    negative : float
        Share of negative entries: about a half after global-signal regression, a tenth to a third
        without.
    largest : float
        The largest absolute entry of any participant.
    """

    mean: np.ndarray
    n: int
    spread: float
    negative: float
    largest: float

    @classmethod
    def of(cls, cohort: Cohort) -> Self | None:
        """Of some hundred participants of a cohort, None if there are fewer than ten."""
        # those left out are none, or so many that two means do not show a single one
        n = len(cohort) if len(cohort) < _MOST + FEWEST else _MOST
        if n < FEWEST:
            return None
        rows = np.linspace(0, len(cohort) - 1, n).astype(int)
        entries = cohort.inputs("upper", rows)  # (n, R (R - 1) / 2)
        return cls(
            mean=entries.mean(axis=0, dtype=float).astype(np.float32),
            n=n,
            spread=float(entries.std(axis=1).mean()),
            negative=float((entries < 0).mean()),
            largest=float(np.abs(entries).max()),
        )

    def matrix(self) -> np.ndarray:
        """(R, R): the group mean as a matrix, with a unit diagonal."""
        n_regions = (1 + math.isqrt(1 + 8 * len(self.mean))) // 2
        matrix = np.eye(n_regions)
        rows, columns = np.triu_indices(n_regions, 1)
        matrix[rows, columns] = self.mean
        matrix[columns, rows] = self.mean
        return matrix

    def numbers(self) -> dict[str, float]:
        """All but the mean, as JSON."""
        return {name: getattr(self, name) for name in ("n", "spread", "negative", "largest")}

    @classmethod
    def saved(cls, mean: np.ndarray, numbers: Any, where: object) -> Self:
        """The inverse of `numbers`; what is not a number is refused."""
        try:
            signature = cls(
                mean=mean,
                n=int(numbers["n"]),
                spread=float(numbers["spread"]),
                negative=float(numbers["negative"]),
                largest=float(numbers["largest"]),
            )
            is_finite = np.isfinite([*signature.numbers().values(), *mean]).all()
            if not is_finite or signature.n < FEWEST or signature.spread <= 0:
                raise ValueError("not finite, or of too few participants")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise problem(
                where, f"its signature of the training cohort cannot be read ({error})"
            ) from error
        return signature


@dataclass(frozen=True)
class Likeness:  # numpydoc ignore=PR02
    """How alike a cohort and the training cohort of a model are.

    Parameters
    ----------
    words : str
        In a few words.
    differences : tuple of str
        A sentence per clear difference.
    trained, compared : Signature, optional
        Of the training cohort and of the cohort compared with it, where that was possible.
    """

    words: str
    differences: tuple[str, ...] = ()
    trained: Signature | None = None
    compared: Signature | None = None

    def save(self, folder: Path) -> None:
        """Write what a report shows of it: likeness.json, and both group means as likeness.npy."""
        if self.trained is None or self.compared is None:
            return
        write_npy(folder / _MEANS, np.stack([self.trained.mean, self.compared.mean]))
        content = {
            "words": self.words,
            "differences": self.differences,
            "trained": self.trained.numbers(),
            "compared": self.compared.numbers(),
        }
        write_json(folder / NUMBERS, content)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The inverse of `save`, None where nothing was saved."""
        path = folder / NUMBERS
        if not path.is_file():
            return None
        content = read_json(path)
        means = np.asarray(open_npy(folder / _MEANS, "Run it again."))
        if not isinstance(content, dict) or means.ndim != 2 or len(means) != 2:
            raise problem(
                path,
                "it holds no comparison of two cohorts",
                remedy="Remove its run and run it again.",
            )
        return cls(
            words=str(content.get("words")),
            differences=tuple(str(sentence) for sentence in content.get("differences", ())),
            trained=Signature.saved(means[0], content.get("trained"), path),
            compared=Signature.saved(means[1], content.get("compared"), path),
        )


def likeness(trained: Signature, cohort: Cohort) -> Likeness:
    """Compare a cohort with the training cohort of a model.

    Parameters
    ----------
    trained : Signature
        Of the training cohort.
    cohort : Cohort
        In the region order of the model.

    Returns
    -------
    Likeness
    """
    signature = Signature.of(cohort)
    if signature is None:
        return Likeness(f"not compared: fewer than {FEWEST} participants")
    r = 0.0
    if signature.mean.std() > 0:
        r = float(np.corrcoef(trained.mean, signature.mean)[0, 1])
    return Likeness(
        f"group means correlate by {r:.2f}",
        tuple(_differences(r, trained, signature, cohort)),
        trained,
        signature,
    )


def _differences(
    r: float, trained: Signature, signature: Signature, cohort: Cohort
) -> Iterator[str]:
    """A sentence per clear difference: order of regions, values, global signal."""
    training = "the model's training cohort"
    if r < ALIKE:
        better = check_order(signature.matrix(), cohort.parcellation).better
        hint = "Other regions or another order"
        if better:
            hint = f"The rows look as if they were in the order of {better}"
        yield (
            f"The group mean correlates by {r:.2f} with that of {training}, expected {ALIKE} or "
            f"more. {hint}: check the labels of the regions (`nerve check`)."
        )
    if signature.largest > _BEYOND >= trained.largest:
        yield (
            f"Values go up to {signature.largest:.2f}, expected correlations as in {training}: "
            "these may be Fisher z. Ingest again with --values z."
        )
    elif not 1 / _SPREAD < signature.spread / trained.spread < _SPREAD:
        yield (
            f"The entries of a matrix spread by {signature.spread:.3f}, {trained.spread:.3f} in "
            f"{training}: another measure (partial correlations, say), filter or length of scan."
        )
    if abs(signature.negative - trained.negative) > _NEGATIVE:
        regressed = "this cohort"
        kept = training
        if signature.negative < trained.negative:
            regressed, kept = kept, regressed
        yield (
            f"{signature.negative:.0%} of the entries are negative, {trained.negative:.0%} in "
            f"{training}, as if the global signal had been regressed out in {regressed} and not "
            f"in {kept}."
        )
