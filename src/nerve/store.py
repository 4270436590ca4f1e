"""How a cohort lies on disk, and how to write one matrix after another without holding them all.

Names and layout of the files are told in `nerve.cohort`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve.checks import NerveError, as_utf8, known_columns, listed, one_of, problem
from nerve.contents import KEPT, ArrayDigest, remember, text_digest
from nerve.files import MISSING, atomic_folder, read_tsv, write_json, write_tsv
from nerve.parcellation import Parcellation, load_parcellation
from nerve.stack import Series

FORMAT_VERSION = 2
DTYPES = ("float32", "float16")
VIEWS = ".views"  # folder of `nerve.methods.kept_views`
FILES = (
    "cohort.json", "connectivity.npy", "connectivity.tsv", "dataset_description.json", "exclusions.tsv",
    "participants.tsv", "regions.tsv", "timeseries.npy", "timeseries.tsv", "truth.json", "truth_scores.tsv", KEPT,
    VIEWS,
)  # fmt: skip


class CohortWriter:
    """Appends matrices to a cohort on disk, so that none but the current ones are in memory."""

    def __init__(self, folder: Path, parcellation: Parcellation, dtype: str) -> None:
        self.folder = folder
        self.parcellation = parcellation
        self.dtype = np.dtype(one_of("dtype", dtype, DTYPES))
        self.n_written = 0
        self.finished = False
        self._digest, self._series_digest = ArrayDigest(), ArrayDigest()
        self._matrices = open(folder / "connectivity.npy", "w+b")  # noqa: SIM115, closed by close()
        self._series: BinaryIO | None = None
        self._lengths: list[int] = []
        _write_header(self._matrices, self.dtype, (0, parcellation.n_regions, parcellation.n_regions))

    def append(self, matrices: np.ndarray, series: Iterable[np.ndarray] | None = None) -> None:
        """Add (k, R, R) matrices, and the k time series if the cohort has any."""
        regions = self.parcellation.n_regions
        matrices = np.ascontiguousarray(matrices, self.dtype)
        if matrices.shape[1:] != (regions, regions):
            raise problem(self.folder, f"matrices of shape {matrices.shape}", expected=f"(k, {regions}, {regions})")
        self._matrices.write(matrices.data)
        self._digest.add(matrices)
        self.n_written += len(matrices)
        if series is None:
            return
        if self._series is None:
            self._series = open(self.folder / "timeseries.npy", "w+b")  # noqa: SIM115
            _write_header(self._series, np.dtype(np.float32), (0, regions))
        for one in series:
            one = np.ascontiguousarray(one, np.float32)
            self._series.write(one.data)
            self._series_digest.add(one)
            self._lengths.append(len(one))

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
        regions = self.parcellation.n_regions
        _write_header(self._matrices, self.dtype, (self.n_written, regions, regions))
        if self._series is not None:
            _write_header(self._series, np.dtype(np.float32), (sum(self._lengths), regions))
            lengths = pd.DataFrame({"participant_id": participants["participant_id"], "n_volumes": self._lengths})
            write_tsv(self.folder / "timeseries.tsv", lengths)
        self.close()
        write_tsv(self.folder / "connectivity.tsv", participants[["participant_id"]])
        write_tsv(self.folder / "participants.tsv", participants)
        write_tsv(self.folder / "regions.tsv", self.parcellation.to_table())
        if exclusions is not None and len(exclusions):
            write_tsv(self.folder / "exclusions.tsv", exclusions)
        write_json(self.folder / "dataset_description.json", _description(name))
        remember(self.folder / "connectivity.npy", self._digest.hexdigest())
        series = None
        if self._series is not None:
            series = self._series_digest.hexdigest()
            remember(self.folder / "timeseries.npy", series)
        about = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "measure": measure,
            "parcellation": self.parcellation.name,
            "digests": digests(self._digest.hexdigest(), self.parcellation, participants, series, self._lengths),
            "notes": notes or {},
        }
        write_json(self.folder / "cohort.json", about)
        self.finished = True

    def close(self) -> None:
        """Close the files."""
        self._matrices.close()
        if self._series is not None:
            self._series.close()


@contextmanager
def writing_cohort(
    path: str | os.PathLike[str], parcellation: Parcellation | str, *, dtype: str = "float32", overwrite: bool = False
) -> Iterator[CohortWriter]:
    """A writer whose folder takes its name only once `finish` was called and the block ended well."""
    with atomic_folder(path, "cohort.json", own=FILES, overwrite=overwrite) as draft:
        writer = CohortWriter(draft, load_parcellation(parcellation), dtype)
        try:
            yield writer
        finally:
            writer.close()
        if not writer.finished:
            raise NerveError(f"{path}: the cohort was not finished, nothing was written.")


def open_npy(path: Path, remedy: str = "The file is incomplete: make the cohort again.") -> np.ndarray:
    """Memory-map an array; a broken or pickled file is refused in one sentence."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header is Python, and numpy stumbles over it in a dozen ways
        raise problem(path, f"it cannot be read as an array ({error})", remedy=remedy) from error
    if not isinstance(array, np.ndarray):  # an archive of arrays in disguise
        raise problem(path, "it is an archive, not one array", remedy=remedy)
    return array if array.size else np.array(array)


def matrix_ids(folder: Path) -> list[str]:
    """Whose each matrix of a cohort's folder is, in their order."""
    path = folder / "connectivity.tsv"
    table = read_tsv(path, dtype=str)
    known_columns(["participant_id"], table.columns, path)
    return [str(one) for one in table["participant_id"]]


def open_series(folder: Path, ids: list[str]) -> Series:
    """The time series of a cohort's folder, cut as timeseries.tsv says, in the order of `ids`."""
    joined, table = open_npy(folder / "timeseries.npy"), folder / "timeseries.tsv"
    lengths = read_tsv(table, dtype={"participant_id": str})
    known_columns(["participant_id", "n_volumes"], lengths.columns, table)
    counts = pd.to_numeric(lengths["n_volumes"].astype(str), errors="coerce").to_numpy(float)
    whole = np.isfinite(counts).all() and (counts >= 0).all() and (counts == np.floor(counts)).all()
    if joined.ndim != 2 or not whole or counts.sum() != len(joined):
        raise problem(
            table,
            f"its numbers of volumes do not fit timeseries.npy, which has shape {joined.shape}",
            remedy="Make the cohort again.",
        )
    return Series.split(joined, counts.astype(int)).take(matched_rows(lengths["participant_id"], ids, table))


def matched_rows(table: Any, ids: Any, where: Path) -> np.ndarray:
    """The row of `table` (ids) of each of `ids`: files of a cohort are matched by participant, never by position."""
    row_of = {str(one): row for row, one in enumerate(table)}
    wanted = [str(one) for one in ids]
    lacking, more = [one for one in wanted if one not in row_of], sorted(row_of.keys() - set(wanted))
    if lacking or more or len(row_of) != len(table):
        said = [f"it lacks {listed(lacking, most=3)}"] * bool(lacking)
        said += [f"it has {listed(more, most=3)}, who has no matrix"] * bool(more)
        raise problem(
            where,
            " and ".join(said) or "a participant occurs twice",
            expected="the participants of connectivity.tsv, which says whose each matrix is",
            remedy="Put the table right, or make the cohort again.",
        )
    return np.array([row_of[one] for one in wanted], int)


def digests(
    connectivity: str, parcellation: Parcellation, participants: pd.DataFrame, series: str | None, lengths: Any
) -> dict[str, Any]:
    """What a cohort is, file by file, and column by column of its table.

    The table is hashed as it reads back from disk, so that a cohort in memory and the same one saved agree.
    """
    text = as_utf8(participants.to_csv(sep="\t", index=False, na_rep="n/a"))
    as_text = {"participant_id": str}
    table = pd.read_csv(io.StringIO(text), sep="\t", na_values=MISSING, keep_default_na=False, dtype=as_text)
    columns = {name: text_digest(text) for name, text in _columns_as_text(table)}
    found: dict[str, Any] = {
        "connectivity.npy": connectivity,
        "regions.tsv": parcellation.fingerprint,
        "participants.tsv": columns,
    }
    if series is not None:
        found |= {"timeseries.npy": series, "timeseries.tsv": text_digest(*(str(int(length)) for length in lengths))}
    return found


def _columns_as_text(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Each column as a file of its own; the table is written once, since pandas takes long for each of many columns."""
    whole = table.to_csv(index=False, float_format="%.12g", quoting=csv.QUOTE_ALL)
    rows = list(csv.reader(io.StringIO(whole, newline="")))
    for number, name in enumerate(table.columns):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([row[number]] for row in rows)
        yield str(name), text.getvalue()


def seal(found: dict[str, Any]) -> str:
    """The fingerprint of a cohort: one digest of all of its digests."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed since a cohort was made, one sentence per file."""
    said = []
    for name in sorted({*before, *now} - {"participants.tsv"}):
        if before.get(name) != now.get(name):
            what = "was added" if name not in before else "is gone" if name not in now else "has changed"
            said.append(f"{name} {what}")
    old, new = before.get("participants.tsv"), now["participants.tsv"]
    old = old if isinstance(old, dict) else {}
    parts = {
        "changed": [name for name in new if name in old and new[name] != old[name]],
        "added": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
    }
    columns = [f"{what}: {listed(names, most=5)}" for what, names in parts.items() if names]
    return said + ([f"columns of participants.tsv {'; '.join(columns)}"] if columns else [])


def _write_header(stream: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Write or rewrite the .npy header; numpy pads it so that its length does not depend on the first axis."""
    stream.seek(0)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]


def _description(name: str) -> dict[str, Any]:
    from nerve import __version__

    return {
        "Name": name,
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "nerve", "Version": __version__}],
    }
