"""A whole experiment: what is shared is done once, what is done is skipped, what fails is said.

Two processes on one experiment, and one that is killed and started again, are in `tests/torture`.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from nerve.checks import NerveError
from nerve.experiments.launch import work
from nerve.experiments.main import prepare, reopen
from nerve.experiments.plan import make_plan
from nerve.experiments.select import BestVariant, Variants
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, Store
from nerve.experiments.work import _TrainedInFolds
from nerve.experiments.workspace import _renamed
from nerve.methods.tangent import TangentSpace

pytestmark = pytest.mark.xdist_group("experiment")  # one process, for the runs that several tests look at


def run(config, folder, **options):
    experiment = prepare(config, folder)
    return experiment, experiment.run(jobs=1, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, make_config):
    """The tiny experiment, run once: to look at, and to copy for going on from."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    return folder, *run(make_config(), folder)


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "copied")


def test_one_pretraining_serves_all_targets_and_cohorts(finished):
    folder, experiment, results = finished
    kinds = [task.work.kind for task in experiment.plan.unique]
    assert kinds.count("encode") == 1
    assert kinds.count("probe") == 4
    assert experiment.counts == {DONE: 5}
    scores = results.scores
    assert set(zip(scores["cohort"], scores["target"], strict=True)) == {
        ("alpha", "p_factor"),
        ("alpha", "null"),
        ("gamma", "p_factor"),
    }
    assert scores["r"].notna().all()
    for name in ("predictions.tsv", "scores.tsv", "comparisons.tsv", "folds.tsv", "runs.tsv", "tables/table.tex"):
        assert (folder / name).is_file()
    manifest = json.loads(
        (experiment.workspace.store.run_folder(experiment.plan.tasks[2].id) / "manifest.json").read_text()
    )
    assert {"versions", "seconds", "cpu_seconds", "key", "line", "status"} <= manifest.keys()


def test_every_method_is_given_the_same_folds(finished):
    table = pd.read_csv(finished[0] / "predictions.tsv", sep="\t")
    folds = table.pivot_table(index=["cohort", "participant", "target"], columns="row", values="fold")
    assert (folds["raw-0"] == folds["nerve-1"]).all()


@pytest.mark.slow
def test_what_is_done_is_skipped_and_only_what_changed_runs_again(make_config, copied, tiny):
    seen = []
    run(make_config(), copied, report=lambda task, status: seen.append(task.label))
    assert seen == []
    changed = [
        {"method": "raw", "label": "Raw FC"},
        {"method": "nerve", "label": "Other", "settings": tiny | {"lr": 0.01}},
    ]
    run(make_config(changed), copied, report=lambda task, status: seen.append((task.work.kind, status)))
    assert seen.count(("encode", DONE)) == 1
    assert seen.count(("probe", DONE)) == 2


def test_a_label_is_not_what_a_run_is(make_config, copied, tiny):
    """Calling a row otherwise repeats nothing."""
    renamed = [{"method": "raw", "label": "FC"}, {"method": "nerve", "label": "Ours", "settings": tiny}]
    seen = []
    _, results = run(make_config(renamed), copied, report=lambda task, status: seen.append(task))
    assert seen == []
    assert results.rows["label"].tolist() == ["FC", "Ours"]


@pytest.mark.slow
def test_a_method_without_its_input_prints_dashes_and_a_failure_says_so(make_config, tmp_path):
    rows = [
        {"method": "raw", "label": "Raw FC"},
        {"method": "gate", "label": "GATE"},
        {"method": "nerve", "label": "Broken", "settings": {"patching": "schaefer400-7"}},
    ]
    config = make_config(rows)
    cohorts = config.cohorts | {"alpha": config.cohorts["alpha"].model_copy(update={"timeseries": False})}
    experiment, results = run(config.model_copy(update={"cohorts": cohorts}), tmp_path)
    runs = pd.read_csv(tmp_path / "runs.tsv", sep="\t").groupby("line")["status"].unique()
    assert set(runs["gate-1"]) == {UNAVAILABLE}
    assert set(runs["nerve-2"]) == {FAILED}
    assert set(results.scores["row"]) == {"raw-0"}
    table = (tmp_path / "tables" / "table.md").read_text()
    assert "| GATE | -- |" in table
    assert "| Broken" in table
    assert "failed" in table
    assert experiment.counts[UNAVAILABLE] == 3
    assert any("schaefer400-7" in line for line in experiment.failures()), experiment.failures()


@pytest.mark.slow
def test_a_failed_run_is_tried_again(make_config, tmp_path, tiny, monkeypatch):
    config = make_config([{"method": "raw", "label": "Raw FC"}])
    monkeypatch.setattr("nerve.experiments.work.predict_one", lambda *a, **k: 1 / 0)
    with pytest.raises(NerveError, match="no run has made predictions"):
        run(config, tmp_path)
    assert reopen(tmp_path).counts == {FAILED: 2}
    monkeypatch.undo()
    experiment, _ = run(config, tmp_path)
    assert experiment.counts == {DONE: 2}


@pytest.mark.slow
def test_strict_scope_never_shows_the_encoder_a_test_person(make_config, tmp_path, tiny, monkeypatch):
    config = make_config(
        [{"method": "nerve", "label": "NERVE", "settings": tiny}],
        protocol={"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 50, "pretrain_scope": "train_folds"},
    )
    seen = []
    from nerve.methods.nerve import NERVE

    fit = NERVE.fit

    def watched(self, X, y=None, **options):
        seen.append({person for cohort in X for person in cohort.participants["participant_id"]})
        return fit(self, X, y, **options)

    monkeypatch.setattr(NERVE, "fit", watched)
    splits = []
    split = _TrainedInFolds.split

    def noted(self, train, test, targets):
        before = len(seen)
        result = split(self, train, test, targets)
        splits.append((set(self.cohort.participants["participant_id"].iloc[test]), seen[before:]))
        return result

    monkeypatch.setattr(_TrainedInFolds, "split", noted)
    _, results = run(config, tmp_path)
    assert results.scores["r"].notna().all()
    assert set(results.scores["scope"]) == {"train_folds"}
    fitted = [(test, people) for test, fits in splits for people in fits]
    assert len(fitted) >= 3
    assert all(not (test & people) for test, people in fitted)
    assert "pretrain_scope: train_folds" in (tmp_path / "protocol.md").read_text()


@pytest.mark.slow
def test_permuted_networks_give_a_null_a_spread_and_p(make_config, tmp_path, tiny):
    rows = [{"method": "nerve", "label": "7-network", "settings": tiny, "permutations": 3}]
    _, results = run(make_config(rows, layout="parcellations"), tmp_path)
    null = results.scores[results.scores["row"].str.startswith("null-")]
    assert null.groupby(["cohort", "target"]).size().tolist() == [3, 3, 3]
    row = results.scores.iloc[0]
    values = null.query("cohort == @row.cohort and target == @row.target")["r"]
    assert row["p_permuted_networks"] == pytest.approx((1 + (values >= row["r"]).sum()) / 4)
    rows = results.rows.set_index("row")
    assert rows.loc["null-0-2", ["line", "kind", "seed"]].tolist() == ["null-0", "null", rows.loc["nerve-0", "seed"]]
    assert results.comparisons.empty  # null models are compared with nobody


def test_columns_may_have_been_renamed_by_ingest_already():
    table = pd.DataFrame({"participant_id": ["a"], "long_name": [1.0], "age": [2.0]})
    assert _renamed(table, {"p": "long_name"}, "A").columns.tolist() == ["participant_id", "p", "age"]
    assert _renamed(table, {"age": "AGE_AT_SCAN"}, "A").columns.tolist() == ["participant_id", "long_name", "age"]
    both = table.assign(p=3.0)
    assert _renamed(both, {"p": "long_name"}, "A")["p"].tolist() == [1.0]
    with pytest.raises(NerveError, match=r"no column 'lnog_name'.* Did you mean 'long_name'"):
        _renamed(table, {"p": "lnog_name"}, "A")


@pytest.mark.slow
def test_sweeps_have_a_column_and_selection_never_sees_test_people(make_config, tmp_path, tiny):
    settings = tiny | {"mask_ratio": [0.3, 0.6]}
    rows = [
        {"method": "nerve", "label": "swept", "settings": settings},
        {"method": "nerve", "label": "selected", "settings": settings, "select": True},
    ]
    experiment, results = run(make_config(rows), tmp_path)
    assert sum(task.work.kind == "encode" for task in experiment.plan.unique) == 2  # shared by both rows
    lines = results.rows[["line", "variant"]].values.tolist()
    assert lines == [
        ["nerve-0-0", "mask_ratio=0.3"],
        ["nerve-0-1", "mask_ratio=0.6"],
        ["nerve-1-0", "chosen in each fold"],
    ]
    assert results.rows["settings"].tolist() == [{"mask_ratio": 0.3}, {"mask_ratio": 0.6}, {}]


@pytest.mark.slow
def test_seeds_are_rows_of_one_line(make_config, tmp_path, tiny):
    rows = [{"method": "raw"}, {"method": "nerve", "settings": tiny}]
    _, results = run(make_config(rows, seeds=[3, 4]), tmp_path)
    assert results.rows[["row", "line", "seed"]].values.tolist() == [
        ["raw-0-s3", "raw-0", 3], ["nerve-1-s3", "nerve-1", 3], ["nerve-1-s4", "nerve-1", 4],
    ]  # fmt: skip
    assert set(results.comparisons["line_a"]) | set(results.comparisons["line_b"]) == {"raw-0", "nerve-1"}
    assert set(results.comparisons["among"]) == {"reference"}


def test_a_cohort_out_of_domain_is_said_to_be_of_other_participants(finished):
    results = finished[2]
    scopes = results.scores.groupby(["cohort", "row"])["scope"].first()
    assert scopes["alpha", "nerve-1"] == "all"
    assert scopes["gamma", "nerve-1"] == "other_people"
    assert scopes["gamma", "raw-0"] == "none"


@pytest.mark.slow
def test_motion_is_a_covariate_only_where_the_file_says_so(make_config, tmp_path):
    rows = [{"method": "raw"}]
    _, plain = run(make_config(rows), tmp_path / "a")
    assert plain.about["protocols"]["alpha"]["covariates"] == ("age", "sex")
    protocol = {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 50, "motion": "auto"}
    _, with_motion = run(make_config(rows, protocol=protocol), tmp_path / "b")
    assert with_motion.about["protocols"]["alpha"]["covariates"] == ("age", "sex", "mean_fd")


def test_the_chosen_variant_is_the_one_that_predicts_training_people():
    from nerve.evaluation import KernelRidge

    rng = np.random.default_rng(0)
    useful, noise = rng.normal(size=(80, 5)), rng.normal(size=(80, 5))
    targets = np.column_stack([useful[:, 0], noise[:, 0]])
    left, right = Variants([useful, noise]).split(np.arange(60), np.arange(60, 80), [])
    model = BestVariant(KernelRidge("linear", n_inner_folds=3)).fit(left, targets[:60])
    assert model.chosen_.tolist() == [0, 1]
    alone = KernelRidge("linear", n_inner_folds=3).fit(noise[:60], targets[:60])
    assert np.allclose(model.predict(right)[:, 1], alone.predict(noise[60:])[:, 1])


def test_a_lock_is_held_by_one_and_freed_by_a_kill(tmp_path):
    store = Store(tmp_path)
    with store.lock("a") as mine:
        assert mine
        with store.lock("a") as again:
            assert not again
        assert store.status("a") == RUNNING
    code = (
        "import time; from nerve.experiments.store import Store\n"
        f"with Store({str(tmp_path)!r}).lock('b'): print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    assert store.status("b") == RUNNING
    assert str(other.pid) in store.holder("b")
    other.kill()
    other.wait()
    assert store.status("b") == "waiting"


def test_a_worker_finds_its_run_in_the_folder_alone(make_config, tmp_path):
    experiment = prepare(make_config([{"method": "raw"}]), tmp_path)
    assert work(str(tmp_path), experiment.plan.unique[0].id) == DONE
    with pytest.raises(NerveError, match="has no run"):
        work(str(tmp_path), "unknown")


def test_plans_of_two_processes_agree(make_config, tmp_path):
    experiment = prepare(make_config(), tmp_path)
    again = reopen(tmp_path)
    assert [task.id for task in experiment.plan.tasks] == [task.id for task in again.plan.tasks]
    data, code = experiment.workspace.inputs()
    other = make_plan(experiment.workspace.config, data, code + "x")
    assert not {task.id for task in other.tasks} & {task.id for task in again.plan.tasks}


def test_sites_are_recentred_in_folds_whatever_the_scope_and_whatever_the_cohort_is_called(
    make_config, tmp_path, monkeypatch
):
    """With everyone's means the participants of a site sum to zero, and who is tested is known from the others."""
    people = {"simulate": {"n": 40, "timepoints": 40, "seed": 1, "keep_timeseries": False}, "targets": ["p_factor"]}
    config = make_config(
        [{"method": "tangent", "settings": {"recentre": "site"}}],
        cohorts={"alpha": people, "the same again": {**people, "pretrain": False}},
    )
    splits, seen = [], []
    split, fit = _TrainedInFolds.split, TangentSpace.fit
    monkeypatch.setattr(TangentSpace, "fit", lambda self, X, y=None: seen.append(ids_of(X)) or fit(self, X, y))

    def noted(self, train, test, targets):
        splits.append((set(self.cohort.participants["participant_id"].iloc[test]), len(seen)))
        return split(self, train, test, targets)

    monkeypatch.setattr(_TrainedInFolds, "split", noted)
    _, results = run(config, tmp_path)
    assert set(results.scores["scope"]) == {"train_folds"}
    assert len(seen) == len(splits) >= 6
    assert not any(test & seen[number] for test, number in splits)


def ids_of(cohorts):
    return {person for cohort in cohorts for person in cohort.participants["participant_id"]}
