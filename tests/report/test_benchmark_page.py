"""The benchmark page says who wins, who ties and who fails as the predictions have it; controls never win."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from folders import Made, line, make_cohort, results
from studies.benchmark_page import Place, in_short

from nerve.experiments.run_store import UNAVAILABLE

ROWS = [
    *line("raw", "raw", "Raw FC", "reference", group="reference"),
    *line("best", "tangent", "Winner", "reference", group="reference"),
    *line("level", "shrunk", "Level", "reference", group="reference"),
    *line("poor", "nerve", "Trained", "self-supervised", group="self-supervised", preset="small"),
    *line("control", "nerve", "Control", "self-supervised", group="untrained", preset="small"),
]
NOISE = {
    "raw": 0.8,
    "best": 0.25,
    "level": 0.25,
    "poor": 9.0,
    "control": 0.24,
}  # of the spread of the target


@pytest.fixture(scope="module")
def place():
    rng = np.random.default_rng(5)
    made = Made(
        cohorts={"alpha": 150}, targets=["iq"], rows=ROWS, interpretation=False, stored=False
    )
    found = results(made, {"alpha": make_cohort("alpha", 150, made, rng)}, rng)
    table = found.predictions.copy()
    spread = table["observed"].std()
    of = table["row"].str.split("-").str[0].map(NOISE)
    table["predicted"] = table["observed"] + rng.normal(size=len(table)) * spread * of
    keys = ["cohort", "target", "row"]
    r = table.groupby(keys, sort=False)[["observed", "predicted"]].apply(
        lambda one: one.corr().iloc[0, 1]
    )
    scores = r.rename("r").reset_index().assign(auc=np.nan)
    scores["adapted"] = np.where(scores["row"] == "poor-0", "FC instead of time series", "")
    runs = {
        "cohort": "alpha",
        "run": "probe GATE · alpha",
        "status": UNAVAILABLE,
        "reason": "It has only FC.",
    }
    return Place("alpha", replace(found, predictions=table, scores=scores), pd.DataFrame([runs]))


def test_the_best_is_bold_the_level_marked_and_a_control_never_best(place):
    assert place.best("iq") in {"best", "level"}
    cells = {row.split(" | ")[0].strip("| "): row for row in place.table().splitlines()[2:]}
    assert sum("**" in row for row in cells.values()) == 1
    assert "**" not in cells["Control"]
    assert {"best", "level"} - {place.best("iq")} <= place.tied("iq")
    assert "raw" not in place.tied("iq")
    assert " =" not in cells["Trained ‡"]


def test_sentences_name_the_rows_below_raw_fc_and_what_training_added(place):
    [said] = place.sentences()
    assert "Below raw FC: Trained ‡." in said
    [added] = place.controls()
    assert added.startswith("- Trained ‡: iq -0.")
    assert "p < .01" in added


def test_substitutes_are_marked_and_missing_rows_are_named(place):
    assert place.remarks()[:2] == [
        "- Trained ‡: FC instead of time series",
        "- No row for GATE: It has only FC.",
    ]


def test_what_holds_over_all_tables_is_counted(place):
    said = "\n".join(in_short([place, place]))
    assert "| Winner | 2 of 2 |" in said
    assert "| Raw FC |" not in said
    assert "Below raw FC in every column: Trained." in said
