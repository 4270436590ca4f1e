"""The built-in atlases: their tables by name, and every name that one of their regions goes by.

| name | rows |
|---|---|
| `schaefer400-17`, `schaefer400-7` | 100 to 1000 parcels, ordered by 17 or by 7 networks |
| `4s456-17`, `4s456-7` | Schaefer (7-network order) and 56 regions below the cortex, as XCP-D |
| `glasser360-rl`, `glasser360-lr` | right hemisphere first (HCP, XCP-D), or left first |
| `desikan83`, `desikan68` | FreeSurfer's `aparc`, with or without 15 regions below the cortex |
| `gordon333`, `power264`, `shen268`, `cc200`, `tian-s1` … `tian-s4` | as published |
| `destrieux148`, `aal116`, `aal2-120` | as published |
| `aal90` | `aal116` without cerebellum |

Where the tables come from stands in ``docs/reference/atlases.md``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from functools import lru_cache
from importlib.resources import files

import pandas as pd

SCHAEFER_SIZES = tuple(range(100, 1001, 100))
_N_BELOW = 56  # regions that the 4S atlases add to Schaefer's
_SINGLE = (
    "gordon333", "power264", "shen268", "aal116", "aal90", "aal2-120", "desikan83", "desikan68",
    "destrieux148", "cc200", "tian-s1", "tian-s2", "tian-s3", "tian-s4",
)  # fmt: skip


def parcellation_names() -> tuple[str, ...]:
    """The built-in names; each may be followed by ``+aseg19``."""
    schaefer = []
    with_subcortex = []
    for size, n_networks in itertools.product(SCHAEFER_SIZES, (17, 7)):
        schaefer.append(f"schaefer{size}-{n_networks}")
        with_subcortex.append(f"4s{size + _N_BELOW}-{n_networks}")
    return (*schaefer, *with_subcortex, "glasser360-rl", "glasser360-lr", *_SINGLE)


def orders_of(name: str) -> tuple[str, ...]:
    """The built-in names that a name without its order could mean.

    Parameters
    ----------
    name : str

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> orders_of("glasser360"), orders_of("gordon333")
    (('glasser360-rl', 'glasser360-lr'), ())
    """
    return tuple(known for known in parcellation_names() if known.startswith(f"{name}-"))


def atlas_table(name: str) -> pd.DataFrame:
    """The regions of a built-in atlas in order: label, network, hemisphere, centre where known."""
    if name.startswith("schaefer"):
        size, networks = re.findall(r"\d+", name)
        return _schaefer(int(size), order=networks, networks=networks)
    if name.startswith("4s"):
        size, networks = re.findall(r"\d+", name)[-2:]
        cortex = _schaefer(int(size) - _N_BELOW, order="7", networks=networks)
        cortex = cortex.assign(label=[_without_scheme(label) for label in cortex["label_7"]])
        return pd.concat([cortex, package_table("4s_below.tsv")], ignore_index=True)
    if name.startswith("glasser360"):
        table = package_table("glasser360.tsv")
        is_left_first = name.endswith("-lr")
        return table.sort_values(
            "hemisphere", ascending=is_left_first, kind="stable", ignore_index=True
        )
    if name == "aal90":
        table = package_table("aal116.tsv")
        return table[table["network"] != "Cerebellum"].reset_index(drop=True)
    if name == "desikan68":
        table = package_table("desikan83.tsv")
        return table[table["label"].str.startswith("ctx-")].reset_index(drop=True)
    return package_table(f"{name}.tsv")


def schaefer_size(name: str, labels: Collection[str]) -> int:
    """How many parcels the Schaefer atlas has that a parcellation comes from.

    0 if it is of another.

    Its name tells it, or else its labels.

    Parameters
    ----------
    name : str
        Of the parcellation.
    labels : collection of str

    Returns
    -------
    int

    Examples
    --------
    >>> schaefer_size("4s456-17 less 2", ["LH_Vis_1"]), schaefer_size("gordon333", ["L_1"])
    (400, 0)
    """
    match = re.match(r"(schaefer|4s)(\d+)-", name)
    if match:
        size = int(match[2])
        if match[1] == "4s":
            size -= _N_BELOW
        if size in SCHAEFER_SIZES:
            return size
    n_known = {size: len(schaefer_aliases(size).keys() & labels) for size in SCHAEFER_SIZES}
    most = max(n_known.values())
    if most < len(labels) / 2:
        return 0
    fitting = [size for size in SCHAEFER_SIZES if n_known[size] == most <= size]
    return min(fitting, default=0)


@lru_cache(maxsize=16)
def schaefer_aliases(size: int) -> dict[str, str]:
    """Every known name of a parcel of Schaefer-`size` → its label in 17-network order.

    Older label files of the 17-network order call both limbic networks `Limbic`.

    Parameters
    ----------
    size : int
        Number of parcels.

    Returns
    -------
    dict
    """
    alias: dict[str, str] = {}
    for label_17, label_7 in package_table(f"schaefer{size}.tsv")[
        ["label_17", "label_7"]
    ].itertuples(index=False):
        names = (label_17, label_7, re.sub(r"Limbic[AB]", "Limbic", label_17))
        alias |= dict.fromkeys(
            (*names, _without_scheme(label_17), _without_scheme(label_7)), label_17
        )
    return alias


def aliases_between(here: str, there: str) -> dict[str, str]:
    """Every other known name of a region outside Schaefer's atlas → its label here.

    A name may mean different regions in two atlases: `2001` is the left precentral gyrus in AAL and
    the right bankssts in FreeSurfer's Desikan-Killiany atlas. So where one of two parcellations is
    a built-in atlas, only its names count; between others, only names that mean one region.

    Parameters
    ----------
    here, there : str
        Names of two parcellations whose labels are compared.

    Returns
    -------
    dict

    Examples
    --------
    >>> aliases_between("the file", "aal116")["2001"], aliases_between("desikan83", "a")["2001"]
    ('Precentral_L', 'ctx-rh-bankssts')
    """
    for name in (there, here):
        atlas = re.split(r"[ +/]", name)[0]
        if atlas.startswith("glasser360") or atlas in _SINGLE:
            return _aliases_in(atlas)
    return _unambiguous_aliases()


@lru_cache(maxsize=32)
def _aliases_in(atlas: str) -> dict[str, str]:
    """Every other name of the regions of one atlas → its label."""
    table = atlas_table(atlas)
    alias: dict[str, str] = {}
    if "aliases" in table.columns:
        for label, others in table[["label", "aliases"]].dropna().itertuples(index=False):
            alias |= dict.fromkeys(others.split(" "), label)
    return alias


@lru_cache(maxsize=1)
def _unambiguous_aliases() -> dict[str, str]:
    """The names that mean one region in all atlases together."""
    meanings: dict[str, set[str]] = {}
    for atlas in ("glasser360-rl", *_SINGLE):
        for name, label in _aliases_in(atlas).items():
            meanings.setdefault(name, set()).add(label)
        for label in atlas_table(atlas)["label"]:
            meanings.setdefault(label, set()).add(label)
    return {
        name: next(iter(labels))
        for name, labels in meanings.items()
        if len(labels) == 1 and name not in labels
    }


@lru_cache(maxsize=64)
def package_table(file: str) -> pd.DataFrame:
    """A table of the package, which nobody changes."""
    text = dict.fromkeys(("label", "aliases", "hemisphere"), str)
    with (files("nerve") / "data" / "atlases" / file).open("rb") as stream:
        return pd.read_csv(stream, sep="\t", dtype=text)


def _schaefer(size: int, order: str, networks: str) -> pd.DataFrame:
    table = package_table(f"schaefer{size}.tsv")
    if order == "7":
        table = table.sort_values("position_7", ignore_index=True)
    return table.assign(label=table[f"label_{order}"], network=table[f"network_{networks}"])


def _without_scheme(label: str) -> str:
    """`LH_Vis_1` for `7Networks_LH_Vis_1`."""
    return label.partition("_")[2]
