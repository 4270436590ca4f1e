"""Workbooks are read as tables; one with a cell far away is refused before it fills the memory."""

import tracemalloc

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.readers import excel
from nerve.data.readers.participants_table import load_table

openpyxl = pytest.importorskip("openpyxl")


def workbook(path, cells):
    """A workbook with these cells, by their addresses."""
    book = openpyxl.Workbook()
    for address, value in cells.items():
        book.active[address] = value
    book.save(path)
    return path


def without_declared_size(path):
    """The same workbook, whose sheet does not say how large it is."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sheet = members["xl/worksheets/sheet1.xml"]
    start = sheet.index(b"<dimension")
    members["xl/worksheets/sheet1.xml"] = sheet[:start] + sheet[sheet.index(b">", start) + 1 :]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("declared", [True, False])
def test_a_cell_in_the_last_row_and_column_is_refused_without_memory(tmp_path, declared):
    path = workbook(tmp_path / "far.xlsx", {"A1": "participant_id", "A2": "a", "XFD1048576": 1})
    if not declared:
        without_declared_size(path)
    tracemalloc.start()
    try:
        with pytest.raises(
            NerveError, match=r"expected at most 200,000 rows .* save the sheet as \.csv"
        ):
            load_table(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6


def test_a_long_sheet_with_one_wide_row_is_refused(tmp_path):
    path = workbook(tmp_path / "wide.xlsx", {"A1": "participant_id", "XFD1": "age", "A100000": "a"})
    with pytest.raises(NerveError, match="100,000 rows and 16,384 columns"):
        load_table(path)


def test_many_wide_rows_are_refused_while_they_are_read(tmp_path):
    cells = {f"XFD{row}": 1 for row in range(1, 700)}
    with pytest.raises(NerveError, match="more than 10,000,000 cells"):
        load_table(workbook(tmp_path / "cells.xlsx", cells))


def test_a_wide_table_is_read(tmp_path):
    path = workbook(
        tmp_path / "wide.xlsx", {"A1": "participant_id", "XFD1": "age", "A2": "007", "XFD2": 12.5}
    )
    table = load_table(path)
    assert table.shape == (1, 16_384)
    assert table["participant_id"].tolist() == ["007"]
    assert table["age"].tolist() == [12.5]


def test_cells_are_read_as_they_were_by_pandas(tmp_path):
    table = pd.DataFrame(
        {
            "participant_id": ["007", "b", "c"],
            "age": [12.0, None, 14.5],
            "visits": [1, 2, 3],
            "left": [True, False, True],
            "scanned": pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01"]),
            "site": ["Zürich", "n/a", "NA"],
        }
    )
    path = tmp_path / "table.xlsx"
    table.to_excel(path, index=False)
    read = excel.read_workbook(path, {"dtype": {"participant_id": str}})
    pd.testing.assert_frame_equal(read, pd.read_excel(path, dtype={"participant_id": str}))


def test_errors_of_formulas_are_missing_values(tmp_path):
    path = workbook(
        tmp_path / "errors.xlsx", {"A1": "participant_id", "B1": "age", "A2": "a", "B2": "#DIV/0!"}
    )
    assert load_table(path)["age"].isna().all()
