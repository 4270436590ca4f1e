"""Which regions a cohort gets, and how the regions of each file are put into that order.

Regions are matched by label. Only where a file has no labels does position count, and then in the
order that the user named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.atlas_tables import SCHAEFER_SIZES, aliases_between, parcellation_names
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers.base import WARNING, Options, ScanData
from nerve.data.readers.ids import counted

N_ASEG = 19  # subcortical regions that CBIG appends to Schaefer's
OTHER_ATLAS = "Name the parcellation that the data were made with (--parcellation NAME or TSV)."
_MOST_LACKING = 0.1  # of the regions: a file that lacks more was made with another atlas


@dataclass(frozen=True)
class Regions:  # numpydoc ignore=PR02
    """The regions of the cohort, and the order of files that have no labels.

    Parameters
    ----------
    target : Parcellation
        The regions of the cohort.
    order : Parcellation
        What the rows of files without labels are.
    match : {"label", "stated", "size"}
        How it is known which region a row is: from its label; from what the user or the file's name
        states; or, not confirmed, only because there are as many rows as the parcellation has
        regions.
    unknown_labels : tuple of str
        Labels of the files that name no region of the parcellation: they count, or are codes that
        its table does not list.
    """

    target: Parcellation
    order: Parcellation
    match: str = "label"
    unknown_labels: tuple[str, ...] = ()

    def positions(
        self, n_regions: int, labels: tuple[str, ...] | None, where: object
    ) -> np.ndarray:
        """Find the row in a file of each region of the cohort.

        Parameters
        ----------
        n_regions : int
            Rows of the file.
        labels : tuple of str, optional
            Of the file.
        where : object
            The file, as errors name it.

        Returns
        -------
        (R,) int array
            -1 for a region that the file lacks.
        """
        if labels is not None and len(labels) != n_regions:
            raise problem(where, f"{len(labels)} labels for {n_regions} regions")
        try:
            index = _labelled_positions(labels, self.target, self.target.codes)
        except NerveError as error:
            raise problem(where, str(error).rstrip(".")) from error
        if index is None or labels is None:
            if n_regions != self.order.n_regions:
                expected = f"{self.order.n_regions} ({self.order.name})"
                raise problem(where, f"{n_regions} regions", expected=expected, remedy=OTHER_ATLAS)
            if self.order is self.target:
                return np.arange(n_regions)
            return self.order.positions_of(self.target)
        lacking = np.flatnonzero(index < 0)
        if len(lacking) > _MOST_LACKING * len(index):
            names = listed([self.target.labels[region] for region in lacking], most=2)
            raise problem(
                where,
                f"its labels ({listed(labels, most=2)}) lack {len(lacking)} regions of "
                f"{self.target.name} ({names})",
                remedy=OTHER_ATLAS,
            )
        return index


def reorder_matrix(matrix: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Choose and reorder rows and columns of a matrix.

    Parameters
    ----------
    matrix : (n, n) array
    index : (R,) int array
        Positions; -1 for a region that the matrix lacks.

    Returns
    -------
    (R, R) array
        NaN where the position is -1.
    """
    reordered = matrix.take(index, axis=0).take(index, axis=1)
    reordered[index < 0] = np.nan
    reordered[:, index < 0] = np.nan
    return reordered


def plan_regions(data: ScanData, options: Options, where: object) -> tuple[Regions, list[str]]:
    """Decide the regions of a source from one of its scans.

    Parameters
    ----------
    data : ScanData
        One scan.
    options : Options
        With the parcellation and the order that the user named.
    where : object
        The scan, as errors name it.

    Returns
    -------
    regions : Regions
    notes : list of str
        What to tell the user.
    """
    n_regions = data.array.shape[-1]
    labels = data.labels
    if labels is not None and options.parcellation is None:
        options = _with_known_atlas(options, labels)
    target = options.parcellation or options.order
    if target is None:
        cause = f"the data have {n_regions} regions and no usable labels"
        raise problem(where, cause, remedy=_suggestion(n_regions))
    order = _with_aseg(options.order or target, n_regions)

    # how it is known which region a row is
    if labels is None or _only_codes(labels, target):
        regions_of_file = order
        # the user states the rows with --order, or with a table of regions of their own
        is_builtin = order.name.split("+")[0] in parcellation_names()
        match = "size" if options.order is None and is_builtin else "stated"
    else:
        regions_of_file = _as_parcellation(_named_by_code(labels, target))
        match = "label"
    if data.stated:
        match = "stated"
    unknown_labels: tuple[str, ...] = ()
    if labels is not None and match != "label" and not data.stated:
        unknown_labels = labels
    notes = [_match_note(match, order, target, unknown_labels)]

    # regions of the file that the parcellation does not have
    known = set(regions_of_file.positions_of(target).tolist())
    outside = [label for row, label in enumerate(regions_of_file.labels) if row not in known]
    n_outside = counted(len(outside), "region")
    if outside and options.outside == "keep":
        target = _with_outside(target, outside)
        notes.append(
            f"{n_outside} outside the networks: kept as network Subcortical ({listed(outside, 3)})"
        )
    elif outside:
        notes.append(
            f"{n_outside} that {target.name} does not have: left out ({listed(outside, 3)}); "
            "--outside keep keeps them as a network of their own"
        )
    return Regions(target, order, match, unknown_labels), notes


def known_codes(target: Parcellation | None) -> frozenset[str]:
    """Numbers that name regions of a parcellation: its labels, its codes and those of its atlas.

    Parameters
    ----------
    target : Parcellation, optional

    Returns
    -------
    frozenset of str

    Examples
    --------
    >>> sorted(known_codes(load_parcellation("aal90")))[:2]
    ['2001', '2002']
    """
    if target is None:
        return frozenset()
    known = set(target.labels)
    aliases = aliases_between("the file", target.name)
    of_target = {name for name, label in aliases.items() if label in known}
    names = known | of_target | set(target.codes)
    return frozenset(name for name in names if name.isdigit())


def _match_note(
    match: str, order: Parcellation, target: Parcellation, unknown_labels: tuple[str, ...]
) -> str:
    if match == "label":
        return f"regions in the order of {target.name}, matched by label"
    lack = "the files have no labels"
    if unknown_labels:
        shown = listed(unknown_labels, most=3)
        lack = f"the labels of the files ({shown}) only count, or are codes that are not known"
    if match == "stated":
        return f"{lack}, and are read as {order.name}; regions in the order of {target.name}"
    return (
        f"{WARNING} {lack}, and were taken for {order.name} only because they "
        f"have {order.n_regions} regions: not confirmed. If that is what they are, "
        f"say --order {order.name}."
    )


def _with_known_atlas(options: Options, labels: tuple[str, ...]) -> Options:
    """Name the parcellation by labels of a built-in atlas; of several orders the first is taken."""
    file = _as_parcellation(labels)
    for name in parcellation_names():
        if name.startswith("4s") or name.endswith(("-7", "-lr")):
            continue  # the same regions in another order, or with others beside them
        target = load_parcellation(name)
        try:
            lacking = (file.positions_of(target) < 0).mean()
        except NerveError:  # labels of another size
            continue
        if lacking <= _MOST_LACKING:
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


def _with_outside(target: Parcellation, outside: list[str]) -> Parcellation:
    if target.name in parcellation_names():
        with_aseg = load_parcellation(f"{target.name}+aseg19")
        if list(with_aseg.labels[target.n_regions :]) == outside:
            return with_aseg
    return target.with_outside(outside)


@lru_cache(maxsize=64)
def _labelled_positions(
    labels: tuple[str, ...] | None, target: Parcellation, codes: tuple[str, ...]
) -> np.ndarray | None:
    """The position of each region of the target among the labels; None without meaningful labels.

    `codes` are those of the target: two targets that differ in them alone are equal otherwise.
    """
    if labels is None or _only_codes(labels, target):
        return None
    return _as_parcellation(_named_by_code(labels, target)).positions_of(target)


def _named_by_code(labels: tuple[str, ...], target: Parcellation) -> tuple[str, ...]:
    """The labels of the target, where the file names its regions by the target's codes.

    A header that counts from 0 is written by programs and names nothing.
    """
    label_of = dict(zip(target.codes, target.labels, strict=False))
    counts_from_0 = set(labels) == {str(number) for number in range(len(labels))}
    if counts_from_0 or not label_of or not set(labels) <= set(label_of):
        return labels
    return tuple(label_of[label] for label in labels)


@lru_cache(maxsize=64)
def _as_parcellation(labels: tuple[str, ...]) -> Parcellation:
    return Parcellation(labels, ("unknown",) * len(labels), name="the file")


def _only_codes(labels: tuple[str, ...], target: Parcellation) -> bool:
    """Whether the labels merely count (`2001`, `V1`, `ROI_1`) and mean nothing in the target."""
    if _named_by_code(labels, target) != labels:
        return False
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
    return (
        "Describe them: --parcellation TSV with columns label and network, "
        "one row per region in the data's order."
    )
