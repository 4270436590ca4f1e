"""Where the truth is planted, the corrected interval covers it and the corrected test holds its level."""

import numpy as np
import pandas as pd
import pytest

from nerve.evaluation import bootstrap
from nerve.evaluation.comparisons import all_comparisons, compare
from nerve.evaluation.cross_validation import out_of_fold_predictions
from nerve.evaluation.feature_sets import GivenNumbers
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.intervals import (
    corrected_difference,
    cross_validation_interval,
    overlap_factor,
)
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.statistics import score_table

N = 60
N_TARGETS = 8


def predictions_of(strengths, n_cohorts, explained, seed):
    """Rows with a share of the signal each, on several targets of several cohorts."""
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(n_cohorts):
        latent = rng.normal(size=(N, N_TARGETS))
        noise = rng.normal(size=(N, N_TARGETS))
        targets = pd.DataFrame(np.sqrt(explained) * latent + np.sqrt(1 - explained) * noise)
        targets = targets.add_prefix("t")
        patterns = rng.normal(size=(N_TARGETS, 40))
        shared = rng.normal(size=(N, 40))
        strata = np.column_stack([strata_of(column, 5) for column in targets.to_numpy().T])
        folds = stratified_folds(strata, 10, seed=number)
        for row, strength in strengths.items():
            own = rng.normal(size=(N, 40))
            features = strength * latent @ patterns + shared + own
            part = out_of_fold_predictions(
                KernelRidge(lambdas=[0.1, 1.0, 10.0], n_inner_folds=3),
                GivenNumbers(values=features),
                targets,
                folds,
            )
            parts.append(part.assign(row=row, cohort=f"c{number}"))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(participant=table["position"].map("p{:03}".format))


@pytest.fixture(scope="module")
def noise():
    """Two rows that are equal: nothing can be predicted."""
    return predictions_of({"a": 0.0, "b": 0.0}, n_cohorts=20, explained=0.0, seed=0)


@pytest.mark.slow
def test_equal_rows_are_called_different_in_about_five_percent(noise):
    """Of 160 comparisons; the paper's bootstrap calls them different at least twice as often."""
    compared = compare(noise, "a", "b", n_bootstrap=200)
    assert len(compared) == 160
    assert (compared["p_cv"] < 0.05).mean() <= 0.075
    assert (compared["p"] < 0.05).mean() >= 0.10  # so that this fails with the paper's test
    holds_zero = (compared["difference_low_cv"] <= 0) & (compared["difference_high_cv"] >= 0)
    assert (holds_zero == (compared["p_cv"] >= 0.05)).all()


@pytest.mark.slow
def test_a_planted_difference_is_found():
    planted = predictions_of({"a": 0.6, "b": 0.15}, n_cohorts=4, explained=0.7, seed=1)
    compared = compare(planted, "a", "b", n_bootstrap=200)
    assert compared["difference"].mean() > 0.2
    assert (compared["p_cv"] < 0.05).mean() >= 0.6


@pytest.mark.slow
def test_where_nothing_can_be_predicted_the_interval_covers_zero_in_sixty_participants(noise):
    scores = score_table(noise[noise["row"] == "a"], n_bootstrap=200)
    assert scores["r"].mean() < -0.05  # why an interval around r does not cover
    assert abs(scores["r_fold_mean"].mean()) < 0.05
    assert ((scores["r_low_cv"] <= 0) & (scores["r_high_cv"] >= 0)).mean() >= 0.91
    assert ((scores["r_low"] <= 0) & (scores["r_high"] >= 0)).mean() <= 0.80


def simple_table(n=80, classes=False, seed=0):
    """Predictions of two rows on ten folds."""
    rng = np.random.default_rng(seed)
    observed = rng.normal(size=n)
    if classes:
        observed = (observed > 0).astype(float)
    parts = []
    for row, noise in (("a", 1.0), ("b", 1.3)):
        part = pd.DataFrame(
            {
                "cohort": "c",
                "target": "t",
                "row": row,
                "participant": [f"p{i:03}" for i in range(n)],
                "fold": np.arange(n) % 10,
                "observed": observed,
                "predicted": observed + noise * rng.normal(size=n),
            }
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("classes", [False, True])
def test_families_count_once(classes):
    """Everyone twice, as a family with its copy: the interval and p are those of everyone once."""
    single = simple_table(classes=classes)
    copies = [
        single.assign(participant=single["participant"] + name, family=single["participant"])
        for name in ("first", "second")
    ]
    twice = pd.concat(copies, ignore_index=True)
    families = dict(zip(twice["participant"], twice["family"], strict=True))
    once = compare(single, "a", "b")
    whole = compare(twice, "a", "b", groups=families)
    split = compare(twice, "a", "b")
    assert np.isclose(whole["p_cv"], once["p_cv"]).all()
    assert split["p_cv"].item() < once["p_cv"].item()
    columns = ["auc_low_cv", "auc_high_cv"] if classes else ["r_low_cv", "r_high_cv"]
    of_families = score_table(twice, groups=families)[columns]
    np.testing.assert_allclose(of_families, score_table(single)[columns], rtol=1e-9)


def test_the_correction_is_that_of_nadeau_and_bengio():
    """Their variance of a mean over J folds is (1 / J + test / training) s², not s² / J."""
    for n_folds in (2, 5, 10, 100):
        per_fold = 1 / n_folds + 1 / (n_folds - 1)
        ratio = per_fold / (1 / n_folds)
        assert np.isclose(overlap_factor(n_folds, 10**12) ** 2, ratio)
    assert overlap_factor(10, 30) > overlap_factor(10, 60) > overlap_factor(10, 1000)


def test_the_interval_holds_the_score_and_lies_around_the_mean_of_folds():
    low, high = cross_validation_interval(0.3, 0.3, 0.1, n_folds=10, n_units=100)
    assert low < 0.3 < high
    higher = cross_validation_interval(0.3, 0.4, 0.1, n_folds=10, n_units=100)
    assert higher[0] > low
    assert higher[1] > high
    assert cross_validation_interval(-0.6, 0.0, 0.05, n_folds=10, n_units=400)[0] == -0.6
    assert cross_validation_interval(0.3, np.nan, 0.1, n_folds=60, n_units=60)[0] < 0.3
    assert np.isnan(cross_validation_interval(np.nan, 0.1, 0.1, n_folds=10, n_units=60)).all()
    assert cross_validation_interval(1.0, 1.0, 0.0, n_folds=10, n_units=60)[1] == 1.0


def test_rows_that_predict_the_same_are_not_different():
    assert corrected_difference(0.0, np.zeros(100), 10, 60) == (0.0, 0.0, 1.0)
    assert np.isnan(corrected_difference(0.1, np.array([]), 10, 60)).all()


def test_an_interval_of_a_class_lies_around_the_mean_auc_of_folds():
    table = simple_table(n=200, classes=True)
    own = table[table["row"] == "a"]
    of_folds = []
    for _, part in own.groupby("fold"):
        positive = part["observed"].to_numpy() == 1
        once = np.ones((1, len(part)))
        of_folds.append(bootstrap.weighted_auc(once, positive, part["predicted"].to_numpy())[0])
    score = score_table(own).iloc[0]
    middle = np.tanh(
        np.mean(np.arctanh(2 * score[["auc_low_cv", "auc_high_cv"]].to_numpy(float) - 1))
    )
    assert np.isclose((1 + middle) / 2, np.mean(of_folds))
    assert score["auc_low_cv"] < score["auc_low"] < score["auc_high"]


def test_q_of_the_corrected_test_is_over_the_same_families_of_tests():
    parts = [simple_table(seed=seed).assign(target=f"t{seed}") for seed in range(4)]
    compared = all_comparisons(pd.concat(parts))
    assert np.allclose(compared["q_cv"], bootstrap.adjusted_p(compared["p_cv"]))
    assert (compared["p_cv"] > compared["p"]).all()
