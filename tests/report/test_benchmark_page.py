"""The benchmark page says who wins, who ties and who fails as the predictions have it; controls never win."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from folders import Made, line, make_cohort, results
from studies.benchmark_page import CohortScores, summarise

from nerve.experiments.run_store import UNAVAILABLE

ROWS = [
    *line("raw", "raw", "Raw FC", "reference", group="reference"),
    *line("best", "tangent", "Winner", "reference", group="reference"),
    *line("level", "shrunk", "Level", "reference", group="reference"),
    *line("poor", "nerve", "Trained", "self-supervised", group="self-supervised", preset="small"),
    *line("control", "nerve", "Control", "self-supervised", group="untrained", preset="small"),
]
# the spread of the noise in the predictions of each line, as a share of the target's spread
NOISE = {"raw": 0.8, "best": 0.25, "level": 0.25, "poor": 9.0, "control": 0.24}


def correlation(predictions):
    """r of the observed and predicted values of one row."""
    return predictions["observed"].corr(predictions["predicted"])


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(5)
    made = Made(
        cohorts={"alpha": 150}, targets=["iq"], rows=ROWS, interpretation=False, stored=False
    )
    made_results = results(made, {"alpha": make_cohort("alpha", 150, made, rng)}, rng)
    predictions = made_results.predictions.copy()
    spread = predictions["observed"].std()
    share_of_noise = predictions["row"].str.split("-").str[0].map(NOISE)
    noise = rng.normal(size=len(predictions)) * spread * share_of_noise
    predictions["predicted"] = predictions["observed"] + noise

    by_row = predictions.groupby(["cohort", "target", "row"], sort=False)
    r = by_row[["observed", "predicted"]].apply(correlation)
    score_table = r.rename("r").reset_index().assign(auc=np.nan)
    is_poor = score_table["row"] == "poor-0"
    score_table["adapted"] = np.where(is_poor, "FC instead of time series", "")
    unavailable_run = {
        "cohort": "alpha",
        "run": "predict GATE · alpha",
        "status": UNAVAILABLE,
        "reason": "It has only FC.",
    }
    made_results = replace(made_results, predictions=predictions, scores=score_table)
    return CohortScores("alpha", made_results, pd.DataFrame([unavailable_run]))


def test_the_best_is_bold_the_level_marked_and_a_control_never_best(scores):
    assert scores.best_line("iq") in {"best", "level"}
    rows = {row.split(" | ")[0].strip("| "): row for row in scores.table().splitlines()[2:]}
    assert sum("**" in row for row in rows.values()) == 1
    assert "**" not in rows["Control"]
    assert {"best", "level"} - {scores.best_line("iq")} <= scores.tied_lines("iq")
    assert "raw" not in scores.tied_lines("iq")
    assert " =" not in rows["Trained ‡"]


def test_sentences_name_the_rows_below_raw_fc_and_what_training_added(scores):
    [sentence] = scores.sentences()
    assert "Below raw FC: Trained ‡." in sentence
    [effect] = scores.training_effects()
    assert effect.startswith("- Trained ‡: iq -0.")
    assert "p < .01" in effect


def test_substitutes_are_marked_and_missing_rows_are_named(scores):
    assert scores.remarks()[:2] == [
        "- Trained ‡: FC instead of time series",
        "- No row for GATE: It has only FC.",
    ]


def test_best_tied_and_poor_rows_are_counted_over_all_tables(scores):
    summary = "\n".join(summarise([scores, scores]))
    assert "| Winner | 2 of 2 |" in summary
    assert "| Raw FC |" not in summary
    assert "Below raw FC in every column: Trained." in summary
