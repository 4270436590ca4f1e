"""Tables of scores print whole, whatever the width of the terminal and pandas' own settings."""

import re

import numpy as np
import pandas as pd
import pytest

from nerve.evaluation import score_table
from nerve.evaluation.results import Results
from nerve.evaluation.whole_table import WholeTable


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    parts = []
    for target in ("age", "sex"):
        for row in ("raw", "pca"):
            observed = rng.normal(size=60)
            if target == "sex":
                observed = (observed > 0).astype(float)
            parts.append(
                pd.DataFrame(
                    {
                        "cohort": "ucla",
                        "target": target,
                        "row": row,
                        "participant": [f"p{k}" for k in range(60)],
                        "fold": np.arange(60) % 5,
                        "observed": observed,
                        "predicted": observed + rng.normal(size=60),
                    }
                )
            )
    return score_table(pd.concat(parts, ignore_index=True), n_bootstrap=20)


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_every_column_and_row_is_printed_within_the_terminal(scores, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    lines = repr(scores).splitlines()
    words = " ".join(lines).split()
    assert "..." not in words
    assert set(scores.columns) <= set(words)
    assert max(map(len, lines)) <= int(width)
    assert sum(word == "ucla" for word in words) == len(scores)


def test_a_notebook_shows_every_column(scores):
    with pd.option_context("display.max_columns", 4, "display.max_rows", 2):
        page = scores._repr_html_()
    assert set(scores.columns) <= set(re.findall(r"<th>([^<]+)</th>", page))
    assert "..." not in page


def test_numbers_keep_their_digits_and_parts_of_a_table_print_whole(scores):
    assert isinstance(scores, pd.DataFrame)
    assert isinstance(scores.query("target == 'age'"), WholeTable)
    plain = pd.DataFrame(scores)
    assert type(plain) is pd.DataFrame
    np.testing.assert_array_equal(plain["r"], scores["r"])


def test_scores_of_results_print_whole(scores):
    empty = pd.DataFrame()
    results = Results({}, empty, empty, empty, empty, pd.DataFrame(scores), empty)
    assert isinstance(results.scores, WholeTable)
