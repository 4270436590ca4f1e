"""A cohort whose files were changed is another cohort: no result, checkpoint or verdict of before is taken for it."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve import Cohort
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.export import export_cohort
from nerve.data.quality import check_cohort
from nerve.data.readers import ingest, ingesting
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.protocol import Protocol
from nerve.experiments import commands
from nerve.experiments.config import ExperimentConfig
from nerve.experiments.experiment import Experiment
from nerve.experiments.launch import run_by_id
from nerve.experiments.run_store import DONE, FAILED
from nerve.interpret import interpret_to
from nerve.methods.kept_model import KeptModel
from nerve.methods.nerve import NERVE
from nerve.methods.runs import embed_file, pretrain
from nerve.methods.tangent import TangentSpace
from nerve.report.load import cohorts_by_name

pytestmark = pytest.mark.slow

ATLAS = "schaefer100-7"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    people = simulate_cohort(40, ATLAS, 40, keep_timeseries=False, seed=1)
    people.participants["participant_id"] = [
        f"p{number:02}" for number in range(40)
    ]  # as BIDS has them
    return people.save(tmp_path_factory.mktemp("original") / "cohort")


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "cohort")


def shuffle_target(folder):
    table = pd.read_csv(folder / "participants.tsv", sep="\t")
    table["p_factor"] = table["p_factor"].sample(frac=1, random_state=0).to_numpy()
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)


def reverse_matrices(folder):
    """Matrices of other participants, with the time of the file set back."""
    file = folder / "connectivity.npy"
    before = file.stat()
    np.save(file, np.load(file)[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def sort_table(folder):
    table = pd.read_csv(folder / "participants.tsv", sep="\t").sort_values("age")
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)


def test_an_experiment_on_changed_files_runs_again_and_gives_what_a_fresh_folder_gives(
    tmp_path, folder
):
    config = ExperimentConfig.model_validate(
        {
            "name": "tiny",
            "parcellation": ATLAS,
            "cohorts": {"alpha": {"path": str(folder), "targets": ["p_factor"]}},
            "methods": [{"method": "raw"}],
            "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 20},
        }
    )
    before = Experiment.prepare(config, tmp_path / "out").run(jobs=1).scores["r"].item()
    # rows are tied to matrices by id: a sorted table is the same cohort
    for change, again in ((sort_table, False), (shuffle_target, True), (reverse_matrices, True)):
        change(folder)
        seen = []
        after = Experiment.prepare(config, tmp_path / "out").run(
            jobs=1,
            on_status=lambda *told: seen.append(told),  # noqa: B023
        )
        assert bool(seen) == again
        now = after.scores["r"].item()
        if again:
            fresh = Experiment.prepare(config, tmp_path / change.__name__).run(jobs=1)
            assert now == fresh.scores["r"].item()
        assert (now != before) == again
        before = now


def test_training_does_not_go_on_with_other_matrices(tmp_path, folder):
    settings = ["dim=16", "depth=1", "heads=2", "epochs=1", "batch_size=16"]
    run = {"preset": "small", "device": "cpu", "assignments": settings}
    pretrain([folder], tmp_path / "run", **run)
    reverse_matrices(folder)
    with pytest.raises(NerveError, match="data"):
        pretrain([folder], tmp_path / "run", resume=True, **run)


def test_check_says_what_was_changed(folder):
    def row():
        table = check_cohort(Cohort.load(folder)).table.set_index("check")
        return table.loc["files", "verdict"], table.loc["files", "detail"]

    assert row() == ("ok", "")
    shuffle_target(folder)
    assert row()[0] == "note"
    assert "participants.tsv changed: p_factor" in row()[1]
    reverse_matrices(folder)
    assert row()[0] == "warning"
    assert "connectivity.npy has changed" in row()[1]


# ---- changed after it was opened


def replace_matrices(folder):
    """Another file in the place of the old one, which stays as it is for whoever has opened it."""
    np.save(folder / "new.npy", np.load(folder / "connectivity.npy")[::-1])
    os.replace(folder / "new.npy", folder / "connectivity.npy")


CHANGES = [shuffle_target, reverse_matrices, replace_matrices]
TINY = {"dim": 16, "depth": 1, "heads": 2, "epochs": 1, "batch_size": 16}


def test_the_fingerprint_is_of_what_was_opened_not_of_what_took_its_place(original, folder):
    expected = Cohort.load(original).fingerprint
    opened = Cohort.load(folder)
    replace_matrices(folder)
    assert opened.fingerprint == expected  # asked for only now
    np.testing.assert_array_equal(opened.connectivity, Cohort.load(original).connectivity)
    assert Cohort.load(folder).fingerprint != expected


def test_an_array_that_is_written_into_has_no_fingerprint_of_before(folder):
    opened = Cohort.load(folder)
    array = np.load(folder / "connectivity.npy", mmap_mode="r+")
    array[0, 0, 1] += 0.5
    array.flush()
    os.utime(folder / "connectivity.npy")
    with pytest.raises(NerveError, match=r"connectivity\.npy.*changed after the cohort was opened"):
        opened.fingerprint  # noqa: B018


def test_the_fingerprint_follows_what_is_assigned(folder):
    cohort = Cohort.load(folder)
    before = cohort.fingerprint
    cohort.participants = cohort.participants.assign(age=0.0)
    assert cohort.fingerprint != before


@pytest.mark.parametrize("change", CHANGES)
def test_a_cohort_that_changed_meanwhile_is_not_written_over(folder, change):
    opened = Cohort.load(folder)
    change(folder)
    now = {path.name: path.read_bytes() for path in folder.iterdir()}
    for derive in (lambda: opened, lambda: opened[:20], lambda: Cohort.concat([opened])):
        with pytest.raises(NerveError, match="changed after the cohort was opened"):
            derive().save(folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == now


def test_a_cohort_can_be_saved_where_it_came_from_again_and_again(folder):
    cohort = Cohort.load(folder)
    for value in (1, 2):
        cohort.participants = cohort.participants.assign(visit=value)
        cohort.save(folder, overwrite=True)
        assert Cohort.load(folder).participants["visit"].eq(value).all()
        assert Cohort.load(folder).fingerprint == cohort.fingerprint


def test_a_touched_or_copied_array_is_the_same(folder):
    cohort = Cohort.load(folder)
    before = cohort.fingerprint
    os.utime(folder / "connectivity.npy")
    shutil.copy(folder / "connectivity.npy", folder / "copy.npy")
    os.replace(folder / "copy.npy", folder / "connectivity.npy")
    cohort.check_unchanged()
    assert cohort.fingerprint == before


def test_ingest_does_not_replace_a_cohort_that_was_edited_while_it_read(
    tmp_path, original, folder, monkeypatch
):
    source = export_cohort(Cohort.load(original), tmp_path / "bids")
    check_order = ingesting.check_order  # called when everyone is read

    def edit_and_check(*given):
        shuffle_target(folder)
        return check_order(*given)

    monkeypatch.setattr(ingesting, "check_order", edit_and_check)
    with pytest.raises(
        NerveError, match="changed while new ones were being made, so it is not replaced"
    ):
        ingest(source, folder, parcellation=ATLAS, overwrite=True)
    assert Cohort.load(folder).changes == ["columns of participants.tsv changed: p_factor"]


# ---- whoever writes what was computed from a cohort


@pytest.fixture(scope="module")
def model(original):
    encoder = NERVE.from_preset("small", device="cpu", **TINY).fit(Cohort.load(original))
    return encoder.save(original.parent / "model")


WRITERS = {
    "pretrain": lambda cohort, model, out: pretrain(
        [cohort],
        out,
        preset="small",
        device="cpu",
        assignments=[f"{name}={value}" for name, value in TINY.items()],
    ),
    "reference": lambda cohort, model, out: TangentSpace().fit(cohort).save(out),
    "embed": lambda cohort, model, out: embed_file(
        model, cohort, out.with_suffix(".tsv"), device="cpu"
    ),
    "probe": lambda cohort, model, out: (
        KeptModel(TangentSpace(), Protocol(targets="age", n_inner_folds=2)).fit(cohort).save(out)
    ),
    "interpret": lambda cohort, model, out: interpret_to(
        out, NERVE.load(model, device="cpu"), cohort
    ),
    "export": lambda cohort, model, out: export_cohort(cohort, out),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_nothing_is_written_of_a_cohort_that_changed_meanwhile(
    tmp_path, folder, model, write, change
):
    cohort = Cohort.load(folder)
    change(folder)
    with pytest.raises(NerveError, match="changed after the cohort was opened"):
        write(cohort, model, tmp_path / "out")
    results = (
        "model.safetensors",
        "out.tsv",
        "probe.json",
        "attention.tsv",
        "dataset_description.json",
    )
    written = {path.name for path in tmp_path.rglob("*") if folder not in path.parents}
    assert not written & {*results}


# ---- experiments


def experiment_of(folder, **more):
    content = {
        "name": "tiny",
        "parcellation": ATLAS,
        "preset": "small",
        "device": "cpu",
        "cohorts": {"alpha": {"path": str(folder), "targets": ["p_factor"]}},
        "methods": [{"method": "raw"}, {"method": "pca"}],
        "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 20},
    }
    return ExperimentConfig.model_validate(content | more)


def test_an_experiment_does_not_mix_two_versions_of_a_table(tmp_path, folder):
    experiment = Experiment.prepare(experiment_of(folder), tmp_path / "out")
    statuses = []

    def edit_after_the_first(task, status):
        statuses.append(status)
        if status == DONE:
            shuffle_target(folder)

    with pytest.raises(NerveError, match=r"participants\.tsv changed after the cohort was opened"):
        experiment.run(jobs=1, on_status=edit_after_the_first)
    assert [status for status in statuses if status in (DONE, FAILED)] == [DONE, FAILED]
    assert not (tmp_path / "out" / "scores.tsv").exists()
    again = Experiment.prepare(experiment_of(folder), tmp_path / "out").run(jobs=1)
    fresh = Experiment.prepare(experiment_of(folder), tmp_path / "fresh").run(jobs=1)
    pd.testing.assert_series_equal(again.scores["r"], fresh.scores["r"])


def test_a_run_whose_cohort_changed_while_it_ran_is_not_done(tmp_path, folder, monkeypatch):
    experiment = Experiment.prepare(
        experiment_of(folder, methods=[{"method": "raw"}]), tmp_path / "out"
    )
    task = experiment.plan.unique_tasks[0]
    run = type(task).run

    def run_and_edit(*given):
        result = run(*given)
        shuffle_target(folder)
        return result

    monkeypatch.setattr(type(task), "run", run_and_edit)
    assert run_by_id(str(experiment.folder), task.id) == FAILED


@pytest.mark.parametrize("change", CHANGES)
def test_a_worker_does_not_compute_with_another_cohort(tmp_path, folder, change):
    experiment = Experiment.prepare(experiment_of(folder), tmp_path / "out")
    change(folder)
    run = experiment.plan.unique_tasks[0].id
    assert run_by_id(str(experiment.folder), run) == FAILED
    assert (
        "was changed after the experiment was started" in experiment.store.manifest(run)["reason"]
    )


def test_a_worker_does_not_compute_with_other_code(tmp_path, folder, monkeypatch):
    experiment = Experiment.prepare(experiment_of(folder), tmp_path / "out")
    monkeypatch.setattr("nerve.experiments.experiment.code_version", lambda: "edited")
    run = experiment.plan.unique_tasks[0].id
    assert run_by_id(str(experiment.folder), run) == FAILED
    assert "the package was changed" in experiment.store.manifest(run)["reason"]


def test_features_that_change_while_an_experiment_runs_are_refused(tmp_path, folder):
    ids = Cohort.load(folder).participants["participant_id"]
    table = pd.DataFrame({"participant_id": ids, "a": np.arange(40.0), "b": np.arange(40.0) ** 2})
    path = tmp_path / "features.tsv"
    table.to_csv(path, sep="\t", index=False)
    rows = [{"features": str(path), "label": "mine"}]
    experiment = Experiment.prepare(experiment_of(folder, methods=rows), tmp_path / "out")
    assert experiment.plan.unique_tasks
    table.assign(a=1.0).to_csv(path, sep="\t", index=False)
    with pytest.raises(NerveError, match="no run has made predictions"):
        experiment.run(jobs=1)
    assert "it was changed after the experiment was started" in experiment.failures()[0]


def test_networks_of_a_changed_table_are_another_run(tmp_path, folder):
    regions = Cohort.load(folder).parcellation.to_table()
    path = tmp_path / "groups.tsv"
    ids = []
    for groups in ("AB", "CDE"):
        networks = [groups[i % len(groups)] for i in range(len(regions))]
        regions.assign(network=networks).to_csv(path, sep="\t", index=False)
        rows = [{"method": "nerve", "settings": TINY | {"patching": str(path)}}]
        experiment = Experiment.prepare(experiment_of(folder, methods=rows), tmp_path / "out")
        ids.append({task.id for task in experiment.plan.unique_tasks})
    assert not ids[0] & ids[1]


def test_interpretation_follows_the_target_the_protocol_and_the_row(tmp_path, original, folder):
    """The encoder is trained on another cohort, and stays as it is when the target changes."""
    cohorts = {
        "alpha": {"path": str(folder), "targets": ["p_factor"], "pretrain": False},
        "beta": {"path": str(original), "targets": ["p_factor"]},
    }
    rows = [{"method": "nerve", "settings": TINY, "cohorts": ["alpha"]}]
    config = experiment_of(folder, cohorts=cohorts, methods=rows, interpret=True)
    importance = tmp_path / "out" / "interpretation" / "importance.tsv"

    def interpreted(config):
        Experiment.prepare(config, tmp_path / "out").run(jobs=1)
        return importance.read_text()

    first = interpreted(config)
    written = importance.stat().st_mtime_ns
    assert interpreted(config) == first
    assert importance.stat().st_mtime_ns == written  # nothing changed: not computed again
    shuffle_target(folder)
    second = interpreted(config)
    assert second != first
    assert (
        interpreted(config.model_copy(update={"protocol": {**config.protocol, "seed": 5}}))
        != second
    )
    raw = config.model_copy(update={"methods": experiment_of(folder).methods})
    Experiment.prepare(raw, tmp_path / "out").run(jobs=1)
    assert not importance.exists()  # there is no NERVE row any more


def test_a_simulated_cohort_is_made_again_by_other_code(tmp_path, monkeypatch):
    arguments = {"n": 20, "timepoints": 30, "keep_timeseries": False}
    cohorts = {"alpha": {"simulate": arguments, "targets": ["p_factor"]}}
    config = experiment_of(tmp_path, cohorts=cohorts)

    def prepared():
        experiment = Experiment.prepare(config, tmp_path / "out")
        return (
            experiment.cohort_folder("alpha") / "connectivity.npy"
        ).stat().st_ino, experiment.plan.unique_tasks[0].id

    first = prepared()
    assert prepared() == first
    monkeypatch.setattr("nerve.experiments.experiment.code_version", lambda: "edited")
    again = prepared()
    assert (again[0] != first[0], again[1] != first[1]) == (True, True)


@pytest.mark.parametrize("columns", [{}, {"scanner": "site"}])
def test_a_model_of_this_cohort_is_known_to_have_seen_it_whoever_works(
    tmp_path, folder, original, model, columns
):
    """Also where the experiment renames a column, and in a worker that has only opened the folder."""
    cohorts = {"alpha": {"path": str(folder), "targets": ["p_factor"], "columns": columns}}
    rows = [{"features": str(model), "label": "mine"}]
    config = experiment_of(folder, cohorts=cohorts, methods=rows)
    experiment = Experiment.prepare(config, tmp_path / "out")
    task = experiment.plan.unique_tasks[0]
    assert run_by_id(str(experiment.folder), task.id) == DONE
    assert experiment.store.manifest(task.id)["result"]["scope"] == "all"
    results = experiment.run(jobs=1)
    assert results.cohorts["fingerprint"].tolist() == [Cohort.load(folder).fingerprint]


def test_a_report_shows_no_participants_of_another_version_of_the_cohort(tmp_path, folder):
    Experiment.prepare(experiment_of(folder), tmp_path / "out").run(jobs=1)
    assert list(cohorts_by_name(tmp_path / "out", [Cohort.load(folder)])) == ["alpha"]
    shuffle_target(folder)
    done = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--cohort", str(folder)])
    assert isinstance(done.exception, NerveError)
    assert "was changed since" in str(done.exception)


# ---- nothing is hidden in the folder of a cohort


def test_a_cohort_folder_holds_what_ingest_wrote_whatever_is_computed_from_it(tmp_path, original):
    def contents():
        return {path.name: path.read_bytes() for path in folder.rglob("*")}

    folder = tmp_path / "cohort"
    ingest(export_cohort(Cohort.load(original), tmp_path / "bids"), folder, parcellation=ATLAS)
    before = contents()
    assert [name for name in before if name.startswith(".")] == [".nerve"]
    settings = [f"{name}={value}" for name, value in TINY.items()]
    pretrain(
        [folder],
        tmp_path / "run",
        preset="small",
        device="cpu",
        assignments=[*settings, "view=tangent"],
    )
    embed_file(tmp_path / "run", folder, tmp_path / "features.tsv", device="cpu")
    features = {"raw": "raw", "shrunk": "shrunk", "NERVE": str(tmp_path / "run")}
    protocol = Protocol(targets="p_factor", n_folds=3, n_inner_folds=2, n_bootstrap=20)
    quality = check_cohort(Cohort.load(folder))
    commands.run_evaluation(str(folder), features, protocol, str(tmp_path / "out"), quality=quality)
    assert contents() == before


def test_a_second_write_through_an_open_map_is_noticed(tmp_path, original):
    """The system notes the first write through a map only, until the file is flushed."""
    folder = shutil.copytree(original, tmp_path / "cohort")
    open_map = np.load(folder / "connectivity.npy", mmap_mode="r+")
    open_map[0, 0, 1] = 0.1
    cohort = Cohort.load(folder)
    before = cohort.fingerprint
    cohort.check_unchanged()
    open_map[0, 0, 1] = 0.2
    with pytest.raises(NerveError, match=r"connectivity\.npy changed after the cohort was opened"):
        cohort.check_unchanged()
    assert Cohort.load(folder).fingerprint != before


def test_the_measure_is_part_of_the_fingerprint(tmp_path, original):
    r = Cohort.load(original)
    z = Cohort(r.connectivity, r.participants, r.parcellation, measure="fisher_z")
    same = Cohort(r.connectivity, r.participants, r.parcellation, measure="pearson")
    assert z.fingerprint != same.fingerprint
    folder = shutil.copytree(original, tmp_path / "cohort")
    record = json.loads((folder / "cohort.json").read_text())
    (folder / "cohort.json").write_text(json.dumps(record | {"measure": "fisher_z"}))
    assert Cohort.load(folder).changes == ["measure has changed"]


def test_ingest_does_not_replace_an_edited_table(tmp_path, original):
    folder = Cohort.load(original).save(tmp_path / "cohort")
    table = folder / "participants.tsv"
    edited = table.read_text().replace("\tn/a", "\t7") + " "
    table.write_text(edited)
    with pytest.raises(NerveError, match=r"participants\.tsv changed after nerve wrote it"):
        Cohort.load(original).save(folder, overwrite=True)
    assert table.read_text() == edited
