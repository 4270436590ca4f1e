"""ComBat learned from controls harmonises sites and keeps the difference between patients and controls."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import make_cohort, predict

from nerve import NerveError, Protocol
from nerve.evaluation import participants_summary, protocol_text, score_table
from nerve.evaluation.combat import ComBat
from nerve.evaluation.feature_sets import GivenNumbers
from nerve.evaluation.participants import prepare_participants

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
N, D = 400, 30
CONTROLS = ("group", "control")


@pytest.fixture(scope="module")
def planted():
    """Three sites with 10, 50 and 90 % patients; sites and patients each shift every feature."""
    rng = np.random.default_rng(6)
    site = rng.integers(0, 3, N)
    patient = rng.random(N) < np.array([0.1, 0.5, 0.9])[site]
    effect, shift = rng.normal(size=D), 3 * rng.normal(size=(3, D))
    features = 0.5 * patient[:, None] * effect + shift[site] + rng.normal(size=(N, D))
    table = pd.DataFrame({"site": np.array(list("abc"))[site], "group": np.where(patient, "patient", "control"),
                          "code": np.where(patient, 2.0, 1.0)})  # fmt: skip
    return features, table, patient, 0.5 * effect


def slope(features, patient, effect):
    """How much of the planted difference is left."""
    return (
        (features[patient].mean(axis=0) - features[~patient].mean(axis=0))
        @ effect
        / (effect @ effect)
    )


def test_the_difference_of_patients_is_kept_and_that_of_sites_is_removed(planted):
    features, table, patient, effect = planted
    on_all = ComBat("site").fit(features, table).transform(features, table)
    on_controls = ComBat("site", on=CONTROLS).fit(features, table).transform(features, table)
    assert slope(on_all, patient, effect) < 0.75  # eaten: a site of patients looks like a shift
    assert slope(on_controls, patient, effect) == pytest.approx(1.0, abs=0.15)
    for site in "abc":
        mine = (table["site"] == site).to_numpy() & ~patient
        np.testing.assert_allclose(
            on_controls[mine].mean(axis=0), on_controls[~patient].mean(axis=0), atol=0.35
        )


def test_it_equals_combat_fitted_on_controls_and_applied_to_all(planted):
    features, table, patient, _ = planted
    subset = ComBat("site", on=CONTROLS).fit(features, table)
    alone = ComBat("site").fit(features[~patient], table[~patient])
    np.testing.assert_array_equal(
        subset.transform(features, table), alone.transform(features, table)
    )
    by_number = ComBat("site", on=("code", "1")).fit(features, table)
    np.testing.assert_array_equal(by_number.shift_, subset.shift_)


def test_the_diagnosis_of_test_participants_is_not_read(planted):
    features, table, _, _ = planted
    train, test = np.arange(300), np.arange(300, N)
    swapped = table.copy()
    swapped.loc[300:, "group"] = table.loc[300:, "group"].map(
        {"control": "patient", "patient": "control"}
    )
    parts = []
    for one in (table, swapped):
        adjusted = GivenNumbers(values=features, table=one, steps=[ComBat("site", on=CONTROLS)])
        parts.append(adjusted.split(train, test, ["group"]))
    np.testing.assert_array_equal(parts[0][1], parts[1][1])


@pytest.mark.slow
def test_patients_are_predicted_better_than_with_combat_of_all(planted):
    features, table, _, _ = planted
    cohort = make_cohort(N, **table.to_dict("list"))
    options = {"combat": True, "site": "site", "n_folds": 5, "kernel": "linear"}
    on_all = score_table(predict(features, cohort, "group", **options), n_bootstrap=0)
    on_controls = score_table(
        predict(features, cohort, "group", combat_on="group=control", **options), n_bootstrap=0
    )
    assert on_controls["auc"].iloc[0] > on_all["auc"].iloc[0] + 0.05


def test_a_site_without_controls_is_named(planted):
    features, table, _, _ = planted
    changed = table.assign(group=np.where(table["site"] == "c", "patient", table["group"]))
    with pytest.raises(
        NerveError, match=r"site c has fewer than two participants with group=control"
    ):
        predict(features, make_cohort(N, **changed.to_dict("list")), "group", combat=True, site="site",
                 combat_on="group=control")  # fmt: skip
    with pytest.raises(NerveError, match="grup"):
        predict(features, make_cohort(N, **table.to_dict("list")), "group", combat=True, site="site",
                 combat_on="grup=control")  # fmt: skip
    fitted = ComBat("site", on=CONTROLS).fit(features, changed)
    with pytest.raises(NerveError, match="without site c among those with group=control"):
        fitted.transform(features, changed)


def test_the_methods_paragraph_says_so(planted):
    _, table, _, _ = planted
    options = {"targets": "group", "site": "site", "combat": True, "combat_on": "group=control"}
    people, protocol = prepare_participants(
        make_cohort(N, **table.to_dict("list")), Protocol(**options)
    )
    text = protocol_text(protocol, participants_summary(people), pd.DataFrame())
    assert "fitted on those with group=control among the training fold" in text
