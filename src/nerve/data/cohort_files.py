"""How a cohort lies on disk: written one matrix after another, and identified by its content.

Names and layout of the files are in `nerve.data.cohort`. A digest of each file is kept in
cohort.json. `OpenedFolder` remembers the files as they were when they were opened, so that whoever
writes a result can refuse if they have changed by then.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.archives import require_regular_file
from nerve._utils.errors import NerveError, as_utf8, listed, one_of, problem
from nerve._utils.files import (
    MISSING,
    FileState,
    atomic_folder,
    file_hash,
    file_state,
    flush_to_disk,
    read_tsv,
    write_json,
    write_tsv,
)
from nerve._utils.privacy import printable_table
from nerve.data.lazy_arrays import Series, release_pages
from nerve.data.parcellation import Parcellation, load_parcellation

FORMAT_VERSION = 2
DTYPES = ("float32", "float16")
#: The large files.
ARRAYS = ("connectivity.npy", "timeseries.npy")
#: The small files that `Cohort.load` reads.
TABLES = (
    "cohort.json",
    "connectivity.tsv",
    "exclusions.tsv",
    "participants.tsv",
    "regions.tsv",
    "timeseries.tsv",
)
_BYTES_PER_READ = 2**24
# of arrays that this process has read
_known_digests: dict[tuple[Path, FileState], str] = {}


class ArrayDigest:
    """Computes the digest of an array that comes in pieces along its first axis."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._hash = hashlib.sha256()
        self._type_and_shape = ""  # of one row

    def add(self, rows: np.ndarray) -> None:
        """Add rows.

        Parameters
        ----------
        rows : (k, …) array
        """
        self._hash.update(np.ascontiguousarray(rows).data)
        self.n_rows += len(rows)
        self._type_and_shape = f"{rows.dtype.str} {rows.shape[1:]}"

    def hexdigest(self) -> str:
        """The digest of values, type and shape."""
        complete = self._hash.copy()
        complete.update(f"{self.n_rows} {self._type_and_shape}".encode())
        return complete.hexdigest()[:32]


class _GrowingArray(ArrayDigest):
    """An .npy file to which rows are added."""

    def __init__(self, files: ExitStack, path: Path, dtype: str, *shape: int) -> None:
        super().__init__()
        self.dtype = np.dtype(dtype)
        self.row_shape = shape
        self.stream = files.enter_context(open(path, "w+b"))  # noqa: SIM115, `files` closes it
        self._write_header()

    def add(self, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows, self.dtype)
        self.stream.write(rows.data)
        super().add(rows)

    def finish(self) -> str:
        """Write the number of rows into the header, close the file and return its digest."""
        self._write_header()
        self.stream.close()
        return self.hexdigest()

    def _write_header(self) -> None:
        """Write or rewrite the header; numpy pads it to a length that any number of rows fits."""
        self.stream.seek(0)
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.n_rows, *self.row_shape),
        }
        np.lib.format.write_array_header_1_0(self.stream, header)  # type: ignore[arg-type]


class CohortWriter:
    """Appends matrices to a cohort on disk, so that only the current ones are in memory.

    Made by `writing_cohort`.

    Parameters
    ----------
    folder : Path
        An existing folder.
    parcellation : Parcellation
    dtype : {"float32", "float16"}
    files : ExitStack
        Closes the files that are opened here.
    """

    def __init__(
        self, folder: Path, parcellation: Parcellation, dtype: str, files: ExitStack
    ) -> None:
        self.folder = folder
        self.parcellation = parcellation
        self._files = files
        n_regions = parcellation.n_regions
        self._matrices = _GrowingArray(
            files, folder / "connectivity.npy", one_of("dtype", dtype, DTYPES), n_regions, n_regions
        )
        self._series: _GrowingArray | None = None
        self._lengths: list[int] = []

    def append(self, matrices: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add participants.

        Parameters
        ----------
        matrices : (k, R, R) array
        series : k arrays (volumes, R), optional
            If the cohort has time series.
        """
        self._matrices.add(matrices)
        if series is None:
            return
        if self._series is None:
            path = self.folder / "timeseries.npy"
            self._series = _GrowingArray(self._files, path, "float32", self.parcellation.n_regions)
        for part in series:
            self._series.add(part)
            self._lengths.append(len(part))

    def finish(
        self,
        participants: pd.DataFrame,
        *,
        name: str = "cohort",
        measure: str = "pearson",
        exclusions: pd.DataFrame | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        """Write the tables and the record: from here on the folder is a cohort.

        Parameters
        ----------
        participants : DataFrame
            In the order of the matrices.
        name, measure, exclusions, notes
            As in `Cohort`.
        """
        participants = printable_table(participants)
        ids = participants[["participant_id"]]
        series_digest = None
        if self._series is not None:
            write_tsv(self.folder / "timeseries.tsv", ids.assign(n_volumes=self._lengths))
            series_digest = self._series.finish()
        write_tsv(self.folder / "connectivity.tsv", ids)
        write_tsv(self.folder / "participants.tsv", participants)
        write_tsv(self.folder / "regions.tsv", self.parcellation.to_table())
        if exclusions is not None and len(exclusions):
            write_tsv(self.folder / "exclusions.tsv", exclusions)
        write_json(self.folder / "dataset_description.json", bids_description(name))
        record = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "measure": measure,
            "parcellation": self.parcellation.name,
            "digests": digests(
                self._matrices.finish(),
                self.parcellation,
                participants,
                series_digest,
                self._lengths,
                measure,
            ),
            "notes": notes or {},
        }
        write_json(self.folder / "cohort.json", record)


@contextmanager
def writing_cohort(
    path: str | os.PathLike[str],
    parcellation: Parcellation | str,
    *,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Iterator[CohortWriter]:
    """Open a writer whose folder takes its name only when `finish` was called and no error came.

    Parameters
    ----------
    path : path
        The folder of the cohort.
    parcellation : Parcellation or str
    dtype : {"float32", "float16"}
        Type of the stored FC.
    overwrite : bool
        Replace a cohort.

    Yields
    ------
    CohortWriter
    """
    with (
        atomic_folder(path, overwrite=overwrite) as draft,
        ExitStack() as files,
    ):
        yield CohortWriter(draft, load_parcellation(parcellation), dtype, files)
        if not (draft / "cohort.json").is_file():
            raise NerveError(f"{path}: the cohort was not finished, nothing was written.")


def open_npy(
    path: Path, remedy: str = "The file is incomplete: make the cohort again."
) -> np.ndarray:
    """Memory-map an array; a damaged or pickled file is refused.

    Parameters
    ----------
    path : Path
    remedy : str
        What the error tells the user to do.

    Returns
    -------
    array
    """
    try:
        require_regular_file(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises a dozen different errors for a damaged header
        raise problem(path, f"it cannot be read as an array ({error})", remedy=remedy) from error
    if not isinstance(array, np.ndarray):  # an .npz archive that is named .npy
        raise problem(path, "it is an archive, not one array", remedy=remedy)
    return array if array.size else np.array(array)


def open_series(folder: OpenedFolder, ids: Iterable[str]) -> Series:
    """Open the time series of a cohort's folder.

    Parameters
    ----------
    folder : OpenedFolder
    ids : iterable of str
        Participants, in the order of the result.

    Returns
    -------
    Series
    """
    joined = folder.open_array("timeseries.npy")  # (all volumes, R)
    path = folder.path / "timeseries.tsv"
    columns = {"participant_id": str, "n_volumes": int}
    table = read_tsv(path, dtype=columns, usecols=list(columns))
    lengths = table["n_volumes"].to_numpy()
    if joined.ndim != 2 or (lengths < 0).any() or lengths.sum() != len(joined):
        cause = f"its numbers of volumes do not fit timeseries.npy, which has shape {joined.shape}"
        raise problem(path, cause, remedy="Make the cohort again.")
    parts = np.split(joined, np.cumsum(lengths)[:-1])
    return Series(parts).take(matched_rows(table["participant_id"], ids, path))


def matched_rows(table_ids: Any, ids: Iterable[Any], where: Path) -> np.ndarray:
    """Find the row of each participant in a table.

    Files of a cohort are matched by participant, never by position.

    Parameters
    ----------
    table_ids : sequence
        The ids of the table, row by row.
    ids : iterable
        The participants of connectivity.tsv.
    where : Path
        The table, as errors name it.

    Returns
    -------
    (n,) int array
        The row of each of `ids`.
    """
    row_of = {str(participant): row for row, participant in enumerate(table_ids)}
    wanted = [str(participant) for participant in ids]
    lacking = [participant for participant in wanted if participant not in row_of]
    unwanted = sorted(row_of.keys() - set(wanted))
    faults = []
    if lacking:
        faults.append(f"it lacks {listed(lacking, most=3)}")
    if unwanted:
        faults.append(f"it has {listed(unwanted, most=3)}, who has no matrix")
    if len(row_of) != len(table_ids) and not faults:
        faults.append("a participant occurs twice")
    if faults:
        raise problem(
            where,
            " and ".join(faults),
            expected="the participants of connectivity.tsv, which says whose each matrix is",
            remedy="Put the table right, or make the cohort again.",
        )
    return np.array([row_of[participant] for participant in wanted], int)


def digest_of(pieces: Iterable[np.ndarray]) -> str:
    """Compute the digest of an array that comes in pieces along its first axis.

    Parameters
    ----------
    pieces : iterable of (k, …) arrays

    Returns
    -------
    str
    """
    digest = ArrayDigest()
    for piece in pieces:
        digest.add(piece)
    return digest.hexdigest()


class OpenedFolder:
    """The folder of a cohort as it was when it was opened.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    path : Path
    tables : dict
        Name of each small file → hash of its bytes.
    arrays : dict
        Name of each array → its `file_state`: arrays are large, and are read only when needed.
    opened : dict
        Name of each array that `open_array` was asked for → the memory map.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(folder))
        self.tables: dict[str, str] = {}
        self.arrays: dict[str, FileState] = {}
        self.opened: dict[str, np.ndarray] = {}
        for name in TABLES:
            if (self.path / name).is_file():
                self.tables[name] = file_hash(self.path / name)
        for name in ARRAYS:
            if (self.path / name).is_file():
                # Until a file is flushed, a program that has it open as a map can change it
                # without any trace in its state.
                with suppress(OSError):
                    flush_to_disk(self.path / name)
                self.arrays[name] = file_state(self.path / name)

    def open_array(self, name: str) -> np.ndarray:
        """Memory-map an array of the folder, once.

        Parameters
        ----------
        name : str
            One of `ARRAYS`.

        Returns
        -------
        array
        """
        if name not in self.opened:
            array = open_npy(self.path / name)
            if file_state(self.path / name) != self.arrays[name]:
                raise self._changed(name)
            self.opened[name] = array
        return self.opened[name]

    def __getstate__(self) -> dict[str, Any]:
        """Memory maps are not copied to other processes, which open the files themselves."""
        return self.__dict__ | {"opened": {}}

    def array_digest(self, name: str) -> str:
        """Compute the digest of an array as it was opened; it is read once per process.

        Parameters
        ----------
        name : str
            One of `ARRAYS`.

        Returns
        -------
        str
        """
        key = (self.path / name, self.arrays[name])
        if key not in _known_digests:
            digest = digest_of(_pieces(self.open_array(name)))
            if self._written_into(name):
                raise self._changed(name)
            _known_digests[key] = digest
        return _known_digests[key]

    def check_unchanged(self) -> None:
        """Refuse if the folder holds something else now."""
        if not self.path.is_dir():
            return  # it is gone, so that nothing can be mistaken for what was opened
        now = OpenedFolder(self.path)
        names = {*self.tables, *now.tables}
        changed = [name for name in names if self.tables.get(name) != now.tables.get(name)]
        changed += [name for name in {*self.arrays, *now.arrays} if not self._same_array(name, now)]
        if changed:
            raise problem(
                self.path,
                f"{listed(sorted(changed))} changed after the cohort was opened, so nothing is "
                "written",
                remedy="Put the files back, or start again with what is there now.",
            )

    def _changed(self, name: str) -> NerveError:
        return problem(
            self.path / name,
            "it was changed after the cohort was opened",
            remedy="Open the cohort again.",
        )

    def _same_array(self, name: str, now: OpenedFolder) -> bool:
        """Whether an array is the one that was opened: by its state, or a copy by its content."""
        if self.arrays.get(name) == now.arrays.get(name):
            return True
        if name not in self.arrays or name not in now.arrays:
            return False
        known = _known_digests.get((self.path / name, self.arrays[name]))
        return known is not None and known == now.array_digest(name)

    def _written_into(self, name: str) -> bool:
        """Whether the file itself was changed since, in which case so was what was opened.

        A new file in its place leaves what was opened as it was.
        """
        path = self.path / name
        before = self.arrays[name]
        if not path.is_file():
            return False
        now = file_state(path)
        return now[:2] == before[:2] and now != before


def _text_digest(*parts: str) -> str:
    """Compute a short digest of texts.

    Parameters
    ----------
    *parts : str

    Returns
    -------
    str
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def as_read_back(participants: pd.DataFrame) -> pd.DataFrame:
    """Give a participants table the column types that it has when it is read back from its file.

    Parameters
    ----------
    participants : DataFrame

    Returns
    -------
    DataFrame
    """
    text = as_utf8(printable_table(participants).to_csv(sep="\t", index=False, na_rep="n/a"))
    return pd.read_csv(
        io.StringIO(text),
        sep="\t",
        na_values=MISSING,
        keep_default_na=False,
        dtype={"participant_id": str},
    )


def digests(
    connectivity: str,
    parcellation: Parcellation,
    participants: pd.DataFrame,
    series: str | None,
    lengths: Any,
    measure: str,
) -> dict[str, Any]:
    """Compute the digest of each file, and of each column of the participants table.

    The table is hashed as it reads back from disk, so that a cohort in memory and the same one
    saved agree.

    Parameters
    ----------
    connectivity : str
        The digest of the FC stack.
    parcellation : Parcellation
    participants : DataFrame
    series : str, optional
        The digest of the time series.
    lengths : sequence of int
        Volumes of each participant.
    measure : str
        What the entries of the FC stack are.

    Returns
    -------
    dict
        Name of the file → digest; for participants.tsv, column → digest; the measure as it is.
    """
    columns = _columns_as_text(as_read_back(participants))
    by_file: dict[str, Any] = {
        "connectivity.npy": connectivity,
        "measure": measure,
        "regions.tsv": parcellation.fingerprint,
        "participants.tsv": {name: _text_digest(text) for name, text in columns},
    }
    if series is not None:
        by_file["timeseries.npy"] = series
        by_file["timeseries.tsv"] = _text_digest(*(str(int(length)) for length in lengths))
    return by_file


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say what has changed between two sets of digests.

    Parameters
    ----------
    before, now : dict
        As `digests` returns them.

    Returns
    -------
    list of str
        One sentence per file.
    """
    old_files = dict(before)
    new_files = dict(now)
    old_columns = old_files.pop("participants.tsv", {})
    new_columns = new_files.pop("participants.tsv")
    changed, added, gone = _compare(old_files, new_files)
    sentences = [f"{name} has changed" for name in changed]
    sentences += [f"{name} was added" for name in added]
    sentences += [f"{name} is gone" for name in gone]
    changed, added, gone = _compare(old_columns, new_columns)
    parts = []
    for word, names in (("changed", changed), ("added", added), ("gone", gone)):
        if names:
            parts.append(f"{word}: {listed(names, most=5)}")
    if parts:
        sentences.append(f"columns of participants.tsv {'; '.join(parts)}")
    return sentences


def bids_description(name: str, **generated_by: str) -> dict[str, Any]:
    """Make the content of dataset_description.json, as BIDS derivatives have it.

    Parameters
    ----------
    name : str
        Of the cohort.
    **generated_by : str
        Further fields of `GeneratedBy`.

    Returns
    -------
    dict
    """
    from nerve import __version__

    makers = [{"Name": "nerve", "Version": __version__, **generated_by}]
    return {
        "Name": name,
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": makers,
    }


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array along its first axis, some rows at a time."""
    step = max(1, _BYTES_PER_READ // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]
        release_pages(array)


def _columns_as_text(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Each column as a file of its own.

    The table is written once and then cut, since pandas takes long for each of many columns.
    """
    text = table.to_csv(index=False, float_format="%.12g", quoting=csv.QUOTE_ALL)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    for number, name in enumerate(table.columns):
        column = io.StringIO(newline="")
        csv.writer(column, lineterminator="\n").writerows([row[number]] for row in rows)
        yield str(name), column.getvalue()


def _compare(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """The names whose content differs, that only `new` has, and that only `old` has."""
    changed = [name for name in new if name in old and new[name] != old[name]]
    added = [name for name in new if name not in old]
    gone = [name for name in old if name not in new]
    return changed, added, gone
