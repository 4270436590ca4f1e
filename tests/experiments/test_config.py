"""Experiment files: every shipped one is valid, every mistake is one sentence."""

from pathlib import Path

import pytest

from nerve._utils.errors import NerveError
from nerve.experiments.config import ExperimentConfig, MethodConfig, load_config
from nerve.experiments.experiment import Experiment
from nerve.experiments.plan import ExperimentPlan
from nerve.methods import METHODS, make_method

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
COHORT = "cohorts: {A: {path: somewhere, targets: [a]}}\n"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_are_valid(path):
    config = load_config(path)
    assert config.name == path.stem
    if path.stem.startswith("table"):
        assert [cohort.pretrain for cohort in config.cohorts.values()] == [True, True, False]


def test_a_folder_that_is_called_like_a_packaged_experiment_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # `nerve demo demo` makes it
    assert load_config("demo").name == "demo"


def test_the_papers_configs_ask_for_what_the_paper_did():
    by_name = {path.stem: load_config(path) for path in CONFIGS}
    main = by_name["table1_main"]
    trained = [row.method for row in main.methods if row.group != "reference"]
    assert len(trained) == 8
    references = {row.method for row in main.methods if row.group == "reference"}
    assert references == {"raw", "pca", "tangent", "covariates"}
    protocols = {name: main.protocol_of(name) for name in main.cohorts}
    assert all(len(one.targets) == 3 for one in protocols.values())
    assert all(
        (one.covariates, one.motion) == (("age", "sex"), "none") for one in protocols.values()
    )
    assert main.cohorts["PNC"].columns["p_factor"] == "p_factor_mcelroy_harmonized_all_samples"
    one = protocols["PNC"]
    assert (one.n_folds, one.n_bootstrap, one.pretrain_scope, main.preset) == (
        10,
        1000,
        "all",
        "paper",
    )
    tokenizers = [row.settings["tokenizer"] for row in by_name["table2_tokenizers"].methods]
    assert tokenizers == ["shared", "specific", "bilinear"]
    assert max(row.permutations for row in by_name["table3_parcellations"].methods) == 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            COHORT + "methods: [{method: nervee}]",
            r"methods\.0 \(nervee\): method is 'nervee'.* Did you mean 'nerve'",
        ),
        (
            COHORT + "methods: [{method: raw}]\nprotocl: {}",
            "no setting 'protocl'.* Did you mean 'protocol'",
        ),
        (
            COHORT + "methods: [{method: raw}]\nprotocol: {n_fold: 3}",
            "no 'n_fold' in a protocol.* Did you mean 'n_folds'",
        ),
        (
            "cohorts: {A: {targets: [a]}}\nmethods: [{method: raw}]",
            "cohorts.A: give either `path` or `simulate`",
        ),
        ("cohorts: {A: {path: x, targets: []}}\nmethods: [{method: raw}]", "There are no targets"),
        (COHORT + "methods: [{method: raw}]\nprotocol: {n_folds: many}", "n_folds.*'many'"),
        (
            COHORT + "methods: [{method: brainnetcnn, settings: {epochs: -1}}]",
            r"methods\.0.*epochs is -1",
        ),
        (
            COHORT + "methods: [{method: raw}, {method: nerve, settings: {lr: []}}]",
            r"methods\.1.*lr is an empty list",
        ),
        (
            COHORT + "methods: [{method: nerve, settings: {unknown: []}}]",
            "unknown is an empty list",
        ),
        (COHORT + "methods: [{method: raw, cohorts: []}]", r"methods\.0\.cohorts"),
        (COHORT + "methods: [{method: nerve, settings: {seed: null}}]", "seed is None"),
        (COHORT + "methods: [{method: raw}]\nseeds: [0, -1]", r"seeds\.1"),
        (COHORT + f"methods: [{{method: raw}}]\nseeds: [0, {2**63}]", r"seeds\.1"),
        (COHORT + "methods: [{method: raw}]\ndevice: gpu", "device: .*cuda"),
        (COHORT, "methods: Field required"),
        ("- a list", "holds no settings"),
        ("a: [unclosed", "is not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path, text, sentence):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(NerveError, match=sentence):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        ("nerve", {"dim": 16, "heads": 3}, "cannot be shared by 3 attention heads"),
        ("nerve", {"patching": ["networks", "grid0"]}, "groups of 0"),
        ("nerve", {"recentre": "nowhere"}, "recentre: there is no column 'nowhere'"),
        ("ppca", {"patching": "nothing"}, "patching is 'nothing'"),
        ("tangent", {"recentre": ["site", "nowhere"]}, "no column 'nowhere'"),
        ("gate", {"phenotypes": [["age", "nowhere"]]}, "no column 'nowhere'"),
    ],
)
def test_what_regions_and_columns_do_not_allow_is_refused_before_a_run(
    make_config, tmp_path, method, settings, sentence
):
    with pytest.raises(NerveError, match=sentence):
        Experiment.prepare(
            make_config([{"method": "raw"}, {"method": method, "settings": settings}]), tmp_path
        )
    assert not (tmp_path / "runs").exists()


def test_lists_are_swept_in_every_combination():
    method = MethodConfig(
        method="nerve", settings={"mask_ratio": [0.25, 0.5], "depth": [1, 2], "epochs": 3}
    )
    swept = [(one["mask_ratio"], one["depth"]) for one, _ in method.variants()]
    assert swept == [(0.25, 1), (0.25, 2), (0.5, 1), (0.5, 2)]
    assert all(settings["epochs"] == 3 for _, settings in method.variants())


def test_rows_with_the_same_label_are_refused():
    config = ExperimentConfig.model_validate(
        {
            "cohorts": {"A": {"path": "x", "targets": ["a"]}},
            "methods": [{"method": "raw"}, {"method": "raw"}],
        }
    )
    with pytest.raises(NerveError, match="Two rows are called Raw FC"):
        _ = ExperimentPlan(config, {"A": "data"}, "code").tasks


def test_settings_of_a_reference_row_are_swept_too():
    rows = [{"method": "pca", "settings": {"n_components": [5, 10]}}]
    config = ExperimentConfig.model_validate(
        {"cohorts": {"A": {"path": "x", "targets": ["a"]}}, "methods": rows}
    )
    tasks = ExperimentPlan(config, {"A": "data"}, "code").tasks
    assert [(task.row.variant, task.settings) for task in tasks] == [
        ("n_components=5", {"n_components": 5}),
        ("n_components=10", {"n_components": 10}),
    ]


def test_every_method_knows_the_default_preset():
    default = ExperimentConfig.model_fields["preset"].default
    for name in METHODS:
        make_method(name, default)


def test_a_row_may_be_asked_of_some_cohorts_only():
    cohorts = {name: {"simulate": {"n_subjects": 9}, "targets": ["a"]} for name in "AB"}
    rows = [
        {"method": "brainnetcnn", "cohorts": ["B"]},
        {"method": "graphmae", "cohorts": ["A"]},
        {"method": "raw"},
    ]
    config = ExperimentConfig.model_validate({"cohorts": cohorts, "methods": rows})
    tasks = ExperimentPlan(config, {"A": "1", "B": "2"}, "code").tasks
    asked = [(task.row.method, task.kind, task.cohort) for task in tasks]
    assert asked == [
        ("brainnetcnn", "train", "B"), ("graphmae", "encode", ""), ("graphmae", "predict", "A"),
        ("raw", "predict", "A"), ("raw", "predict", "B"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"a method names cohorts.*'C'.*known are A, B"):
        ExperimentConfig.model_validate(
            {"cohorts": cohorts, "methods": [{"method": "raw", "cohorts": ["C"]}]}
        )


def test_each_cohort_has_its_own_pretrain_scope():
    content = {
        "cohorts": {
            "A": {"path": "x", "targets": ["iq"]},
            "B": {"path": "y", "targets": ["iq"], "pretrain_scope": "train_folds"},
        },
        "methods": [{"method": "nerve"}, {"method": "nerve", "label": "strict", "cohorts": ["B"]}],
    }
    config = ExperimentConfig.model_validate(content)
    tasks = ExperimentPlan(config, dict.fromkeys(config.cohorts, "data"), "code").tasks
    # no encoder that has seen all of B predicts B, and none is trained that no cohort asks for
    planned = [(task.row.label, task.kind, task.cohort, bool(task.needs)) for task in tasks]
    assert sorted(planned) == [
        ("NERVE", "encode", "", False),
        ("NERVE", "predict", "A", True),
        ("NERVE", "predict", "B", False),
        ("strict", "predict", "B", False),
    ]
