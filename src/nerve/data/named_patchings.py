"""Patchings by the names that configurations use: networks, grid16, permuted0, schaefer400-7."""

from __future__ import annotations

import re

from nerve._utils.errors import NerveError, problem
from nerve.core.patching import Patching
from nerve.data.parcellation import Parcellation, parcellation_names

PATCHING_NAMES = "networks, grid16, permuted0 (any number) or an atlas of `nerve atlas list`"


def is_patching_name(name: str) -> bool:
    """Whether a patching is known by its name alone, wherever it is read: not by a user's file.

    Parameters
    ----------
    name : str
        As in `patching_for`.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_patching_name("grid16"), is_patching_name("schaefer400-7"), is_patching_name("own.tsv")
    (True, True, False)
    """
    is_rule = re.fullmatch(r"networks|grid\d{1,4}|permuted\d+", name) is not None
    return is_rule or name in parcellation_names()


def patching_for(parcellation: Parcellation, name: str) -> Patching:
    """A patching by its name in configurations.

    Parameters
    ----------
    parcellation : Parcellation
        The regions.
    name : str
        ``networks``; ``grid<size>``, consecutive regions; ``permuted<seed>``, networks with regions
        assigned at random; or a parcellation (name or table) whose networks group the same
        regions, ``schaefer400-7`` say.

    Returns
    -------
    Patching
    """
    if name == "networks":
        return Patching.from_parcellation(parcellation)
    grid = re.fullmatch(r"grid(\d+)", name)
    if grid:
        return Patching.grid(parcellation.n_regions, int(grid[1]))
    permuted = re.fullmatch(r"permuted(\d+)", name)
    if permuted:
        return Patching.from_parcellation(parcellation).permuted(int(permuted[1]))
    try:
        return Patching.from_parcellation(parcellation.with_networks_of(name))
    except NerveError as error:
        remedy = "Other choices: networks, grid16, permuted0 (any number)."
        raise problem(f"patching is {name!r}", f"{error}", remedy=remedy) from error
