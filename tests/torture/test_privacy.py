"""The search for marks finds planted ones, also in pictures, and the short form is kept."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from torture import privacy


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("nothing here 914 1987", []),
        ("for zqxPERSON012 and", ["zqxPERSON012"]),
        ("914270004\t0.3", ["914270004"]),
        ("scan_19870605.nii", ["19870605"]),
        ("in /tmp/x/ZQXhome/a", ["ZQXhome", "/tmp/x"]),
    ],
)
def test_marks_in_a_text_are_found(text, marks):
    home = Path("/tmp/x/ZQXhome")
    assert sorted(privacy.find_marks(text, home)) == sorted(marks)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_metadata_of_pictures_is_searched(kind, tmp_path):
    figure = Figure()
    figure.savefig(tmp_path / f"a.{kind}", metadata={"Title": "ZQXperson007"})
    assert "ZQXperson007" in privacy.searchable_text(tmp_path / f"a.{kind}")


def test_compressed_text_of_a_picture_is_searched(tmp_path):
    (tmp_path / "b.png").write_bytes(
        b"\x89PNG....zTXtComment\0\0" + zlib.compress(b"of ZQXperson007 " * 9)
    )
    assert "ZQXperson007" in privacy.searchable_text(tmp_path / "b.png")


def test_names_of_files_are_searched(tmp_path):
    np.save(tmp_path / "ZQXperson001.npy", np.zeros(1))
    assert "ZQXperson001" in privacy.searchable_text(tmp_path / "ZQXperson001.npy")


@pytest.mark.slow
def test_short_form(tmp_path):
    promises = privacy.run(tmp_path, short=True, seed=0)
    assert [promise for promise in promises if not promise.kept] == []
