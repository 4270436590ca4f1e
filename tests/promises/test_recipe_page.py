"""The tables of the pages that studies/recipe.py makes have their places and their commands."""

import importlib
import re
from itertools import product

import pandas as pd
import pytest
from studies.recipe import MODELS, PAGE, PAGES, TABLES, fill, markdown

from nerve.methods import make_method

# name of a block → the text of its page
BLOCKS = {}
for path in {PAGE, *PAGES.values()}:
    text = path.read_text()
    for block in re.findall(r"<!-- table (\S+) -->", text):
        BLOCKS[block] = text


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
    settings = dict(MODELS[label])
    method = settings.pop("method")
    preset = settings.pop("preset", "paper")
    settings.pop("untrained", None)
    make_method(method, preset, settings, parcellation="schaefer100-7")


def test_scores_are_means_over_seeds_and_intervals_of_the_first():
    rows = []
    for seed in (1, 0):
        difference_of = {"raw FC": None, "NERVE": f"+0.0{seed}0 [-0.0{seed}1, 0.0{seed}2]"}
        for name, target in product(difference_of, ("age", "sex", "diagnosis")):
            row = {
                "cohort": "abide",
                "seed": seed,
                "features": name,
                "target": target,
                "score": 0.5 + seed / 10,
                "minus raw FC": difference_of[name],
            }
            rows.append(row)
    table = markdown("features", pd.DataFrame(rows))["features-abide"]
    assert "| raw FC | 0.550 | 0.550 | 0.550 |" in table
    assert "| NERVE | 0.550 [−0.001, 0.002] |" in table


def test_few_labels_are_means_over_draws_and_counts_of_draws_above_the_reference():
    advantage_of = {"tangent space, 64": 0.0, "better": 0.1}
    rows = []
    for name, target, n_labels, draw in product(
        advantage_of, ("age", "sex", "diagnosis"), (25, 50), range(20)
    ):
        row = {
            "cohort": "abide",
            "features": name,
            "target": target,
            "labels": n_labels,
            "draw": draw,
            "score": n_labels / 100 + advantage_of[name],
        }
        rows.append(row)
    table = markdown("labels", pd.DataFrame(rows))["labels-abide"]
    assert table.splitlines()[2:] == [
        "| tangent space, 64 | 0.250, 0.500 | 0.250, 0.500 | 0.250, 0.500 |",
        "| better | 0.350 (20), 0.600 (20) | 0.350 (20), 0.600 (20) | 0.350 (20), 0.600 (20) |",
    ]


def test_identification_is_a_mean_over_seeds():
    table = pd.DataFrame(
        {"features": ["raw FC", "a", "a"], "seed": [0, 0, 1], "identified": [0.5, 1.0, 0.9]}
    )
    assert markdown("stages", table)["stages"].splitlines()[2:] == [
        "| raw FC | 0.500 |",
        "| a | 0.950 |",
    ]
