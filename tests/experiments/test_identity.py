"""What is printed of a row is what was run: its settings, whom it had seen, what its null is."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.results import Results
from nerve.evaluation.rows import line_label, line_labels
from nerve.experiments.config import ExperimentConfig, load_config
from nerve.experiments.experiment import Experiment
from nerve.experiments.plan import ExperimentPlan
from nerve.experiments.rehearse import PERMUTATIONS, rehearsal
from nerve.methods import method_class
from nerve.methods.nerve import NERVE
from nerve.report.load import load_results
from nerve.report.page import render_page, write_report
from nerve.report.table_formats import to_text
from nerve.report.tables import paper_table

REGIONS = Parcellation(
    tuple(f"r{i:02}" for i in range(16)), tuple("AAAABBBBCCCCDDDD"), name="letters"
)
CHANGED = {"tokenizer": "shared", "mask_ratio": 0.25, "epochs": 1, "dim": 16}
IDLE = {
    "view": "fc",
    "epochs": 1,
    "dim": 16,
    "lr": 1e-9,
    "standardise": False,
    "validation_fraction": 0.3,
}
QUICK = {"depth": 1, "batch_size": 16, "warmup_epochs": 0.0, "pooling": "mean"}


def make_cohort(n, seed=0, name="tiny"):
    """A cohort of 16 regions."""
    rng = np.random.default_rng(seed)
    networks = np.repeat(rng.normal(size=(n, 4, 50)), 4, axis=1)
    series = networks + rng.normal(size=(n, 16, 50))  # (participants, regions, time)
    fc = np.stack([np.corrcoef(regions) for regions in series]).astype(np.float32)
    table = {"participant_id": [f"{name}{i:03}" for i in range(n)], "age": rng.uniform(8, 20, n)}
    return Cohort(fc, pd.DataFrame(table | {"score": rng.normal(size=n)}), REGIONS, name=name)


def evaluated(cohort, out, *features):
    """What `nerve evaluate` says on the screen, the results, and the text of report.html."""
    words = ["evaluate", str(cohort), "--features", ",".join(map(str, features)), "--targets", "score", "--covariates",
             "age", "--n-folds", "3", "--n-bootstrap", "20", "--out", str(out)]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return (
        done.output,
        Results.load(out),
        text_of((out / "report.html").read_text(encoding="utf-8")),
    )


def text_of(page_source):
    without_style = re.sub(r"<(style|script).*?</\1>", " ", page_source, flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", without_style)))


def planned(methods, **changes):
    """The rows of an experiment file."""
    content = {"cohorts": {"A": {"path": "x", "targets": ["iq"]}}, "methods": methods, **changes}
    config = ExperimentConfig.model_validate(content)
    return ExperimentPlan(config, dict.fromkeys(config.cohorts, "data"), "code").rows


# ---- identity


def test_every_setting_that_differs_from_the_preset_is_part_of_the_row():
    changed, unchanged = planned(
        [{"method": "nerve", "settings": CHANGED}, {"method": "nerve", "label": "as it is"}],
        preset="paper",
    )
    assert changed.settings == CHANGED
    assert (
        line_label(changed) == "NERVE (paper; tokenizer shared, mask_ratio 0.25, dim 16, epochs 1)"
    )
    assert (
        line_label(changed, most=3)
        == "NERVE (paper; tokenizer shared, mask_ratio 0.25, dim 16, 1 more)"
    )
    assert unchanged.settings == {}
    assert line_label(unchanged) == "as it is (NERVE paper)"


def test_another_scope_of_features_is_another_run(tmp_path):
    table = tmp_path / "features.tsv"
    table.write_text("participant_id\tx\na\t1\n")
    ids = set()
    for scope in ("other_people", "not stated"):
        entry = {"features": str(table), "scope": scope}
        content = {"cohorts": {"A": {"path": "x", "targets": ["iq"]}}, "methods": [entry]}
        config = ExperimentConfig.model_validate(content)
        plan = ExperimentPlan(config, {"A": "data"}, "code")
        ids |= {task.id for task in plan.tasks}
    assert len(ids) == 2


def test_a_setting_that_is_given_as_the_preset_has_it_is_no_difference():
    (row,) = planned(
        [{"method": "nerve", "settings": {"mask_ratio": 0.5, "epochs": 4000}}], preset="paper"
    )
    assert row.settings == {}


def test_labels_that_would_be_the_same_when_short_are_given_in_full():
    many = CHANGED | {"depth": 1}
    rows = planned(
        [
            {"method": "nerve", "settings": many},
            {"method": "nerve", "settings": many | {"depth": 2}},
        ]
    )
    assert len(set(line_labels(rows).values())) == 2


def test_a_model_without_a_preset_is_described_by_the_nearest_one():
    cls = method_class("graphmae")
    parameters = cls.from_preset("small", epochs=1).described_parameters()
    assert cls.nearest_preset(parameters) == "small"
    assert cls.differences(parameters, "small") == {"epochs": 1}


def test_a_model_says_the_preset_that_it_was_made_from_and_else_the_nearest(trained):
    assert NERVE.from_preset("small", dim=256).preset_name() == "small"
    assert NERVE(dim=64).preset_name() == "small"
    assert NERVE(epochs=7).preset_name() == "default"
    assert NERVE.load(trained / "model").preset_name() == "paper"


@pytest.mark.parametrize(
    "name", ["table1_main", "table2_tokenizers", "table3_parcellations", "demo"]
)
def test_rows_of_the_shipped_files_and_of_their_rehearsals_name_what_differs(name):
    for config in (load_config(name), rehearsal(load_config(name))):
        plan = ExperimentPlan(config, dict.fromkeys(config.cohorts, "data"), "code")
        recipes = {task.row.row: task.recipe for task in plan.tasks if hasattr(task, "recipe")}
        for row in plan.rows:
            if row.row in recipes and row.preset:
                method = recipes[row.row].make()
                usual = type(method).from_preset(row.preset).described_parameters()
                now = method.described_parameters()
                # what is not said to differ does not
                unsaid = [
                    key
                    for key in now
                    if key not in (*row.settings, "seed") and now[key] != usual.get(key)
                ]
                assert unsaid == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model whose settings differ from its preset, and the folder of its training cohort."""
    folder = tmp_path_factory.mktemp("identity")
    cohort = make_cohort(40)
    model = NERVE.from_preset("paper", **CHANGED, **QUICK, device="cpu")
    model.fit(Cohort.load(cohort.save(folder / "tiny"))).save(folder / "model")
    return folder


@pytest.fixture(scope="module")
def own(trained):
    """The model evaluated on its own training cohort."""
    return evaluated(trained / "tiny", trained / "own", "raw", trained / "model")


@pytest.mark.slow
def test_a_trained_model_is_never_called_by_its_preset_alone(own, trained):
    said, results, report = own
    row = results.rows.set_index("line").loc["model"]
    assert row["settings"].items() >= CHANGED.items()
    assert row["preset"] == "paper"
    protocol = (trained / "own" / "protocol.md").read_text(encoding="utf-8")
    for text in (said, protocol, report):
        assert "preset paper" not in text.lower()
    for text in (
        protocol,
        report,
        (trained / "own" / "tables" / "table.md").read_text(encoding="utf-8"),
    ):
        for words in ("epochs 1", "tokenizer shared", "mask_ratio 0.25", "dim 16"):
            assert words in text, words
    assert "model (NERVE paper; " in said  # the label
    card = (trained / "model" / "README.md").read_text(encoding="utf-8")
    assert "- Settings: the settings of paper except tokenizer shared, " in card
    labels = pd.read_csv(trained / "own" / "tables" / "extended.tsv", sep="\t")["method"]
    assert labels.str.startswith("model (NERVE paper; ").any()


# ---- whom encoders had seen


def agree(out, results, report, scope, use, words):
    """Tables, protocol.md and report.html say the same of the model's row."""
    rows = results.rows.set_index("line")
    assert rows.loc["model", "scope"] == scope
    assert set(results.scores.set_index("row").loc["model", ["scope"]].to_numpy().ravel()) == {
        scope
    }
    assert results.cohorts["pretrained_on"].tolist() == [use]
    protocol = (out / "protocol.md").read_text(encoding="utf-8")
    for text in (protocol, report):
        assert words in text.lower()
        for other in {"all", "some", "other_people", "not stated", "train_folds"} - {scope}:
            assert f"scope: {other}" not in text
    assert re.search(
        rf"used in pretraining \w+ \d+ .{{0,80}} {use} ", report
    )  # the table of cohorts
    assert "Trained elsewhere" not in report
    assert "whom the model has not seen" not in report


@pytest.mark.slow
def test_every_output_says_that_a_model_has_seen_its_training_cohort(own, trained):
    _, results, report = own
    agree(
        trained / "own", results, report, "all", "yes", "on all participants including those tested"
    )
    assert results.rows.set_index("line").loc["model", "trained_on"] == "tiny (40)"


@pytest.mark.slow
def test_a_new_column_of_the_table_does_not_make_it_another_cohort(trained, tmp_path, undrawn):
    cohort = Cohort.load(trained / "tiny")
    table = cohort.participants.assign(new=np.arange(len(cohort)))
    Cohort(cohort.connectivity, table, REGIONS, name="tiny").save(tmp_path / "tiny")
    _, results, report = evaluated(tmp_path / "tiny", tmp_path / "out", "raw", trained / "model")
    agree(
        tmp_path / "out",
        results,
        report,
        "all",
        "yes",
        "on all participants including those tested",
    )


@pytest.mark.slow
@pytest.mark.parametrize("which", ["superset", "other"])
def test_the_scope_of_a_model_on_another_cohort_is_not_stated(trained, tmp_path, undrawn, which):
    other = make_cohort(45, seed=9, name="other")
    if which == "superset":
        other = Cohort.concat(
            [Cohort.load(trained / "tiny"), other.subset(np.arange(5))], name="tiny"
        )
    other.save(tmp_path / "cohort")
    _, results, report = evaluated(tmp_path / "cohort", tmp_path / "out", "raw", trained / "model")
    agree(
        tmp_path / "out",
        results,
        report,
        "not stated",
        "not known",
        "saw the tested participants is not known",
    )


def test_a_model_of_several_cohorts_knows_each_of_them(tmp_path):
    first, second = make_cohort(20, 1, "first"), make_cohort(20, 2, "second")
    model = method_class("tangent")().fit([first, second])
    assert model.data_["cohorts"] == {"first": 20, "second": 20}
    assert model.trained_on_all_of(first)
    assert model.trained_on_all_of(second)
    assert not model.trained_on_all_of(make_cohort(20, 3))


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """alpha has no time series; gamma, not pretrained on, holds all of beta; delta shares none."""
    folder = tmp_path_factory.mktemp("pooled")
    alpha = simulate_cohort(24, "schaefer100-7", 40, seed=1, name="alpha", keep_timeseries=False)
    beta = simulate_cohort(20, "schaefer100-7", 40, seed=2, name="beta")
    delta = simulate_cohort(22, "schaefer100-7", 40, seed=3, name="delta")
    delta.participants["participant_id"] = [f"delta{i}" for i in range(len(delta))]
    gamma = Cohort.concat([beta, delta.subset(np.arange(6))], name="gamma")
    for one in (alpha, beta, gamma, delta):
        one.save(folder / one.name)
    cohorts = {name: {"path": str(folder / name), "targets": ["p_factor"], "label": name.capitalize()}
               for name in ("alpha", "beta", "gamma", "delta")}  # fmt: skip
    for name in ("gamma", "delta"):
        cohorts[name]["pretrain"] = False
    nerve = {"method": "nerve", "settings": {"epochs": 1, "dim": 16, "depth": 1, "heads": 2}}
    gate = {"method": "gate", "settings": {"epochs": 2, "n_components": 8, "width": 8}}
    content = {"cohorts": cohorts, "methods": [gate, nerve], "device": "cpu",
               "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 10}}  # fmt: skip
    experiment = Experiment.prepare(ExperimentConfig.model_validate(content), folder / "out")
    results = experiment.run(jobs=1)
    return folder / "out", results


@pytest.mark.slow
def test_the_pool_of_gate_is_the_cohorts_that_have_time_series(pooled):
    out, results = pooled
    rows = results.rows.set_index("method")
    assert rows.loc["gate", "trained_on"] == "beta (20)"
    assert rows.loc["nerve", "trained_on"] == "alpha (24), beta (20)"
    words = " ".join(load_results(out).methods_text)
    assert "on beta (20): GATE; on alpha (24), beta (20): NERVE" in words
    protocols = (out / "protocol.md").read_text(encoding="utf-8").split("# How ")
    alpha = next(text for text in protocols if text.startswith("alpha"))
    assert "GATE" not in alpha  # it cannot run there, so nothing is said of what it had seen


@pytest.mark.slow
def test_participants_in_two_cohorts_are_found_by_their_fc(pooled):
    _, results = pooled
    scopes = results.scores.groupby(["cohort", "row"])["scope"].first()
    assert scopes["alpha", "nerve-1"] == "all"
    assert scopes["gamma", "nerve-1"] == scopes["gamma", "gate-0"] == "some"
    assert scopes["delta", "nerve-1"] == scopes["delta", "gate-0"] == "other_people"
    use = results.cohorts.set_index("cohort")["pretrained_on"].to_dict()
    assert use == {"alpha": "yes", "beta": "yes", "gamma": "in part", "delta": "no"}
    assert results.rows.set_index("row").loc["nerve-1", "scope"] == (
        "all (alpha, beta); some (gamma); other_people (delta)"
    )


# ---- the paper's tables


def test_a_rehearsal_has_enough_permuted_models_to_mark_a_row():
    assert 1 / (1 + PERMUTATIONS) < 0.05
    config = rehearsal(load_config("table3_parcellations"))
    assert config.methods[-1].permutations == PERMUTATIONS


@pytest.mark.parametrize("name", ["table2_tokenizers", "table3_parcellations"])
def test_tables_2_and_3_have_no_ood_as_in_the_paper(name):
    config = load_config(name)
    assert [cohort.label or key for key, cohort in config.cohorts.items()] == [
        "ABCD",
        "PNC",
        "CCNP",
    ]


@pytest.fixture(scope="module")
def null_models(tmp_path_factory):
    """Table 3, very small: one row, and two models with permuted networks."""
    folder = tmp_path_factory.mktemp("null")
    make_cohort(40).save(folder / "tiny")
    content = {
        "layout": "parcellations", "device": "cpu", "seeds": [7],
        "cohorts": {"tiny": {"path": str(folder / "tiny"), "targets": ["score"], "covariates": ["age"]}},
        "methods": [
            {"method": "nerve", "label": "grid", "settings": {"patching": "grid4", **IDLE}},
            {"method": "nerve", "label": "networks", "settings": IDLE, "permutations": 2},
        ],
        "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 10},
    }  # fmt: skip
    experiment = Experiment.prepare(ExperimentConfig.model_validate(content), folder / "out")
    experiment.run(jobs=1)
    return folder / "out"


@pytest.mark.slow
def test_the_methods_text_describes_the_null_of_table_3(null_models):
    protocol = (null_models / "protocol.md").read_text(encoding="utf-8")
    report = " ".join(load_results(null_models).methods_text)
    for text in (protocol, report):
        assert (
            "2 permuted models: NERVE retrained from the beginning with the settings and seed of networks"
            in text
        )
        assert (
            "one-sided, (1 + #{permuted r ≥ r of the row}) / (1 + 2), hence at least 0.333" in text
        )
    notes = " ".join(paper_table(load_results(null_models)).notes)
    assert "Permutation: mean ± standard deviation of r over 2 models, each retrained" in notes
    assert "otherwise as networks" in notes


@pytest.mark.slow
def test_the_papers_row_names_stay_and_differences_are_below_the_table(null_models):
    table = paper_table(load_results(null_models))
    assert [row.label for row in table.rows] == ["Permutation", "grid", "networks"]
    text = to_text(table)
    for words in (
        "grid (NERVE small): ",
        "networks (NERVE small): ",
        "epochs 1",
        "patching grid4",
        "lr 1e-09",
    ):
        assert words in text
    rows = Results.load(null_models).rows
    permuted = rows.loc[rows["kind"] == "null", "settings"]
    assert [one["patching"] for one in permuted] == ["permuted0", "permuted1"]


# ---- what training has learned


@pytest.mark.slow
def test_a_training_that_learned_next_to_nothing_is_reported_on_screen_card_and_page(
    trained, tmp_path
):
    words = [
        "pretrain",
        str(trained / "tiny"),
        "--out",
        str(tmp_path / "run"),
        "--preset",
        "small",
        "--device",
        "cpu",
    ]
    for name, value in IDLE.items():
        words += ["--set", f"{name}={value}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    sentence = "Training has learned next to nothing beyond its input"
    ratio = json.loads((tmp_path / "run" / "config.json").read_text())["data"]["masked_error"]
    assert ratio >= 0.98
    assert sentence in done.output
    assert "--set epochs=0" in done.output
    assert sentence in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    report = text_of(write_report(tmp_path / "run").read_text(encoding="utf-8"))
    assert sentence in report
    assert "the settings of small except " in report
    assert "preset small" not in report.lower()
    _, _, report = evaluated(trained / "tiny", tmp_path / "out", "raw", tmp_path / "run")
    assert sentence in report


@pytest.mark.slow
def test_experiments_report_it_too_but_not_for_an_untrained_control(null_models, tmp_path):
    results = load_results(null_models)
    doubtful = [one for one in results.encoders if one.error_ratio >= 0.98]
    assert doubtful
    notices = " ".join(text for text in results.notices if "learned next to nothing" in text)
    assert all(one.label in notices for one in doubtful)
    assert "learned next to nothing" in text_of(render_page(results))
    control = NERVE.from_preset("small", epochs=0, dim=16, device="cpu").fit(make_cohort(40))
    control.save(tmp_path / "control")
    assert control.save_masked_error(tmp_path / "control", 1.0) == ""
    assert "learned next to nothing" not in (tmp_path / "control" / "README.md").read_text(
        encoding="utf-8"
    )
