"""`nerve ingest` recognises every layout by itself, names it, and writes the matrices that were planted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.data.readers.write_formats import (
    confounds_table,
    random_fc,
    random_series,
    write_cpac,
    write_fmriprep,
    write_four_s_table,
    write_giga,
    write_label_image,
    write_pconn,
    write_ptseries,
    write_ukb,
    write_xcpd,
)
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.readers import read_cohort

pytestmark = pytest.mark.filterwarnings("ignore")
LABELS = [f"{word}_{i}" for i, word in enumerate("abc" * 7)]
PEOPLE = ("S01", "S02")


def fc(i: int) -> np.ndarray:
    return np.corrcoef(series(i).T)


def series(i: int) -> np.ndarray:
    return random_series(60, 21, i)


def _xcpd(folder, i, person):
    write_xcpd(
        folder, person, LABELS, matrix=fc(i), series=series(i), motion=np.full(60, 0.1), atlas="Own"
    )
    write_four_s_table(folder)


def _fmriprep(folder, i, person):
    write_fmriprep(folder, person, series(i), confounds=confounds_table(60, i))
    write_label_image(folder / "atlas.nii.gz", 21)


def _deepprep(folder, i, person):
    write_fmriprep(
        folder, person, series(i), confounds=confounds_table(60, i, deepprep=True), deepprep=True
    )
    write_label_image(folder / "atlas.nii.gz", 21)


def _ukb(folder, i, person):
    write_ukb(folder / "netmats.txt", {name: fc(j) for j, name in enumerate(PEOPLE)})


LAYOUTS = {
    "xcpd": ("xcpd", _xcpd),
    "giga": ("xcpd", lambda f, i, p: write_giga(f, p, labels=LABELS, matrix=fc(i), atlas="Own")),
    "cpac": (
        "cpac",
        lambda f, i, p: write_cpac(f, p, matrix=fc(i), motion=np.full(60, 0.1), atlas="Own"),
    ),
    "cpac series": ("cpac", lambda f, i, p: write_cpac(f, p, series=series(i), atlas="Own")),
    "pconn": ("cifti", lambda f, i, p: write_pconn(f / f"{p}.own.pconn.nii", fc(i), LABELS)),
    "ptseries": (
        "cifti",
        lambda f, i, p: write_ptseries(f / p / f"{p}.own.ptseries.nii", series(i), LABELS),
    ),
    "fmriprep": ("nifti", _fmriprep),
    "deepprep": ("nifti", _deepprep),
    "ukb": ("ukb", _ukb),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_is_recognised_and_the_matrices_are_right(tmp_path, layout):
    name, write = LAYOUTS[layout]
    source, out, regions = tmp_path / "source", tmp_path / "cohort", tmp_path / "regions.tsv"
    source.mkdir()
    for i, person in enumerate(PEOPLE):
        write(source, i, person)
    table = Parcellation(tuple(LABELS), ("N1",) * 10 + ("N2",) * 11).to_table()
    table.to_csv(regions, sep="\t", index=False, na_rep="n/a")
    command = ["ingest", str(source), str(out), "--parcellation", str(regions)]
    if name == "nifti":
        command += ["--atlas-image", str(source / "atlas.nii.gz"), "--denoise", "none"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert name in result.output
    cohort = Cohort.load(out)
    assert cohort.notes["format"] == name
    assert list(cohort.participants["participant_id"]) == list(PEOPLE)
    np.testing.assert_allclose(cohort.connectivity, [fc(0), fc(1)], atol=1e-4)


def test_finished_matrices_are_taken_where_images_lie_beside_them(tmp_path):
    for i, person in enumerate(PEOPLE):
        write_fmriprep(tmp_path / "fmriprep", person, series(i), confounds=confounds_table(60, i))
        _xcpd(tmp_path / "xcp_d", i, person)
    regions = Parcellation(tuple(LABELS), ("N1",) * 10 + ("N2",) * 11)
    assert read_cohort(tmp_path, parcellation=regions).notes["format"] == "xcpd"


@pytest.mark.parametrize(
    "matrix", [random_fc(21, 0)[:20], random_fc(21, 0) + np.triu(np.ones((21, 21)), 1) * 0.1]
)
def test_bad_matrices_write_nothing(tmp_path, matrix):
    write_cpac(tmp_path / "source", "S01", matrix=matrix, atlas="Own")
    regions = Parcellation(tuple(LABELS), ("N1",) * 10 + ("N2",) * 11).to_table()
    regions.to_csv(tmp_path / "regions.tsv", sep="\t", index=False, na_rep="n/a")
    command = [
        "ingest",
        str(tmp_path / "source"),
        str(tmp_path / "out"),
        "--parcellation",
        str(tmp_path / "regions.tsv"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["regions.tsv", "source"]
