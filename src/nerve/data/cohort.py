"""A Cohort: an FC stack, a participants table and a parcellation, optionally with time series.

The narrow waist of the package: every reader makes one, everything else reads one. On disk it is a
folder that any tool can open:

    dataset_description.json   as in BIDS derivatives
    participants.tsv           participant_id, then whatever is known of them
    regions.tsv                label, network, hemisphere, x, y, z
    connectivity.npy           (n, R, R) Pearson r, float32 or float16
    connectivity.tsv           whose each matrix is
    timeseries.npy             (all volumes, R), participants one after another
    timeseries.tsv             how many volumes each has
    exclusions.tsv             who was left out, and why
    cohort.json                name, how it was made, and digests of the files as they were then
"""

from __future__ import annotations

import hashlib
import itertools
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
    OtherRegions,
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
from nerve.data import cohort_files
from nerve.data.connectivity import MEASURES, in_words
from nerve.data.duplicates import same_fc
from nerve.data.lazy_arrays import Series, Stack
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.resampling import FARTHEST, Resampling

# what cohort.json must hold
_RECORD_TYPES = {
    "format_version": int,
    "name": str,
    "parcellation": str,
    "digests": dict,
    "notes": dict,
}
# how ingest matched the regions of files with those of the parcellation, as notebooks show it
_REGION_MATCH = {
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
        What `measure` says, by default Pearson correlations with a unit diagonal; an array, a
        memory map or a `Stack`.
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
        if not isinstance(connectivity, (np.ndarray, Stack)):
            connectivity = np.asarray(connectivity)
        self.connectivity = connectivity
        self.participants = _check_participants(participants, name)
        self.name = printable(name)
        self.measure = one_of(f"measure of cohort {name!r}", measure, list(MEASURES))
        if exclusions is None:
            exclusions = pd.DataFrame(columns=["participant_id", "reason"], dtype=str)
        self.exclusions = exclusions.reset_index(drop=True)
        self.notes = dict(notes or {})
        if timeseries is not None and not isinstance(timeseries, Series):
            timeseries = Series([np.asarray(part) for part in timeseries])
        self.timeseries: Series | None = timeseries
        self.n_participants = len(self.participants)  #: Number of participants.
        self.n_regions = self.parcellation.n_regions  #: Number of regions, R.
        #: (participants, regions, regions), as of the FC stack.
        self.shape = (self.n_participants, self.n_regions, self.n_regions)
        # of a loaded cohort: digests of its files as they were when it was made
        self._recorded_digests: dict[str, Any] | None = None
        # the folders that its contents were read from
        self._folders: tuple[cohort_files.OpenedFolder, ...] = ()
        # of a loaded cohort: name of the file → the array that was opened
        self._opened_arrays: dict[str, Any] = {}
        self._check_shapes()

    def _check_shapes(self) -> None:
        where = f"Cohort {self.name!r}"
        if self.connectivity.shape != self.shape:
            raise problem(
                where,
                f"the FC stack has shape {self.connectivity.shape}",
                expected=f"{self.shape} for {len(self)} participants and {self.parcellation.name}",
                remedy="Check the participants table and the parcellation.",
            )
        if self.connectivity.dtype not in (np.float16, np.float32):
            self.connectivity = np.asarray(self.connectivity, np.float32)
        if self.timeseries is None:
            return
        if len(self.timeseries) != len(self):
            cause = f"{len(self.timeseries)} time series"
            raise problem(where, cause, expected=f"one for each of {len(self)}")
        ids = self.participants["participant_id"]
        for participant, series in zip(ids, self.timeseries, strict=True):
            if series.ndim != 2 or series.shape[1] != self.n_regions:
                cause = f"its time series has shape {series.shape}"
                raise problem(participant, cause, expected=f"(volumes, {self.n_regions})")

    def __len__(self) -> int:
        return self.n_participants

    def __getitem__(self, rows: Any) -> Cohort:
        """Choose participants, as scikit-learn does: by number, slice, mask, positions or ids.

        Examples
        --------
        >>> table = pd.DataFrame({"participant_id": ["a", "b", "c"]})
        >>> cohort = Cohort(np.stack([np.eye(100)] * 3), table, "schaefer100-17")
        >>> cohort[1:].shape
        (2, 100, 100)
        >>> cohort[[True, False, False]].participants["participant_id"].tolist()
        ['a']
        """
        if isinstance(rows, tuple) and rows[1:] == (Ellipsis,):  # cohort[rows, ...]
            rows = rows[0]
        if isinstance(rows, tuple):
            raise problem(
                f"Cohort {self.name!r}",
                f"it was indexed by {len(rows)} things",
                expected="participants only",
                remedy="Index cohort.connectivity for entries, call align for regions.",
            )
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        return self.subset(np.atleast_1d(np.asarray(rows)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.connectivity, dtype or np.float32)

    def __iter__(self) -> Iterator[Cohort]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        series = "" if self.timeseries is None else ", time series"
        return (
            f"Cohort({self.name!r}: {self.n_participants} participants, "
            f"{self.parcellation.name}{series})"
        )

    def _repr_html_(self) -> str:
        """What notebooks show."""
        columns = self.participants.drop(columns="participant_id")
        n_known = [f"{name} ({columns[name].notna().sum()})" for name in columns]
        region_match = str(self.notes.get("region_match"))
        region_order = _REGION_MATCH.get(region_match, "as given; nerve check compares orders")
        series = "none"
        if self.timeseries is not None:
            series = f"{self.timeseries.lengths.min()} volumes or more"
        facts = {
            "participants": self.n_participants,
            "left out": len(self.exclusions),
            "regions": f"{self.n_regions} in {self.parcellation.n_networks} networks",
            "parcellation": self.parcellation.name,
            "region order": region_order,
            "measure": in_words(self.measure),
            "time series": series,
            "motion": describe_motion(self.participants),
            "covariates and targets (known)": listed(n_known, most=12) or "none",
        }
        return facts_html(f"Cohort {self.name}", facts)

    @property
    def fingerprint(self) -> str:
        """A hash of FC, measure, participants, labels and time series: equal only if all are."""
        text = json.dumps(self._digests(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def fc_fingerprint(self) -> str:
        """A hash of the FC matrices alone, in their order."""
        return self._array_digest("connectivity.npy", self.connectivity, self._chunks())

    @property
    def changes(self) -> list[str]:
        """What has changed in the folder since the cohort was made; empty for one in memory."""
        if self._recorded_digests is None:
            return []
        return cohort_files.describe_changes(self._recorded_digests, self._digests())

    def check_unchanged(self) -> None:
        """Refuse if a folder that this cohort was read from holds something else now.

        Called before anything is written that was computed from the cohort: it would be of
        neither version.
        """
        for folder in self._folders:
            folder.check_unchanged()

    def _digests(self) -> dict[str, Any]:
        """Digests of everything. Arrays that lie on disk are read once per process."""
        matrices = self._array_digest("connectivity.npy", self.connectivity, self._chunks())
        series = None
        lengths = np.array([])
        if self.timeseries is not None:
            parts = (np.asarray(part, np.float32) for part in self.timeseries)
            series = self._array_digest("timeseries.npy", self.timeseries, parts)
            lengths = self.timeseries.lengths
        return cohort_files.digests(
            matrices, self.parcellation, self.participants, series, lengths, self.measure
        )

    def _array_digest(self, name: str, array: Any, pieces: Iterator[np.ndarray]) -> str:
        if array is self._opened_arrays.get(name):
            return self._folders[0].array_digest(name)
        return cohort_files.digest_of(pieces)

    def inputs(self, kind: str = "fc", rows: Any = None) -> Any:
        """Read what a method takes as input, in float32.

        Parameters
        ----------
        kind : {"fc", "upper", "timeseries"}
            Matrices, the entries above the diagonal, or time series.
        rows : index array, optional
            Which participants; all by default.

        Returns
        -------
        array or list of arrays
            "fc": (k, R, R); "upper": (k, R (R - 1) / 2), row by row; "timeseries": k arrays
            (volumes, R).
        """
        one_of("kind", kind, ("fc", "upper", "timeseries"))
        index = np.arange(len(self))
        if rows is not None:
            index = index[rows]
        if kind == "timeseries":
            if self.timeseries is None:
                raise MissingInput(f"Cohort {self.name!r} has no time series, only FC matrices.")
            return [np.asarray(self.timeseries[int(row)], np.float32) for row in index]
        if kind == "fc":
            return np.asarray(self.connectivity[index], np.float32)
        first, second = np.triu_indices(self.n_regions, 1)
        entries = np.empty((len(index), len(first)), np.float32)
        for start in range(0, len(index), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            entries[chunk] = self.connectivity[index[chunk]][:, first, second]
        return entries

    def same_matrices(self) -> list[np.ndarray]:
        """Find rows that have the same FC (correlation above .9999).

        They are probably one participant under several ids; see `nerve.data.duplicates`.

        Returns
        -------
        list of arrays
            The rows of each group of two or more.
        """
        return same_fc(self.connectivity, lambda rows: self.inputs("upper", rows))

    def align(self, parcellation: Parcellation | str) -> Cohort:
        """Put the regions into the order of another parcellation, matched by label.

        Parameters
        ----------
        parcellation : Parcellation or str
            Regions that it does not have are left out; one that this cohort lacks is an error.

        Returns
        -------
        Cohort
        """
        target = load_parcellation(parcellation)
        try:
            index = self.parcellation.reordering_to(target)
        except OtherRegions as error:
            raise OtherRegions(f"Cohort {self.name!r}: {error.cause}", target) from error
        if np.array_equal(index, np.arange(self.n_regions)) and target == self.parcellation:
            return self
        stack = Stack.of(self.connectivity).reorder(index).materialise_if_small()
        series = None if self.timeseries is None else self.timeseries.reorder(index)
        return self._like(stack, self.participants, target, series)

    def resample(
        self,
        parcellation: Parcellation | str,
        *,
        width: float | None = None,
        farthest: float = FARTHEST,
        images: tuple[Any, Any] | None = None,
    ) -> Cohort:
        """Carry FC and time series to the regions of another parcellation.

        Parameters
        ----------
        parcellation : Parcellation or str
            Where the labels are the same, regions are only reordered, as `align` does.
        width, farthest, images
            As in `Resampling.between`.

        Returns
        -------
        Cohort
            Pearson correlations, computed when they are read where they are many. How it was
            resampled is in ``notes["resampled"]``.

        See Also
        --------
        nerve.data.resampling.Resampling : the weights, and how well they cover the target.
        """
        if self.measure != "pearson":
            raise problem(
                f"Cohort {self.name!r}",
                f"it holds {in_words(self.measure)}",
                expected="Pearson correlations, which averages of regions have again",
                remedy="Ingest it again; for Fisher z, with --values z.",
            )
        resampling = Resampling.between(
            self.parcellation,
            load_parcellation(parcellation),
            width=width,
            farthest=farthest,
            images=images,
        )
        if resampling.method == "labels":
            return self.align(resampling.target)
        fc = resampling.apply(self.connectivity)
        series = None
        if self.timeseries is not None:
            series = resampling.apply_series(self.timeseries)
        resampled = self._like(fc, self.participants, resampling.target, series)
        resampled.notes = {**self.notes, "resampled": resampling.summary()}
        return resampled

    def subset(self, participants: Any) -> Cohort:
        """Choose participants.

        Parameters
        ----------
        participants : array-like
            Positions, a boolean mask, or participant ids.

        Returns
        -------
        Cohort
        """
        index = self._positions(participants)
        stack = Stack.of(self.connectivity).take(index).materialise_if_small()
        series = None if self.timeseries is None else self.timeseries.take(index)
        table = self.participants.iloc[index].reset_index(drop=True)
        return self._like(stack, table, self.parcellation, series)

    @property
    def cohort_names(self) -> pd.Series:
        """The name of each participant's cohort: this one's or, after `concat`, that of its part.

        A column `cohort` of the user's own table is not looked at: its values are the user's.

        Returns
        -------
        Series
        """
        if "concatenated" in self.notes:
            return self.participants["cohort"]
        return pd.Series(self.name, index=self.participants.index)

    @classmethod
    def concat(cls, cohorts: Sequence[Cohort], name: str | None = None) -> Cohort:
        """Join cohorts, in the region order of the first; the same participant twice is refused.

        Parameters
        ----------
        cohorts : sequence of Cohort
        name : str, optional
            The names of the cohorts, joined by `+`, by default.

        Returns
        -------
        Cohort
            Each row has the name of its cohort in the column `cohort`. Time series are kept if all
            cohorts have them.
        """
        if not cohorts:
            raise NerveError("There are no cohorts to concatenate, expected at least one.")
        first = cohorts[0]
        aligned = [first, *(cohort.align(first.parcellation) for cohort in cohorts[1:])]
        tables = [cohort.participants.assign(cohort=cohort.cohort_names) for cohort in aligned]
        table = pd.concat(tables, ignore_index=True)
        ids = table["participant_id"]
        repeated = ids[ids.duplicated()].unique()
        if len(repeated):
            raise problem(
                "The cohorts",
                f"the same participant stands in more than one ({listed(repeated)})",
                remedy="Leave the participant out of one of them, "
                "or rename the ids if they are different participants.",
            )
        measures = dict.fromkeys(cohort.measure for cohort in cohorts)
        if len(measures) > 1:
            cause = f"different measures ({listed(map(in_words, measures))})"
            raise problem("The cohorts", cause, expected="the same in all")
        stacks = [Stack.of(cohort.connectivity) for cohort in aligned]
        stack = Stack.concat(stacks).materialise_if_small()
        all_series = [cohort.timeseries for cohort in aligned if cohort.timeseries is not None]
        series = Series.concat(all_series) if len(all_series) == len(aligned) else None
        joined = first._like(stack, table, first.parcellation, series)
        joined.name = printable(name or "+".join(cohort.name for cohort in cohorts))
        joined.exclusions = pd.concat([cohort.exclusions for cohort in cohorts], ignore_index=True)
        joined.notes = {"concatenated": [cohort.fingerprint for cohort in cohorts]}
        folders = itertools.chain.from_iterable(cohort._folders for cohort in cohorts)
        joined._folders = tuple(folders)
        return joined

    def save(
        self, path: str | os.PathLike[str], *, dtype: str | None = None, overwrite: bool = False
    ) -> Path:
        """Write the cohort as a folder, whole or not at all.

        Parameters
        ----------
        path : path
        dtype : {"float32", "float16"}, optional
            Type of the stored FC; that of the cohort by default.
        overwrite : bool
            Replace a cohort. Refused if a folder that this cohort was read from has changed.

        Returns
        -------
        Path
        """
        self.check_unchanged()
        if dtype is None:
            dtype = "float16" if self.connectivity.dtype == np.float16 else "float32"
        with cohort_files.writing_cohort(
            path, self.parcellation, dtype=dtype, overwrite=overwrite
        ) as writer:
            starts = progress_bar(range(0, len(self), _CHUNK), label="writing", unit="chunks")
            for start, matrices in zip(starts, self._chunks(), strict=True):
                series = None
                if self.timeseries is not None:
                    rows = range(start, start + len(matrices))
                    series = [self.timeseries[row] for row in rows]
                writer.append(matrices, series)
            self.check_unchanged()
            writer.finish(self.participants, **self._description)
        self._reopen(path)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Cohort:
        """Open a saved cohort; its matrices stay on disk until they are asked for.

        Parameters
        ----------
        path : path
            The folder.

        Returns
        -------
        Cohort
        """
        folder = Path(path)
        if not (folder / "cohort.json").is_file():
            raise problem(
                folder,
                "this is not a cohort" if folder.exists() else "there is no such folder",
                expected="a folder with cohort.json and connectivity.npy",
                remedy="Make one with `nerve ingest` or `nerve simulate`.",
            )
        opened = cohort_files.OpenedFolder(folder)
        record = _read_record(folder)

        table_path = folder / "participants.tsv"
        table = read_tsv(table_path, dtype={"participant_id": str})
        known_columns(["participant_id"], table.columns, table_path)
        ids_of_matrices = read_tsv(
            folder / "connectivity.tsv", dtype=str, usecols=["participant_id"]
        )["participant_id"]
        rows = cohort_files.matched_rows(table["participant_id"], ids_of_matrices, table_path)

        connectivity: Any = opened.open_array("connectivity.npy")
        if connectivity.ndim == 3:
            connectivity = Stack.of(connectivity).materialise_if_small()
        series = None
        if (folder / "timeseries.npy").is_file():
            series = cohort_files.open_series(opened, ids_of_matrices)
        exclusions = None
        if (folder / "exclusions.tsv").is_file():
            columns = ["participant_id", "reason"]
            exclusions = read_tsv(folder / "exclusions.tsv", dtype=str, usecols=columns)

        cohort = cls(
            connectivity,
            table.iloc[rows],
            Parcellation.from_table(folder / "regions.tsv", name=record["parcellation"]),
            series,
            record["name"],
            measure=record.get("measure", "pearson"),
            exclusions=exclusions,
            notes=record["notes"],
        )
        opened.check_unchanged()  # another process may have replaced some of these files by now
        cohort._recorded_digests = record["digests"]
        cohort._folders = (opened,)
        cohort._opened_arrays = {"connectivity.npy": cohort.connectivity}
        if series is not None:
            cohort._opened_arrays["timeseries.npy"] = cohort.timeseries
        return cohort

    def _reopen(self, path: str | os.PathLike[str]) -> None:
        """Know the folder by its new files, where this cohort was read from it and overwrote it."""
        written = cohort_files.OpenedFolder(path)
        others = tuple(folder for folder in self._folders if folder.path != written.path)
        if len(others) < len(self._folders):
            self._folders = (*others, written)
            # the arrays are in memory, or of a file that has no name any more
            self._opened_arrays = {}

    def _chunks(self) -> Iterator[np.ndarray]:
        for start in range(0, self.n_participants, _CHUNK):
            yield np.asarray(self.connectivity[start : start + _CHUNK])

    def _positions(self, participants: Any) -> np.ndarray:
        """The positions of participants who are chosen by position, mask or id."""
        wanted = np.asarray(participants)
        where = f"Cohort {self.name!r}"
        if wanted.dtype.kind in "UOT" and len(wanted):
            index = pd.Index(self.participants["participant_id"]).get_indexer(wanted)
            if (index < 0).any():
                raise problem(where, f"there is no participant {listed(wanted[index < 0], most=3)}")
            return index
        if wanted.dtype == bool and len(wanted) != len(self):
            raise problem(where, f"a mask of length {len(wanted)}", expected=f"{len(self)} values")
        if len(wanted) == 0:
            return np.array([], int)
        index = np.arange(len(self))[wanted]
        if len(np.unique(index)) != len(index):
            cause = "the same participant was chosen twice"
            raise problem(where, cause, expected="each at most once")
        return index

    def _like(
        self, connectivity: Any, participants: pd.DataFrame, parcellation: Parcellation, series: Any
    ) -> Cohort:
        """A cohort of the same name and folders, with other contents."""
        cohort = Cohort(connectivity, participants, parcellation, series, **self._description)
        cohort._folders = self._folders
        return cohort

    @property
    def _description(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "measure": self.measure,
            "exclusions": self.exclusions,
            "notes": self.notes,
        }


def _read_record(folder: Path) -> dict[str, Any]:
    """Read cohort.json; refuse one of another version of the format, or that is no record."""
    record = read_json(folder / "cohort.json")
    version = record.get("format_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version != cohort_files.FORMAT_VERSION:
        if version > cohort_files.FORMAT_VERSION:
            cause = "it was written by a newer version of nerve"
            raise problem(folder, cause, remedy="Update nerve to read it.")
        cause = "it was written by an older version of nerve"
        raise problem(folder, cause, remedy="Make it again to read it.")
    is_complete = isinstance(record, dict) and all(
        isinstance(record.get(key), type_) for key, type_ in _RECORD_TYPES.items()
    )
    if not is_complete:
        raise problem(
            folder / "cohort.json",
            "it does not describe a cohort",
            remedy="Make the cohort again.",
        )
    return dict(record)


def _check_participants(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Copy a participants table, with ids as printable text; refuse one without unique ids."""
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
    # ids may come from names of files, which need not be text
    table["participant_id"] = [as_utf8(participant) for participant in ids]
    repeated = table["participant_id"][table["participant_id"].duplicated()].unique()
    if len(repeated):
        raise problem(
            where,
            f"participants occur twice ({listed(repeated)})",
            expected="one row per participant",
            remedy="Average or choose among their sessions first (`nerve ingest --repeats`).",
        )
    return table


def describe_motion(participants: pd.DataFrame) -> str:
    """Say the median and largest framewise displacement, where it is known.

    Parameters
    ----------
    participants : DataFrame

    Returns
    -------
    str
    """
    if "mean_fd" not in participants:
        return "not known (no column mean_fd)"
    motion = pd.to_numeric(participants["mean_fd"], errors="coerce")
    return f"median {motion.median():.3f} mm, largest {motion.max():.3f}"
