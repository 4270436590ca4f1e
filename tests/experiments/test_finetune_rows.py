"""The row finetune:RUN: no label of a test participant is used, and it says whom the run had seen."""

import numpy as np
import pytest

import nerve
from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.simulate import simulate_cohort
from nerve.experiments.experiment import Experiment
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.requested_rows import request_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning"),
]
SMALL = "epochs=2:heads=2"
PROTOCOL = {"n_folds": 3, "motion": "none", "n_bootstrap": 0}


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


def predictions(results):
    return results.predictions.set_index("participant")["predicted"]


def test_labels_of_test_participants_are_never_used(alpha, run):
    row = f"finetune:{run}:layers=all:{SMALL}"
    results = nerve.evaluate(row, alpha, "p_factor", ["age"], **PROTOCOL)
    tested = results.predictions.loc[results.predictions["fold"] == 0, "participant"]

    table = alpha.participants.copy()
    is_tested = table["participant_id"].isin(tested).to_numpy()
    shuffled = np.random.default_rng(0).permutation(table.loc[is_tested, "p_factor"])
    table.loc[is_tested, "p_factor"] = shuffled
    other = Cohort(alpha.connectivity, table, alpha.parcellation, name="alpha")
    folds = results.folds.set_index("participant")["fold"]
    again = nerve.evaluate(row, other, "p_factor", ["age"], **PROTOCOL)
    # folds are stratified by the target: the participants must stand in the same ones
    assert folds.equals(again.folds.set_index("participant")["fold"]) or _same_fold(
        folds, again, tested
    )
    np.testing.assert_array_equal(
        predictions(results)[tested].to_numpy(), predictions(again)[tested].to_numpy()
    )


def _same_fold(folds, again, tested):
    others = again.folds.set_index("participant")["fold"]
    return set(others.index[others == others[tested.iloc[0]]]) == set(tested)


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
    other = simulate_cohort(30, "schaefer100-17", 40, seed=3)
    other.parcellation = nerve.load_parcellation("schaefer100-17")
    with pytest.raises(NerveError, match="lacks regions"):
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
    from nerve.experiments.config import ExperimentConfig

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
    from nerve.experiments.config import ExperimentConfig

    config = ExperimentConfig.model_validate(experiment_file(cohorts, "runs/of-another-atlas"))
    (entry,) = rehearsal(config).methods
    assert "pretrained" not in entry.settings
    assert entry.settings["network"] == "paper"
