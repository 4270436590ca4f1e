"""Where the weights of a `Resampling` come from: regions that are near, or overlap.

Cortex is made of cortex of the same hemisphere, and regions below the cortex of regions below it.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.parcellation import Parcellation, load_parcellation

_MIDLINE = 4.0  # mm: a centre that is nearer to the midline belongs to both hemispheres
# Networks of regions below the cortex, and names that say nothing of a region.
_BELOW = re.compile(
    "subcort|noncort|cerebel|brain.?stem|thalam|caudate|putamen|pallid|accumb|amygd|hippocamp|vermis",
    re.IGNORECASE,
)
_UNKNOWN = re.compile("^(unassigned|uncertain|unknown|none|all|)$", re.IGNORECASE)
# mm from the nearest centre of Schaefer-1000, within which a region is cortical. With 10 mm, 198 of
# the 200 regions of CC200 are classified correctly. Where the network is known to be cortical the
# limit is 20 mm, and not more, because some of Shen's networks hold cerebellum.
_NEAR_CORTEX = 10.0
_FAR_FROM_CORTEX = 20.0
_SAME_STRUCTURE = 1.0  # mm between the centres of one structure in two tables


def is_cortical(parcellation: Parcellation) -> np.ndarray:
    """Which regions belong to the cortex, by their network or else by their centre.

    Parameters
    ----------
    parcellation : Parcellation

    Returns
    -------
    (n_regions,) array of bool

    Examples
    --------
    >>> int(is_cortical(load_parcellation("schaefer400-17+aseg19")).sum())
    400
    """
    from scipy.spatial import KDTree

    cortex = KDTree(load_parcellation("schaefer1000-17").coordinates)
    cortical = np.empty(parcellation.n_regions, bool)
    for region, network in enumerate(parcellation.networks):
        centre = parcellation.coordinates[region]
        distance = cortex.query(centre)[0] if np.isfinite(centre).all() else 0.0
        limit = _NEAR_CORTEX if _UNKNOWN.match(network) else _FAR_FROM_CORTEX
        cortical[region] = not _BELOW.search(network) and distance <= limit
    return cortical


def distances_between(source: Parcellation, target: Parcellation) -> np.ndarray:
    """Distances of centres; infinite where a source may not be used for a target.

    Parameters
    ----------
    source, target : Parcellation

    Returns
    -------
    (target regions, source regions) array
        In mm.
    """
    from scipy.spatial.distance import cdist

    distances = cdist(target.coordinates, source.coordinates)
    same_tissue = is_cortical(target)[:, None] == is_cortical(source)[None, :]
    sides = _sides_of(target)[:, None] * _sides_of(source)[None, :]
    is_usable = same_tissue & (sides >= 0) & np.isfinite(distances)
    distances[~is_usable] = np.inf
    # a structure below the cortex that both atlases have is matched by its label
    position = {label: region for region, label in enumerate(source.labels)}
    for region in np.flatnonzero(~is_cortical(target)):
        match = position.get(target.labels[region])
        if match is None or not same_tissue[region, match]:
            continue
        shift = np.linalg.norm(target.coordinates[region] - source.coordinates[match])
        if not shift > _SAME_STRUCTURE:  # or NaN
            distances[region] = np.inf
            distances[region, match] = 0.0
    return distances


def _sides_of(parcellation: Parcellation) -> np.ndarray:
    """The side of the brain that each region is on.

    Parameters
    ----------
    parcellation : Parcellation

    Returns
    -------
    (n_regions,) array of int
        -1 left, 1 right, 0 midline or not known.
    """
    sides = np.zeros(parcellation.n_regions, int)
    for region, hemisphere in enumerate(parcellation.hemispheres):
        x = parcellation.coordinates[region, 0]
        if hemisphere in ("L", "R"):
            sides[region] = -1 if hemisphere == "L" else 1
        elif abs(x) > _MIDLINE:
            sides[region] = np.sign(x)
    return sides


def spacing_of(parcellation: Parcellation) -> float:
    """Median distance from a region to its nearest neighbour; of the cortex where there is one.

    Parameters
    ----------
    parcellation : Parcellation

    Returns
    -------
    float
        In mm.
    """
    from scipy.spatial import KDTree

    has_centre = np.isfinite(parcellation.coordinates).all(axis=1)
    cortex = has_centre & is_cortical(parcellation)
    chosen = cortex if cortex.sum() > 1 else has_centre
    if chosen.sum() < 2:
        raise problem(
            parcellation.name,
            f"{int(has_centre.sum())} of its {parcellation.n_regions} regions have an MNI centre",
            expected="centres (x, y, z in mm) of all, to resample by",
            remedy="Give a table with columns label, network, x, y, z, or both label images.",
        )
    centres = parcellation.coordinates[chosen]
    return float(np.median(KDTree(centres).query(centres, k=2)[0][:, 1]))


def distance_of_largest(
    source: Parcellation, target: Parcellation, weights: np.ndarray, region: int
) -> float:
    """Distance from a target region to the source region of most weight.

    Parameters
    ----------
    source, target : Parcellation
    weights : (target regions, source regions) array
    region : int
        The target region.

    Returns
    -------
    float
        In mm; NaN where a centre is not known.
    """
    centre = source.coordinates[weights[region].argmax()]
    return float(np.linalg.norm(target.coordinates[region] - centre))


def overlap_weights(
    source: Parcellation, target: Parcellation, images: tuple[Any, Any]
) -> np.ndarray:
    """The share of each target region that lies in each source region.

    Parameters
    ----------
    source, target : Parcellation
    images : pair of images
        Label images of both, as in `Resampling.between`.

    Returns
    -------
    (target regions, source regions) array
        Rows sum to one.
    """
    try:
        from nilearn.image import load_img, resample_to_img
    except ImportError as error:
        raise NerveError(
            "Weights by overlap of images need nilearn: `pip install nerve-fc[fmri]`."
        ) from error
    paths = [str(image) if isinstance(image, os.PathLike) else image for image in images]
    target_image = load_img(paths[1])
    source_image = resample_to_img(
        load_img(paths[0]),
        target_image,
        interpolation="nearest",
        force_resample=True,
        copy_header=True,
    )
    values = []
    for image, parcellation in ((source_image, source), (target_image, target)):
        array = np.asarray(image.dataobj).round().astype(int).squeeze()
        labels = np.unique(array[array > 0])
        if len(labels) != parcellation.n_regions:
            raise problem(
                f"label image of {parcellation.name}",
                f"{len(labels)} labels",
                expected=f"one for each of its {parcellation.n_regions} regions",
            )
        # 0 outside, 1 … R in the order of the labels
        values.append(np.where(array > 0, np.searchsorted(labels, array) + 1, 0))
    places = np.ravel_multi_index(
        (values[1].ravel(), values[0].ravel()), (target.n_regions + 1, source.n_regions + 1)
    )
    n_places = (target.n_regions + 1) * (source.n_regions + 1)
    counts = np.bincount(places, minlength=n_places).reshape(target.n_regions + 1, -1)
    overlap = counts[1:, 1:].astype(float)
    empty = np.flatnonzero(overlap.sum(axis=1) == 0)
    if len(empty):
        raise problem(
            f"{source.name} → {target.name}",
            f"{len(empty)} regions overlap with no source region "
            f"({listed([target.labels[region] for region in empty], most=4)})",
            expected="an overlap for every region",
            remedy="Choose regions that the data cover.",
        )
    return overlap / overlap.sum(axis=1, keepdims=True)
