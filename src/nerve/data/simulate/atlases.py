"""One simulated brain in another atlas: small regions are averaged into larger ones.

This is not how `nerve.data.resampling` makes regions of others: here every small region belongs to
one region of the atlas, whole, as voxels do.
"""

from __future__ import annotations

import numpy as np

from nerve._utils.errors import problem
from nerve.data.parcellation import Parcellation
from nerve.data.resampling_weights import is_cortical


def averages_into(fine: Parcellation, atlas: Parcellation) -> tuple[np.ndarray, Parcellation]:
    """Find which small regions each cortical region of an atlas is the average of.

    Parameters
    ----------
    fine : Parcellation
        The simulated regions, with MNI centres. Each goes to the nearest centre of its hemisphere.
    atlas : Parcellation
        The regions in which they are seen.

    Returns
    -------
    weights : (regions, fine regions) array
        Rows sum to one.
    regions : Parcellation
        The regions of the atlas that have a small region.
    """
    from scipy.spatial.distance import cdist

    cortical = atlas.subset(np.flatnonzero(is_cortical(atlas)))
    for parcellation in (fine, cortical):
        n_without = int((~np.isfinite(parcellation.coordinates).all(axis=1)).sum())
        if n_without:
            raise problem(
                parcellation.name,
                f"{n_without} of its {parcellation.n_regions} regions have no MNI centre",
                expected="a centre for each, to be seen in another atlas",
            )
    distances = cdist(fine.coordinates, cortical.coordinates)  # (fine regions, regions)
    sides = np.sign(fine.coordinates[:, :1] * cortical.coordinates[:, 0])
    distances[sides < 0] = np.inf
    nearest = distances.argmin(axis=1)
    used = np.unique(nearest)
    members = (nearest == used[:, None]).astype(float)  # (regions, fine regions)
    weights = members / members.sum(axis=1, keepdims=True)
    return weights, cortical.subset(used)


def seen_in(series: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average the series of small regions, each at unit variance.

    Parameters
    ----------
    series : (volumes, fine regions) array
    weights : (regions, fine regions) array
        From `averages_into`.

    Returns
    -------
    (volumes, regions) array of float32
    """
    centred = series - series.mean(axis=0)
    averaged = (centred / centred.std(axis=0)) @ weights.T
    return np.asarray(averaged, np.float32)
