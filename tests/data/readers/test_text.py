"""The parser of numbers gives what pandas gives, and refuses what pandas would fill up."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.data.readers.write_formats import random_fc, write_ukb_bulk

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation
from nerve.data.readers import ingest
from nerve.data.readers.text import read_numbers

NUMBERS = st.floats(allow_nan=True, allow_infinity=False, width=64)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=NUMBERS)))
def test_what_pandas_reads(tmp_path_factory, matrix):
    path = tmp_path_factory.mktemp("squares") / "m.tsv"
    labels = [f"région {i}" for i in range(len(matrix))]
    table = pd.DataFrame(matrix, index=pd.Index(labels, name="Node"), columns=labels)
    table.to_csv(path, sep="\t", na_rep="n/a")
    numbers = read_numbers(path)
    by_pandas = pd.read_csv(path, sep="\t", index_col="Node", na_values=["n/a"])
    np.testing.assert_array_equal(numbers.values, by_pandas.to_numpy(float))
    assert list(numbers.columns) == list(numbers.rows) == labels


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Node\ta\tb\nb\t1\t0\na\t0\t1\n", "the rows are in another order than the columns"),
        ("Node\ta\tb\na\t1\t0\nb\t0\n", "the last line has 2 of 3 values: the file was cut off"),
        ("Node\ta\tb\na\t1\t0\t5\nb\t1\n", "the last line has 2 of 4 values"),
        ("Node\ta\tb\na\t1\tx\nb\t0\t1\n", r"column 2 holds text \('x' in row 1 of the numbers\)"),
        (
            "1 2 3\n\n4 5\n6 7 8\n",
            "line 3 has 2 values and the first has 3, expected as many in every line",
        ),
        ("1,2\n3,4\n5,6,7\n", "line 3 has 3 values and the first has 2"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path, text, sentence):
    (tmp_path / "m.tsv").write_text(text)
    with pytest.raises(NerveError, match=sentence):
        read_numbers(tmp_path / "m.tsv")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Node\ta\tb\r\na\t1\t\r\nb\t\t1\r\n", [[1, np.nan], [np.nan, 1]]),
        ("1.5 2\r3   4\r", [[1.5, 2], [3, 4]]),
        ('"1,5";"2"\n"3";"n/a"\n', [[1.5, 2], [3, np.nan]]),
        ("# a remark\n1, 2\n\n3, -4e-1\n", [[1, 2], [3, -0.4]]),
    ],
)
def test_line_ends_quotes_blanks_and_empty_cells(tmp_path, text, values):
    (tmp_path / "m.tsv").write_bytes(text.encode())
    np.testing.assert_array_equal(read_numbers(tmp_path / "m.tsv").values, values)


@pytest.mark.slow
def test_a_bulk_file_of_many_short_lines_is_refused_in_little_memory(tmp_path):
    """Filled up by pandas, 100,000 lines of nothing after a line of 210 values take 700 MB."""
    fc = random_fc(21, 0)
    for person in ("1000001", "1000002"):
        write_ukb_bulk(tmp_path / "in", person, fc)
    with open(next((tmp_path / "in").glob("1000001*")), "a") as file:
        file.write("0\n" * 100_000)
    regions = Parcellation(tuple(f"r{i}" for i in range(21)), ("n",) * 21)
    tracemalloc.start()
    report = ingest(tmp_path / "in", tmp_path / "out", parcellation=regions, allow_exclusions=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "line 2 has 1 values and the first has 210" in report.exclusions["reason"].item()
    assert peak < 50e6
