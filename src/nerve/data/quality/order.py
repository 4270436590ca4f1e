"""Whether the regions of a group-mean FC matrix stand in the order that its parcellation says.

Regions of one network are more alike than regions of different networks. Read in the wrong order
(17- for 7-network order, the most common silent error of the field), FC loses most of that
contrast. So the contrast in the declared order is compared with the contrast that the same data
would have if their rows were in the parcellation's other known orders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nerve.data.atlas_tables import schaefer_size
from nerve.data.parcellation import Parcellation

_CLEARLY_HIGHER = 1.25  # another order must exceed the declared one by this factor …
_AT_LEAST = 0.05  # … and by this much, before the declared one is doubted

N_SHUFFLES = 200
_FEWEST_REGIONS = 20  # fewer can be shuffled in too few ways


@dataclass(frozen=True)
class OrderCheck:  # numpydoc ignore=PR02
    """Network contrast of a group mean in the declared order and in others.

    Parameters
    ----------
    within, between : float
        Mean FC of pairs of regions of the same and of different networks, in the declared order.
    others : dict
        Name of another order → the contrast (within - between) that it would give.
    """

    within: float
    between: float
    others: dict[str, float]

    @property
    def contrast(self) -> float:
        """Mean FC within networks less that between them."""
        return self.within - self.between

    @property
    def better(self) -> str:
        """The other order that fits clearly better, or an empty string."""
        name = max(self.others, key=lambda other: self.others[other], default="")
        return name if name and clearly_higher(self.others[name], self.contrast) else ""

    @property
    def plausible(self) -> bool:
        """Whether no other order fits clearly better, and networks show at all."""
        return not self.better and self.contrast > 0


def clearly_higher(contrast: float, other: float) -> bool:
    """Tell whether one network contrast exceeds another by more than chance.

    Parameters
    ----------
    contrast, other : float

    Returns
    -------
    bool
    """
    return contrast > max(other * _CLEARLY_HIGHER, other + _AT_LEAST)


def check_order(mean: np.ndarray, parcellation: Parcellation) -> OrderCheck:
    """Compare the declared region order of a group mean with the parcellation's other orders.

    Parameters
    ----------
    mean : (R, R) array
    parcellation : Parcellation

    Returns
    -------
    OrderCheck
    """
    within, between = network_means(mean, np.array(parcellation.networks))
    contrasts = {}
    for name, networks in _other_orders(parcellation).items():
        contrasts[name] = network_contrast(mean, networks)
    return OrderCheck(within, between, contrasts)


@dataclass(frozen=True)
class ShuffleCheck:  # numpydoc ignore=PR02
    """Network contrast of a group mean beside those of shuffled networks.

    Parameters
    ----------
    contrast : float
        Mean FC within networks less that between them.
    low, high : float
        The 5th and 95th percentile of the contrasts of shuffled networks.
    """

    contrast: float
    low: float
    high: float


def check_shuffles(mean: np.ndarray, parcellation: Parcellation) -> ShuffleCheck | None:
    """Compare the network contrast of a group mean with those of `N_SHUFFLES` shuffled networks.

    Parameters
    ----------
    mean : (R, R) array
    parcellation : Parcellation

    Returns
    -------
    ShuffleCheck or None
        None where there are too few regions or networks to tell.
    """
    networks = np.array(parcellation.networks)
    is_empty = not np.isfinite(mean).any()
    if parcellation.n_networks < 2 or len(networks) < _FEWEST_REGIONS or is_empty:
        return None
    rng = np.random.default_rng(0)
    contrasts = [network_contrast(mean, rng.permutation(networks)) for _ in range(N_SHUFFLES)]
    low, high = np.nanpercentile(contrasts, [5, 95])
    return ShuffleCheck(network_contrast(mean, networks), float(low), float(high))


def network_contrast(mean: np.ndarray, networks: np.ndarray) -> float:
    """Mean FC within networks less that between them.

    Parameters
    ----------
    mean : (R, R) array
        NaN entries are passed over.
    networks : (R,) array

    Returns
    -------
    float
    """
    within, between = network_means(mean, networks)
    return within - between


def network_means(mean: np.ndarray, networks: np.ndarray) -> tuple[float, float]:
    """Average FC over pairs within networks and between networks, without the diagonal.

    Parameters
    ----------
    mean : (R, R) array
        NaN entries are passed over.
    networks : (R,) array

    Returns
    -------
    within, between : float

    Examples
    --------
    >>> fc = np.array([[1, 0.8, 0.1], [0.8, 1, 0.3], [0.1, 0.3, 1]])
    >>> [round(value, 3) for value in network_means(fc, np.array(["A", "A", "B"]))]
    [0.8, 0.2]
    """
    rows, columns = np.triu_indices(len(networks), 1)
    values = mean[rows, columns]
    is_within = networks[rows] == networks[columns]
    is_known = np.isfinite(values)
    within = values[is_within & is_known]
    between = values[~is_within & is_known]
    return (
        float(within.mean()) if len(within) else np.nan,
        float(between.mean()) if len(between) else np.nan,
    )


def _other_orders(parcellation: Parcellation) -> dict[str, np.ndarray]:
    """For each other known order: the network of each row if the rows were in that order."""
    size = schaefer_size(parcellation.name, parcellation.labels)
    if not size:
        return {}
    networks = np.array(parcellation.networks)
    others = {}
    for name in (f"schaefer{size}-17", f"schaefer{size}-7"):
        positions = parcellation.positions_of(name)  # where each parcel of that order is declared
        has_all_parcels = positions.min() >= 0
        is_same_order = np.all(np.diff(positions) > 0)
        if has_all_parcels and not is_same_order:
            others[name] = networks.copy()
            others[name][np.sort(positions)] = networks[positions]
    return others
