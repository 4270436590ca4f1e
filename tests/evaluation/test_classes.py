"""Targets with three or more classes: scores of each class, and of the column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from tests.evaluation.conftest import make_cohort, predict
from typer.testing import CliRunner

from nerve import NerveError, Protocol
from nerve.cli import app
from nerve.data.quality import check_cohort
from nerve.evaluation import Results, all_comparisons, score_table
from nerve.evaluation.participants import prepare_participants

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
N, LABELS = 150, np.array(["control", "mdd", "scz"])


@pytest.fixture(scope="module")
def planted():
    """FC in which class k has a stronger correlation of regions 2k and 2k + 1; half are controls, some have none."""
    rng = np.random.default_rng(5)
    group = rng.choice(3, N, p=[0.5, 0.25, 0.25])
    names = pd.Series(LABELS[group]).where(rng.random(N) > 0.05)
    cohort = make_cohort(
        N, group=names, code=names.map({"control": 1.0, "mdd": 2.0, "scz": 3.0}), age=group * 4.0
    )
    fc = cohort.connectivity.copy()
    for k in range(3):
        fc[group == k, 2 * k, 2 * k + 1] = fc[group == k, 2 * k + 1, 2 * k] = 0.6
    return type(cohort)(fc, cohort.participants, cohort.parcellation, name="toy")


@pytest.fixture(scope="module")
def predictions(planted):
    return predict("raw", planted, "group", n_folds=5)


def wide(predictions, value):
    return predictions.pivot(index="participant", columns="target", values=value)


@pytest.mark.slow
def test_planted_classes_are_found_and_scored_as_scikit_learn_scores_them(planted, predictions):
    scores = score_table(predictions, n_bootstrap=50).set_index("target")
    assert list(scores.index) == ["group: control", "group: mdd", "group: scz", "group"]
    truth, said = wide(predictions, "observed_raw"), wide(predictions, "predicted")
    for name in truth:
        assert scores.loc[name, "auc"] == pytest.approx(roc_auc_score(truth[name], said[name]))
    assert scores.loc["group", "auc"] == pytest.approx(scores["auc"].iloc[:3].mean())
    assert scores.loc["group", "auc_low"] > 0.7
    assert scores.loc["group", "n"] == planted.participants["group"].notna().sum()
    means = predictions.assign(mean=0.0)
    for (target, fold), rows in predictions.groupby(["target", "fold"]):
        others = predictions[(predictions["target"] == target) & (predictions["fold"] != fold)]
        means.loc[rows.index, "mean"] = others["observed"].mean()
    named = (said - wide(means, "mean")).to_numpy().argmax(axis=1)
    assert scores.loc["group", "balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(truth.to_numpy().argmax(axis=1), named)
    )
    assert scores.loc["group", "balanced_accuracy"] > 0.7


@pytest.mark.slow
def test_a_shuffled_class_is_at_chance(planted):
    shuffled = planted.subset(np.arange(N))
    shuffled.participants["group"] = np.random.default_rng(0).permutation(
        planted.participants["group"]
    )
    score = (
        score_table(predict("raw", shuffled, "group", n_folds=5), n_bootstrap=0)
        .set_index("target")
        .loc["group"]
    )
    assert 0.35 < score["auc"] < 0.65
    assert 0.15 < score["balanced_accuracy"] < 0.5


def test_every_fold_has_its_share_of_every_class(predictions):
    counts = predictions.groupby(["target", "fold"])["observed_raw"].sum().unstack()
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()


def test_numbers_are_classes_when_asked_for(planted, predictions):
    coded = predict("raw", planted, "code", classes="code", n_folds=5)
    assert coded["predicted"].to_numpy() == pytest.approx(predictions["predicted"].to_numpy())
    assert "class_column" not in predict("raw", planted, "code", n_folds=5)


@pytest.mark.slow
def test_a_column_of_classes_is_never_its_own_covariate(planted):
    people, _ = prepare_participants(planted, Protocol(targets="group", n_folds=5))
    both = predict("raw", planted, "group", covariates="group,age", n_folds=5)
    alone = predict("raw", planted, "group", covariates="age", n_folds=5)
    assert both["observed"].to_numpy() == pytest.approx(alone["observed"].to_numpy())
    assert people.classes["group: mdd"] == ("others", "mdd")


@pytest.mark.slow
def test_methods_are_compared_on_the_column_and_on_each_class(planted):
    noise = np.random.default_rng(0).normal(size=(N, 6))
    table = predict({"fc": planted.inputs("upper"), "noise": noise}, planted, "group", n_folds=5)
    found = all_comparisons(table, n_bootstrap=200).set_index("target")
    assert set(found["metric"]) == {"auc"}
    assert (found["line_a"] == "fc").all()
    assert found.loc["group", "p"] < 0.05


def test_a_class_with_too_few_participants_is_named(planted):
    rare = planted.subset(np.arange(N))
    rare.participants.loc[:2, "group"] = "other"
    with pytest.raises(
        NerveError,
        match=r"class other \(3\) has too few participants, expected at least 5 of every",
    ):
        predict("raw", rare, "group", n_folds=5)


def test_words_among_the_numbers_of_a_target_do_not_make_it_classes():
    ages = pd.Series([f"{20 + k}" for k in range(39)] + ["unknown"], dtype=object)
    with pytest.raises(NerveError, match="'unknown'"):
        predict("raw", make_cohort(40, age=ages), "age", n_folds=4)


def test_check_lists_classes_as_a_target(planted):
    table = check_cohort(planted).table.set_index("check")
    assert table.loc["target group", "detail"].startswith("3 classes: control (")


@pytest.mark.slow
def test_the_command_line_writes_classes_into_the_one_layout_and_the_report(
    planted, tmp_path, undrawn
):
    planted.save(tmp_path / "cohort")
    out = tmp_path / "out"
    words = ["evaluate", str(tmp_path / "cohort"), "--targets", "group", "--features", "raw", "--n-folds", "5",
             "--n-bootstrap", "20", "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "balanced accuracy" in result.output
    results = Results.load(out)
    assert set(results.predictions["class_column"]) == {"group"}
    assert list(results.scores["target"].unique()) == [
        "group: control",
        "group: mdd",
        "group: scz",
        "group",
    ]
    page = (out / "report.html").read_text()
    assert "3 classes, each against all others: control, mdd, scz" in page
    assert "group: mdd" in page


def test_a_target_that_has_the_name_of_a_class_is_refused():
    table = {"a": np.resize(["b", "c", "d"], 60), "a: b": np.arange(60.0)}
    cohort = make_cohort(60, **table)
    for targets in (["a", "a: b"], ["a: b", "a"]):
        with pytest.raises(NerveError, match="class 'b' of target 'a' has the same name"):
            predict("raw", cohort, targets=targets)
