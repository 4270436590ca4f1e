"""How the networks of a simulated population are coupled: a few named axes, each network a point among them.

The coordinates are written by hand after what is known of resting-state FC (unimodal networks apart from the
association cortex, attention networks against the default network, control between them); only their overall
size was set with real group means in view.
"""

from __future__ import annotations

import numpy as np

from nerve.parcellation import Parcellation

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
    "DorsAttnA": {"sensory": 0.25, "visual": 0.3, "attention": 0.65, "antagonism": 0.4, "control": 0.15},
    "DorsAttnB": {"sensory": 0.3, "motor": 0.25, "attention": 0.55, "antagonism": 0.5, "salience": 0.15},
    "SalVentAttnA": {"sensory": 0.35, "motor": 0.2, "auditory": 0.2, "salience": 0.6, "antagonism": 0.5},
    "SalVentAttnB": {"sensory": -0.1, "salience": 0.65, "control": 0.35},
    "LimbicA": {"limbic": 0.3, "auditory": 0.15},
    "LimbicB": {"limbic": 0.3, "default": 0.2},
    "ContA": {"sensory": -0.15, "control": 0.7, "attention": 0.3, "antagonism": 0.2},
    "ContB": {"sensory": -0.4, "control": 0.5, "default": 0.25, "antagonism": -0.3},
    "ContC": {"sensory": -0.1, "control": 0.35, "memory": 0.7, "salience": 0.15},
    "DefaultA": {"sensory": -0.25, "default": 0.55, "memory": 0.3, "antagonism": -0.45},
    "DefaultB": {"sensory": -0.25, "default": 0.55, "auditory": 0.25, "memory": -0.3, "antagonism": -0.4},
    "DefaultC": {"default": 0.2, "memory": 0.65, "peripheral": 0.2},
    "TempPar": {"sensory": 0.15, "auditory": 0.65, "default": 0.25},
    "Subcortical": {"motor": 0.1, "salience": 0.15},
}


def network_features(parcellation: Parcellation, rng: np.random.Generator) -> np.ndarray:
    """(networks, features): the coordinates of each network; their products are the coupling of networks.

    A name that stands for several networks of the table (`Vis`, `Default` of the 7-network order) has their mean;
    one that is in no way known has a random place.
    """
    names = parcellation.network_names
    places = np.stack([_place(name, rng) for name in names])  # (networks, axes)
    return np.hstack([places, _OWN * np.eye(len(names))])


def _place(name: str, rng: np.random.Generator) -> np.ndarray:
    direction = rng.standard_normal(len(_AXES))  # drawn for every network: one unknown name does not move the others
    known = [axes for network, axes in _NETWORKS.items() if network.startswith(name)]
    if not known:
        return _UNKNOWN * direction / np.linalg.norm(direction)
    return np.mean([[axes.get(axis, 0.0) for axis in _AXES] for axes in known], axis=0)
