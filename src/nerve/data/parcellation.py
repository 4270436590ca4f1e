"""A Parcellation: the regions of an FC matrix in order, with label, network, side and MNI centre.

Regions are matched by label, never by position. The same Schaefer parcel is called
`17Networks_LH_VisCent_ExStr_1`, `7Networks_LH_Vis_3` or (in the 4S atlas of XCP-D) `LH_Vis_3`; all
of these are known to be one parcel. The atlases known by name stand in `nerve.data.atlas_tables`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import (
    NerveError,
    OtherRegions,
    brief,
    did_you_mean,
    listed,
    problem,
    require,
)
from nerve._utils.files import read_tsv
from nerve._utils.privacy import printable
from nerve.data import atlas_tables as atlases
from nerve.data.atlas_tables import parcellation_names

_OUTSIDE_NETWORK = "Subcortical"
_LABEL_COLUMNS = ("label", "name", "region", "roi", "node")
_NETWORK_COLUMNS = (
    "network",
    "network_label",
    "net",
    "group",
    "community",
    "net17",
    "net7",
    "network_17",
    "network_7",
)
# numbers by which an atlas' table lists its regions
_CODE_COLUMNS = ("code", "codes", "index", "value", "id")


@dataclass(frozen=True)
class Parcellation:  # numpydoc ignore=PR02
    """Regions in order.

    Parameters
    ----------
    labels : tuple of str
        One unique name per region.
    networks : tuple of str
        The functional network of each region.
    hemispheres : tuple of str
        ``"L"``, ``"R"`` or ``""``.
    coordinates : (n_regions, 3) array
        MNI centres in mm, NaN where unknown.
    name : str
        What the parcellation is called in logs and reports.
    codes : tuple of str
        The number of each region in its atlas (AAL's 2001 …), empty where they are not known.
    """

    labels: tuple[str, ...]
    networks: tuple[str, ...]
    hemispheres: tuple[str, ...] = field(default=(), compare=False)
    coordinates: Any = field(default=None, compare=False)
    name: str = field(default="custom", compare=False)
    codes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        labels = tuple(map(printable, self.labels))
        networks = tuple(map(printable, self.networks))
        n = len(labels)
        hemispheres = tuple(self.hemispheres) or tuple(map(_hemisphere, labels))
        coordinates = (
            np.full((n, 3), np.nan)
            if self.coordinates is None
            else np.array(self.coordinates, float)
        )
        coordinates.setflags(write=False)
        repeated = [label for label, count in Counter(labels).items() if count > 1]
        fits = len(hemispheres) == n and coordinates.shape == (n, 3)
        require(
            self.name,
            (n > 0, "the parcellation has no regions", "at least one"),
            (
                len(networks) == n,
                f"{len(networks)} networks for {n} regions",
                "one network per region",
            ),
            (not repeated, f"region labels occur twice ({listed(repeated)})", "unique labels"),
            (fits, "hemispheres or coordinates do not fit the labels", f"{n} of each"),
        )
        checked = {
            "labels": labels,
            "networks": networks,
            "hemispheres": hemispheres,
            "coordinates": coordinates,
        }
        checked["name"] = printable(self.name)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_table(
        cls, table: pd.DataFrame | str | os.PathLike[str], name: str | None = None
    ) -> Parcellation:
        """Make a parcellation from a table or its file.

        Parameters
        ----------
        table : DataFrame or path
            With columns label, network and optionally x, y, z (mm) and hemisphere.
        name : str, optional
            That of the file by default.

        Returns
        -------
        Parcellation
        """
        if not isinstance(table, pd.DataFrame):
            name = name or Path(table).name.split(".")[0]
            table = read_tsv(table, dtype=dict.fromkeys((*_LABEL_COLUMNS, *_NETWORK_COLUMNS), str))
        name = name or "custom"
        labels = _column(table, _LABEL_COLUMNS, name)
        networks = _column(table, _NETWORK_COLUMNS, name)
        try:
            xyz = table[list("xyz")].to_numpy(float) if {*"xyz"} <= set(table.columns) else None
        except (ValueError, OverflowError) as error:
            raise problem(
                name, f"a coordinate is not a number ({error})", expected="x, y, z in mm"
            ) from error
        sides = (
            table["hemisphere"].astype(object).fillna("").astype(str)
            if "hemisphere" in table.columns
            else ()
        )
        return cls(labels, networks, tuple(sides), xyz, name, _codes(table))

    @property
    def n_regions(self) -> int:
        """Number of regions, R."""
        return len(self.labels)

    @property
    def network_names(self) -> tuple[str, ...]:
        """The networks in the order in which they first occur."""
        return tuple(dict.fromkeys(self.networks))

    @property
    def n_networks(self) -> int:
        """Number of networks."""
        return len(self.network_names)

    @property
    def fingerprint(self) -> str:
        """A short hash of labels and networks in order."""
        text = "\n".join(
            f"{label}\t{network}" for label, network in zip(self.labels, self.networks, strict=True)
        )
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def __len__(self) -> int:
        return self.n_regions

    def __repr__(self) -> str:
        return f"Parcellation({self.name!r}: {self.n_regions} regions, {self.n_networks} networks)"

    def to_table(self) -> pd.DataFrame:
        """The parcellation as a table that `from_table` reads back."""
        table = pd.DataFrame(
            {"label": self.labels, "network": self.networks, "hemisphere": self.hemispheres}
        )
        return table.assign(**dict(zip("xyz", self.coordinates.T, strict=True)))

    def subset(self, regions: Sequence[int] | np.ndarray, name: str | None = None) -> Parcellation:
        """The regions at these positions, in this order."""
        regions = np.asarray(regions, int)
        return Parcellation(
            tuple(self.labels[i] for i in regions),
            tuple(self.networks[i] for i in regions),
            tuple(self.hemispheres[i] for i in regions),
            self.coordinates[regions],
            name or self.name,
            tuple(self.codes[i] for i in regions) if self.codes else (),
        )

    def with_outside(self, labels: Sequence[str]) -> Parcellation:
        """The same regions followed by others, which are one more network (`_OUTSIDE_NETWORK`)."""
        networks = self.networks + (_OUTSIDE_NETWORK,) * len(labels)
        hemispheres = self.hemispheres + tuple(map(_hemisphere, labels))
        coordinates = np.vstack([self.coordinates, np.full((len(labels), 3), np.nan)])
        return Parcellation(
            self.labels + tuple(labels),
            networks,
            hemispheres,
            coordinates,
            f"{self.name}+{len(labels)}",
        )

    def with_networks_of(self, other: Parcellation | str) -> Parcellation:
        """The same regions in the same order, grouped into the networks of another parcellation.

        Parameters
        ----------
        other : Parcellation or str

        Returns
        -------
        Parcellation

        Examples
        --------
        >>> seven = load_parcellation("schaefer400-17").with_networks_of("schaefer400-7")
        >>> seven.labels[0], seven.networks[0], seven.n_networks
        ('17Networks_LH_VisCent_ExStr_1', 'Vis', 7)
        """
        other = load_parcellation(other)
        position = other.reordering_to(self)  # where each of our regions stands in `other`
        return replace(
            self,
            networks=tuple(other.networks[i] for i in position),
            name=f"{self.name}/{other.name}",
        )

    def reordering_to(self, other: Parcellation | str) -> np.ndarray:
        """Positions in this parcellation of the regions of another, in the other's order.

        ``fc[np.ix_(index, index)]`` turns a matrix in this order into one in the other's order.
        Regions that only this parcellation has are left out; a region that it lacks is an error.

        Parameters
        ----------
        other : Parcellation or str

        Returns
        -------
        (n_regions of the other,)
            Integers.

        Examples
        --------
        >>> index = load_parcellation("schaefer400-7").reordering_to("schaefer400-17")
        >>> index[:3].tolist()
        [2, 4, 5]
        """
        other = load_parcellation(other)
        index = self.positions_of(other)
        missing = np.flatnonzero(index < 0)
        if len(missing):
            labels = [other.labels[region] for region in missing]
            networks = dict.fromkeys(other.networks[region] for region in missing)
            cause = (
                f"{len(missing)} of the {other.n_regions} regions of {other.name} are not among "
                f"the {self.n_regions} labels of {self.name} ({listed(labels, most=3)}, of network "
                f"{listed(networks, most=4)}; the labels there are like "
                f"{listed(self.labels, most=3)}). Regions are matched by label: name the "
                "parcellation that the data were made with, or give its table."
            )
            raise OtherRegions(cause, other)
        return index

    def positions_of(self, other: Parcellation | str) -> np.ndarray:
        """Like `reordering_to`, with -1 for the regions that this parcellation lacks."""
        other = load_parcellation(other)
        here, there = _keys(self, other)
        position = {key: i for i, key in enumerate(here)}
        return np.array([position.get(key, -1) for key in there], int)


def load_parcellation(source: Parcellation | str | os.PathLike[str]) -> Parcellation:
    """A parcellation by its built-in name, from the file of a table, or the object itself.

    Parameters
    ----------
    source : str, path or Parcellation
        A name in `nerve atlas list` (``"schaefer400-17"``, ``"4s456-17"``, ``"gordon333"`` …),
        optionally with ``"+aseg19"`` for the 19 subcortical regions that CBIG appends; or a TSV/CSV
        file with columns label, network and optionally x, y, z.

    Returns
    -------
    Parcellation

    Examples
    --------
    >>> load_parcellation("schaefer400-17")
    Parcellation('schaefer400-17': 400 regions, 17 networks)
    >>> load_parcellation("schaefer400-7+aseg19").network_names[-1]
    'Subcortical'
    """
    if isinstance(source, Parcellation):
        return source
    if not isinstance(source, (str, os.PathLike)):
        raise NerveError(
            f"The parcellation is {brief(source)}, expected a built-in name or the file of a table."
        )
    name = str(source)
    if name in parcellation_names() or name.removesuffix("+aseg19") in parcellation_names():
        return _builtin(name)
    path = Path(source)
    if path.suffix.lower() in (".tsv", ".csv", ".txt") or path.is_file():
        return Parcellation.from_table(path)
    orders = atlases.orders_of(name)
    if orders:
        raise NerveError(
            f"{name!r} comes in several versions: say which, {listed(orders, most=20)}."
        )
    raise NerveError(
        f"{name!r} is neither a built-in parcellation nor a "
        f"file.{did_you_mean(name, parcellation_names())} `nerve atlas list` shows the built-in "
        "ones; a TSV with columns label and network (optionally x, y, z) describes any other."
    )


@lru_cache(maxsize=64)
def _builtin(name: str) -> Parcellation:
    base, _, extra = name.partition("+")
    table = atlases.atlas_table(base)
    if extra:
        table = pd.concat([table, atlases.package_table("aseg19.tsv")], ignore_index=True)
    return Parcellation.from_table(table, name=name)


def _keys(here: Parcellation, there: Parcellation) -> tuple[list[str], list[str]]:
    """Labels of two parcellations in one spelling: Schaefer's by 17-network label, others by ours.

    `7Networks_LH_Vis_1` is a different parcel in Schaefer-100 and in Schaefer-400: sizes must
    agree.
    """
    here_labels = _as_written(here.labels)
    there_labels = _as_written(there.labels)
    sizes = [
        atlases.schaefer_size(here.name, here_labels),
        atlases.schaefer_size(there.name, there_labels),
    ]
    if 0 not in sizes and sizes[0] != sizes[1]:
        cause = (
            f"{here.name} holds parcels of Schaefer-{sizes[0]} and {there.name} of "
            f"Schaefer-{sizes[1]}: different parcels, although some labels are alike. Name the "
            "parcellation that the data were made with."
        )
        raise OtherRegions(cause, there)
    if 0 in sizes:
        alias = atlases.aliases_between(here.name, there.name)
    else:
        alias = atlases.schaefer_aliases(sizes[0])
    here_keys = [alias.get(label, label) for label in here_labels]
    there_keys = [alias.get(label, label) for label in there_labels]
    return _respelled(here_keys, there_keys, alias), there_keys


def _as_written(labels: tuple[str, ...]) -> list[str]:
    """Labels without the `X` that R and MATLAB put before a digit (`X17Networks_LH_Vis_1`)."""
    written = [re.sub(r"^[Xx](?=\d)", "", label) for label in labels]
    return written if len(set(written)) == len(labels) else list(labels)


def _respelled(keys: list[str], wanted: list[str], alias: dict[str, str]) -> list[str]:
    """Keys in the spelling of the wanted ones where only marks and case differ (`ctx.lh.insula`).

    R and MATLAB write a dot or an underscore for every mark that a variable's name may not have.
    """
    known = set(wanted)
    if known.issuperset(keys):
        return keys
    spellings: dict[str, set[str]] = {}
    for name, label in {**dict(zip(wanted, wanted, strict=True)), **alias}.items():
        if label in known:
            spellings.setdefault(_plain(name), set()).add(label)
    taken = Counter(map(_plain, keys))
    respelled = []
    for key in keys:
        meanings = spellings.get(_plain(key), set())
        is_clear = key not in known and len(meanings) == 1 and taken[_plain(key)] == 1
        respelled.append(next(iter(meanings)) if is_clear else key)
    repeated = Counter(respelled)
    return [new if repeated[new] == 1 else key for key, new in zip(keys, respelled, strict=True)]


def _plain(label: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", label.lower()).strip("_")


def _hemisphere(label: str) -> str:
    for side, words in (("L", "LH|L|Left|lh"), ("R", "RH|R|Right|rh")):
        if re.search(rf"(^|[_\W])({words})([_\W]|$)", label):
            return side
    return ""


def _codes(table: pd.DataFrame) -> tuple[str, ...]:
    """The whole numbers of the first column of codes, if each region has one of its own."""
    column = next((name for name in _CODE_COLUMNS if name in table.columns), None)
    if column is None:
        return ()
    numbers = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
    is_integer = np.isfinite(numbers) & (numbers % 1 == 0)
    if not is_integer.all() or len(np.unique(numbers)) < len(numbers):
        return ()
    return tuple(f"{number:.0f}" for number in numbers)


def _column(table: pd.DataFrame, names: Sequence[str], where: str) -> tuple[str, ...]:
    """The text of the first of these columns that is there."""
    column = next((name for name in names if name in table.columns), None)
    if column is None:
        raise problem(
            where,
            f"the table has columns {listed(table.columns)}",
            expected=f"a column {names[0]!r} (or {listed(names[1:])})",
            remedy="Rename the column that holds it.",
        )
    is_empty = table[column].isna().to_numpy()
    if is_empty.any():
        remedy = "Fill it in, or remove the region."
        raise problem(where, f"row {is_empty.argmax() + 1} has no {column}", remedy=remedy)
    return tuple(table[column].astype(str))
