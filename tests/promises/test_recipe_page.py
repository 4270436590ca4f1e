"""The tables of the pages that studies/recipe.py makes have their places and their commands."""

import importlib
import re

import pandas as pd
import pytest
from studies.recipe import MODELS, PAGE, PAGES, TABLES, fill, markdown

from nerve.methods import make_method

BLOCKS = {
    name: page.read_text()
    for page in {PAGE, *PAGES.values()}
    for name in re.findall(r"<!-- table (\S+) -->", page.read_text())
}


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_every_table_has_its_place_and_its_command(name):
    page = BLOCKS[name]
    assert page == PAGES.get(name, PAGE).read_text()
    filled = fill(page, name, "| new |")
    assert f"<!-- table {name} -->\n| new |\n<!-- end of {name} -->" in filled
    assert f"`python -m studies.recipe {name.split('-')[0]}`" in page
    for block in re.findall(r"<!-- table .*? -->.*?<!-- end of .*? -->", page, re.DOTALL):
        assert block in filled or f"<!-- table {name} -->" in block


def test_attempts_have_their_places_and_their_commands():
    attempts = (PAGE.parent / "attempts.md").read_text()
    assert set(re.findall(r"<!-- table (\S+) -->", attempts)) == {
        "posterior",
        "posterior-labels",
        "metamatching",
    }
    for name in ("posterior", "metamatching"):
        assert f"`python -m studies.{name}`" in attempts
        assert PAGE.parent / "attempts.md" == importlib.import_module(f"studies.{name}").PAGE


def test_every_command_fills_a_place():
    assert {name.split("-")[0] for name in BLOCKS} == set(TABLES)
    with pytest.raises(ValueError, match="one <!-- table masked -->"):
        fill("nothing", "masked", "| new |")


@pytest.mark.parametrize("label", MODELS)
def test_every_row_is_a_method_that_can_be_made(label):
    spec = {
        name: value
        for name, value in MODELS[label].items()
        if name not in ("method", "preset", "untrained")
    }
    make_method(
        MODELS[label]["method"],
        MODELS[label].get("preset", "paper"),
        spec,
        parcellation="schaefer100-7",
    )


def test_scores_are_means_over_seeds_and_intervals_of_the_first():
    rows = [
        {
            "cohort": "abide",
            "seed": seed,
            "features": name,
            "target": target,
            "score": 0.5 + seed / 10,
            "minus raw FC": raw,
        }
        for seed in (1, 0)
        for name, raw in (("raw FC", None), ("NERVE", f"+0.0{seed}0 [-0.0{seed}1, 0.0{seed}2]"))
        for target in ("age", "sex", "diagnosis")
    ]
    table = markdown("features", pd.DataFrame(rows))["features-abide"]
    assert "| raw FC | 0.550 | 0.550 | 0.550 |" in table
    assert "| NERVE | 0.550 [−0.001, 0.002] |" in table
    draws = [
        {
            "cohort": "abide",
            "features": row,
            "target": target,
            "labels": k,
            "draw": draw,
            "score": k / 100 + better,
        }
        for row, better in (("tangent space, 64", 0.0), ("mine", 0.1))
        for target in ("age", "sex", "diagnosis")
        for k in (25, 50)
        for draw in range(20)
    ]
    few = markdown("labels", pd.DataFrame(draws))["labels-abide"].splitlines()
    assert few[2:] == [
        "| tangent space, 64 | 0.250, 0.500 | 0.250, 0.500 | 0.250, 0.500 |",
        "| mine | 0.350 (20), 0.600 (20) | 0.350 (20), 0.600 (20) | 0.350 (20), 0.600 (20) |",
    ]
    shares = pd.DataFrame(
        {"features": ["raw FC", "a", "a"], "seed": [0, 0, 1], "identified": [0.5, 1.0, 0.9]}
    )
    assert markdown("stages", shares)["stages"].splitlines()[2:] == [
        "| raw FC | 0.500 |",
        "| a | 0.950 |",
    ]
