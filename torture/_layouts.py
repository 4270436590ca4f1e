"""A small sound folder of every layout that `nerve ingest` reads; tests damage copies of the files."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pandas as pd
from nibabel import cifti2
from scipy import sparse
from scipy.io import savemat
from tests.data.readers.write_formats import (
    AFFINE,
    confounds_table,
    parcels_axis,
    random_fc,
    random_series,
    write_cpac,
    write_dlabel,
    write_fmriprep,
    write_four_s_table,
    write_giga,
    write_label_image,
    write_pconn,
    write_ptseries,
    write_ukb,
    write_ukb_bulk,
    write_xcpd,
)

from nerve.data.cohort import Cohort
from nerve.data.export import export_cohort
from nerve.data.parcellation import Parcellation

N_REGIONS = 21
N_VOLUMES = 60
LABELS = [f"{word}_{i}" for i, word in enumerate("abc" * 7)]
PARTICIPANTS = ("S01", "S02")
FC = [random_fc(N_REGIONS, i) for i in range(3)]
SERIES = [random_series(N_VOLUMES, N_REGIONS, i) for i in range(3)]
MOTION = np.full(N_VOLUMES, 0.1)
Files = dict[str, bytes]


@dataclass(frozen=True)
class Layout:
    """How a sound folder is written, which of its files is damaged, and options of the command."""

    write: Callable[[Path], object]
    damaged: str  # how the name of the damaged file ends
    file_type: str  # text, gz, json, npy, npz, mat5, hdf5, nifti, cifti
    options: tuple[str, ...] = ()


def _for_each(write: Callable[[Path, str, int], object]) -> Callable[[Path], object]:
    """A function that writes the files of every participant into a folder."""

    def write_all(folder: Path) -> None:
        for i, participant in enumerate(PARTICIPANTS):
            write(folder, participant, i)

    return write_all


def _images(folder: Path, **options: Any) -> None:
    for i, participant in enumerate(PARTICIPANTS):
        write_fmriprep(
            folder, participant, SERIES[i], confounds=confounds_table(N_VOLUMES, i), **options
        )
    write_label_image(folder / "atlas.nii.gz", N_REGIONS)
    write_dlabel(folder / "atlas.dlabel.nii", LABELS)
    image = next((folder / f"sub-{PARTICIPANTS[0]}").rglob("*_desc-preproc_bold.nii.gz"))
    image.with_name(image.name.replace(".nii.gz", ".json")).write_text('{"RepetitionTime": 2.0}')


def _quality(folder: Path, participant: str, i: int) -> None:
    _xcpd("series", "motion")(folder, participant, i)
    next(folder.rglob(f"*{participant}*_motion.tsv")).unlink()


def _xcpd(*parts: str) -> Callable[[Path, str, int], object]:
    """A function that writes these parts of what XCP-D writes of a participant."""

    def write(folder: Path, participant: str, i: int) -> None:
        data: dict[str, Any] = {"matrix": FC[i], "series": SERIES[i], "motion": MOTION}
        chosen = {name: data[name] for name in parts}
        write_xcpd(folder, participant, LABELS, atlas="Own", **chosen)

    return write


def _cpac_series(folder: Path, participant: str, i: int) -> None:
    write_cpac(folder, participant, series=SERIES[i], motion=MOTION, atlas="Own")


def _one_d(folder: Path, participant: str, i: int) -> None:
    header = "\t".join(f"#{k}" for k in range(1, N_REGIONS + 1))
    np.savetxt(
        folder / f"CMU_a_005064{i}_rois_cc200.1D",
        SERIES[i],
        header=header,
        comments="",
        delimiter="\t",
    )


def _gz(folder: Path, participant: str, i: int) -> None:
    pd.DataFrame(FC[i]).to_csv(
        folder / f"{participant}.tsv.gz", sep="\t", header=False, index=False
    )


def _stack(folder: Path) -> None:
    np.save(folder / "all.npy", np.stack(FC[:2]))
    (folder / "participants.tsv").write_text("participant_id\nS01\nS02\n")


def _netmats(folder: Path) -> None:
    write_ukb(folder / "netmats.txt", {"1000001": FC[0], "1000002": FC[1]})


def _fisher_z(i: int, diagonal: float) -> np.ndarray:
    """Fisher z of the FC of a participant."""
    z = np.arctanh(np.where(np.eye(N_REGIONS) == 1, 0.0, FC[i]))
    np.fill_diagonal(z, diagonal)
    return z


def _folder(folder: Path, participant: str, i: int) -> None:
    (folder / participant).mkdir()
    np.savetxt(folder / participant / "fc_matrix.txt", FC[i])


def _dpabi(folder: Path, participant: str, i: int) -> None:
    arrays = {
        "ROISignals": SERIES[i],
        "ROICorrelation": FC[i],
        "ROICorrelation_FisherZ": _fisher_z(i, 0.0),
    }
    for name, array in arrays.items():
        savemat(folder / f"{name}_Sub_{participant}.mat", {name: array})
        np.savetxt(folder / f"{name}_Sub_{participant}.txt", array)


def _conn(folder: Path, participant: str, i: int) -> None:
    names = np.array(LABELS, dtype=object)[None]
    content = {"Z": _fisher_z(i, np.nan), "names": names, "names2": names}
    savemat(folder / f"resultsROI_Subject00{i + 1}_Condition001.mat", content)


def _mat_of_all(folder: Path) -> None:
    savemat(folder / "all.mat", {"fc": np.stack(FC[:2], axis=2)})
    (folder / "participants.tsv").write_text("participant_id\nS01\nS02\n")


def _pairs() -> tuple[list[str], list[str], np.ndarray]:
    """Both labels of every pair of regions, and FC (participants, pairs)."""
    rows, columns = np.triu_indices(N_REGIONS, 1)
    values = np.stack([matrix[rows, columns] for matrix in FC[:2]])
    left = [LABELS[i] for i in rows]
    right = [LABELS[i] for i in columns]
    return left, right, values


def _wide(folder: Path) -> None:
    left, right, values = _pairs()
    names = [f"{a}-{b}" for a, b in zip(left, right, strict=True)]
    table = pd.DataFrame(values, columns=names, index=list(PARTICIPANTS))
    table.to_csv(folder / "edges.csv", index_label="participant_id")


def _long(folder: Path) -> None:
    left, right, values = _pairs()
    parts = [
        pd.DataFrame(
            {"participant_id": participant, "region_a": left, "region_b": right, "r": values[i]}
        )
        for i, participant in enumerate(PARTICIPANTS)
    ]
    pd.concat(parts).to_csv(folder / "edges.tsv", sep="\t", index=False)


def _giga_h5(folder: Path) -> None:
    with h5py.File(folder / "atlas-Own_desc-simple.h5", "w") as file:
        for i, participant in enumerate(PARTICIPANTS):
            scan = f"sub-{participant}/sub-{participant}_task-rest_atlas-Own_desc-21"
            file[f"{scan}_timeseries"] = SERIES[i]
            file[f"{scan}_connectome"] = FC[i]


def _decimal_comma(folder: Path, participant: str, i: int) -> None:
    pd.DataFrame(FC[i]).to_csv(
        folder / f"{participant}.csv", sep=";", decimal=",", header=False, index=False
    )


def _workbook(folder: Path) -> None:
    for i, participant in enumerate(PARTICIPANTS):
        np.save(folder / f"{participant}.npy", FC[i])
    pd.DataFrame({"participant_id": PARTICIPANTS, "age": [10, 11]}).to_excel(
        folder / "people.xlsx", index=False
    )


def _bep017(folder: Path) -> None:
    """What `nerve export` writes of two participants."""
    regions = Parcellation(tuple(LABELS), ("X",) * N_REGIONS, name="own")
    participants = pd.DataFrame({"participant_id": list(PARTICIPANTS)})
    export_cohort(
        Cohort(np.stack(FC[:2]).astype(np.float32), participants, regions, name="own"),
        folder / "bids",
        "bids",
    )


def write_hdf5(path: Path, array: np.ndarray, name: str = "corr_mat") -> None:
    """A MATLAB v7.3 file."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file[name] = np.asarray(array).T
    sign_as_matlab(path)


def sign_as_matlab(path: Path) -> None:
    """Write MATLAB's signature into the user block of an HDF5 file."""
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


IMAGE = ("--atlas-image", "{source}/atlas.nii.gz", "--denoise", "6p:0.01-")
SURFACE = ("--atlas-image", "{source}/atlas.dlabel.nii", "--denoise", "none")
LAYOUTS = {
    "bep017 matrix": Layout(_bep017, "relmat.dense.tsv", "text"),
    "bep017 sidecar": Layout(_bep017, "relmat.json", "json"),
    "bep017 nodes": Layout(_bep017, "nodeindices.tsv", "text"),
    "xcpd matrix": Layout(_for_each(_xcpd("matrix")), "relmat.tsv", "text"),
    "xcpd series": Layout(
        _for_each(_xcpd("series", "motion")), "timeseries.tsv", "text", ("--timeseries",)
    ),
    "xcpd motion": Layout(
        _for_each(_xcpd("series", "motion")), "motion.tsv", "text", ("--fd-threshold", "0.5")
    ),
    "xcpd quality": Layout(_for_each(_quality), "qc.tsv", "text"),
    "4S table": Layout(
        lambda f: (_for_each(_xcpd("matrix"))(f), write_four_s_table(f)), "dseg.tsv", "text"
    ),
    "giga": Layout(
        _for_each(lambda f, p, i: write_giga(f, p, labels=LABELS, matrix=FC[i])),
        "relmat.tsv",
        "text",
    ),
    "cpac matrix": Layout(
        _for_each(lambda f, p, i: write_cpac(f, p, matrix=FC[i], atlas="Own")),
        "correlations.tsv",
        "text",
    ),
    "cpac series": Layout(_for_each(_cpac_series), "timeseries.1D", "text", ("--kind", "partial")),
    "cpac motion": Layout(_for_each(_cpac_series), "motion.1D", "text"),
    "pconn": Layout(
        _for_each(lambda f, p, i: write_pconn(f / f"{p}.own.pconn.nii", FC[i], LABELS)),
        ".pconn.nii",
        "cifti",
    ),
    "ptseries": Layout(
        _for_each(lambda f, p, i: write_ptseries(f / f"{p}.own.ptseries.nii", SERIES[i], LABELS)),
        ".ptseries.nii",
        "cifti",
    ),
    "bold": Layout(_images, "_bold.nii.gz", "nifti", IMAGE),
    "bold sidecar": Layout(_images, "_bold.json", "json", IMAGE),
    "label image": Layout(_images, "atlas.nii.gz", "nifti", IMAGE),
    "confounds": Layout(_images, "_desc-confounds_timeseries.tsv", "text", IMAGE),
    "dtseries": Layout(lambda f: _images(f, surface=True), ".dtseries.nii", "cifti", SURFACE),
    "dlabel": Layout(lambda f: _images(f, surface=True), ".dlabel.nii", "cifti", SURFACE),
    "ukb table": Layout(_netmats, "netmats.txt", "text"),
    "ukb bulk": Layout(
        lambda f: [write_ukb_bulk(f, f"100000{i}", FC[i]) for i in (1, 2)],
        "1_25750_2_0.txt",
        "text",
    ),
    "abide": Layout(_for_each(_one_d), "0_rois_cc200.1D", "text"),
    "cbig v7.3": Layout(
        _for_each(lambda f, p, i: write_hdf5(f / f"sub-{p}_corrMat.mat", FC[i])),
        "01_corrMat.mat",
        "hdf5",
    ),
    "cbig v5": Layout(
        _for_each(lambda f, p, i: savemat(f / f"sub-{p}_corrMat.mat", {"corr_mat": FC[i]})),
        "01_corrMat.mat",
        "mat5",
    ),
    "mat compressed": Layout(
        _for_each(lambda f, p, i: savemat(f / f"{p}.mat", {"fc": FC[i]}, do_compression=True)),
        "S01.mat",
        "mat5",
    ),
    "npy": Layout(_for_each(lambda f, p, i: np.save(f / f"{p}.npy", FC[i])), "S01.npy", "npy"),
    "npy of all": Layout(_stack, "all.npy", "npy"),
    "npz": Layout(_for_each(lambda f, p, i: np.savez(f / f"{p}.npz", fc=FC[i])), "S01.npz", "npz"),
    "npz of all": Layout(
        lambda f: np.savez_compressed(f / "all.npz", S01=FC[0], S02=FC[1]), "all.npz", "npz"
    ),
    "csv": Layout(
        _for_each(lambda f, p, i: np.savetxt(f / f"{p}.csv", FC[i], delimiter=",")),
        "S01.csv",
        "text",
    ),
    "tsv series": Layout(
        _for_each(lambda f, p, i: np.savetxt(f / f"{p}.tsv", SERIES[i], delimiter="\t")),
        "S01.tsv",
        "text",
    ),
    "tsv.gz": Layout(_for_each(_gz), "S01.tsv.gz", "gz"),
    "folders": Layout(_for_each(_folder), "S01/fc_matrix.txt", "text"),
    "fisher z": Layout(
        _for_each(lambda f, p, i: np.savetxt(f / f"{p}.txt", _fisher_z(i, np.inf))),
        "S01.txt",
        "text",
    ),
    "dpabi": Layout(_for_each(_dpabi), "ROICorrelation_Sub_S01.mat", "mat5"),
    "dpabi text": Layout(_for_each(_dpabi), "ROISignals_Sub_S01.txt", "text", ("--data", "series")),
    "vectors": Layout(
        _for_each(lambda f, p, i: np.save(f / f"{p}.npy", FC[i][np.tril_indices(N_REGIONS, -1)])),
        "S01.npy",
        "npy",
        ("--unfolding", "lower"),
    ),
    "conn": Layout(_for_each(_conn), "Subject001_Condition001.mat", "mat5"),
    "mat of all": Layout(_mat_of_all, "all.mat", "mat5"),
    "wide table": Layout(_wide, "edges.csv", "text"),
    "long table": Layout(_long, "edges.tsv", "text"),
    "giga h5": Layout(_giga_h5, "atlas-Own_desc-simple.h5", "hdf5"),
    "1D with tabs": Layout(
        _for_each(
            lambda f, p, i: np.savetxt(f / f"{p}.1D", np.c_[SERIES[i]], fmt="\t%.6f", delimiter="")
        ),
        "S01.1D",
        "text",
    ),
    "decimal comma": Layout(_for_each(_decimal_comma), "S01.csv", "text"),
    "workbook": Layout(_workbook, "people.xlsx", "npz", ("--participants", "{source}/people.xlsx")),
}


def files_of(write: Callable[[Path], object]) -> Files:
    """The files that a function writes, by their path."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


def put(folder: Path, files: Files) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@lru_cache(maxsize=1)
def regions_table() -> bytes:
    """The parcellation of the sources, as a table."""
    networks = ("N1",) * 10 + ("N2",) * (N_REGIONS - 10)
    table = Parcellation(tuple(LABELS), networks).to_table()
    return table.to_csv(sep="\t", index=False, na_rep="n/a").encode()


def encoded(file_type: str, array: Any, name: str) -> bytes:
    """The content of a file of this type that holds the array."""
    stream = io.BytesIO()
    if file_type == "npy":
        np.save(stream, array, allow_pickle=True)
    elif file_type == "npz":
        np.savez_compressed(stream, allow_pickle=True, fc=array)
    elif file_type == "mat5":
        key = "corr_mat" if "corrMat" in name else "fc"
        # Some are sparse, which MATLAB files may hold too.
        savemat(stream, {key: sparse.csc_matrix(array) if np.size(array) == 9 else array})
    else:
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / Path(name).name
            _write_array(file_type, path, np.asarray(array))
            return path.read_bytes()
    return stream.getvalue()


def _write_array(file_type: str, path: Path, array: np.ndarray) -> None:
    """Write an array as hdf5, nifti or cifti."""
    if file_type == "hdf5":
        write_hdf5(path, array)
    elif file_type == "nifti":
        missing_axes = (1,) * max(3 - array.ndim, 0)
        volume = array.reshape(array.shape + missing_axes)
        nibabel.Nifti1Image(volume.astype(np.float32), AFFINE).to_filename(path)
    else:
        rows, columns = array.shape
        axes = (cifti2.SeriesAxis(0, 1.0, rows), parcels_axis([f"r{i}" for i in range(columns)]))
        cifti2.Cifti2Image(array.astype(np.float32), axes).to_filename(path)
