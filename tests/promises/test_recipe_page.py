"""The tables of docs/recipe.md are those that tools/recipe.py makes."""

import re
from pathlib import Path

import pandas as pd
import pytest
from tools.recipe_tables import TABLES, abide, features, features_against_pca, fill, labels, stages

PAGE = (Path(__file__).parents[2] / "docs" / "recipe.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_its_place_in_the_page(name):
    filled = fill(PAGE, name, "| new |")
    assert f"<!-- table {name} -->\n| new |\n<!-- end of {name} -->" in filled
    assert re.search(rf"<!-- table {name} -->\n\|.*\n\| ---", PAGE), "the table is empty"
    for other in set(TABLES) - {name}:
        block = re.search(rf"<!-- table {other} -->.*?<!-- end of {other} -->", PAGE, re.DOTALL)
        assert block
        assert block[0] in filled


def test_a_page_without_the_place_is_refused():
    with pytest.raises(ValueError, match="one <!-- table abide -->"):
        fill("nothing", "abide", "| new |")


def test_a_mean_needs_every_split():
    found = pd.DataFrame(
        [("default", 0, 0.1, 190), ("default", 1, 0.2, 200), ("default, 20 epochs", 1, 0.05, 400)],
        columns=["model", "seed", "masked_error", "cpu_seconds"],
    )
    rows = abide(found).splitlines()
    assert rows[3:] == [
        "| **default** | 0.100 | 0.200 | 0.150 | 190–200 |",
        "| default, 20 epochs instead of 10 | – | 0.050 | – | 400 |",
    ]


def test_scores_are_means_over_seeds_and_intervals_of_the_first():
    rows = [
        {"seed": seed, "features": name, "target": target, "r": 0.5 + seed / 10, "auc": 0.7, "minus_raw": raw,
         "minus_pca": "'-0.010 [-0.020, 0.000]"}
        for seed in (1, 0)
        for name, raw in (("raw", None), ("NERVE pca", f"0.0{seed}0 [-0.0{seed}1, 0.0{seed}2]"),
                          ("NERVE factors", "0 [0, 1]"), ("NERVE tokens", "0 [0, 1]"))
        for target in ("age", "sex", "diagnosis")
    ]  # fmt: skip
    found = pd.DataFrame(rows)
    assert "| raw FC | 0.550 | 0.700 | 0.700 |" in features(found)
    assert "| **NERVE `pca`, 256 numbers** | 0.550 [−0.001, 0.002] | 0.700" in features(found)
    assert "| **NERVE `pca`, 256 numbers** | −0.010 [−0.020, 0.000] |" in features_against_pca(found)


def test_few_labels_and_sessions():
    names = ["raw", "raw minus mean", "NERVE pca", "NERVE factors", "NERVE tokens"]
    few = [
        {"seed": seed, "n": n, "target": target, "features": name, "r": n / 100 + seed / 10}
        for seed in (0, 1) for n in (25, 50) for target in ("age", "sex", "diagnosis") for name in names
    ]  # fmt: skip
    assert labels(pd.DataFrame(few)).splitlines()[2] == "| age | 25 |" + " 0.300 |" * 5
    found = pd.DataFrame(
        {"features": ["raw", "NERVE, pca", "NERVE, pca"], "seed": [0, 0, 1], "identified": [0.5, 1, 0.9]}
    )
    assert stages(found).splitlines()[2:] == ["| raw FC | 0.500 |", "| NERVE, `pca` | 1.000 / 0.900 |"]
