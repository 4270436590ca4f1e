"""An experiment: shared runs are done once, done runs are skipped, failures are reported.

Two processes on one experiment, and one that is killed and started again, are in `tests/torture`.
"""

import json
import re
import shutil

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.evaluation.feature_sets import LearnedInFolds
from nerve.experiments.experiment import Experiment, _renamed
from nerve.experiments.launch import run_by_id
from nerve.experiments.plan import ExperimentPlan
from nerve.experiments.run_store import DONE, FAILED, RUNNING, UNAVAILABLE, WAITING, RunStore
from nerve.methods.nerve import NERVE
from nerve.methods.tangent import TangentSpace

pytestmark = pytest.mark.slow


def run(config, folder, **options):
    experiment = Experiment.prepare(config, folder)
    return experiment, experiment.run(jobs=1, **options)


# ---- one finished experiment, read and continued


@pytest.fixture(scope="module")
def rows(tiny):
    return [
        {"method": "raw", "label": "Raw FC"},
        {"method": "nerve", "label": "NERVE", "settings": tiny},
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, make_config, rows):
    """Two rows and two seeds, run once: to be read, and to be copied and continued."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    return folder, *run(make_config(rows, seeds=[3, 4]), folder)


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "copied")


def test_one_pretraining_serves_all_targets_and_cohorts(finished):
    folder, experiment, results = finished
    kinds = [task.kind for task in experiment.plan.unique_tasks]
    assert kinds.count("encode") == 2  # one per seed
    assert kinds.count("predict") == 6
    assert experiment.counts == {DONE: 8}
    scores = results.scores
    assert set(zip(scores["cohort"], scores["target"], strict=True)) == {
        ("alpha", "p_factor"),
        ("alpha", "null"),
        ("gamma", "p_factor"),
    }
    assert scores["r"].notna().all()
    for name in (
        "predictions.tsv",
        "scores.tsv",
        "comparisons.tsv",
        "folds.tsv",
        "runs.tsv",
        "tables/table.tex",
    ):
        assert (folder / name).is_file()
    manifest = json.loads(
        (experiment.store.run_folder(experiment.plan.tasks[2].id) / "manifest.json").read_text()
    )
    assert {"versions", "seconds", "cpu_seconds", "key", "line", "status"} <= manifest.keys()


def test_the_folder_of_a_model_holds_no_rows_of_participants(finished):
    folder = finished[0]
    models = [path.parent for path in folder.glob("runs/*/model.safetensors")]
    assert models
    # features are a row per participant, and are not kept at all
    assert not list(folder.rglob("*.npy"))


def test_every_method_is_given_the_same_folds(finished):
    table = pd.read_csv(finished[0] / "predictions.tsv", sep="\t")
    folds = table.pivot_table(
        index=["cohort", "participant", "target"], columns="row", values="fold"
    )
    assert (folds["raw-0-s3"] == folds["nerve-1-s3"]).all()
    assert (folds["raw-0-s3"] == folds["nerve-1-s4"]).all()


def test_seeds_are_rows_of_one_line(finished):
    results = finished[2]
    assert results.rows[["row", "line", "seed"]].values.tolist() == [
        ["raw-0-s3", "raw-0", 3], ["nerve-1-s3", "nerve-1", 3], ["nerve-1-s4", "nerve-1", 4],
    ]  # fmt: skip
    assert set(results.comparisons["line_a"]) | set(results.comparisons["line_b"]) == {
        "raw-0",
        "nerve-1",
    }
    assert set(results.comparisons["among"]) == {"reference"}


def test_a_cohort_out_of_domain_is_reported_as_other_participants(finished):
    scopes = finished[2].scores.groupby(["cohort", "row"])["scope"].first()
    assert scopes["alpha", "nerve-1-s3"] == "all"
    assert scopes["gamma", "nerve-1-s3"] == "other_people"
    assert scopes["gamma", "raw-0-s3"] == "none"


@pytest.mark.slow
def test_done_runs_are_skipped_after_a_new_label_and_only_new_rows_are_run(
    make_config, copied, rows
):
    seen = []
    renamed = [rows[0] | {"label": "FC"}, rows[1] | {"label": "Ours"}]
    _, results = run(
        make_config(renamed, seeds=[3, 4]), copied, on_status=lambda *status: seen.append(status)
    )
    assert seen == []
    assert results.rows["label"].tolist() == ["FC", "Ours", "Ours"]
    changed = [*rows, {"method": "tangent"}]
    experiment, _ = run(
        make_config(changed, seeds=[3, 4]),
        copied,
        on_status=lambda task, status: seen.append((task.kind, status)),
    )
    assert [(kind, status) for kind, status in seen if status != RUNNING] == [
        ("encode", DONE),
        ("predict", DONE),
        ("predict", DONE),
    ]
    assert experiment.counts == {DONE: 11}


def test_a_worker_finds_its_run_in_the_folder_alone(finished, copied):
    prediction = next(task for task in finished[1].plan.unique_tasks if task.kind == "predict")
    shutil.rmtree(copied / "runs" / prediction.id)
    assert run_by_id(str(copied), prediction.id) == DONE
    assert (copied / "runs" / prediction.id / "predictions.tsv").is_file()
    with pytest.raises(NerveError, match="has no run"):
        run_by_id(str(copied), "unknown")


def test_plans_of_two_processes_agree_and_differ_with_code_and_settings(
    finished, make_config, rows
):
    folder, experiment, _ = finished
    again = Experiment.open(folder)
    ids = [task.id for task in experiment.plan.tasks]
    assert ids == [task.id for task in again.plan.tasks]
    data, code = experiment.inputs()
    other = ExperimentPlan(experiment.config, data, code + "x")
    assert not {task.id for task in other.tasks} & set(ids)
    changed = [rows[0], rows[1] | {"settings": rows[1]["settings"] | {"lr": 0.01}}]
    other = ExperimentPlan(make_config(changed, seeds=[3, 4]), data, code)
    same = [task.row.method for task in other.tasks if task.id in ids]
    assert same == ["raw", "raw"]


# ---- variants and null models


@pytest.fixture(scope="module")
def swept(tmp_path_factory, make_config, tiny):
    """Two variants, each as a row; the first has null models."""
    settings = tiny | {"mask_ratio": [0.3, 0.6]}
    rows = [
        {"method": "nerve", "label": "swept", "settings": settings, "permutations": 2},
    ]
    config = make_config(rows, layout="parcellations", protocol={"labels": [10], "n_draws": 1})
    config = config.model_copy(update={"cohorts": {"alpha": config.cohorts["alpha"]}})
    return run(config, tmp_path_factory.mktemp("swept") / "out")


@pytest.mark.slow
def test_permuted_networks_give_a_null_a_spread_and_p(swept):
    results = swept[1]
    null = results.scores[results.scores["row"].str.startswith("null-")]
    assert null.groupby(["cohort", "target"]).size().tolist() == [2, 2]
    row = results.scores.iloc[0]
    values = null.query("cohort == @row.cohort and target == @row.target")["r"]
    assert row["p_permuted_networks"] == pytest.approx((1 + (values >= row["r"]).sum()) / 3)
    rows = results.rows.set_index("row")
    null_row = rows.loc["null-0-1", ["line", "kind", "seed"]].tolist()
    assert null_row == ["null-0", "null", rows.loc["nerve-0-0", "seed"]]
    compared = set(results.comparisons["line_a"]) | set(results.comparisons["line_b"])
    assert compared == {"nerve-0-0", "nerve-0-1"}  # null models are compared with no row


@pytest.mark.slow
def test_sweeps_have_a_row_and_an_encoder_each(swept):
    experiment, results = swept
    encoders = [
        task
        for task in experiment.plan.unique_tasks
        if task.kind == "encode" and task.row.kind != "null"
    ]
    assert len(encoders) == 2
    rows = results.rows[results.rows["kind"] != "null"]
    assert rows[["line", "variant"]].values.tolist() == [
        ["nerve-0-0", "mask_ratio=0.3"],
        ["nerve-0-1", "mask_ratio=0.6"],
    ]
    assert [settings["mask_ratio"] for settings in rows["settings"]] == [0.3, 0.6]
    assert set(rows["row"]) <= set(results.curves["row"])


# ---- what cannot be done


@pytest.mark.slow
def test_a_method_without_its_input_prints_dashes_and_a_failure_is_reported(
    make_config, tmp_path, monkeypatch
):
    def fail(self, *_, **__):
        raise NerveError("The loss is not a number.")

    monkeypatch.setattr(TangentSpace, "fit", fail)
    rows = [
        {"method": "raw", "label": "Raw FC"},
        {"method": "gate", "label": "GATE"},
        {"method": "tangent", "label": "Broken"},
    ]
    config = make_config(rows)
    cohorts = config.cohorts | {
        "alpha": config.cohorts["alpha"].model_copy(update={"timeseries": False})
    }
    experiment, results = run(config.model_copy(update={"cohorts": cohorts}), tmp_path)
    runs = pd.read_csv(tmp_path / "runs.tsv", sep="\t").groupby("line")["status"].unique()
    assert set(runs["gate-1"]) == {UNAVAILABLE}
    assert set(runs["tangent-2"]) == {FAILED}
    assert set(results.scores["row"]) == {"raw-0"}
    table = (tmp_path / "tables" / "table.md").read_text()
    assert "| GATE | -- |" in table
    assert "| Broken" in table
    assert "failed" in table
    assert experiment.counts[UNAVAILABLE] == 3
    assert any("The loss is not a number" in line for line in experiment.failures()), (
        experiment.failures()
    )


def test_a_failed_run_reports_its_reason_without_folders_and_is_tried_again(
    make_config, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise ValueError(f"could not read {tmp_path}/my study/fc.npy")

    config = make_config([{"method": "raw", "label": "Raw FC"}])
    monkeypatch.setattr("nerve.experiments.tasks.evaluate_features", fail)
    with pytest.raises(NerveError, match="no run has made predictions"):
        run(config, tmp_path / "out")
    assert Experiment.open(tmp_path / "out").counts == {FAILED: 2}
    texts = [file.read_text() for file in (tmp_path / "out" / "runs").rglob("error.txt")]
    assert len(texts) == 2
    for text in texts:
        assert "ValueError: could not read […]/fc.npy" in text
        assert "test_experiment.py" in text
        assert not re.search(r"/\w+/\w+", text)
    monkeypatch.undo()
    experiment, _ = run(config, tmp_path / "out")
    assert experiment.counts == {DONE: 2}


def test_two_processes_do_not_hold_the_same_lock(tmp_path):
    store = RunStore(tmp_path)
    with store.lock("a") as is_ours:
        assert is_ours
        with store.lock("a") as is_ours_again:
            assert not is_ours_again
        assert store.status("a") == RUNNING
        assert "on this machine" in store.holder("a")
    assert store.status("a") == WAITING


# ---- leaks


@pytest.mark.slow
def test_strict_scope_never_shows_the_encoder_a_test_participant(
    make_config, tmp_path, tiny, monkeypatch
):
    protocol = {"n_folds": 2, "pretrain_scope": "train_folds"}
    config = make_config(
        [{"method": "nerve", "label": "NERVE", "settings": tiny}], protocol=protocol
    )
    seen = []
    fit = NERVE.fit

    def watched(self, X, y=None, **options):
        seen.append(ids_of(X))
        return fit(self, X, y, **options)

    monkeypatch.setattr(NERVE, "fit", watched)
    splits = []
    split = LearnedInFolds.split

    def noted(self, train, test, targets):
        before = len(seen)
        result = split(self, train, test, targets)
        splits.append((set(self.cohort.participants["participant_id"].iloc[test]), seen[before:]))
        return result

    monkeypatch.setattr(LearnedInFolds, "split", noted)
    _, results = run(config, tmp_path)
    assert results.scores["r"].notna().all()
    scopes = results.scores.groupby("cohort")["scope"].unique().map(list).to_dict()
    assert scopes == {
        "alpha": ["train_folds"],
        "gamma": ["other_people"],
    }  # gamma is not pretrained on
    fits = [(test, training) for test, trainings in splits for training in trainings]
    assert len(fits) >= 3
    assert all(not (test & training) for test, training in fits)
    assert "(scope: train_folds)" in (tmp_path / "protocol.md").read_text()


def test_sites_are_recentred_in_folds_whatever_the_scope_and_whatever_the_cohort_is_called(
    make_config, tmp_path, monkeypatch
):
    """With the means of all, the participants of a site sum to zero: the others show the tested."""
    rows = [{"method": "tangent", "settings": {"recentre": "site"}}]
    cohort = {"path": make_config(rows).cohorts["alpha"].path, "targets": ["p_factor"]}
    config = make_config(
        rows, cohorts={"alpha": cohort, "the same again": {**cohort, "pretrain": False}}
    )
    splits = []
    seen = []
    split = LearnedInFolds.split
    fit = TangentSpace.fit

    def watched(self, X, y=None):
        seen.append(ids_of(X))
        return fit(self, X, y)

    monkeypatch.setattr(TangentSpace, "fit", watched)

    def noted(self, train, test, targets):
        splits.append((set(self.cohort.participants["participant_id"].iloc[test]), len(seen)))
        return split(self, train, test, targets)

    monkeypatch.setattr(LearnedInFolds, "split", noted)
    _, results = run(config, tmp_path)
    assert set(results.scores["scope"]) == {"train_folds"}
    # there are few participants per site
    assert results.scores["adapted"].str.contains("recentred by their own").all()
    assert len(seen) == len(splits) >= 6
    assert not any(test & seen[number] for test, number in splits)


def ids_of(cohorts):
    ids = set()
    for cohort in cohorts:
        ids.update(cohort.participants["participant_id"])
    return ids


# ---- cohorts and participants


def test_columns_may_have_been_renamed_by_ingest_already():
    table = pd.DataFrame({"participant_id": ["a"], "long_name": [1.0], "age": [2.0]})
    assert _renamed(table, {"p": "long_name"}, "A").columns.tolist() == [
        "participant_id",
        "p",
        "age",
    ]
    assert _renamed(table, {"age": "AGE_AT_SCAN"}, "A").columns.tolist() == [
        "participant_id",
        "long_name",
        "age",
    ]
    both = table.assign(p=3.0)
    assert _renamed(both, {"p": "long_name"}, "A")["p"].tolist() == [1.0]
    with pytest.raises(NerveError, match=r"no column 'lnog_name'.* Did you mean 'long_name'"):
        _renamed(table, {"p": "lnog_name"}, "A")


def test_motion_is_a_covariate_only_where_the_file_says_so(make_config, tmp_path):
    without_motion = ("age", "sex")
    for protocol, expected in (
        ({}, without_motion),
        ({"motion": "auto"}, (*without_motion, "mean_fd")),
    ):
        config = make_config([{"method": "raw"}], protocol=protocol)
        experiment = Experiment.prepare(config, tmp_path)
        assert experiment.participants("alpha")[1].covariates == expected


def test_a_cohort_is_simulated_once_and_again_with_other_arguments(make_config, tmp_path):
    made = []
    for n in (20, 20, 21):
        cohorts = {"a": {"simulate": {"n": n, "timepoints": 20}, "targets": ["p_factor"]}}
        Experiment.prepare(make_config([{"method": "raw"}], cohorts=cohorts), tmp_path)
        folder = tmp_path / "cohorts" / "a"
        made.append((len(Cohort.load(folder)), folder.stat().st_mtime_ns))
    assert [n for n, _ in made] == [20, 20, 21]
    assert made[0] == made[1]
    cohorts = {"a": {"simulate": {"n": 20, "timepoint": 20}, "targets": ["p_factor"]}}
    with pytest.raises(
        NerveError, match=r"simulate of cohort 'a'.*'timepoint'.* Did you mean 'timepoints'"
    ):
        Experiment.prepare(make_config([{"method": "raw"}], cohorts=cohorts), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tangent", "nerve"])
def test_what_folds_fitted_is_not_kept(make_config, tmp_path, tiny, method):
    """Two models together can give away the participants that one of them left out."""
    settings = tiny if method == "nerve" else {}
    config = make_config(
        [{"method": method, "settings": settings}], protocol={"pretrain_scope": "train_folds"}
    )
    experiment = Experiment.prepare(config, tmp_path / "out")
    assert len(experiment.run(jobs=1).scores)
    assert experiment.failures() == []
    assert not list((tmp_path / "out").glob("runs/*/encoders/**/*.safetensors"))
