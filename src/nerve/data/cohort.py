"""A Cohort: an FC stack, a participants table and a parcellation, optionally with time series.

The narrow waist of the package: every reader makes one, everything else reads one. On disk it is a folder that any
tool can open:

    dataset_description.json   as in BIDS derivatives
    participants.tsv           participant_id, then whatever is known of them
    regions.tsv                label, network, hemisphere, x, y, z
    connectivity.npy           (n, R, R) Pearson r, float32 or float16; connectivity.tsv says whose each matrix is
    timeseries.npy             (all volumes, R), participants one after another; timeseries.tsv says how many each has
    exclusions.tsv             who was left out, and why
    cohort.json                name, how it was made, and digests of the files as they were then
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import (
    MissingInput,
    NerveError,
    as_utf8,
    facts_html,
    known_columns,
    listed,
    one_of,
    problem,
)
from nerve._utils.files import read_json, read_tsv
from nerve._utils.privacy import printable, printable_table
from nerve._utils.progress import progress_bar
from nerve.data import store
from nerve.data.connectivity import MEASURES, in_words
from nerve.data.duplicates import same_fc
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.stack import Series, Stack

_ABOUT = {
    "format_version": int,
    "name": str,
    "parcellation": str,
    "digests": dict,
    "notes": dict,
}  # cohort.json
# how ingest matched the regions of files with those of the parcellation
_ORDER = {
    "label": "confirmed by label",
    "stated": "as the user stated",
    "size": "not confirmed: files had no labels",
}
_CHUNK = 64  # matrices read or written at a time


class Cohort:
    """Participants, their FC and what is known of them.

    Parameters
    ----------
    connectivity : (n, R, R) array
        What `measure` says, by default Pearson correlations with a unit diagonal; an array, a memory map or a `Stack`.
    participants : DataFrame
        One row per matrix, with a unique `participant_id`.
    parcellation : Parcellation or str
        The regions, in the order of the matrices.
    timeseries : sequence of (volumes, R) arrays, optional
    name : str
        What tables and reports call the cohort.
    measure : str
        What the entries are: a name in `nerve.data.connectivity.MEASURES`.
    exclusions : DataFrame, optional
        Columns participant_id and reason: who was left out on the way here.
    notes : dict, optional
        How the cohort was made (source, format, settings); plain JSON values.
    """

    def __init__(
        self,
        connectivity: Any,
        participants: pd.DataFrame,
        parcellation: Parcellation | str,
        timeseries: Any = None,
        name: str = "cohort",
        *,
        measure: str = "pearson",
        exclusions: pd.DataFrame | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        self.parcellation = load_parcellation(parcellation)
        self.connectivity = (
            connectivity
            if isinstance(connectivity, (np.ndarray, Stack))
            else np.asarray(connectivity)
        )
        self.participants = _checked_participants(participants, name)
        self.name = printable(name)
        self.measure = one_of(f"measure of cohort {name!r}", measure, list(MEASURES))
        none = pd.DataFrame(columns=["participant_id", "reason"], dtype=str)
        self.exclusions = none if exclusions is None else exclusions.reset_index(drop=True)
        self.notes = dict(notes or {})
        if timeseries is not None and not isinstance(timeseries, Series):
            timeseries = Series([np.asarray(one) for one in timeseries])
        self.timeseries: Series | None = timeseries
        self.n_participants = len(self.participants)  #: Number of participants.
        self.n_regions = self.parcellation.n_regions  #: Number of regions, R.
        #: (participants, regions, regions), as of the FC stack.
        self.shape = (self.n_participants, self.n_regions, self.n_regions)
        self._made: dict[str, Any] | None = None  # digests of a loaded cohort as it was made
        # the folders that its contents were read from
        self._opened: tuple[store.OpenedFolder, ...] = ()
        # of a loaded cohort: name of the file → the array that was opened
        self._arrays: dict[str, Any] = {}
        self._check_shapes()

    def _check_shapes(self) -> None:
        n, regions, where = self.n_participants, self.n_regions, f"Cohort {self.name!r}"
        if self.connectivity.shape != self.shape:
            expected = f"{self.shape} for {n} participants and {self.parcellation.name}"
            remedy = "Check the participants table and the parcellation."
            raise problem(
                where,
                f"the FC stack has shape {self.connectivity.shape}",
                expected=expected,
                remedy=remedy,
            )
        if self.connectivity.dtype not in (np.float16, np.float32):
            self.connectivity = np.asarray(self.connectivity, np.float32)
        if self.timeseries is None:
            return
        if len(self.timeseries) != n:
            raise problem(
                where, f"{len(self.timeseries)} time series", expected=f"one for each of {n}"
            )
        for person, series in zip(
            self.participants["participant_id"], self.timeseries, strict=True
        ):
            if series.ndim != 2 or series.shape[1] != regions:
                raise problem(
                    person,
                    f"its time series has shape {series.shape}",
                    expected=f"(volumes, {regions})",
                )

    def __len__(self) -> int:
        return self.n_participants

    def __getitem__(self, rows: Any) -> Cohort:
        """The cohort of some participants, as scikit-learn chooses them: a number, a slice, a mask, positions or ids.

        Examples
        --------
        >>> people = pd.DataFrame({"participant_id": ["a", "b", "c"]})
        >>> cohort = Cohort(np.stack([np.eye(100)] * 3), people, "schaefer100-17")
        >>> cohort[1:].shape, cohort[[True, False, False]].participants["participant_id"].tolist()
        ((2, 100, 100), ['a'])
        """
        if isinstance(rows, tuple) and rows[1:] == (Ellipsis,):  # cohort[rows, ...]
            rows = rows[0]
        if isinstance(rows, tuple):
            remedy = "Index cohort.connectivity for entries, call align for regions."
            found = f"it was indexed by {len(rows)} things"
            raise problem(
                f"Cohort {self.name!r}", found, expected="participants only", remedy=remedy
            )
        return self.subset(
            np.atleast_1d(
                np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
            )
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.connectivity, dtype or np.float32)

    def __iter__(self) -> Iterator[Cohort]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        series = "" if self.timeseries is None else ", time series"
        return f"Cohort({self.name!r}: {self.n_participants} participants, {self.parcellation.name}{series})"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        columns = self.participants.drop(columns="participant_id")
        known = [f"{name} ({columns[name].notna().sum()})" for name in columns]
        facts = {
            "participants": self.n_participants,
            "left out": len(self.exclusions),
            "regions": f"{self.n_regions} in {self.parcellation.n_networks} networks",
            "parcellation": self.parcellation.name,
            "region order": _ORDER.get(
                str(self.notes.get("region_match")), "as given; nerve check compares orders"
            ),
            "measure": in_words(self.measure),
            "time series": "none"
            if self.timeseries is None
            else f"{self.timeseries.lengths.min()} volumes or more",
            "motion": motion_of(self.participants),
            "covariates and targets (known)": listed(known, most=12) or "none",
        }
        return facts_html(f"Cohort {self.name}", facts)

    @property
    def fingerprint(self) -> str:
        """A hash of FC, participants table, labels and time series as they are now: equal only for equal contents."""
        text = json.dumps(self._contents(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def fc_fingerprint(self) -> str:
        """A hash of the FC matrices alone, in their order: columns of the participants table do not change it."""
        return self._digest("connectivity.npy", self.connectivity, self._chunks())

    @property
    def changes(self) -> list[str]:
        """What has changed in the folder since the cohort was made, in words; nothing for a cohort in memory."""
        return [] if self._made is None else store.differences(self._made, self._contents())

    def check_unchanged(self) -> None:
        """Refuse if a folder that this cohort was read from holds something else now.

        Called before anything is written that was computed from the cohort: it would be of
        neither version.
        """
        for opened in self._opened:
            opened.check_unchanged()

    def _contents(self) -> dict[str, Any]:
        """Digests of everything. Arrays that lie on disk are read once per process."""
        series, lengths = None, np.array([])
        if self.timeseries is not None:
            parts = (np.asarray(part, np.float32) for part in self.timeseries)
            series = self._digest("timeseries.npy", self.timeseries, parts)
            lengths = self.timeseries.lengths
        matrices = self._digest("connectivity.npy", self.connectivity, self._chunks())
        return store.digests(matrices, self.parcellation, self.participants, series, lengths)

    def _digest(self, name: str, array: Any, pieces: Iterator[np.ndarray]) -> str:
        if name in self._arrays and array is self._arrays[name]:
            return self._opened[0].array_digest(name)
        return store.digest_of(pieces)

    def inputs(self, kind: str = "fc", rows: Any = None) -> Any:
        """What a method reads, in float32.

        Parameters
        ----------
        kind : {"fc", "upper", "timeseries"}
            (k, R, R) matrices; (k, R (R - 1) / 2) entries above the diagonal, row by row; a list of (volumes, R).
        rows : index array, optional
            Which participants; all by default.
        """
        one_of("kind", kind, ("fc", "upper", "timeseries"))
        index = np.arange(len(self))[slice(None) if rows is None else rows]
        if kind == "timeseries":
            if self.timeseries is None:
                raise MissingInput(f"Cohort {self.name!r} has no time series, only FC matrices.")
            return [np.asarray(self.timeseries[int(i)], np.float32) for i in index]
        if kind == "fc":
            return np.asarray(self.connectivity[index], np.float32)
        upper = np.triu_indices(self.n_regions, 1)
        out = np.empty((len(index), len(upper[0])), np.float32)
        for start in range(0, len(index), _CHUNK):
            some = slice(start, start + _CHUNK)
            out[some] = self.connectivity[index[some]][:, upper[0], upper[1]]
        return out

    def same_matrices(self) -> list[np.ndarray]:
        """Groups of rows that have the same FC (correlation above .9999): probably one participant under several ids.

        See `nerve.data.duplicates`.
        """
        return same_fc(self.connectivity, lambda rows: self.inputs("upper", rows))

    def align(self, parcellation: Parcellation | str) -> Cohort:
        """The cohort with its regions in the order of another parcellation, matched by label.

        Regions that the other does not have are left out; one that this cohort lacks is an error.
        """
        target = load_parcellation(parcellation)
        index = self.parcellation.reordering_to(target)
        if np.array_equal(index, np.arange(self.n_regions)) and target == self.parcellation:
            return self
        stack = Stack.of(self.connectivity).reordered(index).settled()
        series = None if self.timeseries is None else self.timeseries.reordered(index)
        return self._like(stack, self.participants, target, series)

    def subset(self, people: Any) -> Cohort:
        """Some of the participants, by position, boolean mask or list of participant ids."""
        index = self._positions(people)
        stack = Stack.of(self.connectivity).take(index).settled()
        series = None if self.timeseries is None else self.timeseries.take(index)
        return self._like(
            stack, self.participants.iloc[index].reset_index(drop=True), self.parcellation, series
        )

    @property
    def cohort_names(self) -> pd.Series:
        """The name of the cohort that each participant is of: its own, or where it was concatenated, theirs.

        A column `cohort` of the user's own table is not looked at: its values are the user's.
        """
        if "concatenated" in self.notes:
            return self.participants["cohort"]
        return pd.Series(self.name, index=self.participants.index)

    @classmethod
    def concat(cls, cohorts: Sequence[Cohort], name: str | None = None) -> Cohort:
        """Several cohorts as one, in the region order of the first; the same participant twice is refused.

        Each row keeps the name of its cohort in the column `cohort`. Time series are kept if all have them.
        """
        if not cohorts:
            raise NerveError("There are no cohorts to concatenate, expected at least one.")
        first = cohorts[0]
        aligned = [first, *(cohort.align(first.parcellation) for cohort in cohorts[1:])]
        tables = [one.participants.assign(cohort=one.cohort_names) for one in aligned]
        table = pd.concat(tables, ignore_index=True)
        ids = table["participant_id"]
        if ids.duplicated().any():
            found = f"the same participant stands in more than one ({listed(ids[ids.duplicated()].unique())})"
            remedy = "Leave the participant out of one of them, or rename the ids if they are different participants."
            raise problem("The cohorts", found, remedy=remedy)
        measures = dict.fromkeys(cohort.measure for cohort in cohorts)
        if len(measures) > 1:
            found = f"different measures ({listed(map(in_words, measures))})"
            raise problem("The cohorts", found, expected="the same in all")
        stack = Stack.concat([Stack.of(cohort.connectivity) for cohort in aligned]).settled()
        have_series = [cohort.timeseries for cohort in aligned if cohort.timeseries is not None]
        series = Series.concat(have_series) if len(have_series) == len(aligned) else None
        whole = first._like(stack, table, first.parcellation, series)
        whole.name = printable(name or "+".join(cohort.name for cohort in cohorts))
        whole.exclusions = pd.concat([cohort.exclusions for cohort in cohorts], ignore_index=True)
        whole.notes = {"concatenated": [cohort.fingerprint for cohort in cohorts]}
        whole._opened = tuple(opened for cohort in cohorts for opened in cohort._opened)
        return whole

    def save(
        self, path: str | os.PathLike[str], *, dtype: str | None = None, overwrite: bool = False
    ) -> Path:
        """Write the cohort as a folder, whole or not at all.

        Refused if a folder that it was read from, the one to be overwritten say, has changed.
        """
        self.check_unchanged()
        dtype = dtype or ("float16" if self.connectivity.dtype == np.float16 else "float32")
        with store.writing_cohort(
            path, self.parcellation, dtype=dtype, overwrite=overwrite
        ) as writer:
            starts = range(0, len(self), _CHUNK)
            for start, chunk in zip(
                progress_bar(starts, label="writing", unit="chunks"), self._chunks(), strict=True
            ):
                some = range(start, start + len(chunk))
                writer.append(
                    chunk, None if self.timeseries is None else [self.timeseries[i] for i in some]
                )
            self.check_unchanged()
            writer.finish(self.participants, **self._about)
        self._reopen(path)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cohort:
        """Open a saved cohort; its matrices stay on disk until they are asked for."""
        folder = Path(path)
        if not (folder / "cohort.json").is_file():
            found = "this is not a cohort" if folder.exists() else "there is no such folder"
            remedy = "Make one with `nerve ingest` or `nerve simulate`."
            raise problem(
                folder,
                found,
                expected="a folder with cohort.json and connectivity.npy",
                remedy=remedy,
            )
        opened = store.OpenedFolder(folder)
        about = read_json(folder / "cohort.json")
        version = about.get("format_version") if isinstance(about, dict) else None
        if isinstance(version, int) and version != store.FORMAT_VERSION:
            newer = version > store.FORMAT_VERSION
            age, remedy = ("a newer", "Update nerve") if newer else ("an older", "Make it again")
            raise problem(
                folder, f"it was written by {age} version of nerve", remedy=f"{remedy} to read it."
            )
        if not isinstance(about, dict) or not all(
            isinstance(about.get(key), kind) for key, kind in _ABOUT.items()
        ):
            raise problem(
                folder / "cohort.json",
                "it does not describe a cohort",
                remedy="Make the cohort again.",
            )
        participants = read_tsv(folder / "participants.tsv", dtype={"participant_id": str})
        known_columns(["participant_id"], participants.columns, folder / "participants.tsv")
        ids = read_tsv(folder / "connectivity.tsv", dtype=str, usecols=["participant_id"])[
            "participant_id"
        ]
        rows = store.matched_rows(participants["participant_id"], ids, folder / "participants.tsv")
        connectivity = opened.open_array("connectivity.npy")
        stack = Stack.of(connectivity).settled() if connectivity.ndim == 3 else connectivity
        parcellation = Parcellation.from_table(folder / "regions.tsv", name=about["parcellation"])
        series = store.open_series(opened, ids) if (folder / "timeseries.npy").is_file() else None
        said = {
            "name": about["name"],
            "measure": about.get("measure", "pearson"),
            "notes": about["notes"],
        }
        cohort = cls(stack, participants.iloc[rows], parcellation, series, **said)
        if (folder / "exclusions.tsv").is_file():
            cohort.exclusions = read_tsv(
                folder / "exclusions.tsv", dtype=str, usecols=["participant_id", "reason"]
            )
        opened.check_unchanged()  # another process may have replaced some of these files by now
        cohort._made = about["digests"]
        cohort._opened = (opened,)
        cohort._arrays = {"connectivity.npy": cohort.connectivity}
        if series is not None:
            cohort._arrays["timeseries.npy"] = cohort.timeseries
        return cohort

    def _reopen(self, path: str | os.PathLike[str]) -> None:
        """Know the folder by its new files, where this cohort was read from it and overwrote it."""
        now = store.OpenedFolder(path)
        others = tuple(opened for opened in self._opened if opened.path != now.path)
        if len(others) < len(self._opened):
            self._opened = (*others, now)
            self._arrays = {}  # they are in memory, or of a file that has no name any more

    def _chunks(self) -> Iterator[np.ndarray]:
        for start in range(0, self.n_participants, _CHUNK):
            yield np.asarray(self.connectivity[start : start + _CHUNK])

    def _positions(self, people: Any) -> np.ndarray:
        wanted, where = np.asarray(people), f"Cohort {self.name!r}"
        if wanted.dtype.kind in "UOT" and len(wanted):
            index = pd.Index(self.participants["participant_id"]).get_indexer(wanted)
            if (index < 0).any():
                raise problem(where, f"there is no participant {listed(wanted[index < 0], most=3)}")
            return index
        if wanted.dtype == bool and len(wanted) != len(self):
            raise problem(where, f"a mask of length {len(wanted)}", expected=f"{len(self)} values")
        index = np.arange(len(self))[wanted if len(wanted) else np.array([], int)]
        if len(np.unique(index)) != len(index):
            raise problem(
                where, "the same participant was chosen twice", expected="each at most once"
            )
        return index

    def _like(
        self, connectivity: Any, participants: pd.DataFrame, parcellation: Parcellation, series: Any
    ) -> Cohort:
        cohort = Cohort(connectivity, participants, parcellation, series, **self._about)
        cohort._opened = self._opened
        return cohort

    @property
    def _about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "measure": self.measure,
            "exclusions": self.exclusions,
            "notes": self.notes,
        }


def _checked_participants(table: pd.DataFrame, name: str) -> pd.DataFrame:
    where = f"Cohort {name!r}"
    if not isinstance(table, pd.DataFrame) or "participant_id" not in table.columns:
        raise problem(
            where,
            "the participants table has no column 'participant_id'",
            remedy="Rename the id column.",
        )
    table = printable_table(table.reset_index(drop=True).copy())
    ids = table["participant_id"]
    if ids.isna().any() or (ids.astype(str).str.strip() == "").any():
        raise problem(where, "a participant has no id", expected="an id in every row")
    table["participant_id"] = [as_utf8(one) for one in ids]  # from names of files, perhaps
    repeated = table["participant_id"][table["participant_id"].duplicated()].unique()
    if len(repeated):
        found, remedy = (
            f"participants occur twice ({listed(repeated)})",
            "Average or choose among their sessions first",
        )
        raise problem(
            where,
            found,
            expected="one row per participant",
            remedy=f"{remedy} (`nerve ingest --repeats`).",
        )
    return table


def motion_of(participants: pd.DataFrame) -> str:
    """The median framewise displacement, where it is known."""
    if "mean_fd" not in participants:
        return "not known (no column mean_fd)"
    motion = pd.to_numeric(participants["mean_fd"], errors="coerce")
    return f"median {motion.median():.3f} mm, largest {motion.max():.3f}"
