"""How a cohort lies on disk, and how to write one matrix after another without holding them all.

Names and layout of the files are told in `nerve.cohort`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve.checks import NerveError, known_columns, one_of, problem
from nerve.files import MISSING, atomic_folder, read_tsv, write_json, write_tsv
from nerve.parcellation import Parcellation, load_parcellation
from nerve.stack import Series

FORMAT_VERSION = 1
DTYPES = ("float32", "float16")


class CohortWriter:
    """Appends matrices to a cohort on disk, so that none but the current ones are in memory."""

    def __init__(self, folder: Path, parcellation: Parcellation, dtype: str) -> None:
        self.folder = folder
        self.parcellation = parcellation
        self.dtype = np.dtype(one_of("dtype", dtype, DTYPES))
        self.n_written = 0
        self.finished = False
        self._digest = hashlib.sha256()
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
        self._digest.update(matrices.data)
        self.n_written += len(matrices)
        if series is None:
            return
        if self._series is None:
            self._series = open(self.folder / "timeseries.npy", "w+b")  # noqa: SIM115
            _write_header(self._series, np.dtype(np.float32), (0, regions))
        for one in series:
            one = np.ascontiguousarray(one, np.float32)
            self._series.write(one.data)
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
        write_tsv(self.folder / "participants.tsv", participants)
        write_tsv(self.folder / "regions.tsv", self.parcellation.to_table())
        if exclusions is not None and len(exclusions):
            write_tsv(self.folder / "exclusions.tsv", exclusions)
        write_json(self.folder / "dataset_description.json", _description(name))
        series = (
            Series.split(open_npy(self.folder / "timeseries.npy"), np.array(self._lengths)) if self._lengths else None
        )
        about = {
            "format_version": FORMAT_VERSION,
            "name": name,
            "measure": measure,
            "parcellation": self.parcellation.name,
            "fingerprint": seal(self._digest, self.parcellation, participants, series),
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
    with atomic_folder(path, "cohort.json", overwrite=overwrite) as draft:
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


def open_series(folder: Path) -> Series:
    """The time series of a cohort's folder, cut as timeseries.tsv says."""
    joined, table = open_npy(folder / "timeseries.npy"), folder / "timeseries.tsv"
    lengths = read_tsv(table)
    known_columns(["n_volumes"], lengths.columns, table)
    counts = pd.to_numeric(lengths["n_volumes"].astype(str), errors="coerce").to_numpy(float)
    whole = np.isfinite(counts).all() and (counts >= 0).all() and (counts == np.floor(counts)).all()
    if joined.ndim != 2 or not whole or counts.sum() != len(joined):
        raise problem(
            table,
            f"its numbers of volumes do not fit timeseries.npy, which has shape {joined.shape}",
            remedy="Make the cohort again.",
        )
    return Series.split(joined, counts.astype(int))


def seal(digest: Any, parcellation: Parcellation, participants: pd.DataFrame, series: Series | None) -> str:
    """The fingerprint: the digest of the matrices, completed by regions, participants and time series.

    The table is hashed as it reads back from disk, so that a cohort in memory and the same one saved agree.
    """
    digest = digest.copy()
    digest.update(parcellation.fingerprint.encode())
    text = participants.to_csv(sep="\t", index=False, na_rep="n/a")
    as_text = {"participant_id": str}
    table = pd.read_csv(io.StringIO(text), sep="\t", na_values=MISSING, keep_default_na=False, dtype=as_text)
    digest.update(table.to_csv(index=False, float_format="%.12g").encode())
    for one in series or ():
        digest.update(np.ascontiguousarray(one, np.float32).data)
    return str(digest.hexdigest())[:32]


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
