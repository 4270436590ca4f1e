"""Simulated participants: site, age, sex, motion, factor scores and targets with a stated true effect."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nerve.checks import NerveError, listed, problem

MOTION_AGE = -0.3  # correlation of (log) motion with age: children move more
MOTION_MEDIAN, MOTION_SPREAD = 0.15, 0.4  # mm of mean framewise displacement, and sd of its logarithm
ID_DIGITS = 6  # participant ids end in so many digits
# numpy seeds (s, k) and (s, k, 0) alike: kinds differ from each other and from the parts (below 10) of a population
_KIND = {"family": 11, "family site": 12, "person": 13, "topography": 14, "coupling": 15, "scan": 16, "site": 17}
_COVARIATES = ("age", "sex", "site", "motion")
_RESERVED = ("participant_id", "site", "family_id", "age", "sex", "mean_fd", "cohort")


@dataclass(frozen=True)
class Target:
    """A measure of participants with a known relation to their FC.

        y = true_r · g + age · a + sex · s + site · c + motion · m + noise,   variance 1

    where g is a weighted sum of factor scores and a, s, c, m are age, sex, site and (log) motion, all with mean 0 and
    variance 1. Nothing in FC but g, a, s, c and m is related to y: a perfect model of g reaches r = `true_r`.

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
        where = f"Target {self.name!r}"
        if self.name in _RESERVED:
            raise problem(where, "the name is taken", expected=f"none of {listed(_RESERVED)}")
        if not 0 <= self.true_r < 1:
            raise problem(where, f"true_r is {self.true_r}", expected="at least 0 and below 1")
        if self.true_r > 0 and not any(self.factors.values()):
            raise problem(where, "no factor has a weight", expected="at least one, or true_r of 0")
        if self.noise_variance < 0:
            raise problem(
                where,
                f"its parts explain {1 - self.noise_variance:.2f} of its variance",
                expected="at most 1",
                remedy="Lower true_r or the coefficients of age, sex, site and motion.",
            )

    @property
    def covariate_variance(self) -> float:
        """Variance that age, sex, site and motion explain together."""
        separate = self.age**2 + self.sex**2 + self.site**2 + self.motion**2
        return separate + 2 * self.age * self.motion * MOTION_AGE

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
    """A general factor and two narrower ones, as in psychopathology, and a null target that nothing predicts."""
    common = {"age": 0.2, "sex": 0.1, "site": 0.1, "motion": 0.15}
    return (
        Target("p_factor", effect, {"general": 1.0}, **common),
        Target("internalizing", effect, {"general": 0.6, "internal": 0.8}, **common),
        Target("externalizing", effect, {"general": 0.6, "external": 0.8}, **common),
        Target("null", 0.0),
    )


@dataclass(frozen=True)
class Person:
    """What is drawn of one participant before any scan; `age`, `sex` and `motion` have mean 0 and variance 1."""

    number: int
    site: int
    age: float
    sex: float
    motion: float
    scores: np.ndarray  # (factors,)
    noise: np.ndarray  # (targets,)


def stream(kind: str, seed: int, *number: int) -> np.random.Generator:
    """The random numbers of one participant, family, scan or site: independent of all others and of their order."""
    return np.random.default_rng([seed, _KIND[kind], *number])


def site_stream(structure_seed: int, site: str) -> np.random.Generator:
    """The random numbers of a scanner, by its name: the same in every cohort of one structure."""
    return stream("site", structure_seed, zlib.crc32(site.encode()))


def factor_scores(seed: int, number: int, n_factors: int, family_size: int = 1) -> np.ndarray:
    """(factors,): the scores of one participant; siblings share half of the variance."""
    own = stream("person", seed, number).standard_normal(n_factors)
    if family_size == 1:
        return own
    family = stream("family", seed, number // family_size)
    return np.sqrt(0.5) * (own + family.standard_normal(n_factors))


def draw_person(seed: int, number: int, n_factors: int, n_sites: int, n_targets: int, family_size: int) -> Person:
    """One participant, the same whatever the size of the cohort."""
    rng = stream("person", seed, number)
    rng.standard_normal(n_factors)  # those of `factor_scores`
    age = (2 * rng.random() - 1) * np.sqrt(3)
    motion = MOTION_AGE * age + np.sqrt(1 - MOTION_AGE**2) * rng.standard_normal()
    sex = float(rng.choice([-1.0, 1.0]))
    site = int(stream("family site", seed, number // family_size).integers(n_sites))
    scores = factor_scores(seed, number, n_factors, family_size)
    return Person(number, site, float(age), sex, float(motion), scores, rng.standard_normal(n_targets))


def site_levels(sites: Sequence[str], structure_seed: int) -> np.ndarray:
    """(sites,): what being scanned at a site adds to a target, with mean 0 and variance 1 over the sites."""
    if len(sites) == 1:
        return np.zeros(1)
    levels = np.array([site_stream(structure_seed, site).standard_normal() for site in sites])
    levels -= levels.mean()
    return levels / np.sqrt((levels**2).mean())


def target_values(
    person: Person, targets: Sequence[Target], factor_names: Sequence[str], levels: np.ndarray
) -> dict[str, float]:
    """Every target of one participant."""
    values = {}
    for target, noise in zip(targets, person.noise, strict=True):
        known = (person.age, person.sex, levels[person.site], person.motion)
        parts = sum(getattr(target, name) * value for name, value in zip(_COVARIATES, known, strict=True))
        explained = target.true_r * target.weights(factor_names) @ person.scores + parts
        values[target.name] = round(float(explained + np.sqrt(target.noise_variance) * noise), 6)
    return values


def described(person: Person, sites: Sequence[str], ages: tuple[float, float]) -> dict[str, Any]:
    """Site, age in years, sex and mean framewise displacement as the participants table has them."""
    youngest, oldest = ages
    years = (youngest + oldest) / 2 + person.age * (oldest - youngest) / np.sqrt(12)
    return {
        "site": sites[person.site],
        "age": round(float(years), 2),
        "sex": "F" if person.sex > 0 else "M",
        "mean_fd": round(mean_displacement(person), 4),
    }


def mean_displacement(person: Person) -> float:
    """Mean framewise displacement in mm."""
    return float(MOTION_MEDIAN * np.exp(MOTION_SPREAD * person.motion))


def checked_targets(targets: Sequence[Target], factor_names: Sequence[str]) -> tuple[Target, ...]:
    """The targets, if their names differ and the factors that they name exist."""
    names = [target.name for target in targets]
    if len(set(names)) != len(names):
        raise NerveError(f"Two targets have the same name ({listed(names)}), expected different ones.")
    for target in targets:
        unknown = [name for name in target.factors if name not in factor_names]
        if unknown:
            found = f"there is no factor {unknown[0]!r}"
            raise problem(f"Target {target.name!r}", found, expected=f"one of {listed(factor_names)}")
    return tuple(targets)
