"""No cell that we write is run by a spreadsheet, and every cell reads back as it was."""

import csv

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve._utils.files import read_tsv, write_tsv
from nerve._utils.formulas import guarded, guarded_table, unguarded, unguarded_table

DANGEROUS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=cmd|'/c calc'!A1",
    "-",
    "+x",
    "''=x",
    "'-x",
]


@given(st.text(alphabet="=+-@\t\r\n'a1 .", max_size=8))
def test_any_text_reads_back(text):
    assert unguarded(guarded(text)) == text


@given(st.text())
def test_no_text_is_a_formula(text):
    written = guarded(text)
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r")) or float(written) is not None


@pytest.mark.parametrize("number", ["-1", "+1.5", "-1e-3", "-inf", "-nan"])
def test_numbers_are_left_alone(number):
    assert guarded(number) == number


def test_a_table_goes_to_disk_and_back(tmp_path):
    table = pd.DataFrame(
        {"participant_id": DANGEROUS, "=score": range(len(DANGEROUS)), "text": ["plain"] * 12}
    )
    write_tsv(tmp_path / "table.tsv", table)
    pd.testing.assert_frame_equal(read_tsv(tmp_path / "table.tsv"), table, check_dtype=False)
    with open(tmp_path / "table.tsv", newline="") as stream:  # as another program sees it
        cells = [cell for row in csv.reader(stream, delimiter="\t") for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")]


def test_equal_column_names_and_missing_values_are_kept():
    table = pd.DataFrame([["=a", None, 1.5], ["b", "-x", float("nan")]], columns=["x", "x", "y"])
    written = guarded_table(table)
    assert written.iloc[:, 0].tolist() == ["'=a", "b"]
    assert written.iloc[1, 1] == "'-x"
    assert written["y"].dtype == float
    pd.testing.assert_frame_equal(unguarded_table(written), table)


def test_a_harmless_table_is_not_copied():
    table = pd.DataFrame({"a": ["x", "y"], "b": [1, -2]})
    assert guarded_table(table) is table
