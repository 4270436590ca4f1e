"""A Resampling: weights that carry FC or time series from one atlas to another.

With X the FC of a participant in R regions and Φ the weights, one row per new region, rows summing
to one, FC in the new regions is Φ X Φᵀ brought back to correlations. The same weights average time
series: FC of averaged series, each region at unit variance before, is exactly that matrix.

Weights are Gaussian in the distance of MNI centres, exp(-d² / 2 w²). Cortex is made of cortex of
the same hemisphere, and regions below the cortex of regions below it. The width w is `WIDTH` times
the mean spacing of both atlases, chosen where the truth is known (``docs/any-atlas.md``), without
any label. Where both atlases are images, weights are overlaps of voxels instead.

New regions that share sources correlate with each other by more than the regions that were
measured: the FC of a source with itself, 1, enters their product. Nearby regions of a finer target
are therefore smoother than its own data would be; distant ones are hardly changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, problem
from nerve.data.lazy_arrays import Series, Stack
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.resampling_weights import (
    distance_of_largest,
    distances_between,
    overlap_weights,
    spacing_of,
)

WIDTH = 0.48  # of the mean spacing of both atlases; `python -m studies.resampling_width`
FARTHEST = 25.0  # mm to the nearest source region, beyond which a target region is refused

_SEEN = 1e-3  # a source region of less weight in every target region counts as not used
_NEGLIGIBLE = 1e-8  # weights below it, relative to the nearest source, are lost in float32 anyway
_SAME_PLACE = 10.0  # mm: regions of the same label that are farther apart are not the same


@dataclass(frozen=True)
class Resampling:  # numpydoc ignore=PR02
    """How regions of one parcellation are made of those of another.

    Parameters
    ----------
    source, target : Parcellation
        From which regions, and to which.
    weights : (target regions, source regions) array
        Φ; rows sum to one.
    method : {"labels", "centres", "overlap"}
        Whether the target is a choice of source regions by label, or weighted by distance of
        centres or by overlap of images.
    width : float
        Width of the Gaussian in mm; 0 where there is none.
    nearest : (target regions,) array
        Distance to the nearest source region that is used, in mm; NaN where it is not known.

    Examples
    --------
    >>> resampling = Resampling.between("schaefer400-17", "schaefer100-17")
    >>> resampling.weights.shape, round(resampling.width, 1)
    ((100, 400), 7.1)
    >>> Resampling.between("schaefer400-7", "schaefer400-17").method
    'labels'
    """

    source: Parcellation
    target: Parcellation
    weights: np.ndarray
    method: str
    width: float
    nearest: np.ndarray

    @classmethod
    def between(
        cls,
        source: Parcellation | str,
        target: Parcellation | str,
        *,
        width: float | None = None,
        farthest: float = FARTHEST,
        images: tuple[Any, Any] | None = None,
    ) -> Resampling:
        """Find the weights between two parcellations.

        Regions of the same labels are only reordered. Target regions without a centre are taken by
        label.

        Parameters
        ----------
        source, target : Parcellation or str
            From which regions, and to which.
        width : float, optional
            Width of the Gaussian in mm, instead of the one that follows from the spacing.
        farthest : float
            A target region whose nearest source region is farther than this, in mm, is refused.
        images : pair of images, optional
            Label images (paths or images of nibabel) of source and target, whose values in
            ascending order are the regions in order: weights are overlaps of voxels. Needs nilearn.

        Returns
        -------
        Resampling
        """
        source = load_parcellation(source)
        target = load_parcellation(target)
        order = _reordering(source, target)
        if order is not None:
            weights = np.eye(source.n_regions)[order]
            nearest = np.zeros(target.n_regions)
            return cls(source, target, weights, "labels", 0.0, nearest)
        if images is not None:
            weights = overlap_weights(source, target, images)
            nearest = np.array(
                [distance_of_largest(source, target, weights, row) for row in range(len(weights))]
            )
            return cls(source, target, weights, "overlap", 0.0, nearest)
        if width is None:
            width = WIDTH * (spacing_of(source) + spacing_of(target)) / 2
        if not width > 0:
            raise problem("width", f"{width}", expected="a distance in mm above 0")
        distances = distances_between(source, target)
        nearest = distances.min(axis=1, initial=np.inf)
        _check_near(source, target, nearest, farthest)
        # relative to the nearest one, so that weights of far regions do not vanish together
        exponents = (distances**2 - nearest[:, None] ** 2) / (2 * width**2)
        weights = np.exp(-exponents)
        weights[weights < _NEGLIGIBLE] = 0.0
        weights /= weights.sum(axis=1, keepdims=True)
        return cls(source, target, weights, "centres", float(width), nearest)

    def apply(self, fc: Any) -> Any:
        """FC in the target regions.

        Parameters
        ----------
        fc : (n, R, R) array, memory map or Stack
            Pearson correlations in the source regions. A region that is missing (NaN) for a
            participant gives its weight to the others.

        Returns
        -------
        (n, target regions, target regions) array or Stack
            float32. Where that would be large, a stack that computes matrices when they are read.
        """
        stack = Stack.of(fc)
        _check_regions(stack.shape[-1], self.source)
        if self.method == "labels":
            return stack.reorder(self.weights.argmax(axis=1)).materialise_if_small()
        return Stack.of(_ResampledMatrices(stack, self)).materialise_if_small()

    def apply_series(self, series: Sequence[np.ndarray] | Series) -> Series:
        """Time series of the target regions: averages of source regions at unit variance.

        Parameters
        ----------
        series : sequence of (volumes, R) arrays, or Series
            One per participant.

        Returns
        -------
        Series
            Computed when they are read.
        """
        many = series if isinstance(series, Series) else Series(list(series))
        if self.method == "labels":
            return many.reorder(self.weights.argmax(axis=1))
        parts: list[Any] = [_ResampledSeries(many, row, self) for row in range(len(many))]
        return Series(parts)

    def carry(self, matrices: np.ndarray) -> np.ndarray:
        """FC of some participants in the target regions, at once and in memory.

        Parameters
        ----------
        matrices : (k, R, R) array
            FC in the source regions.

        Returns
        -------
        (k, target regions, target regions) array of float32
        """
        matrices = np.array(matrices, np.float32)
        diagonal = np.arange(matrices.shape[-1])
        # a missing region has NaN on the diagonal too, whatever the file holds there
        is_missing = np.isnan(matrices).sum(axis=2) >= matrices.shape[-1] - 1  # (k, R)
        matrices[:, diagonal, diagonal] = 1.0
        weights = self.weights.astype(np.float32)
        carried = np.empty((len(matrices), len(weights), len(weights)), np.float32)
        complete = ~is_missing.any(axis=1)
        carried[complete] = _carried(matrices[complete], weights)
        for row in np.flatnonzero(~complete):
            present = ~is_missing[row]
            chosen = weights[:, present]
            totals = chosen.sum(axis=1, keepdims=True)
            with np.errstate(invalid="ignore", divide="ignore"):
                chosen = np.where(totals > 0, chosen / totals, np.nan)
            part = matrices[row][np.ix_(present, present)]
            carried[row] = _carried(part[None], chosen)[0]
        return carried

    def report(self) -> pd.DataFrame:
        """How each target region is made.

        Returns
        -------
        DataFrame
            One row per target region: label, network, nearest (the source region of most weight),
            nearest_mm, n_effective (1 / Σ w²: of how many source regions it is the average).
        """
        first = self.weights.argmax(axis=1)
        return pd.DataFrame(
            {
                "label": self.target.labels,
                "network": self.target.networks,
                "nearest": [self.source.labels[region] for region in first],
                "nearest_mm": self.nearest,
                "n_effective": 1 / (self.weights**2).sum(axis=1),
            }
        )

    def round_trip(self, fc: np.ndarray) -> float:
        """How much of a matrix is left after it was carried there and back.

        Parameters
        ----------
        fc : (R, R) array
            In the source regions, a group mean, say.

        Returns
        -------
        float
            Correlation of its entries with what came back, among source regions that are used.
        """
        used = np.flatnonzero(self.weights.max(axis=0) >= _SEEN)
        part = self.source.subset(used)
        there = self.carry(fc[None])
        if self.method == "centres":
            back = Resampling.between(self.target, part, width=self.width, farthest=np.inf)
            weights = back.weights
        else:
            weights = self.weights[:, used].T
            weights = weights / weights.sum(axis=1, keepdims=True)
        returned = _carried(there, weights.astype(np.float32))[0]
        rows, columns = np.triu_indices(len(used), 1)
        original = fc[np.ix_(used, used)]
        return float(np.corrcoef(original[rows, columns], returned[rows, columns])[0, 1])

    def summary(self) -> dict[str, Any]:
        """What reports and `cohort.json` say of it, as JSON.

        Returns
        -------
        dict
        """
        table = self.report()
        known = table["nearest_mm"].dropna()
        return {
            "source": self.source.name,
            "target": self.target.name,
            "method": self.method,
            "width_mm": round(self.width, 2),
            "median_nearest_mm": round(float(known.median()), 2) if len(known) else None,
            "largest_nearest_mm": round(float(known.max()), 2) if len(known) else None,
            "median_n_effective": round(float(table["n_effective"].median()), 2),
            "n_target": self.target.n_regions,
            "n_source": self.source.n_regions,
            "n_unused": int((self.weights.max(axis=0) < _SEEN).sum()),
        }


def in_words(summary: dict[str, Any]) -> str:
    """A `Resampling.summary` as a sentence.

    Parameters
    ----------
    summary : dict
        As `Resampling.summary` gives it.

    Returns
    -------
    str
    """
    how = {
        "labels": "regions chosen by label",
        "centres": f"Gaussian weights of the distance of centres, {summary['width_mm']:g} mm wide",
        "overlap": "weights by overlap of voxels",
    }[summary["method"]]
    text = (
        f"{summary['source']} ({summary['n_source']} regions) → {summary['target']} "
        f"({summary['n_target']} regions): {how}; a region is the average of "
        f"{summary['median_n_effective']:g} source regions (median)"
    )
    if summary["median_nearest_mm"] is not None:
        text += (
            f", the nearest is {summary['median_nearest_mm']:g} mm away (median; "
            f"{summary['largest_nearest_mm']:g} mm at most)"
        )
    if summary["n_unused"]:
        text += f"; {summary['n_unused']} source regions are not used"
    return f"{text}."


class _ResampledMatrices:
    """FC in the target regions, computed when rows are read: a source of a `Stack`."""

    ndim = 3
    dtype = np.dtype(np.float32)

    def __init__(self, matrices: Stack, resampling: Resampling) -> None:
        self.matrices = matrices
        self.resampling = resampling
        n_regions = resampling.target.n_regions
        self.shape = (len(matrices), n_regions, n_regions)

    def __len__(self) -> int:
        return len(self.matrices)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *rest = key if isinstance(key, tuple) else (key,)
        carried = self.resampling.carry(self.matrices[rows])
        return carried[(slice(None), *rest)]


class _ResampledSeries:
    """The series of one participant in the target regions, computed when it is read."""

    def __init__(self, series: Series, row: int, resampling: Resampling) -> None:
        self.series = series
        self.row = row
        self.weights = resampling.weights
        self.source = resampling.source
        self.length = int(series.lengths[row])

    def __len__(self) -> int:
        return self.length

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        series = np.asarray(self.series[self.row], float)  # (volumes, R)
        _check_regions(series.shape[1], self.source)
        centred = series - series.mean(axis=0)
        spread = centred.std(axis=0)
        present = spread > 0
        weights = self.weights[:, present]
        with np.errstate(invalid="ignore", divide="ignore"):
            averaged = (centred[:, present] / spread[present]) @ weights.T / weights.sum(axis=1)
        return averaged.astype(dtype or np.float32)


def _carried(matrices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Φ X Φᵀ, brought back to correlations; (k, R, R) and (Q, R) → (k, Q, Q).

    A region is the average of a few: sparse weights cost a fraction of whole products.
    """
    from scipy.sparse import csr_array

    sparse = csr_array(weights)
    products = np.empty((len(matrices), len(weights), len(weights)), weights.dtype)
    for row, matrix in enumerate(matrices):
        half = sparse @ matrix  # (Q, R)
        products[row] = (sparse @ half.T).T
    scale = np.sqrt(np.einsum("kii->ki", products))
    products /= scale[:, :, None]
    products /= scale[:, None, :]
    np.clip(products, -1.0, 1.0, out=products)
    regions = np.arange(len(weights))
    products[:, regions, regions] = np.where(np.isnan(scale), np.nan, 1.0)
    return products


def _reordering(source: Parcellation, target: Parcellation) -> np.ndarray | None:
    """Positions of the target regions among the source regions, None where they are others."""
    try:
        order = source.reordering_to(target)
    except NerveError:
        return None
    shift = np.linalg.norm(source.coordinates[order] - target.coordinates, axis=1)
    # two atlases may both call their regions 1, 2 …
    return None if (shift > _SAME_PLACE).any() else order


def _check_near(
    source: Parcellation, target: Parcellation, nearest: np.ndarray, farthest: float
) -> None:
    """Refuse target regions that have no source region near enough."""
    too_far = np.flatnonzero(~(nearest <= farthest))
    if not len(too_far):
        return
    examples = []
    for region in too_far[:4]:
        distance = f"{nearest[region]:.0f} mm" if np.isfinite(nearest[region]) else "none"
        examples.append(f"{target.labels[region]} {distance}")
    raise problem(
        f"{source.name} → {target.name}",
        f"{len(too_far)} of {target.n_regions} regions have no region of {source.name} of the same "
        f"side of the brain and of cortex within {farthest:g} mm ({', '.join(examples)})",
        expected="a source for every region",
        remedy="Choose regions that the data cover: `nerve atlas show NAME --regions` prints a "
        "table from which rows can be removed.",
    )


def _check_regions(n_regions: int, source: Parcellation) -> None:
    if n_regions != source.n_regions:
        raise NerveError(
            f"The data have {n_regions} regions, expected the {source.n_regions} of {source.name}."
        )
