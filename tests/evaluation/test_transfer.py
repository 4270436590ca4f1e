"""Train here, test there: a model fitted on one cohort predicts another, and learns nothing from it."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import make_cohort, predict
from typer.testing import CliRunner

from nerve import Cohort, NerveError
from nerve._utils.errors import NerveWarning
from nerve.cli import app
from nerve.evaluation import KernelRidge, Results, score_table, strata_of
from nerve.evaluation.covariates import CovariateRegression

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
FORWARDS = np.arange(8)


def planted(n, seed, name, order=FORWARDS, offset=0.0):
    """A cohort whose score is in the correlation of the regions r0 and r1, and in age."""
    rng = np.random.default_rng(seed)
    age, strength = rng.uniform(10, 20, n), rng.uniform(-0.6, 0.6, n)
    score = 3 * strength + 0.5 * age + 0.3 * rng.normal(size=n) + offset
    cohort = make_cohort(n, seed=seed, age=age, score=score, group=np.where(strength > 0, "high", "low"),
                         site=[f"{name}{i % 2}" for i in range(n)])  # fmt: skip
    fc = cohort.connectivity.copy()
    fc[:, 0, 1] = fc[:, 1, 0] = strength
    fc, regions = fc[:, order][:, :, order], cohort.parcellation.to_table().iloc[order]
    table = cohort.participants.assign(participant_id=[f"sub-{i:03}" for i in range(n)])
    parcellation = type(cohort.parcellation).from_table(regions.reset_index(drop=True), name="toy")
    return Cohort(fc, table, parcellation, name=name)


@pytest.fixture(scope="module")
def here():
    return planted(90, 1, "here")


@pytest.fixture(scope="module")
def there():
    """Other participants under the same ids, with the regions the other way round and every score 40 higher."""
    return planted(60, 2, "there", FORWARDS[::-1], offset=40.0)


def test_the_other_cohort_is_predicted_and_regions_are_matched_by_label(here, there):
    table = predict("raw", here, "score", "age", test=there)
    assert list(table["participant"]) == list(there.participants["participant_id"])
    assert set(table["cohort"]) == {"there"}
    ages = [one.participants[["age"]] for one in (here, there)]
    truth = [one.participants["score"].to_numpy()[:, None] for one in (here, there)]
    regression = CovariateRegression().fit(ages[0], truth[0])
    left = [regression.residuals(age, y)[:, 0] for age, y in zip(ages, truth, strict=True)]
    aligned = there.align(here.parcellation)
    ridge = KernelRidge().fit(
        here.inputs("upper"), left[0], strata=strata_of(truth[0][:, 0], 5)[:, None]
    )
    assert table["observed"].to_numpy() == pytest.approx(left[1])
    assert table["predicted"].to_numpy() == pytest.approx(
        ridge.predict(aligned.inputs("upper")), abs=1e-4
    )
    score = score_table(table, n_bootstrap=50).iloc[0]
    assert score["r"] > 0.8
    assert (
        score["r2"] < 0
    )  # a model of the first cohort cannot know that scores are higher in the second
    assert (score["r_low_cv"], score["n_folds"]) == (score["r_low"], 1)


@pytest.mark.slow
def test_nothing_is_learned_from_the_tested_cohort(here, there):
    """Other labels of the tested, and other participants among them, change nobody's prediction."""
    changed = there.subset(np.arange(60))
    changed.participants["score"] = np.random.default_rng(0).normal(size=60) * 100
    for features in ("raw", "pca", "tangent"):
        before = predict(features, here, "score", test=there)["predicted"]
        assert predict(features, here, "score", test=changed)[
            "predicted"
        ].to_numpy() == pytest.approx(before)
        some = predict(features, here, "score", test=there.subset(np.arange(20)))["predicted"]
        assert some.to_numpy() == pytest.approx(before[:20], abs=1e-6)


def test_classes_are_cut_at_the_mean_of_the_cohort_that_was_trained_on(here, there):
    table = predict("raw", here, "group", test=there)
    score = score_table(table, n_bootstrap=0).iloc[0]
    said = table["predicted"] > (here.participants["group"] == "low").mean()
    truth = table["observed_raw"] == 1
    assert score["balanced_accuracy"] == pytest.approx(
        (said[truth].mean() + (~said[~truth]).mean()) / 2
    )
    assert score["auc"] > 0.9


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (lambda t: t.drop(columns="age"), {"covariates": "age"}, "participants of 'there'.*no column.*age"),
        (lambda t: t.assign(age=np.nan), {"covariates": "age"}, "'age' has no values"),
        (lambda t: t.assign(age="old"), {"covariates": "age"}, "'age' holds words, expected what it holds in 'here'"),
        (lambda t: t.assign(mean_fd=0.1), {}, "participants of 'here': there is no column 'mean_fd'.*motion=\"none\""),
        (lambda t: t.assign(group="yes"), {"targets": "group"}, "class yes, expected only classes to train on"),
        (lambda t: t, {"combat": True, "site": "site"}, "ComBat was fitted without site there0, there1"),
    ],
)  # fmt: skip
def test_columns_that_do_not_match_are_refused_in_a_sentence(
    here, there, change, options, sentence
):
    other = Cohort(there.connectivity, change(there.participants), there.parcellation, name="there")
    with pytest.raises(NerveError, match=sentence):
        predict("raw", here, **({"targets": "score"} | options), test=other)


def test_other_regions_and_measures_are_refused(here, there):
    table = there.parcellation.to_table().assign(label=[f"x{i}" for i in range(8)])
    strangers = Cohort(
        there.connectivity, there.participants, type(there.parcellation).from_table(table, name="x")
    )
    with pytest.raises(NerveError, match="r0"):
        predict("raw", here, "score", test=strangers)
    partial = Cohort(there.connectivity, there.participants, there.parcellation, measure="partial")
    with pytest.raises(NerveError, match="different measures"):
        predict("raw", here, "score", test=partial)


def test_participants_of_both_cohorts_are_not_trained_on(here):
    """Also as a copy in float16 under another id, and with the family of the copy in the first cohort."""
    families = np.arange(90) // 2  # sub-000 and sub-001, and so on
    train = Cohort(
        here.connectivity, here.participants.assign(family=families), here.parcellation, name="here"
    )
    table = train.participants[:30:2].assign(
        participant_id=[f"copy-{i}" for i in range(15)], family=np.nan
    )
    copies = Cohort(
        here.connectivity[:30:2].astype(np.float16), table, here.parcellation, name="copies"
    )
    with pytest.warns(
        NerveWarning,
        match=r"30 participants left out: they share a family or their FC with .* tested",
    ):
        found = predict("raw", train, "score", groups="family", test=copies)
    honest = predict("raw", train.subset(np.arange(30, 90)), "score", groups="family", test=copies)
    assert found["predicted"].to_numpy() == pytest.approx(honest["predicted"].to_numpy(), abs=1e-6)
    with pytest.raises(
        NerveError, match=r"0 participants of 'here' are left to train on .*test other participants"
    ):
        predict("raw", here, "score", test=here)


def test_more_labels_than_training_participants_are_refused_with_their_number(here, there):
    with pytest.raises(NerveError, match=r"95 labelled .* 90 of 'here' with 'score' can be label"):
        predict("raw", here, "score", test=there, labels=[95], n_draws=1)


@pytest.mark.slow
def test_the_command_line_has_both_cohorts_in_the_one_layout(here, there, tmp_path, undrawn):
    for one in (here, there):
        one.save(tmp_path / one.name)
    out = tmp_path / "out"
    words = ["evaluate", str(tmp_path / "here"), "--test", str(tmp_path / "there"), "--targets", "score", "--features",
             "raw,tangent", "--covariates", "age", "--labels", "20,40", "--n-draws", "1", "--n-folds", "3",
             "--n-bootstrap", "20", "--n-permutations", "9", "--out", str(out)]  # fmt: skip
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    results = Results.load(out)
    assert results.cohorts.set_index("cohort")["n"].to_dict() == {"here": 90, "there": 60}
    scopes = results.scores.set_index(["cohort", "row"])["scope"]
    assert scopes["here", "tangent"] == "train_folds"
    assert scopes["there", "tangent"] == "other_people"
    mine = results.predictions[
        (results.predictions["cohort"] == "there") & (results.predictions["row"] == "raw")
    ]
    python = predict("raw", here, "score", "age", test=there)
    assert mine["predicted"].to_numpy() == pytest.approx(python["predicted"].to_numpy(), abs=1e-6)
    assert results.scores["p"].max() <= 0.1 + 1e-9
    text = (out / "protocol.md").read_text()
    assert "fitted on 90 participants of here" in text
    assert "We predicted score (n = 60) from features of 60 participants" in text
    assert set(pd.read_csv(out / "folds.tsv", sep="\t").groupby("cohort").size()) == {90, 60}


def test_words_that_the_training_cohort_lacks_are_reported(here, there):
    """They count as missing: male and female against F and M, or new sites."""
    with pytest.warns(
        NerveWarning, match=r"60 of 60 .*'site' that 'here' lacks \(there0, there1\)"
    ):
        predict("raw", here, test=there, targets="score", covariates="age,site")
