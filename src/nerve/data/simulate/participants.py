"""Simulated participants: site, age, sex, motion, factors and targets with a stated effect."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nerve._utils.errors import listed, require

_MOTION_AGE = -0.3  # correlation of (log) motion with age: children move more
MOTION_MEDIAN = 0.15  # mm of mean framewise displacement
_MOTION_SPREAD = 0.4  # sd of the logarithm of mean framewise displacement
ID_DIGITS = 6  # participant ids end in so many digits
# Part of each seed. numpy seeds (s, k) and (s, k, 0) alike, so that these numbers differ from each
# other and from those of the parts of a population (below 10).
_SEED_OF = {
    "family": 11,
    "family site": 12,
    "participant": 13,
    "topography": 14,
    "coupling": 15,
    "scan": 16,
    "site": 17,
}
_RESERVED = ("participant_id", "site", "family_id", "age", "sex", "mean_fd", "cohort")


@dataclass(frozen=True)
class Target:  # numpydoc ignore=PR02
    """A measure of participants with a known relation to their FC.

        y = true_r · g + age · a + sex · s + site · c + motion · m + noise,   variance 1

    where g is a weighted sum of factor scores and a, s, c, m are age, sex, site and (log) motion,
    all with mean 0 and variance 1. Nothing in FC but g, a, s, c and m is related to y: a perfect
    model of g reaches r = `true_r`.

    Parameters
    ----------
    name : str
        The column of the participants table.
    true_r : float
        Correlation of the target with g.
    factors : mapping
        Factor → weight (any scale; g is standardised).
    age, sex, site, motion : float
        Standardised coefficients.
    """

    name: str
    true_r: float = 0.6
    factors: Mapping[str, float] = field(default_factory=dict)
    age: float = 0.0
    sex: float = 0.0
    site: float = 0.0
    motion: float = 0.0

    def __post_init__(self) -> None:
        explained = 1 - self.noise_variance
        require(
            f"Target {self.name!r}",
            (self.name not in _RESERVED, "the name is taken", f"none of {listed(_RESERVED)}"),
            (0 <= self.true_r < 1, f"true_r is {self.true_r}", "at least 0 and below 1"),
            (
                not self.true_r or any(self.factors.values()),
                "no factor has a weight",
                "at least one, or true_r of 0",
            ),
            (
                explained <= 1,
                f"its parts explain {explained:.2f} of its variance",
                "at most 1: lower its coefficients",
            ),
        )

    @property
    def coefficients(self) -> dict[str, float]:
        """Those of age, sex, site and motion, by name."""
        return {"age": self.age, "sex": self.sex, "site": self.site, "motion": self.motion}

    @property
    def covariate_variance(self) -> float:
        """Variance that age, sex, site and motion explain together."""
        separate = sum(value**2 for value in self.coefficients.values())
        return separate + 2 * self.age * self.motion * _MOTION_AGE

    @property
    def noise_variance(self) -> float:
        """Variance that nothing explains."""
        return 1 - self.true_r**2 - self.covariate_variance

    @property
    def true_r_after_covariates(self) -> float:
        """Correlation with g once age, sex, site and motion are regressed out."""
        return self.true_r / float(np.sqrt(1 - self.covariate_variance))

    def weights(self, factor_names: Sequence[str]) -> np.ndarray:
        """(factors,): weights of unit length, so that g has variance 1."""
        weights = np.array([self.factors.get(name, 0.0) for name in factor_names], float)
        return weights / (np.linalg.norm(weights) or 1.0)


def default_targets(effect: float = 0.6) -> tuple[Target, ...]:
    """Make a general factor and two narrower ones, as in psychopathology, and a null target.

    Parameters
    ----------
    effect : float
        The true r of the first three; nothing predicts the null target.

    Returns
    -------
    tuple of Target
    """
    common = {"age": 0.2, "sex": 0.1, "site": 0.1, "motion": 0.15}
    return (
        Target("p_factor", effect, {"general": 1.0}, **common),
        Target("internalizing", effect, {"general": 0.6, "internal": 0.8}, **common),
        Target("externalizing", effect, {"general": 0.6, "external": 0.8}, **common),
        Target("null", 0.0),
    )


class SimulatedParticipant(NamedTuple):
    """What is drawn of one participant before any scan.

    `age`, `sex` and `motion` have mean 0 and variance 1 over participants.
    """

    number: int
    site: int
    age: float
    sex: float
    motion: float
    displacement: float  # mean framewise displacement in mm
    scores: np.ndarray  # (factors,)
    noise: np.ndarray  # (targets,)


def stream(what: str, seed: int, *number: int) -> np.random.Generator:
    """Make the random generator of one participant, family, scan or site.

    Its numbers are independent of all others and of their order.

    Parameters
    ----------
    what : str
        A key of `_SEED_OF`.
    seed : int
    *number : int
        Which participant, family …

    Returns
    -------
    Generator
    """
    return np.random.default_rng([seed, _SEED_OF[what], *number])


def site_stream(structure_seed: int, site: str) -> np.random.Generator:
    """Make the random generator of a scanner: the same in every cohort of one structure.

    Parameters
    ----------
    structure_seed : int
    site : str
        The name of the scanner.

    Returns
    -------
    Generator
    """
    return stream("site", structure_seed, zlib.crc32(site.encode()))


def draw_participant(
    seed: int, number: int, n_factors: int, family_size: int, n_sites: int = 1, n_targets: int = 0
) -> SimulatedParticipant:
    """Draw one participant, the same whatever the size of the cohort.

    Parameters
    ----------
    seed, number : int
        Of the cohort, and of the participant in it.
    n_factors : int
    family_size : int
        Siblings share half of the variance of their scores.
    n_sites, n_targets : int

    Returns
    -------
    SimulatedParticipant
    """
    rng = stream("participant", seed, number)
    scores = rng.standard_normal(n_factors)
    if family_size > 1:
        shared = stream("family", seed, number // family_size).standard_normal(n_factors)
        scores = np.sqrt(0.5) * (scores + shared)
    age = float((2 * rng.random() - 1) * np.sqrt(3))
    motion = float(_MOTION_AGE * age + np.sqrt(1 - _MOTION_AGE**2) * rng.standard_normal())
    sex = float(rng.choice([-1.0, 1.0]))
    site = int(stream("family site", seed, number // family_size).integers(n_sites))
    displacement = float(MOTION_MEDIAN * np.exp(_MOTION_SPREAD * motion))
    return SimulatedParticipant(
        number, site, age, sex, motion, displacement, scores, rng.standard_normal(n_targets)
    )


def site_levels(sites: Sequence[str], structure_seed: int) -> np.ndarray:
    """Draw what being scanned at each site adds to a target.

    Parameters
    ----------
    sites : sequence of str
    structure_seed : int

    Returns
    -------
    (sites,) array
        With mean 0 and variance 1.
    """
    levels = np.array([site_stream(structure_seed, site).standard_normal() for site in sites])
    return (levels - levels.mean()) / (levels.std() or 1.0)  # one site adds nothing
