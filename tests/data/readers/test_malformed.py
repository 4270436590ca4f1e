"""Whatever stands in a file, a reader answers with a reading or with one sentence, never with another exception.

MAT v5 files are in `test_mat5.py`: scipy's parser can end the process on damaged ones.
"""

from __future__ import annotations

import gzip
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.readers.write_formats import (
    confounds_table,
    random_fc,
    random_series,
    write_cpac,
    write_dlabel,
    write_fmriprep,
    write_giga,
    write_label_image,
    write_pconn,
    write_ptseries,
    write_ukb,
    write_ukb_bulk,
    write_xcpd,
)

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation
from nerve.data.readers import Options
from nerve.data.readers.planning import find_scans

LABELS = [f"Region_{i}" for i in range(1, 22)]
PARCELLATION = Parcellation(tuple(LABELS), ("A",) * 10 + ("B",) * 11)
FC, SERIES = random_fc(21, 0), random_series(60, 21, 0)


@dataclass(frozen=True)
class Layout:
    """A format, how to write one file of it, and which file to damage."""

    format: str
    write: object
    damaged: str
    options: object = None


def _images(folder: Path, **how: object) -> None:
    write_fmriprep(folder, "01", SERIES, confounds=confounds_table(60, 0), **how)
    write_label_image(folder / "atlas.nii.gz", 21)
    write_dlabel(folder / "atlas.dlabel.nii", LABELS)


def _with(image: str) -> object:
    return lambda folder: Options(
        parcellation=PARCELLATION, atlas_image=folder / image, denoise="6p:0.01-"
    )


LAYOUTS = {
    "xcpd matrix": Layout("xcpd", lambda f: write_xcpd(f, "01", LABELS, matrix=FC), "*relmat.tsv"),
    "xcpd series": Layout(
        "xcpd", lambda f: write_xcpd(f, "01", LABELS, series=SERIES), "*timeseries.tsv"
    ),
    "xcpd motion": Layout(
        "xcpd",
        lambda f: write_xcpd(f, "01", LABELS, series=SERIES, motion=np.ones(60)),
        "*motion.tsv",
    ),
    "xcpd quality": Layout(
        "xcpd",
        lambda f: (write_xcpd(f, "01", LABELS, series=SERIES, motion=np.ones(60)), _no_motion(f)),
        "*qc.tsv",
    ),
    "giga matrix": Layout(
        "xcpd", lambda f: write_giga(f, "01", labels=LABELS, matrix=FC), "*relmat.tsv"
    ),
    "cpac matrix": Layout("cpac", lambda f: write_cpac(f, "01", matrix=FC), "*correlations.tsv"),
    "cpac series": Layout("cpac", lambda f: write_cpac(f, "01", series=SERIES), "*timeseries.1D"),
    "cpac motion": Layout(
        "cpac", lambda f: write_cpac(f, "01", series=SERIES, motion=np.ones(60)), "*motion.1D"
    ),
    "pconn": Layout(
        "cifti",
        lambda f: write_pconn(f / "sub-01_stat-x_boldmap.pconn.nii", FC, LABELS),
        "*.pconn.nii",
    ),
    "ptseries": Layout(
        "cifti",
        lambda f: write_ptseries(f / "sub-01_x_timeseries.ptseries.nii", SERIES, LABELS),
        "*.ptseries.nii",
    ),
    "bold": Layout("nifti", _images, "*_bold.nii.gz", _with("atlas.nii.gz")),
    "label image": Layout("nifti", _images, "atlas.nii.gz", _with("atlas.nii.gz")),
    "confounds": Layout("nifti", _images, "*confounds*.tsv", _with("atlas.nii.gz")),
    "dtseries": Layout(
        "nifti", lambda f: _images(f, surface=True), "*.dtseries.nii", _with("atlas.dlabel.nii")
    ),
    "dlabel": Layout(
        "nifti", lambda f: _images(f, surface=True), "*.dlabel.nii", _with("atlas.dlabel.nii")
    ),
    "ukb table": Layout(
        "ukb", lambda f: write_ukb(f / "netmats.txt", {"1000001": FC, "1000002": FC}), "netmats.txt"
    ),
    "plain npy": Layout("plain", lambda f: np.save(f / "sub-01.npy", FC), "*.npy"),
    "plain npz": Layout("plain", lambda f: np.savez(f / "sub-01.npz", fc=FC), "*.npz"),
    "plain compressed": Layout(
        "plain", lambda f: np.savez_compressed(f / "sub-01.npz", fc=FC), "*.npz"
    ),
    "plain csv": Layout(
        "plain", lambda f: np.savetxt(f / "sub-01.csv", FC, delimiter=","), "*.csv"
    ),
    "plain series": Layout(
        "plain", lambda f: np.savetxt(f / "sub-01.tsv", SERIES, delimiter="\t"), "*.tsv"
    ),
    "cbig v7.3": Layout("cbig", lambda f: _hdf5(f / "sub-01_corrMat.mat"), "*.mat"),
    "abide series": Layout("abide", lambda f: _one_d(f / "CMU_a_0050642_rois_cc200.1D"), "*.1D"),
    "ukb bulk": Layout("ukb", lambda f: write_ukb_bulk(f, "1000001", FC), "*.txt"),
}


READ_IN_HALF = {
    (name, "half") for name in ("xcpd motion", "cpac motion", "plain series", "ukb table")
}


def _hdf5(path: Path) -> None:
    with h5py.File(
        path, "w", userblock_size=512
    ) as file:  # MATLAB writes its signature into the user block
        file["corr_mat"] = FC.T
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def _one_d(path: Path) -> None:
    np.savetxt(
        path, SERIES, header="\t".join(f"#{i}" for i in range(1, 22)), comments="", delimiter="\t"
    )


def _no_motion(folder: Path) -> None:
    next(folder.rglob("*_motion.tsv")).unlink()


def _whole(name: str, cache: dict[str, dict[Path, bytes]] = {}) -> dict[Path, bytes]:  # noqa: B006, made once
    """The files of a layout, by their path below the source."""
    if name not in cache:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            LAYOUTS[name].write(folder)
            cache[name] = {
                p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()
            }
    return cache[name]


def _read_all(name: str, content: bytes) -> list[object]:
    """Everything that the reader makes of the layout with one file damaged."""
    layout = LAYOUTS[name]
    with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(temporary)
        for path, whole in _whole(name).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content if path.match(layout.damaged) else whole)
        options = layout.options(folder) if layout.options else Options(parcellation=PARCELLATION)
        reader, scans = find_scans(folder, replace(options, format=layout.format))
        left_out = [scan.left_out for scan in scans if scan.left_out]
        if left_out:
            raise NerveError(left_out[0])
        return [reader.read(scan, options) for scan in scans]


def _outcome(name: str, content: bytes) -> list[object] | str:
    """Readings, or the sentence of a `NerveError`; every other exception fails the test."""
    try:
        return _read_all(name, content)
    except NerveError as error:
        return str(error)


def _damaged_bytes(name: str) -> bytes:
    return next(
        content for path, content in _whole(name).items() if path.match(LAYOUTS[name].damaged)
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_whole_file_is_read(name):
    readings = _read_all(name, _damaged_bytes(name))
    assert readings
    for reading in readings:
        shape = (21, 21) if reading.matrix is not None else (60, 21)
        assert (reading.matrix if reading.matrix is not None else reading.series).shape == shape


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_damage_gives_a_reading_or_one_sentence(name, data):
    whole = bytearray(_damaged_bytes(name))
    damage = data.draw(st.sampled_from(["cut", "flip", "insert", "noise", "swap"]))
    if damage == "cut":
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif damage == "flip":
        for _ in range(data.draw(st.integers(1, 20))):
            whole[data.draw(st.integers(0, min(len(whole), 4000) - 1))] = data.draw(
                st.integers(0, 255)
            )
    elif damage == "insert":
        place = data.draw(st.integers(0, len(whole)))
        whole[place:place] = data.draw(st.binary(min_size=1, max_size=50))
    elif damage == "noise":
        whole = bytearray(data.draw(st.binary(max_size=2000)))
    else:
        lines = bytes(whole).split(b"\n")
        first, second = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        lines[first] = lines[second]
        whole = bytearray(b"\n".join(lines))
    assert _outcome(name, bytes(whole)) != ""


@pytest.mark.parametrize("name", LAYOUTS)
def test_usual_accidents_are_explained(name):
    whole = _damaged_bytes(name)
    accidents = {
        "empty": b"",
        "blank": b"\n",
        "zeros": b"\x00" * 4096,
        "html": b"<html>404</html>\n",
        "annex": b"/annex/objects/MD5E-s42--0.tsv\n",
        "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05numpy\x94.",
        "gzip": gzip.compress(gzip.compress(whole)),
        "half": whole[: len(whole) // 2],
    }
    for accident, content in accidents.items():
        outcome = _outcome(name, content)
        if isinstance(outcome, str):
            assert len(outcome.splitlines()) == 1, accident
        else:  # half a text table is a table of half the volumes, or participants
            assert outcome, f"{accident}: nothing was read, and nothing was said"
            assert (name, accident) in READ_IN_HALF, "it was read, and nothing was said"
