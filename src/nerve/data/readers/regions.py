"""Which regions a cohort gets, and how the regions of each file are put into that order: by label, never by position.

Only where a file has no labels does position count, and then in the order that the user named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.atlas_tables import SCHAEFER_SIZES, parcellation_names
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers.base import Options, ScanData
from nerve.data.readers.ids import counted

N_ASEG = 19  # subcortical regions that CBIG appends to Schaefer's
OTHER_ATLAS = "Name the parcellation that the data were made with (--parcellation NAME or TSV)."
MOST_LACKING = 0.1  # of the regions: a file that lacks more was made with another atlas


@dataclass(frozen=True)
class Regions:
    """The regions of the cohort, and the order of files that have no labels.

    Parameters
    ----------
    target : Parcellation
        The regions of the cohort.
    order : Parcellation
        What the rows of files without labels are.
    match : {"label", "stated", "size"}
        How it is known which region a row is: from its label; from what the user or the file's name states; or, not
        confirmed, only because there are as many rows as the parcellation has regions.
    """

    target: Parcellation
    order: Parcellation
    match: str = "label"

    def positions(
        self, n_regions: int, labels: tuple[str, ...] | None, where: object
    ) -> np.ndarray:
        """For each region of the cohort its row in the file, -1 for a region that the file lacks."""
        if labels is not None and len(labels) != n_regions:
            raise problem(where, f"{len(labels)} labels for {n_regions} regions")
        try:
            index = _labelled_positions(labels, self.target)
        except NerveError as error:
            raise problem(where, str(error).rstrip(".")) from error
        if index is None or labels is None:
            if n_regions != self.order.n_regions:
                expected = f"{self.order.n_regions} ({self.order.name})"
                raise problem(where, f"{n_regions} regions", expected=expected, remedy=OTHER_ATLAS)
            return (
                np.arange(n_regions)
                if self.order is self.target
                else self.order.positions_of(self.target)
            )
        lacking = np.flatnonzero(index < 0)
        if len(lacking) > MOST_LACKING * len(index):
            names = listed([self.target.labels[i] for i in lacking], most=2)
            found = f"its labels ({listed(labels, most=2)}) lack {len(lacking)} regions of {self.target.name} ({names})"
            raise problem(where, found, remedy=OTHER_ATLAS)
        return index


def reorder_matrix(matrix: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The (R, R) matrix with the rows and columns at these positions; NaN where the position is -1."""
    picked = matrix.take(index, axis=0).take(index, axis=1)
    picked[index < 0] = picked[:, index < 0] = np.nan
    return picked


def plan_regions(reading: ScanData, options: Options, where: object) -> tuple[Regions, list[str]]:
    """Regions for a source of which one scan was read, and what to tell the user."""
    n_regions, labels = reading.array.shape[-1], reading.labels
    if labels is not None and options.parcellation is None:
        options = _with_known(options, labels)
    target = options.parcellation or options.order
    if target is None:
        raise problem(
            where,
            f"the data have {n_regions} regions and no usable labels",
            remedy=_suggestion(n_regions),
        )
    order = _with_aseg(options.order or target, n_regions)
    by_label = labels is not None and not _only_codes(labels, target)
    file = _as_parcellation(labels) if labels is not None and by_label else order
    known = set(file.positions_of(target).tolist())
    extra = [label for i, label in enumerate(file.labels) if i not in known]
    # the user says what the rows are with --order, or with a table of the regions that is their own
    stated = options.order is not None or order.name.split("+")[0] not in parcellation_names()
    match = "stated" if reading.stated else "label" if by_label else "stated" if stated else "size"
    notes, outside = [_match_note(match, order, target)], counted(len(extra), "region")
    if extra and options.outside == "keep":
        target = _kept(target, extra)
        notes.append(
            f"{outside} outside the networks: kept as network Subcortical ({listed(extra, 3)})"
        )
    elif extra:
        left_out = f"{outside} that {target.name} does not have: left out ({listed(extra, 3)})"
        notes.append(f"{left_out}; --outside keep keeps them as a network of their own")
    return Regions(target, order, match), notes


def _match_note(match: str, order: Parcellation, target: Parcellation) -> str:
    if match == "label":
        return f"regions in the order of {target.name}, matched by label"
    if match == "stated":
        return f"the files have no labels and are read as {order.name}; regions in the order of {target.name}"
    found = f"the files have no labels, and were taken for {order.name} only because they have {order.n_regions} regions"
    return f"WARNING: {found}: not confirmed. If that is what they are, say --order {order.name}."


def _with_known(options: Options, labels: tuple[str, ...]) -> Options:
    """Labels of a built-in atlas name their parcellation themselves; of several orders the first is taken."""
    file = _as_parcellation(labels)
    for name in parcellation_names():
        if name.startswith("4s") or name.endswith(("-7", "-lr")):
            continue  # the same regions in another order, or with others beside them
        target = load_parcellation(name)
        try:
            lacking = (file.positions_of(target) < 0).mean()
        except NerveError:  # labels of another size
            continue
        if lacking <= MOST_LACKING:
            return replace(options, parcellation=target)
    return options


def _with_aseg(order: Parcellation, n_regions: int) -> Parcellation:
    if (
        n_regions == order.n_regions + N_ASEG
        and order.name.startswith("schaefer")
        and "+" not in order.name
    ):
        return load_parcellation(f"{order.name}+aseg19")
    return order


def _kept(target: Parcellation, extra: list[str]) -> Parcellation:
    if target.name in parcellation_names():
        with_aseg = load_parcellation(f"{target.name}+aseg19")
        if list(with_aseg.labels[target.n_regions :]) == extra:
            return with_aseg
    return target.with_outside(extra)


@lru_cache(maxsize=64)
def _labelled_positions(labels: tuple[str, ...] | None, target: Parcellation) -> np.ndarray | None:
    """For each region of the target its position among the labels; None where there are none that mean anything."""
    if labels is None or _only_codes(labels, target):
        return None
    return _as_parcellation(labels).positions_of(target)


@lru_cache(maxsize=64)
def _as_parcellation(labels: tuple[str, ...]) -> Parcellation:
    return Parcellation(labels, ("unknown",) * len(labels), name="the file")


def _only_codes(labels: tuple[str, ...], target: Parcellation) -> bool:
    """Whether the labels merely count (`2001`, `V1`, `ROI_1`) and mean nothing in the target."""
    stems = {re.sub(r"\d+$", "", label) for label in labels}
    if len(stems) > 1 or not all(label[-1:].isdigit() for label in labels):
        return False
    return bool((_as_parcellation(labels).positions_of(target) < 0).all())


def _suggestion(n_regions: int) -> str:
    for size, suffix in ((n_regions, ""), (n_regions - N_ASEG, "+aseg19")):
        if size in SCHAEFER_SIZES:
            names = f"schaefer{size}-17{suffix} or schaefer{size}-7{suffix}"
            return (
                f"Say in which order they are, {names} (--order NAME): it cannot be guessed safely."
            )
    return "Describe them: --parcellation TSV with columns label and network, one row per region in the data's order."
