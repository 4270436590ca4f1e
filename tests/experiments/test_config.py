"""Experiment files: every shipped one is valid, every mistake is one sentence."""

from pathlib import Path

import pytest

from nerve.checks import NerveError
from nerve.experiments.config import MethodConfig, load_config

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
COHORT = "cohorts: {A: {path: somewhere, targets: [a]}}\n"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_are_valid(path):
    config = load_config(path)
    assert config.name == path.stem
    if not path.stem.startswith("abide"):
        assert [cohort.pretrain for cohort in config.cohorts.values()] == [True, True, False]


def test_the_papers_configs_ask_for_what_the_paper_did():
    by_name = {path.stem: load_config(path) for path in CONFIGS}
    main = by_name["table1_main"]
    trained = [row.method for row in main.methods if row.group != "reference"]
    assert len(trained) == 8
    assert {row.method for row in main.methods if row.group == "reference"} == {"raw", "pca", "covariates"}
    assert all(len(cohort.targets) == 3 for cohort in main.cohorts.values())
    assert main.cohorts["PNC"].columns["p_factor"] == "p_factor_mcelroy_harmonized_all_samples"
    assert (main.protocol.folds, main.protocol.n_bootstrap, main.preset) == (10, 1000, "paper")
    tokenizers = [row.settings["tokenizer"] for row in by_name["table2_tokenizers"].methods]
    assert tokenizers == ["shared", "specific", "bilinear"]
    assert max(row.permutations for row in by_name["table3_parcellations"].methods) == 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (COHORT + "methods: [{method: nervee}]", "no method 'nervee'.* Did you mean 'nerve'"),
        (COHORT + "methods: [{method: raw}]\nprotocl: {}", "no setting 'protocl'.* Did you mean 'protocol'"),
        (COHORT + "methods: [{method: raw}]\nprotocol: {fold: 3}", "'protocol.fold'.* Did you mean 'folds'"),
        ("cohorts: {A: {targets: [a]}}\nmethods: [{method: raw}]", "cohorts.A: give either `path` or `simulate`"),
        ("cohorts: {A: {path: x, targets: []}}\nmethods: [{method: raw}]", r"cohorts\.A\.targets"),
        (COHORT, "methods: Field required"),
        (COHORT + "methods: [{method: raw}, {method: raw}]", "two rows are called raw"),
        ("- a list", "holds no settings"),
        ("a: [unclosed", "is not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path, text, sentence):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(NerveError, match=sentence):
        load_config(tmp_path / "c.yaml")


def test_lists_are_swept_in_every_combination():
    method = MethodConfig(method="nerve", settings={"mask_ratio": [0.25, 0.5], "depth": [1, 2], "epochs": 3})
    assert [name for name, _ in method.variants()] == [
        "mask_ratio=0.25, depth=1",
        "mask_ratio=0.25, depth=2",
        "mask_ratio=0.5, depth=1",
        "mask_ratio=0.5, depth=2",
    ]
    assert all(settings["epochs"] == 3 for _, settings in method.variants())
