"""The population that simulated participants come from: its signals, and which effects act on which network pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nerve.checks import NerveError, did_you_mean, listed, problem
from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.simulate.networks import network_features

NETWORK_VARIANCE = 0.35  # of a region's variance, what follows the level signal of its network
CONTRAST_VARIANCE = 0.05  # and what follows each contrast signal
LOCAL_VARIANCE = 0.45  # what it shares with its neighbours
UNIQUE_VARIANCE = 0.1  # and what it has for itself
LOCAL_WIDTH = 21.0  # mm: exp(-(distance / width)²)
HOMOTOPIC = 0.5  # how much of the local part the mirrored place in the other hemisphere shares
GLOBAL_SIGNAL = 0.6  # share of the mean over regions that is taken out, as preprocessing does
MODES = 3  # signals a network: its level and two contrasts
TOPOGRAPHY = 0.17  # sd of a participant's own loadings: regions also follow signals of other networks
OWN_COUPLING = 0.06  # sd of a participant's own coupling of signals
SESSION_COUPLING = 0.04  # sd of what differs from one session to the next
SITE_COUPLING = 0.06  # sd of what a scanner does to the coupling of signals
PAIRS_PER_EFFECT = 3
COVARIATE_STRENGTH = 0.6  # of age and sex, relative to that of a factor

Pair = tuple[str, str]


@dataclass(frozen=True)
class Effect:
    """Something that changes FC on stated network pairs, by `matrix` (K, K) a standard deviation."""

    pairs: tuple[Pair, ...]
    matrix: np.ndarray


@dataclass(frozen=True, eq=False)
class Population:
    """Network signals, their loadings on regions and the effects of factors, age and sex.

    Parameters
    ----------
    parcellation : Parcellation
    structure_seed : int
        Loadings and choice of network pairs depend on this seed alone.
    factor_names : tuple of str
        Factors that differ between participants, each on network pairs of its own.
    pairs : mapping
        Factor (or ``"age"``, ``"sex"``) → network pairs, where they are not left to the seed.
    strength : float
        Change of the coupling of a pair's signals by one standard deviation of a factor, to first order.
    """

    parcellation: Parcellation
    structure_seed: int
    factor_names: tuple[str, ...]
    pairs: Mapping[str, Sequence[Pair]]
    strength: float

    @cached_property
    def patching(self) -> Patching:
        """The network pairs."""
        return Patching.from_parcellation(self.parcellation)

    @property
    def n_signals(self) -> int:
        """Number of network signals, K."""
        return MODES * self.patching.n_groups

    @cached_property
    def loadings(self) -> np.ndarray:
        """(R, K): U, how strongly each region follows each signal of its network; 0 for other networks."""
        rng = self._rng(0)
        loadings = np.zeros((self.parcellation.n_regions, self.n_signals))
        for network, members in enumerate(self.patching.members):
            level = 1 + 0.2 * rng.standard_normal(len(members))
            contrasts = rng.standard_normal((len(members), MODES - 1))
            first = network * MODES
            loadings[members, first] = level / level.mean()
            loadings[members, first + 1 : first + MODES] = contrasts - contrasts.mean(axis=0)
        return loadings

    @cached_property
    def coupling_root(self) -> np.ndarray:
        """(K, K): N^½, the symmetric root of the covariance of the network signals in the average participant."""
        features = network_features(self.parcellation, self._rng(1))
        levels = np.arange(self.patching.n_groups) * MODES
        coupling = CONTRAST_VARIANCE * np.eye(self.n_signals)
        coupling[np.ix_(levels, levels)] = NETWORK_VARIANCE * features @ features.T
        return _power(coupling, 0.5)

    @cached_property
    def local_root(self) -> np.ndarray:
        """(R, R): V^½, root of the covariance that neighbours share and regions have for themselves."""
        near = neighbourhood(self.parcellation, LOCAL_WIDTH)
        np.fill_diagonal(near, 1.0)
        mirrored = neighbourhood(self.parcellation, LOCAL_WIDTH, mirrored=True)
        local = LOCAL_VARIANCE * (near + HOMOTOPIC * mirrored) + UNIQUE_VARIANCE * np.eye(len(near))
        return _power(local, 0.5)

    @cached_property
    def effects(self) -> dict[str, Effect]:
        """What acts where: every factor, age and sex."""
        names = [*self.factor_names[:3], "age", "sex", *self.factor_names[3:]]  # those of targets choose first
        chosen = self._chosen_pairs(names)
        rng = self._rng(3)
        weaker = {"age": COVARIATE_STRENGTH, "sex": COVARIATE_STRENGTH}
        return {name: self._effect(chosen[name], weaker.get(name, 1.0) * self.strength, rng) for name in names}

    def _chosen_pairs(self, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
        """Pairs that the user stated, else `PAIRS_PER_EFFECT` of the larger half, none twice while they last."""
        patching = self.patching
        large = np.flatnonzero(patching.sizes >= np.median(patching.sizes))
        order = np.resize(self._rng(2).permutation(large), (len(names), PAIRS_PER_EFFECT))
        chosen = {}
        for name, patches in zip(names, order, strict=True):
            drawn = [(int(a), int(b)) for a, b in patching.pairs[np.unique(patches)]]
            chosen[name] = self._stated_pairs(name) if name in self.pairs else drawn
        return chosen

    def _stated_pairs(self, factor: str) -> list[tuple[int, int]]:
        if not len(self.pairs[factor]):
            raise problem(f"The pairs of {factor!r}", "no network pair", expected="at least one")
        return sorted({self._numbers(factor, pair) for pair in self.pairs[factor]})

    def _numbers(self, factor: str, pair: Pair) -> tuple[int, int]:
        names = self.patching.group_names
        if isinstance(pair, str) or len(pair) != 2:
            raise problem(f"The pairs of {factor!r}", f"{pair!r} is no pair", expected="two networks")
        for network in pair:
            if network not in names:
                raise NerveError(
                    f"{self.parcellation.name} has no network {network!r}, expected two of {listed(names, most=20)}."
                    + did_you_mean(network, names)
                )
        first, second = sorted(names.index(network) for network in pair)
        return first, second

    def _effect(self, pairs: Sequence[tuple[int, int]], strength: float, rng: np.random.Generator) -> Effect:
        change = np.zeros((self.n_signals, self.n_signals))
        for first, second in pairs:
            sign = rng.choice([-1.0, 1.0])
            left, right = self._profile(first, rng), self._profile(second, rng)
            outer = np.outer(left, left if first == second else right)
            change += sign * strength * (outer if first == second else outer + outer.T)
        whiten = np.linalg.inv(self.coupling_root)
        names = self.patching.group_names
        return Effect(tuple((names[a], names[b]) for a, b in pairs), whiten @ change @ whiten)

    def _profile(self, network: int, rng: np.random.Generator) -> np.ndarray:
        """Which signals of a network an effect acts on: its level, and a little of its contrasts."""
        weights = np.zeros(self.n_signals)
        weights[network * MODES] = 1.0
        weights[network * MODES + 1 : (network + 1) * MODES] = 0.2 * rng.standard_normal(MODES - 1)
        return weights

    @cached_property
    def spread(self) -> np.ndarray:
        """(K, K): E[M²] / 2 over participants, taken off so that the exponential has the population's N as its mean."""
        random = (OWN_COUPLING**2 + SESSION_COUPLING**2 + SITE_COUPLING**2) * (self.n_signals + 1)
        squares = sum(effect.matrix @ effect.matrix for effect in self.effects.values())
        return np.asarray(squares + random * np.eye(self.n_signals)) / 2

    def connectivity(self, state: np.ndarray | float = 0.0) -> np.ndarray:
        """(R, R): the true FC of someone in the (K, K) state M, without motion and sampling noise.

        Topography counts as what it is on average over participants: variance of each region's own.
        """
        state = np.zeros((self.n_signals, self.n_signals)) + state
        signals = self.loadings @ self.coupling_root @ exponential(state / 2)  # (R, K)
        covariance = signals @ signals.T + self._unrelated
        covariance -= GLOBAL_SIGNAL * covariance.mean(axis=0)
        covariance -= GLOBAL_SIGNAL * covariance.mean(axis=1, keepdims=True)
        return as_correlation(covariance)

    @cached_property
    def _unrelated(self) -> np.ndarray:
        levels = np.diag(self.coupling_root @ self.coupling_root)[::MODES]
        return self.local_root @ self.local_root + TOPOGRAPHY**2 * levels.sum() * np.eye(len(self.local_root))

    def change_per_sd(self, name: str, n_people: int = 8) -> list[float]:
        """Change of the mean FC of each pair of an effect by one standard deviation, averaged over some participants.

        Half the difference between participants at +1 and -1 who differ in everything else at random.
        """
        others = [effect.matrix for other, effect in self.effects.items() if other != name]
        scores = self._rng(4).standard_normal((n_people, len(others)))
        step = self.effects[name].matrix
        change = np.zeros_like(self.local_root)
        for some in scores:
            state = np.einsum("e,eab->ab", some, np.stack(others)) - self.spread
            change += (self.connectivity(state + step) - self.connectivity(state - step)) / (2 * n_people)
        means = dict(zip(self.patching.pair_names, patch_means(change, self.patching), strict=True))
        return [float(means[f"{a}–{b}"]) for a, b in self.effects[name].pairs]

    def _rng(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.structure_seed, part])


def exponential(symmetric: np.ndarray) -> np.ndarray:
    """The matrix exponential of a symmetric matrix."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)


def neighbourhood(parcellation: Parcellation, width: float, *, mirrored: bool = False) -> np.ndarray:
    """(R, R): exp(-(distance / width)²), to the mirror images if asked; 0 where coordinates are unknown."""
    places = np.array(parcellation.coordinates, float)
    others = places * [-1, 1, 1] if mirrored else places
    squared = ((places[:, None, :] - others[None, :, :]) ** 2).sum(axis=-1)
    return np.nan_to_num(np.exp(-squared / width**2))


def as_correlation(covariance: np.ndarray) -> np.ndarray:
    """A covariance scaled to a unit diagonal."""
    scale = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / scale / scale[:, None])


def patch_means(fc: np.ndarray, patching: Patching) -> np.ndarray:
    """(…, R, R) → (…, n_patches): mean FC of every network pair, without the diagonal.

    A network of one region has no FC within: its mean is NaN.
    """
    off_diagonal = (patching.rows != patching.cols).astype(np.float32)
    starts = patching.offsets[:-1]
    counts = np.add.reduceat(off_diagonal, starts)
    sums = np.add.reduceat(patching.pack(fc) * off_diagonal, starts, axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts)


def _power(symmetric: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.maximum(values, 1e-12) ** exponent) @ vectors.T)
