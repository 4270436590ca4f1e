"""A column of numbers stays one if a few of its cells are not numbers."""

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve._utils.numbers import as_numbers, in_numbers, odd_cells


def test_numbers_are_read_with_points_and_with_commas():
    column = pd.Series([" 12.5", "12,5", "+3", "unknown", None])
    assert in_numbers(column).fillna(-1).tolist() == [12.5, 12.5, 3.0, -1, -1]


def test_words_and_columns_of_numbers_have_no_odd_cells():
    for column in (["F", "M", "F"], [1.0, None], [True, False], [None, None], ["1", "A", "B"]):
        assert len(odd_cells(pd.Series(column))) == 0


def test_odd_cells_are_refused_by_name_or_become_missing():
    table = pd.DataFrame(
        {
            "participant_id": ["a", "b", "c"],
            "age": ["12", "unknown", "14.5"],
            "sex": ["F", "M", "F"],
        }
    )
    with pytest.raises(
        NerveError, match=r"'age'.*'unknown' \(b\) is not a number among 2 that are"
    ):
        as_numbers(table, ["age"])
    numbers = as_numbers(table, ["age", "sex"], missing=True)
    assert numbers["age"].fillna(-1).tolist() == [12, -1, 14.5]
    assert numbers["sex"].tolist() == ["F", "M", "F"]
    assert table["age"].tolist() == ["12", "unknown", "14.5"]


def test_decimal_commas_throughout_are_refused_even_if_odd_cells_may_be_missing():
    table = pd.DataFrame({"participant_id": ["a", "b"], "age": ["12,5", "13,1"]})
    with pytest.raises(NerveError, match="its numbers have commas"):
        as_numbers(table, ["age"], missing=True)
