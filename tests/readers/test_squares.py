"""The short way of reading a labelled matrix gives what pandas gives, and leaves anything unusual to the long way."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nerve.readers.squares import read_square

NUMBERS = st.floats(allow_nan=True, allow_infinity=False, width=64)


def write(path, matrix, labels):
    table = pd.DataFrame(matrix, index=pd.Index(labels, name="Node"), columns=labels)
    table.to_csv(path, sep="\t", na_rep="n/a")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=NUMBERS)))
def test_what_pandas_reads(tmp_path_factory, matrix):
    path = tmp_path_factory.mktemp("squares") / "m.tsv"
    labels = [f"région {i}" for i in range(len(matrix))]
    write(path, matrix, labels)
    values, names = read_square(path.read_bytes())
    by_pandas = pd.read_csv(path, sep="\t", index_col="Node", na_values=["n/a"])
    np.testing.assert_array_equal(values, by_pandas.to_numpy(float))
    assert list(names) == labels


@pytest.mark.parametrize(
    "text",
    [
        "Node\ta\tb\nb\t1\t0\na\t0\t1\n",  # rows in another order
        "Node\ta\tb\na\t1\t0\n",  # a row short
        "Node\ta\tb\na\t1\t0\nb\t0\n",  # a cell short
        "Node\ta\tb\na\t1\t0\t5\nb\t1\n",  # the right number of cells in the wrong rows
        "Node\ta\tb\na\t1\tx\nb\t0\t1\n",  # text
        "a\tb\n1\t0\n0\t1\n",  # no corner
        "Node,a,b\na,1,0\nb,0,1\n",
        "",
    ],
)
def test_anything_unusual_is_left_to_the_long_way(tmp_path, text):
    path = tmp_path / "m.tsv"
    path.write_text(text)
    assert read_square(path.read_bytes()) is None


def test_windows_line_ends_and_empty_cells(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_bytes(b"Node\ta\tb\r\na\t1\t\r\nb\t\t1\r\n")
    values, _ = read_square(path.read_bytes())
    np.testing.assert_array_equal(values, [[1, np.nan], [np.nan, 1]])
