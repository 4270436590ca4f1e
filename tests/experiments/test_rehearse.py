"""The paper's tables rehearsed: the same rows and columns, on people that are there."""

from pathlib import Path

import pytest

from nerve.experiments.config import load_config
from nerve.experiments.main import prepare
from nerve.experiments.rehearse import PERMUTATIONS, rehearsal
from nerve.methods import make_method

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1_main", "table2_tokenizers", "table3_parcellations"])
def test_a_rehearsal_has_every_row_and_target_and_needs_no_path(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    config = load_config(CONFIGS / f"{name}.yaml")
    small = rehearsal(config)
    assert [row.label for row in small.methods] == [row.label for row in config.methods]
    assert {k: small.protocol_of(k).targets for k in small.cohorts} == {
        k: config.protocol_of(k).targets for k in config.cohorts
    }
    assert [c.pretrain for c in small.cohorts.values()] == [c.pretrain for c in config.cohorts.values()]
    assert max(row.permutations for row in small.methods) <= PERMUTATIONS
    experiment = prepare(small, tmp_path / "out")  # people are simulated, columns found, runs planned
    assert {task.work.kind for task in experiment.plan.tasks} <= {"encode", "probe", "train"}
    assert sum(experiment.counts.values()) >= len(config.methods)


def test_networks_stay_and_regions_become_fewer():
    config = rehearsal(load_config(CONFIGS / "table3_parcellations.yaml"))
    patchings = [row.settings.get("patching") for row in config.methods]
    assert config.parcellation == "schaefer100-17"
    assert patchings == ["grid16", "grid16", "grid16", "schaefer100-7", None]


def test_a_row_that_recentres_sites_has_a_view_that_can():
    config = load_config(CONFIGS / "table3_parcellations.yaml")
    row = config.methods[-1].model_copy(update={"settings": {"recentre": "site"}})
    small = rehearsal(config.model_copy(update={"methods": [row]})).methods[0]
    assert make_method("nerve", "small", small.settings).view == "tangent"
