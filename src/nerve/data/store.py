"""How a cohort lies on disk: written one matrix after another, and known by its content.

Names and layout of the files are in `nerve.data.cohort`. What is computed from a cohort is kept under a
digest of its content. `OpenedFolder` remembers the files as they were when they were opened, so that
whoever writes a result can refuse if they are others by then.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, as_utf8, listed, one_of, problem
from nerve._utils.files import (
    MISSING,
    FileState,
    atomic_folder,
    file_hash,
    file_state,
    read_tsv,
    write_json,
    write_tsv,
)
from nerve._utils.privacy import printable_table
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.stack import Series, give_back

FORMAT_VERSION = 2
DTYPES = ("float32", "float16")
FILES = (
    "cohort.json", "connectivity.npy", "connectivity.tsv", "dataset_description.json", "exclusions.tsv",
    "participants.tsv", "regions.tsv", "timeseries.npy", "timeseries.tsv", "truth.json", "truth_scores.tsv",
)  # fmt: skip
ARRAYS = ("connectivity.npy", "timeseries.npy")
# small files that `Cohort.load` reads
TABLES = (
    "cohort.json", "connectivity.tsv", "exclusions.tsv", "participants.tsv", "regions.tsv", "timeseries.tsv",
)  # fmt: skip
_CHUNK = 2**24  # bytes read at a time
_digests: dict[tuple[Path, FileState], str] = {}  # of arrays that this process has read


class ArrayDigest:
    """The digest of an array that comes in pieces along its first axis."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.n_rows = 0
        self._rest = ""

    def add(self, rows: np.ndarray) -> None:
        """Take in (k, …) more rows."""
        self._hash.update(np.ascontiguousarray(rows).data)
        self.n_rows += len(rows)
        self._rest = f"{rows.dtype.str} {rows.shape[1:]}"

    def hexdigest(self) -> str:
        """The digest of values, type and shape."""
        complete = self._hash.copy()
        complete.update(f"{self.n_rows} {self._rest}".encode())
        return complete.hexdigest()[:32]


class _GrowingArray(ArrayDigest):
    """An .npy file to which rows are added."""

    def __init__(self, files: ExitStack, path: Path, dtype: str, *shape: int) -> None:
        super().__init__()
        self.dtype, self.shape = np.dtype(dtype), shape
        self.stream = files.enter_context(open(path, "w+b"))  # noqa: SIM115, which does not see the context
        self._write_header()

    def add(self, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows, self.dtype)
        self.stream.write(rows.data)
        super().add(rows)

    def finish(self) -> str:
        """Say in the header how many rows there are and close the file; returns its digest."""
        self._write_header()
        self.stream.close()
        return self.hexdigest()

    def _write_header(self) -> None:
        """Write or rewrite the header; numpy pads it so that its length does not depend on the first axis."""
        self.stream.seek(0)
        shape = (self.n_rows, *self.shape)
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(self.stream, header)  # type: ignore[arg-type]


class CohortWriter:
    """Appends matrices to a cohort on disk, so that none but the current ones are in memory."""

    def __init__(
        self, folder: Path, parcellation: Parcellation, dtype: str, files: ExitStack
    ) -> None:
        self.folder, self.parcellation, self.files = (
            folder,
            parcellation,
            files,
        )  # `files` closes what was opened
        path, regions = folder / "connectivity.npy", parcellation.n_regions
        self.matrices = _GrowingArray(files, path, one_of("dtype", dtype, DTYPES), regions, regions)
        self.series: _GrowingArray | None = None
        self.lengths: list[int] = []

    def append(self, matrices: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add (k, R, R) matrices, and the k time series if the cohort has any."""
        self.matrices.add(matrices)
        if series is None:
            return
        if self.series is None:
            path, regions = self.folder / "timeseries.npy", self.parcellation.n_regions
            self.series = _GrowingArray(self.files, path, "float32", regions)
        for one in series:
            self.series.add(one)
            self.lengths.append(len(one))

    def finish(
        self,
        participants: pd.DataFrame,
        *,
        name: str = "cohort",
        measure: str = "pearson",
        exclusions: pd.DataFrame | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        """Write the tables and close: from here on the folder is a cohort."""
        participants = printable_table(participants)
        ids = participants[["participant_id"]]
        series = None
        if self.series is not None:
            write_tsv(self.folder / "timeseries.tsv", ids.assign(n_volumes=self.lengths))
            series = self.series.finish()
        write_tsv(self.folder / "connectivity.tsv", ids)
        write_tsv(self.folder / "participants.tsv", participants)
        write_tsv(self.folder / "regions.tsv", self.parcellation.to_table())
        if exclusions is not None and len(exclusions):
            write_tsv(self.folder / "exclusions.tsv", exclusions)
        write_json(self.folder / "dataset_description.json", description(name))
        made = digests(
            self.matrices.finish(), self.parcellation, participants, series, self.lengths
        )
        about = {"format_version": FORMAT_VERSION, "name": name, "measure": measure}
        about |= {"parcellation": self.parcellation.name, "digests": made, "notes": notes or {}}
        write_json(self.folder / "cohort.json", about)


@contextmanager
def writing_cohort(
    path: str | os.PathLike[str],
    parcellation: Parcellation | str,
    *,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Iterator[CohortWriter]:
    """A writer whose folder takes its name only once `finish` was called and the block ended well."""
    with (
        atomic_folder(path, "cohort.json", own=FILES, overwrite=overwrite) as draft,
        ExitStack() as files,
    ):
        yield CohortWriter(draft, load_parcellation(parcellation), dtype, files)
        if not (draft / "cohort.json").is_file():
            raise NerveError(f"{path}: the cohort was not finished, nothing was written.")


def open_npy(
    path: Path, remedy: str = "The file is incomplete: make the cohort again."
) -> np.ndarray:
    """Memory-map an array; a broken or pickled file is refused in one sentence."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (
        Exception
    ) as error:  # a damaged header is Python, and numpy stumbles over it in a dozen ways
        raise problem(path, f"it cannot be read as an array ({error})", remedy=remedy) from error
    if not isinstance(array, np.ndarray):  # an archive of arrays in disguise
        raise problem(path, "it is an archive, not one array", remedy=remedy)
    return array if array.size else np.array(array)


def open_series(folder: OpenedFolder, ids: Iterable[str]) -> Series:
    """The time series of a cohort's folder, cut as timeseries.tsv says, in the order of `ids`."""
    joined = folder.open_array("timeseries.npy")
    path = folder.path / "timeseries.tsv"
    columns = {"participant_id": str, "n_volumes": int}
    table = read_tsv(path, dtype=columns, usecols=list(columns))
    lengths = table["n_volumes"].to_numpy()
    if joined.ndim != 2 or (lengths < 0).any() or lengths.sum() != len(joined):
        found = f"its numbers of volumes do not fit timeseries.npy, which has shape {joined.shape}"
        raise problem(path, found, remedy="Make the cohort again.")
    parts = np.split(joined, np.cumsum(lengths)[:-1])
    return Series(parts).take(matched_rows(table["participant_id"], ids, path))


def matched_rows(table: Any, ids: Iterable[Any], where: Path) -> np.ndarray:
    """The row of `table` (ids) of each of `ids`: files of a cohort are matched by participant, never by position."""
    row_of = {str(one): row for row, one in enumerate(table)}
    wanted = [str(one) for one in ids]
    lacking, more = (
        [one for one in wanted if one not in row_of],
        sorted(row_of.keys() - set(wanted)),
    )
    if lacking or more or len(row_of) != len(table):
        said = [f"it lacks {listed(lacking, most=3)}"] * bool(lacking)
        said += [f"it has {listed(more, most=3)}, who has no matrix"] * bool(more)
        expected = "the participants of connectivity.tsv, which says whose each matrix is"
        remedy = "Put the table right, or make the cohort again."
        raise problem(
            where,
            " and ".join(said) or "a participant occurs twice",
            expected=expected,
            remedy=remedy,
        )
    return np.array([row_of[one] for one in wanted], int)


def digest_of(pieces: Iterable[np.ndarray]) -> str:
    """The digest of an array in pieces."""
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
                self.arrays[name] = file_state(self.path / name)

    def open_array(self, name: str) -> np.ndarray:
        """Memory-map an array of the folder, the same one whenever it is asked for."""
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
        """The digest of an array as it was opened; it is read once per process."""
        key = (self.path / name, self.arrays[name])
        if key not in _digests:
            digest = digest_of(_pieces(self.open_array(name)))
            if self._written_into(name):
                raise self._changed(name)
            _digests[key] = digest
        return _digests[key]

    def check_unchanged(self) -> None:
        """Refuse if the folder holds something else now."""
        if not self.path.is_dir():  # gone: nothing there can be taken for what was opened
            return
        now = OpenedFolder(self.path)
        names = {*self.tables, *now.tables}
        changed = [name for name in names if self.tables.get(name) != now.tables.get(name)]
        changed += [name for name in {*self.arrays, *now.arrays} if not self._same_array(name, now)]
        if changed:
            found = f"{listed(sorted(changed))} changed after the cohort was opened, so nothing is written"
            raise problem(
                self.path,
                found,
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
        known = _digests.get((self.path / name, self.arrays[name]))
        return known is not None and known == now.array_digest(name)

    def _written_into(self, name: str) -> bool:
        """Whether the file itself was changed since, in which case so was what was opened.

        A new file in its place leaves what was opened as it was.
        """
        path, before = self.path / name, self.arrays[name]
        if not path.is_file():
            return False
        now = file_state(path)
        return now[:2] == before[:2] and now != before


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array along its first axis, some rows at a time."""
    step = max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]
        give_back(array)


def text_digest(*parts: str) -> str:
    """A short digest of texts."""
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
) -> dict[str, Any]:
    """What a cohort is, file by file, and column by column of its table.

    The table is hashed as it reads back from disk, so that a cohort in memory and the same one saved agree.
    """
    table = as_read_back(participants)
    found: dict[str, Any] = {
        "connectivity.npy": connectivity,
        "regions.tsv": parcellation.fingerprint,
    }
    found["participants.tsv"] = {name: text_digest(text) for name, text in _columns_as_text(table)}
    if series is not None:
        found |= {
            "timeseries.npy": series,
            "timeseries.tsv": text_digest(*(str(int(length)) for length in lengths)),
        }
    return found


def _columns_as_text(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Each column as a file of its own; the table is written once, since pandas takes long for each of many columns."""
    whole = table.to_csv(index=False, float_format="%.12g", quoting=csv.QUOTE_ALL)
    rows = list(csv.reader(io.StringIO(whole, newline="")))
    for number, name in enumerate(table.columns):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([row[number]] for row in rows)
        yield str(name), text.getvalue()


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed since a cohort was made, one sentence per file."""
    old, new = (dict(found) for found in (before, now))
    columns = _compared(old.pop("participants.tsv", {}), new.pop("participants.tsv"))
    words = {"changed": "has changed", "added": "was added", "gone": "is gone"}
    said = [
        f"{name} {words[what]}" for what, names in _compared(old, new).items() for name in names
    ]
    parts = [f"{what}: {listed(names, most=5)}" for what, names in columns.items() if names]
    return said + ([f"columns of participants.tsv {'; '.join(parts)}"] if parts else [])


def _compared(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[str]]:
    """The names whose content is another, that only `new` has, and that only `old` has."""
    return {
        "changed": [name for name in new if name in old and new[name] != old[name]],
        "added": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
    }


def description(name: str, **made: str) -> dict[str, Any]:
    """The content of dataset_description.json, as BIDS derivatives have it."""
    from nerve import __version__

    makers = [{"Name": "nerve", "Version": __version__, **made}]
    return {
        "Name": name,
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": makers,
    }
