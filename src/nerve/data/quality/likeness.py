"""Whether a cohort looks like the one that a model was trained on: the same regions, values and preprocessing.

A model takes any cohort whose labels fit. Fisher z for r, a global signal that was regressed out in one of the two, or
rows in another order than their labels say do not stop it, and make its features worthless. So a model keeps the group
mean of its training cohort and three numbers, of ten participants at least, and a cohort is compared with them.
"""

from __future__ import annotations

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

NUMBERS, MEANS = "likeness.json", "likeness.npy"  # what a report shows of a comparison

FEWEST = (
    10  # participants of whom a mean is kept, compared or shown: that of one is the participant
)
_MOST = 256  # participants that are looked at
ALIKE = 0.7  # correlation of two group means below which they are not of the same thing
SPREAD = 1.5  # times wider or narrower
NEGATIVE = 0.2  # difference between shares of negative values
_BEYOND = 1.002  # no correlation is larger, however it was rounded


@dataclass(frozen=True)
class Signature:  # numpydoc ignore=PR02
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
        n = (
            len(cohort) if len(cohort) < _MOST + FEWEST else _MOST
        )  # who are left out are not so few as to be told
        if n < FEWEST:
            return None
        entries = cohort.inputs("upper", np.linspace(0, len(cohort) - 1, n).astype(int))
        numbers = (
            float(entries.std(axis=1).mean()),
            float((entries < 0).mean()),
            float(np.abs(entries).max()),
        )
        return cls(entries.mean(axis=0, dtype=float).astype(np.float32), n, *numbers)

    def numbers(self) -> dict[str, float]:
        """All but the mean, as JSON."""
        return {name: getattr(self, name) for name in ("n", "spread", "negative", "largest")}

    @classmethod
    def saved(cls, mean: np.ndarray, numbers: Any, where: object) -> Self:
        """The inverse of `numbers`; what is no number is refused."""
        try:
            found = cls(
                mean,
                int(numbers["n"]),
                *(float(numbers[name]) for name in ("spread", "negative", "largest")),
            )
            if (
                not np.isfinite([*found.numbers().values(), *mean]).all()
                or found.n < FEWEST
                or found.spread <= 0
            ):
                raise ValueError("not finite, or of too few participants")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise problem(
                where, f"its signature of the training cohort cannot be read ({error})"
            ) from error
        return found


@dataclass(frozen=True)
class Likeness:  # numpydoc ignore=PR02
    """How alike a cohort and the training cohort of a model are.

    Parameters
    ----------
    words : str
        In a few words.
    differences : tuple of str
        A sentence per clear difference.
    trained, found : Signature, optional
        Of the training cohort and of this one, where they could be compared.
    """

    words: str
    differences: tuple[str, ...] = ()
    trained: Signature | None = None
    found: Signature | None = None

    def save(self, folder: Path) -> None:
        """Write what a report shows of it: likeness.json, and the two group means as likeness.npy."""
        if self.trained is None or self.found is None:
            return
        write_npy(folder / MEANS, np.stack([self.trained.mean, self.found.mean]))
        numbers = {"trained": self.trained.numbers(), "found": self.found.numbers()}
        write_json(
            folder / NUMBERS, {"words": self.words, "differences": self.differences, **numbers}
        )

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The inverse of `save`, None where nothing was saved."""
        path = folder / NUMBERS
        if not path.is_file():
            return None
        known, means = read_json(path), np.asarray(open_npy(folder / MEANS, "Run it again."))
        if not isinstance(known, dict) or means.ndim != 2 or len(means) != 2:
            raise problem(
                path,
                "it holds no comparison of two cohorts",
                remedy="Remove its run and run it again.",
            )
        both = [
            Signature.saved(means[i], known.get(name), path)
            for i, name in enumerate(("trained", "found"))
        ]
        return cls(str(known.get("words")), tuple(map(str, known.get("differences", ()))), *both)


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
    found = Signature.of(cohort)
    if found is None:
        return Likeness(f"not compared: fewer than {FEWEST} participants")
    r = float(np.corrcoef(trained.mean, found.mean)[0, 1]) if found.mean.std() > 0 else 0.0
    return Likeness(
        f"group means correlate by {r:.2f}",
        tuple(_differences(r, trained, found, cohort)),
        trained,
        found,
    )


def _differences(r: float, trained: Signature, found: Signature, cohort: Cohort) -> Iterator[str]:
    """A sentence per clear difference: order of regions, values, global signal."""
    theirs = "the model's training cohort"
    if r < ALIKE:
        mean = np.eye(cohort.n_regions)
        rows, columns = np.triu_indices(cohort.n_regions, 1)
        mean[rows, columns] = found.mean
        mean[columns, rows] = found.mean
        better = check_order(mean, cohort.parcellation).better
        hint = "Other regions or another order"
        if better:
            hint = f"The rows look as if they were in the order of {better}"
        yield (
            f"The group mean correlates by {r:.2f} with that of {theirs}, expected {ALIKE} or more. "
            f"{hint}: check the labels of the regions (`nerve check`)."
        )
    if found.largest > _BEYOND >= trained.largest:
        yield (
            f"Values go up to {found.largest:.2f}, expected correlations as in {theirs}: "
            "these may be Fisher z. Ingest again with --values z."
        )
    elif not 1 / SPREAD < found.spread / trained.spread < SPREAD:
        yield (
            f"The entries of a matrix spread by {found.spread:.3f}, {trained.spread:.3f} in "
            f"{theirs}: another measure (partial correlations, say), filter or length of scan."
        )
    if abs(found.negative - trained.negative) > NEGATIVE:
        regressed = "this cohort"
        kept = theirs
        if found.negative < trained.negative:
            regressed, kept = kept, regressed
        yield (
            f"{found.negative:.0%} of the entries are negative, {trained.negative:.0%} in {theirs}, "
            f"as if the global signal had been regressed out in {regressed} and not in {kept}."
        )
