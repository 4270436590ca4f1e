"""The paper's tables rehearsed: the same rows and columns, on simulated participants."""

from pathlib import Path

import pytest

from nerve.experiments.config import ExperimentConfig, load_config
from nerve.experiments.experiment import Experiment
from nerve.experiments.plan import ExperimentPlan
from nerve.experiments.rehearse import PERMUTATIONS, SIMULATED, rehearsal
from nerve.methods import make_method

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1_main", "table2_tokenizers", "table3_parcellations"])
def test_a_rehearsal_has_every_row_and_target(name):
    config = load_config(CONFIGS / f"{name}.yaml")
    small = rehearsal(config)
    assert [row.label for row in small.methods] == [row.label for row in config.methods]
    assert {k: small.protocol_of(k).targets for k in small.cohorts} == {
        k: config.protocol_of(k).targets for k in config.cohorts
    }
    assert [c.pretrain for c in small.cohorts.values()] == [
        c.pretrain for c in config.cohorts.values()
    ]
    assert max(row.permutations for row in small.methods) <= PERMUTATIONS
    plan = ExperimentPlan(small, dict.fromkeys(small.cohorts, "data"), "code")
    assert {task.kind for task in plan.tasks} <= {"encode", "predict", "train"}
    assert len(plan.unique_tasks) >= len(config.methods)


@pytest.mark.slow
def test_participants_are_simulated_and_no_path_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nerve.experiments.rehearse.SIMULATED", {"n": 24, "timepoints": 20})
    small = rehearsal(load_config(CONFIGS / "table1_main.yaml"))
    experiment = Experiment.prepare(small, tmp_path / "out")  # columns are found, too
    assert experiment.counts.total() == len(experiment.plan.unique_tasks)


def test_targets_may_be_in_the_protocol_of_the_file():
    content = {
        "cohorts": {"A": {"path": "x"}},
        "methods": [{"method": "raw"}],
        "protocol": {"targets": ["iq"]},
    }
    assert rehearsal(ExperimentConfig.model_validate(content)).cohorts["A"].columns == {
        "iq": "p_factor"
    }


def test_the_page_reports_the_size_of_a_rehearsal():
    page = (CONFIGS.parent / "docs" / "howto" / "reproduce-the-paper.md").read_text(
        encoding="utf-8"
    )
    size = f"({SIMULATED['n']} per cohort, 100 regions, preset `small`, three folds, {PERMUTATIONS} permutations)"
    assert size in page


def test_networks_stay_and_regions_become_fewer():
    config = rehearsal(load_config(CONFIGS / "table3_parcellations.yaml"))
    patchings = [row.settings.get("patching") for row in config.methods]
    assert config.parcellation == "schaefer100-17"
    assert patchings == ["grid16", "grid16", "grid16", "schaefer100-7", None]


def test_swept_epochs_stay_rows_of_their_own():
    row = {"method": "nerve", "settings": {"epochs": [0, 5]}}
    content = {"cohorts": {"A": {"path": "x", "targets": ["iq"]}}, "methods": [row]}
    assert len(rehearsal(ExperimentConfig.model_validate(content)).methods[0].variants()) == 2


def test_a_row_that_recentres_sites_has_a_view_that_can():
    config = load_config(CONFIGS / "table3_parcellations.yaml")
    row = config.methods[-1].model_copy(update={"settings": {"recentre": "site"}})
    small = rehearsal(config.model_copy(update={"methods": [row]})).methods[0]
    assert make_method("nerve", "small", small.settings).view == "tangent"
