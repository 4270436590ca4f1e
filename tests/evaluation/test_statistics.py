"""Scores and tests are functions of the predictions table, checked against scipy and scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from nerve import NerveError
from nerve.evaluation import (
    adjusted_p,
    all_comparisons,
    best_two,
    compare,
    motion_table,
    permutation_p,
    score_table,
)
from nerve.evaluation.bootstrap import (
    resample_counts,
    two_sided_p,
    weighted_auc,
    weighted_correlations,
)


def table_of(
    n=120, methods=(("good", 0.5), ("bad", 2.0)), targets=("a",), seed=0, binary=False, cohort="c"
):
    """Predictions of methods with more or less noise."""
    rng = np.random.default_rng(seed)
    parts = []
    for target in targets:
        y = rng.normal(size=n)
        raw = (y > 0).astype(float) if binary else y
        for method, noise in methods:
            part = {
                "participant": [f"p{i:03}" for i in range(n)],
                "fold": np.arange(n) % 5,
                "observed": raw,
                "observed_raw": raw,
            }
            part |= {
                "predicted": y + noise * rng.normal(size=n),
                "cohort": cohort,
                "target": target,
                "method": method,
            }
            parts.append(pd.DataFrame(part | {"variant": "", "seed": 0}))
    return pd.concat(parts, ignore_index=True)


def test_bootstrap_is_scipys_on_the_same_resamples():
    table = table_of(n=80, methods=[("m", 1.0)])
    theirs = scipy.stats.bootstrap(
        (table["observed"].to_numpy(), table["predicted"].to_numpy()),
        lambda x, y, axis=-1: scipy.stats.pearsonr(x, y, axis=axis).statistic,
        paired=True, vectorized=True, n_resamples=999, method="percentile", rng=np.random.default_rng(42),
    )  # fmt: skip
    ours = score_table(table, n_bootstrap=999, seed=42).iloc[0]
    assert np.isclose(ours["r_low"], theirs.confidence_interval.low, atol=1e-12)
    assert np.isclose(ours["r_high"], theirs.confidence_interval.high, atol=1e-12)
    assert np.isclose(ours["r_half_width"], (ours["r_high"] - ours["r_low"]) / 2)
    assert np.isclose(
        ours["r"], scipy.stats.pearsonr(table["observed"], table["predicted"]).statistic
    )


def test_counts_give_what_resampled_rows_give():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    counts = resample_counts(30, 20, seed=3)
    for b in range(20):
        rows = np.repeat(np.arange(30), counts[b].astype(int))
        for m in range(2):
            assert np.isclose(
                weighted_correlations(counts, x, y)[b, m], np.corrcoef(x[rows, m], y[rows, m])[0, 1]
            )


def test_resampled_auc_is_scikit_learns_with_ties():
    rng = np.random.default_rng(0)
    positive, predicted = rng.random(50) < 0.4, rng.integers(0, 8, 50).astype(float)
    counts = resample_counts(50, 25, seed=1)
    for b, auc in enumerate(weighted_auc(counts, positive, predicted)):
        assert np.isclose(auc, roc_auc_score(positive, predicted, sample_weight=counts[b]))


def test_families_are_drawn_whole_and_widen_the_interval():
    families = np.repeat(np.arange(30), 4)
    counts = resample_counts(120, 50, seed=0, families=families)
    assert (counts.reshape(50, 30, 4) == counts.reshape(50, 30, 4)[:, :, :1]).all()
    table = table_of(n=120, methods=[("m", 1.0)])
    shared = np.repeat(np.random.default_rng(0).normal(size=30), 4)  # members of a family are alike
    table["observed"] += 2 * shared
    table["predicted"] += 2 * np.repeat(np.random.default_rng(1).normal(size=30), 4)
    groups = dict(zip(table["participant"], families, strict=True))
    people, family = score_table(table).iloc[0], score_table(table, groups=groups).iloc[0]
    assert family["r_half_width"] > 1.3 * people["r_half_width"]


def test_scores_of_a_two_class_target_are_scikit_learns():
    table = table_of(methods=[("m", 1.0)], binary=True)
    row = score_table(table).iloc[0]
    assert np.isclose(row["auc"], roc_auc_score(table["observed_raw"], table["predicted"]))
    means = np.array(
        [table.loc[table["fold"] != fold, "observed"].mean() for fold in table["fold"]]
    )
    assert np.isclose(
        row["balanced_accuracy"],
        balanced_accuracy_score(table["observed_raw"], table["predicted"] > means),
    )
    assert row["auc_low"] < row["auc"] < row["auc_high"]


def test_predictive_cod_and_fold_mean_written_out():
    table = table_of(methods=[("m", 1.0)])
    table["observed"] += table[
        "fold"
    ]  # folds of different means, so that the two kinds of r differ
    row = score_table(table, n_bootstrap=0).iloc[0]
    error = spread = 0.0
    each = []
    for fold, part in table.groupby("fold"):
        mean = table.loc[table["fold"] != fold, "observed"].mean()
        error += ((part["observed"] - part["predicted"]) ** 2).sum()
        spread += ((part["observed"] - mean) ** 2).sum()
        each.append(np.corrcoef(part["observed"], part["predicted"])[0, 1])
    assert np.isclose(row["r2"], 1 - error / spread)
    assert np.isclose(row["r_fold_mean"], np.mean(each))
    assert np.isclose(row["mae"], (table["observed"] - table["predicted"]).abs().mean())
    assert np.isnan(row["r_low"])


def test_paired_bootstrap_finds_a_difference_and_none_between_equal_rows():
    table = table_of(methods=[("good", 0.5), ("bad", 2.0)])
    twin = table[table["method"] == "good"].assign(method="twin")
    table = pd.concat([table, twin])
    row = compare(table, "good", "bad").iloc[0]
    assert row["p"] < 0.01
    assert row["difference_low"] > 0
    same = compare(table, "good", "twin").iloc[0]
    assert same["p"] == 1.0
    assert same["tie"]
    flipped = compare(table, "bad", "good").iloc[0]
    assert np.isclose(flipped["p"], row["p"])
    assert np.isclose(flipped["difference"], -row["difference"])
    assert two_sided_p(np.array([1.0, 2.0, 3.0])) == pytest.approx(0.5)


def test_paired_bootstrap_scores_both_methods_on_participants_that_both_predict():
    table = table_of(n=100)
    short = table[
        ~((table["method"] == "bad") & table["participant"].isin([f"p{i:03}" for i in range(30)]))
    ]
    assert compare(short, "good", "bad")["n"].item() == 70
    kept = table[~table["participant"].isin([f"p{i:03}" for i in range(30)])]
    assert np.isclose(
        compare(short, "good", "bad")["p"].item(), compare(kept, "good", "bad")["p"].item()
    )


@pytest.mark.slow
def test_best_two_are_named_with_q_over_targets_and_without_covariates():
    table = table_of(
        methods=[("a", 1.0), ("b", 0.5), ("c", 3.0), ("covariates", 0.0)], targets=["x", "y", "z"]
    )
    best = best_two(table, n_bootstrap=100)
    assert set(zip(best["line_a"], best["line_b"], strict=True)) == {("b", "a")}
    assert np.allclose(best["q"], adjusted_p(best["p"]))
    assert len(all_comparisons(table, n_bootstrap=10)) == 3 * 3


def test_q_of_the_best_two_is_over_targets_whichever_lines_they_are():
    noises = {"x": (1.0, 1.2, 3.0), "y": (3.0, 1.0, 1.1), "z": (1.1, 3.0, 1.2)}
    parts = []
    for seed, (target, noise) in enumerate(noises.items()):
        parts.append(
            table_of(methods=list(zip("abc", noise, strict=True)), targets=[target], seed=seed)
        )
    table = all_comparisons(pd.concat(parts), n_bootstrap=200)
    best = table[table["best_two"]]
    pairs = {frozenset(pair) for pair in zip(best["line_a"], best["line_b"], strict=True)}
    assert len(best) == len(pairs) == 3  # another pair for each target
    assert np.allclose(best["q"], adjusted_p(best["p"]))
    assert not np.allclose(best["q"], best["p"])
    others = table[~table["best_two"]]
    names = [str(sorted(pair)) for pair in zip(others["line_a"], others["line_b"], strict=True)]
    for _, pair in others.groupby(names):
        assert np.allclose(pair["q"], adjusted_p(pair["p"]))


def test_seeds_are_scored_separately_and_compared_together():
    table = pd.concat([table_of(seed=0), table_of(seed=0).assign(seed=1)])
    assert len(score_table(table)) == 4
    assert len(compare(table, "good", "bad")) == 1


def test_repeats_are_averaged():
    one, two = table_of(methods=[("m", 1.0)]), table_of(methods=[("m", 1.0)])
    two["predicted"] = two["predicted"].sample(frac=1, random_state=0).to_numpy()
    both = pd.concat([one.assign(repeat=0), two.assign(repeat=1)])
    expected = np.mean([score_table(part)["r"].item() for part in (one, two)])
    assert np.isclose(score_table(both)["r"].item(), expected)


def test_p_values():
    assert permutation_p(np.zeros(99), 1.0) == 0.01
    assert permutation_p(np.ones(99), 1.0) == 1.0
    p = np.random.default_rng(0).random(20)
    assert np.allclose(adjusted_p(p), scipy.stats.false_discovery_control(p))


def test_motion_is_correlated_with_targets_and_predictions():
    table = table_of(methods=[("m", 1.0)])
    motion = pd.Series(table["predicted"].to_numpy(), index=table["participant"])
    row = motion_table(table, motion).iloc[0]
    assert np.isclose(row["r_prediction_motion"], 1.0)
    assert np.isclose(
        row["r_target_motion"], np.corrcoef(table["observed"], table["predicted"])[0, 1]
    )


def test_bad_tables_are_refused_in_a_sentence():
    table = table_of()
    with pytest.raises(NerveError, match="no column 'predicted'"):
        score_table(table.drop(columns="predicted"))
    with pytest.raises(NerveError, match="predicts a participant twice"):
        score_table(pd.concat([table, table]))
    with pytest.raises(NerveError, match="both good and best"):
        compare(table, "good", "best")
