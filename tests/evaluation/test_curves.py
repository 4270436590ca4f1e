"""Learning curves: all rows have the same draws, and scores rise with labels where a signal is planted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from tests.evaluation.conftest import make_cohort

from nerve import NerveError, Protocol
from nerve.evaluation.curves import (
    curve_sentences,
    curve_table,
    draws,
    equivalent_labels,
    learning_curve,
)
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.user_features import make_feature_set


def curves(features, cohort, **options):
    protocol = Protocol(
        targets="score,patient",
        labels="20,80",
        n_draws=6,
        motion="none",
        n_inner_folds=3,
        **options,
    )
    people, protocol = prepare_participants(cohort, protocol)
    one = make_feature_set(features, cohort)
    return learning_curve(one.prepare(cohort, people, protocol), people, protocol)


@pytest.mark.slow
def test_more_labels_predict_better_and_all_rows_have_the_same_draws(cohort, features):
    table = curves(features, cohort, covariates="age")
    means = table.groupby(["target", "labels"])["score"].mean()
    assert means["score", 80] > means["score", 20] > 0.2
    assert means["patient", 80] > 0.6
    assert table.groupby("target")["metric"].first().to_dict() == {"score": "r", "patient": "auc"}
    pd.testing.assert_frame_equal(table, curves(features, cohort, covariates="age"))


@pytest.mark.slow
def test_a_kernel_computed_once_gives_the_same_curve_as_rows(cohort, features):
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(90, features.shape[1])))
    wide = features @ rotation.T  # the same products, so wide that a kernel is computed
    by_rows = curves(features, cohort, kernel="cosine")
    by_kernel = curves(wide, cohort, kernel="cosine")
    np.testing.assert_allclose(by_kernel["score"], by_rows["score"], atol=1e-6)
    noise = curves(np.random.default_rng(1).normal(size=wide.shape), cohort)
    assert abs(noise.query("target == 'score'")["score"].mean()) < 0.2


def test_labelled_participants_have_the_classes_in_the_proportions_of_all(
    cohort, features, monkeypatch
):
    given, fit = [], KernelRidge.fit

    def watched(model, X, y, **options):
        given.append(np.ravel(y))
        return fit(model, X, y, **options)

    monkeypatch.setattr(KernelRidge, "fit", watched)
    curves(features, cohort)
    share = (cohort.participants["patient"] == "yes").mean()
    few = [
        y for y in given if len(y) == 20 and set(y) <= {0, 1}
    ]  # 20 labels of the target of two classes
    assert len(few) == 6
    for y in few:
        assert abs(y.sum() - 20 * share) <= 1.0


def test_a_model_is_given_the_labels_of_its_first_k_participants_only(cohort, features):
    given = []

    class Spy(KernelRidge):
        def fit(self, X, y, **options):
            given.append(np.asarray(y).ravel())
            return super().fit(X, y, **options)

    one = make_feature_set(features, cohort)
    protocol = Protocol(targets="score", labels="20,80", n_draws=1, motion="none")
    people, protocol = prepare_participants(cohort, protocol)
    one.prepare(cohort, people, protocol).model = Spy("linear", n_inner_folds=3)
    learning_curve(one, people, protocol)
    (draw,) = draws(people, protocol)
    pool, test = draw.pool[draw.labelled[0]], draw.test
    assert not set(pool) & set(test)
    labels = cohort.participants["score"].to_numpy()
    assert [len(y) for y in given] == [20, 80]
    np.testing.assert_allclose(given[0], labels[pool[:20]])
    np.testing.assert_allclose(given[1], labels[pool])


def test_too_many_labels_are_refused(cohort, features):
    protocol = Protocol(targets="score", labels="115")
    people, protocol = prepare_participants(cohort, protocol)
    with pytest.raises(NerveError, match="115 labelled participants leave 5 of the 120"):
        draws(people, protocol)


def test_the_sentence_says_how_many_labels_another_row_needs():
    scores = {"a": {25: 0.4, 50: 0.5, 100: 0.6}, "b": {25: 0.3, 50: 0.4, 100: 0.5}}
    rows = [
        {"cohort": "c", "target": "age", "row": row, "labels": k, "draw": draw, "metric": "r", "score": score}
        for row, one in scores.items() for k, score in one.items() for draw in range(3)
    ]  # fmt: skip
    table = curve_table(pd.DataFrame(rows))
    assert equivalent_labels(table, "a", "b", 25) == pytest.approx(50)
    assert np.isnan(equivalent_labels(table, "a", "b", 100))
    assert curve_sentences(table, {"a": "A", "b": "B"}, ["a", "b"]) == [
        "c, age: at 25 labels, A is where B is at 50."
    ]


class CountingMean(BaseEstimator):
    """Learns the mean FC without labels, and counts how often."""

    fits = []  # of all copies: how many participants each was fitted on

    def fit(self, cohort):
        self.fits.append(len(cohort))
        self.mean_ = cohort.inputs("upper").mean(axis=0)
        return self

    def transform(self, cohort):
        return cohort.inputs("upper") - self.mean_


def test_what_is_learned_without_labels_is_learned_once_per_draw_for_all_targets(cohort):
    """Three targets of the same participants share their draws; one that some participants lack has its own."""
    CountingMean.fits.clear()
    protocol = Protocol(
        targets="score,patient,signal,partly",
        labels="20,60",
        n_draws=4,
        motion="none",
        lambdas=[1.0, 10.0],
    )
    people, protocol = prepare_participants(cohort, protocol)
    one = make_feature_set(CountingMean(), cohort)
    table = learning_curve(one.prepare(cohort, people, protocol), people, protocol)
    assert CountingMean.fits == [60] * 8
    assert list(dict.fromkeys(table["target"])) == ["score", "patient", "signal", "partly"]
    assert (table.groupby("target").size() == 8).all()


def test_small_numbers_of_labels_have_their_share_of_both_classes_of_every_target():
    """Also where several targets share one draw."""
    rng = np.random.default_rng(0)
    classes = {name: rng.random(200) < 0.2 for name in "abc"}
    cohort = make_cohort(
        200, **{name: np.where(values, "yes", "no") for name, values in classes.items()}
    )
    people, protocol = prepare_participants(
        cohort, Protocol(targets="a,b,c", labels="20,100", n_draws=10)
    )
    for draw in draws(people, protocol):
        for target, values in enumerate(classes.values()):
            first = draw.pool[draw.labelled[target][:20]]
            assert 2 <= values[first].sum() <= 6


def test_a_pool_has_its_share_of_both_classes_also_where_there_is_one_target():
    is_patient = np.random.default_rng(0).random(200) < 0.2
    cohort = make_cohort(200, a=np.where(is_patient, "yes", "no"))
    people, protocol = prepare_participants(
        cohort, Protocol(targets="a", labels="20,100", n_draws=10)
    )
    for draw in draws(people, protocol):
        for k in (20, 100):
            n_patients = is_patient[draw.pool[draw.labelled[0]][:k]].sum()
            assert abs(n_patients - k * is_patient.mean()) <= 1
