"""Scores that come from differences between sites alone are recognised."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import make_cohort, predict

from nerve import Protocol
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy, site_table, site_verdict
from nerve.evaluation.statistics import score_table
from nerve.evaluation.user_features import make_feature_set

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
N = 120


@pytest.fixture
def planted():
    """Features that know the site and nothing else; one target differs between sites only, the other within only."""
    rng = np.random.default_rng(3)
    site = np.repeat([0, 1, 2], N // 3)
    own = rng.normal(size=N)
    cohort = make_cohort(N, between=3.0 * site + rng.normal(size=N), within=own + 0.3 * rng.normal(size=N),
                         site=np.array(list("abc"))[site])  # fmt: skip
    features = np.column_stack(
        [3.0 * np.eye(3)[site], np.outer(own, [1.0, -1.0, 0.5])]
    ) + 0.2 * rng.normal(size=(N, 6))
    return cohort, features


def test_a_score_that_comes_from_sites_alone_is_recognised(planted):
    cohort, features = planted
    predictions = predict(features, cohort, ["between", "within"], n_folds=5, kernel="linear")
    sites = dict(
        zip(cohort.participants["participant_id"], cohort.participants["site"], strict=True)
    )
    r = score_table(predictions, n_bootstrap=0).set_index("target")["r"]
    inside = site_table(predictions, sites).set_index("target")["r_within_site"]
    assert r["between"] > 0.8
    assert abs(inside["between"]) < 0.25
    assert site_verdict(r["between"], inside["between"]) == "most of this r is between sites"
    assert inside["within"] > 0.8
    assert site_verdict(r["within"], inside["within"]) == "this r holds within sites"


def test_the_score_within_sites_is_the_correlation_of_centred_values(planted):
    cohort, features = planted
    predictions = predict(features, cohort, "within", n_folds=5)
    table = predictions.assign(site=cohort.participants["site"].to_numpy())
    centred = table[["observed", "predicted"]] - table.groupby("site")[
        ["observed", "predicted"]
    ].transform("mean")
    sites = pd.Series(cohort.participants["site"].to_numpy(), cohort.participants["participant_id"])
    assert site_table(predictions, sites)["r_within_site"].iloc[0] == pytest.approx(
        centred.corr().iloc[0, 1]
    )


def test_features_that_know_the_site_predict_it_and_others_are_at_chance(planted):
    cohort, features = planted
    people, protocol = prepare_participants(
        cohort, Protocol(targets="within", site="site", kernel="linear")
    )
    known = site_accuracy(
        make_feature_set(features, cohort).prepare(cohort, people, protocol), people, protocol
    )
    noise = np.random.default_rng(0).normal(size=features.shape)
    chance = site_accuracy(
        make_feature_set(noise, cohort).prepare(cohort, people, protocol), people, protocol
    )
    assert known > 0.95
    assert 0.15 < chance < 0.5
