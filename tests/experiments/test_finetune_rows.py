"""The row finetune:RUN: no label of a test participant is used, and it says whom the run had seen."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import nerve
from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.cross_validation import out_of_fold_predictions
from nerve.evaluation.feature_sets import FitInFold, TrainedInFolds
from nerve.experiments.config import ExperimentConfig
from nerve.experiments.experiment import Experiment
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.requested_rows import request_rows
from nerve.methods.finetuned import FineTunedNERVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning"),
]
SMALL = "epochs=2:heads=2"
PROTOCOL = {"n_folds": 3, "motion": "none", "n_bootstrap": 20}


@pytest.fixture(scope="module")
def cohorts(tmp_path_factory):
    """Two cohorts on disk, as the experiments here read them."""
    folder = tmp_path_factory.mktemp("cohorts")
    simulate_cohort(40, "schaefer100-7", 40, seed=1, name="alpha").save(folder / "alpha")
    simulate_cohort(30, "schaefer100-7", 40, seed=2, name="gamma").save(folder / "gamma")
    return folder


@pytest.fixture(scope="module")
def alpha(cohorts):
    return Cohort.load(cohorts / "alpha")


@pytest.fixture(scope="module")
def run(alpha, tmp_path_factory):
    encoder = nerve.NERVE(
        view="fc", dim=16, depth=1, heads=2, epochs=1, pooling="mean", device="cpu"
    )
    return encoder.fit(alpha).save(tmp_path_factory.mktemp("runs") / "first")


def predicted_in_the_first_fold(cohort, run, y):
    """Out of fold predictions as a row makes them, age removed, of the participants of one fold."""
    method = FineTunedNERVE(str(run), layers="all", epochs=2, heads=2, device="cpu")
    features = TrainedInFolds("tuned", cohort=cohort)
    model = FitInFold(features, lambda: clone(method))
    folds = np.arange(len(cohort)) % 3
    covariates = cohort.participants[["age"]]
    table = out_of_fold_predictions(
        model, features, pd.DataFrame({"y": y}), folds, covariates=covariates
    )
    return table.loc[table["fold"] == 0, "predicted"].to_numpy()


def test_labels_of_test_participants_are_never_used(alpha, run):
    y = alpha.participants["p_factor"].to_numpy(float)
    is_tested = np.arange(len(alpha)) % 3 == 0
    shuffled = y.copy()
    shuffled[is_tested] = 1000 * np.random.default_rng(0).permutation(y[is_tested])
    before = predicted_in_the_first_fold(alpha, run, y)
    np.testing.assert_array_equal(before, predicted_in_the_first_fold(alpha, run, shuffled))
    # the claim can fail: labels of training participants are used
    shuffled = y.copy()
    shuffled[~is_tested] = np.random.default_rng(0).permutation(y[~is_tested])
    assert not np.array_equal(before, predicted_in_the_first_fold(alpha, run, shuffled))


def test_labels_of_another_cohort_that_is_tested_are_never_used(alpha, cohorts, run):
    gamma = Cohort.load(cohorts / "gamma")
    table = gamma.participants.copy()
    table["p_factor"] = np.random.default_rng(0).permutation(table["p_factor"])
    other = Cohort(gamma.connectivity, table, gamma.parcellation, name="gamma")
    row = f"finetune:{run}:layers=0:{SMALL}"
    before = nerve.evaluate(row, alpha, "p_factor", ["age"], test=gamma, **PROTOCOL)
    after = nerve.evaluate(row, alpha, "p_factor", ["age"], test=other, **PROTOCOL)
    assert not before.predictions["observed"].equals(after.predictions["observed"])
    pd.testing.assert_series_equal(before.predictions["predicted"], after.predictions["predicted"])


def test_the_scope_is_that_of_the_frozen_row(alpha, cohorts, run):
    rows = [str(run), f"finetune:{run}:layers=0:{SMALL}", f"finetune:{SMALL}"]
    on_its_own = nerve.evaluate(rows, alpha, "p_factor", **PROTOCOL).rows
    assert on_its_own["scope"].tolist() == ["all", "all", "train_folds"]
    assert on_its_own["trained_on"].tolist() == ["alpha (40)", "alpha (40)", ""]
    gamma = Cohort.load(cohorts / "gamma")
    on_another = nerve.evaluate(rows[:2], gamma, "p_factor", **PROTOCOL).rows
    assert on_another["scope"].tolist() == ["not stated", "not stated"]
    trained_there = nerve.evaluate(rows[:2], alpha, "p_factor", test=gamma, **PROTOCOL).rows
    assert trained_there["scope"].tolist() == ["other_people", "other_people"]


def test_a_row_is_called_by_the_name_of_the_run_not_by_its_path(run):
    (requested,) = request_rows([f"finetune:{run}:layers=0"], nerve.Protocol(targets="age"))
    assert requested.row.row == "finetune:first:layers=0"
    assert requested.row.settings == {"pretrained": "first", "layers": 0}
    assert str(run.parent) not in str(requested.row)
    assert requested.make().pretrained == str(run)


def test_mistakes_are_refused_before_anything_is_trained(run, tmp_path):
    protocol = nerve.Protocol(targets="age")
    with pytest.raises(NerveError, match="there is no such model"):
        request_rows([f"finetune:{tmp_path / 'nowhere'}"], protocol)
    with pytest.raises(NerveError, match="the encoder has 1 blocks"):
        request_rows([f"finetune:{run}:layers=2:heads=2"], protocol)
    with pytest.raises(NerveError, match="there is no setting 'depth'"):
        request_rows([f"finetune:{run}:depth=2"], protocol)


def test_a_cohort_of_another_atlas_is_refused(run):
    other = simulate_cohort(30, "schaefer200-7", 40, seed=3)
    with pytest.raises(NerveError, match="different parcels"):
        nerve.evaluate(f"finetune:{run}:{SMALL}", other, "p_factor", **PROTOCOL)


def test_three_classes_are_rows_of_one_against_all_others(alpha, run):
    table = alpha.participants.copy()
    table["site"] = np.array(["one", "two", "three"])[np.arange(len(table)) % 3]
    sites = Cohort(alpha.connectivity, table, alpha.parcellation, name="sites")
    row = f"finetune:{run}:layers=0:{SMALL}"
    results = nerve.evaluate(row, sites, "site", **PROTOCOL)
    assert {"site: one", "site: two", "site: three"} <= set(results.scores["target"])


def experiment_file(cohorts, run):
    return {
        "name": "tuned",
        "preset": "small",
        "device": "cpu",
        "cohorts": {"alpha": {"path": str(cohorts / "alpha"), "targets": ["p_factor"]}},
        "methods": [
            {
                "method": "finetune",
                "settings": {"pretrained": str(run), "layers": [0, "all"], "epochs": 1, "heads": 2},
            }
        ],
        "protocol": {"n_folds": 3, "n_bootstrap": 20},
    }


def test_an_experiment_file_has_the_row(cohorts, run, tmp_path):
    config = ExperimentConfig.model_validate(experiment_file(cohorts, run))
    experiment = Experiment.prepare(config, tmp_path / "out")
    results = experiment.run(jobs=1)
    assert experiment.failures() == []
    assert results.rows["scope"].tolist() == ["all", "all"]
    assert [row["pretrained"] for row in results.rows["settings"]] == ["first", "first"]
    assert np.isfinite(results.scores["r"]).all()

    # another run under the same path: the runs of the experiment are done again
    ids = {task.id for task in experiment.plan.unique_tasks}
    card = run / "README.md"
    text = card.read_text()
    card.write_text(text + "\nchanged\n")
    changed = Experiment.prepare(config, tmp_path / "again")
    assert ids.isdisjoint(task.id for task in changed.plan.unique_tasks)
    card.write_text(text)


def test_a_rehearsal_needs_no_run(cohorts):
    config = ExperimentConfig.model_validate(experiment_file(cohorts, "runs/of-another-atlas"))
    (entry,) = rehearsal(config).methods
    assert "pretrained" not in entry.settings
    assert entry.settings["network"] == "paper"
