"""The population that simulated participants come from: signals, and effects on network pairs.

Networks are coupled along a few named axes, each network a point among them. The coordinates are
written by hand after what is known of resting-state FC (unimodal networks apart from the
association cortex, attention networks against the default network, control between them); only
their overall size was set with real group means in view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nerve._utils.errors import one_of, require
from nerve.core.patching import Patching
from nerve.data.parcellation import Parcellation

_NETWORK_VARIANCE = 0.35  # of a region's variance, what follows the level signal of its network
_CONTRAST_VARIANCE = 0.05  # and what follows each contrast signal
_LOCAL_VARIANCE = 0.45  # what it shares with its neighbours
_UNIQUE_VARIANCE = 0.1  # and what it has for itself
_LOCAL_WIDTH = 21.0  # mm: exp(-(distance / width)²)
_HOMOTOPIC = 0.5  # how much of the local part the mirrored place in the other hemisphere shares
GLOBAL_SIGNAL = 0.6  # share of the mean over regions that is taken out, as preprocessing does
MODES = 3  # signals per network: its level and two contrasts
TOPOGRAPHY = (
    0.17  # sd of a participant's own loadings: regions also follow signals of other networks
)
OWN_COUPLING = 0.06  # sd of a participant's own coupling of signals
SESSION_COUPLING = 0.04  # sd of what differs from one session to the next
SITE_COUPLING = 0.06  # sd of what a scanner does to the coupling of signals
_PAIRS_PER_EFFECT = 3
_COVARIATE_STRENGTH = 0.6  # of age and sex, relative to that of a factor

Pair = tuple[str, str]

_AXES: tuple[str, ...] = (
    *("sensory", "visual", "peripheral", "motor", "auditory", "attention"),
    *("salience", "control", "default", "limbic", "memory", "antagonism"),
)
_OWN = 0.6  # every network also has an axis of its own
_UNKNOWN = 0.6  # length of the random vector of a network that the table does not know

_NETWORKS: dict[str, dict[str, float]] = {
    "VisCent": {"sensory": 0.5, "visual": 0.75, "attention": 0.15},
    "VisPeri": {"sensory": 0.6, "visual": 0.5, "peripheral": 0.6},
    "SomMotA": {"sensory": 0.6, "motor": 0.7, "attention": 0.1},
    "SomMotB": {"sensory": 0.6, "motor": 0.55, "auditory": 0.4},
    "DorsAttnA": {
        "sensory": 0.25,
        "visual": 0.3,
        "attention": 0.65,
        "antagonism": 0.4,
        "control": 0.15,
    },
    "DorsAttnB": {
        "sensory": 0.3,
        "motor": 0.25,
        "attention": 0.55,
        "antagonism": 0.5,
        "salience": 0.15,
    },
    "SalVentAttnA": {
        "sensory": 0.35,
        "motor": 0.2,
        "auditory": 0.2,
        "salience": 0.6,
        "antagonism": 0.5,
    },
    "SalVentAttnB": {"sensory": -0.1, "salience": 0.65, "control": 0.35},
    "LimbicA": {"limbic": 0.3, "auditory": 0.15},
    "LimbicB": {"limbic": 0.3, "default": 0.2},
    "ContA": {"sensory": -0.15, "control": 0.7, "attention": 0.3, "antagonism": 0.2},
    "ContB": {"sensory": -0.4, "control": 0.5, "default": 0.25, "antagonism": -0.3},
    "ContC": {"sensory": -0.1, "control": 0.35, "memory": 0.7, "salience": 0.15},
    "DefaultA": {"sensory": -0.25, "default": 0.55, "memory": 0.3, "antagonism": -0.45},
    "DefaultB": {
        "sensory": -0.25,
        "default": 0.55,
        "auditory": 0.25,
        "memory": -0.3,
        "antagonism": -0.4,
    },
    "DefaultC": {"default": 0.2, "memory": 0.65, "peripheral": 0.2},
    "TempPar": {"sensory": 0.15, "auditory": 0.65, "default": 0.25},
    "Subcortical": {"motor": 0.1, "salience": 0.15},
}


@dataclass(eq=False)
class Population:  # numpydoc ignore=PR02
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
        Change of the coupling of a pair's signals by one standard deviation of a factor, to first
        order.
    """

    parcellation: Parcellation
    structure_seed: int
    factor_names: tuple[str, ...]
    pairs: Mapping[str, Sequence[Pair]]
    strength: float

    def __post_init__(self) -> None:
        self.patching = Patching.from_parcellation(self.parcellation)
        self.n_signals = MODES * self.patching.n_groups  # K

    @cached_property
    def loadings(self) -> np.ndarray:
        """(R, K): U, how strongly each region follows the signals of its network; 0 for others."""
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
        """(K, K): N^½, root of the covariance of network signals in the average participant."""
        features = _network_features(self.patching.group_names, self._rng(1))
        levels = np.arange(self.patching.n_groups) * MODES
        coupling = _CONTRAST_VARIANCE * np.eye(self.n_signals)
        coupling[np.ix_(levels, levels)] = _NETWORK_VARIANCE * features @ features.T
        return spectral(_root, coupling)

    @cached_property
    def local_root(self) -> np.ndarray:
        """(R, R): V^½, root of the covariance of neighbours and of each region's own signal."""
        near = neighbourhood(self.parcellation, _LOCAL_WIDTH)
        np.fill_diagonal(near, 1.0)
        mirrored = neighbourhood(self.parcellation, _LOCAL_WIDTH, mirrored=True)
        local = _LOCAL_VARIANCE * (near + _HOMOTOPIC * mirrored) + _UNIQUE_VARIANCE * np.eye(
            len(near)
        )
        return spectral(_root, local)

    @cached_property
    def pairs_of(self) -> dict[str, list[tuple[int, int]]]:
        """What acts where: the network pairs of every factor, of age and of sex, as numbers.

        Pairs that the user stated, else `_PAIRS_PER_EFFECT` of the larger half, none twice while
        they last.

        Returns
        -------
        dict
            Effect → pairs of networks.
        """
        # the factors of targets choose first
        names = [*self.factor_names[:3], "age", "sex", *self.factor_names[3:]]
        patching = self.patching
        large = np.flatnonzero(patching.sizes >= np.median(patching.sizes))
        order = np.resize(self._rng(2).permutation(large), (len(names), _PAIRS_PER_EFFECT))
        drawn = [
            [(int(a), int(b)) for a, b in patching.pairs[np.unique(patches)]] for patches in order
        ]
        stated = {name: self._stated_pairs(name) for name in self.pairs}
        return dict(zip(names, drawn, strict=True)) | stated

    @cached_property
    def effects(self) -> dict[str, np.ndarray]:
        """(K, K): the change of the network signals' coupling by one standard deviation of each."""
        rng = self._rng(3)
        whiten = np.linalg.inv(self.coupling_root)
        return {name: whiten @ self._change(name, rng) @ whiten for name in self.pairs_of}

    def _stated_pairs(self, factor: str) -> list[tuple[int, int]]:
        """The pairs that the user stated by names of networks, as numbers."""
        where = f"The pairs of {factor!r}"
        names = self.patching.group_names
        require(where, (len(self.pairs[factor]) > 0, "no network pair", "at least one"))
        numbers = set()
        for pair in self.pairs[factor]:
            is_pair = not isinstance(pair, str) and len(pair) == 2
            require(where, (is_pair, f"{pair!r} is no pair", "two networks"))
            for network in pair:
                one_of(f"A network in the pairs of {factor!r}", network, names)
            first, second = sorted(names.index(network) for network in pair)
            numbers.add((first, second))
        return sorted(numbers)

    def _change(self, name: str, rng: np.random.Generator) -> np.ndarray:
        change = np.zeros((self.n_signals, self.n_signals))
        strength = (_COVARIATE_STRENGTH if name in ("age", "sex") else 1.0) * self.strength
        for first, second in self.pairs_of[name]:
            sign = rng.choice([-1.0, 1.0])
            left = self._profile(first, rng)
            right = self._profile(second, rng)
            if first == second:
                outer = np.outer(left, left)
            else:
                outer = np.outer(left, right) + np.outer(right, left)
            change += sign * strength * outer
        return change

    def _profile(self, network: int, rng: np.random.Generator) -> np.ndarray:
        """Weights of a network's signals in an effect: its level, and a little of its contrasts."""
        weights = np.zeros(self.n_signals)
        weights[network * MODES : (network + 1) * MODES] = [
            1.0,
            *0.2 * rng.standard_normal(MODES - 1),
        ]
        return weights

    @cached_property
    def spread(self) -> np.ndarray:
        """(K, K): E[M²] / 2 over participants."""
        # taken off, so that the exponential has the population's N as its mean
        random = (OWN_COUPLING**2 + SESSION_COUPLING**2 + SITE_COUPLING**2) * (self.n_signals + 1)
        squares = sum(effect @ effect for effect in self.effects.values())
        return np.asarray(squares + random * np.eye(self.n_signals)) / 2

    def connectivity(self, state: np.ndarray) -> np.ndarray:
        """(R, R): the true FC of someone in the (K, K) state M, without motion and sampling noise.

        Topography counts as what it is on average over participants: variance of each region's own.

        Parameters
        ----------
        state : (K, K)
            Of the participant.

        Returns
        -------
        (R, R)
        """
        signals = self.loadings @ self.coupling_root @ spectral(np.exp, state / 2)  # (R, K)
        covariance = signals @ signals.T + self._unrelated
        covariance -= GLOBAL_SIGNAL * covariance.mean(axis=0)
        covariance -= GLOBAL_SIGNAL * covariance.mean(axis=1, keepdims=True)
        scale = np.sqrt(np.diag(covariance))
        return np.asarray(covariance / scale / scale[:, None])

    @cached_property
    def _unrelated(self) -> np.ndarray:
        levels = np.diag(self.coupling_root @ self.coupling_root)[::MODES]
        return self.local_root @ self.local_root + TOPOGRAPHY**2 * levels.sum() * np.eye(
            len(self.local_root)
        )

    def change_per_sd(self, name: str) -> list[float]:
        """Change of the mean FC of each pair of an effect by one standard deviation of its score.

        Averaged over eight participants: half the difference between participants at +1 and -1 who
        differ in everything else at random.

        Parameters
        ----------
        name : str
            Of the effect.

        Returns
        -------
        list of float
            One per pair of networks.
        """
        others = np.stack([effect for other, effect in self.effects.items() if other != name])
        scores = self._rng(4).standard_normal((8, len(others)))
        step = self.effects[name]
        change = np.zeros_like(self.local_root)  # (R, R)
        for participant_scores in scores:
            state = np.einsum("e,eab->ab", participant_scores, others) - self.spread
            difference = self.connectivity(state + step) - self.connectivity(state - step)
            change += difference / (2 * len(scores))
        pairs = [tuple(pair) for pair in self.patching.pairs]
        mean_of = dict(zip(pairs, patch_means(change, self.patching), strict=True))
        return [float(mean_of[pair]) for pair in self.pairs_of[name]]

    def _rng(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.structure_seed, part])


def spectral(function: Callable[[np.ndarray], np.ndarray], symmetric: np.ndarray) -> np.ndarray:
    """A function of a symmetric matrix: that of its eigenvalues, with the same eigenvectors."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * function(values)) @ vectors.T)


def neighbourhood(
    parcellation: Parcellation, width: float, *, mirrored: bool = False
) -> np.ndarray:
    """(R, R): exp(-(distance / width)²) of each region to each other.

    Parameters
    ----------
    parcellation : Parcellation
    width : float
        In mm.
    mirrored : bool
        Distances to the mirror images of the regions.

    Returns
    -------
    (R, R)
        0 where coordinates are unknown.
    """
    places = np.array(parcellation.coordinates, float)
    others = places * [-1, 1, 1] if mirrored else places
    squared = ((places[:, None, :] - others[None, :, :]) ** 2).sum(axis=-1)
    return np.nan_to_num(np.exp(-squared / width**2))


def patch_means(fc: np.ndarray, patching: Patching) -> np.ndarray:
    """(…, R, R) → (…, n_patches): mean FC of every network pair, without the diagonal.

    A network of one region has no FC within: its mean is NaN.

    Parameters
    ----------
    fc : (…, R, R)
    patching : Patching

    Returns
    -------
    (…, n_patches)
    """
    return patching.means(patching.pack(fc))


def _network_features(names: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """(networks, features): the coordinates of each network.

    Their products are the coupling of networks.

    A name that stands for several networks of the table (`Vis`, `Default` of the 7-network order)
    has their mean; one that is not known has a random place.

    Parameters
    ----------
    names : sequence of str
        Of the networks.
    rng : Generator

    Returns
    -------
    (networks, features)
    """
    places = []
    for name in names:
        # drawn for every network: one unknown name moves no other
        direction = rng.standard_normal(len(_AXES))
        known = [axes for network, axes in _NETWORKS.items() if network.startswith(name)]
        coordinates = [[axes.get(axis, 0.0) for axis in _AXES] for axes in known]
        if known:
            places.append(np.mean(coordinates, axis=0))
        else:
            places.append(_UNKNOWN * direction / np.linalg.norm(direction))
    return np.hstack([places, _OWN * np.eye(len(names))])


def _root(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(values, 1e-12) ** 0.5)
