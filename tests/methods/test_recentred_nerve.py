"""NERVE with sites recentred in its view: a planted age that sites carry goes, unseen sites are met, models keep it."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import predict
from typer.testing import CliRunner

from nerve import NERVE, Cohort, NerveError, Parcellation, Protocol
from nerve.cli import app
from nerve.core.patching import Patching
from nerve.evaluation import Results, score_table
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy
from nerve.evaluation.user_features import make_feature_set
from nerve.interpret.occlusion import embedding_of
from nerve.interpret.pretraining import describe_run
from nerve.methods import packing
from nerve.methods.recentring import UNSEEN_SITES

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
N, R, SITES = 150, 12, 5
SMALL = {
    "view": "tangent",
    "dim": 16,
    "epochs": 0,
    "device": "cpu",
    "n_components": 16,
}


@pytest.fixture(scope="module")
def planted():
    """Five sites that shift FC; age is older at later sites and nowhere else in FC, a score moves FC within sites."""
    rng = np.random.default_rng(4)
    site, score = np.repeat(np.arange(SITES), N // SITES), rng.normal(size=N)
    above = np.triu_indices(R, 1)
    effect, shift = rng.normal(size=len(above[0])), rng.normal(size=(SITES, len(above[0])))
    entries = (
        0.2
        + 0.03 * score[:, None] * effect
        + 0.05 * shift[site]
        + 0.03 * rng.normal(size=(N, len(above[0])))
    )
    fc = np.tile(np.eye(R), (N, 1, 1))
    fc[:, above[0], above[1]] = fc[:, above[1], above[0]] = entries.clip(-0.9, 0.9)
    ids = [f"p{i:03}" for i in range(N)]
    table = pd.DataFrame(
        {"participant_id": ids, "age": 20 + 8 * site + rng.normal(size=N), "score": score}
    )
    regions = pd.DataFrame({"label": [f"r{i}" for i in range(R)], "network": [*"AAAABBBBCCCC"]})
    return Cohort(
        fc,
        table.assign(site=[f"s{k}" for k in site]),
        Parcellation.from_table(regions),
        name="planted",
    )


@pytest.fixture(scope="module")
def known(planted):
    """Everyone but the last site."""
    return planted.subset(np.flatnonzero(planted.participants["site"] != "s4"))


@pytest.fixture(scope="module")
def fitted(known):
    return NERVE(**SMALL, recentre="site").fit(known)


def everyone(cohort):
    return np.arange(len(cohort))


@pytest.mark.slow
def test_an_age_that_sites_carry_is_gone_and_what_differs_within_sites_stays(planted):
    participants, protocol = prepare_participants(
        planted, Protocol(targets=["age", "score"], site="site")
    )
    found = {}
    for recentre in (None, "site"):
        model = NERVE(**SMALL, recentre=recentre)
        scores = score_table(
            predict({"nerve": model}, planted, ["age", "score"], n_folds=3), n_bootstrap=0
        )
        prepared = make_feature_set(model, planted).prepare(planted, participants, protocol)
        found[recentre] = [
            *scores.set_index("target")["r"],
            site_accuracy(prepared, participants, protocol),
        ]
    age, score, accuracy = found[None]
    assert age > 0.9
    assert accuracy > 0.9
    age, score, accuracy = found["site"]
    assert age < 0.3
    assert accuracy < 0.4  # chance is 0.2
    assert score > 0.8


def test_matrices_have_the_common_mean_at_every_site_that_was_trained_on_or_not(
    fitted, planted, known
):
    common = fitted.view_.apply(known.connectivity).mean(axis=0)
    plain, moved = (
        fitted.view_.apply(planted.connectivity),
        fitted.patch_dataset(planted).matrices(everyone(planted)),
    )
    n = N // SITES
    for site in range(SITES):
        mine = (planted.participants["site"] == f"s{site}").to_numpy()
        shift = n / (n + 1) * (plain[mine].mean(axis=0) - common)
        np.testing.assert_allclose(moved[mine], plain[mine] - shift, atol=1e-5)


def test_features_at_a_known_site_do_not_depend_on_the_other_participants(fitted, planted):
    some = planted.subset(np.arange(40, 50))
    alone = np.concatenate([fitted.transform(some.subset([k])) for k in range(10)])
    np.testing.assert_allclose(fitted.transform(planted)[40:50], alone, atol=1e-5)


def test_a_cohort_with_unseen_sites_is_marked(known, planted):
    fitted = NERVE(**SMALL, recentre="site").fit(known)
    fitted.transform(known)
    assert fitted.adapted_ == ""
    fitted.transform(planted)
    assert fitted.adapted_ == UNSEEN_SITES


def test_it_is_saved_and_the_card_says_what_the_weights_hold_about_sites(fitted, planted, tmp_path):
    folder = fitted.save(tmp_path / "model")
    again = NERVE.load(folder, device="cpu")
    np.testing.assert_array_equal(again.transform(planted), fitted.transform(planted))
    config = json.loads((folder / "config.json").read_text())
    assert config["sites"] == dict.fromkeys(["s0", "s1", "s2", "s3"], 30)
    assert config["parameters"]["recentre"] == "site"
    card = (folder / "README.md").read_text()
    assert "- recentre: site\n" in card
    assert (
        "Sites: 4, recentred, named in config.json; the weights hold the mean of each, the smallest of 30"
        in card
    )
    for damaged in ({"s0": 30}, ["s0", "s1", "s2", "s3"], None):
        (folder / "config.json").write_text(json.dumps(config | {"sites": damaged}))
        with pytest.raises(NerveError, match=r"sites|shifts|no model can be made"):
            NERVE.load(folder)
    plain = {**config, "parameters": {**config["parameters"], "recentre": None}}
    (folder / "config.json").write_text(json.dumps(plain))
    with pytest.raises(NerveError, match=r"its arrays are .*shifts"):
        NERVE.load(folder)


def test_a_model_without_recentring_does_not_mention_sites(known, tmp_path):
    model = NERVE(**SMALL).fit(known)
    assert not [name for name in model.tensors() if name.startswith("sites")]
    config = model.configuration()
    assert "sites" not in config
    assert "recentre" not in config["parameters"]


@pytest.mark.slow
def test_a_cohort_on_disk_and_a_run_that_goes_on_give_the_same(known, tmp_path, monkeypatch):
    settings = {**SMALL, "epochs": 2, "recentre": "site"}
    expected = NERVE(**settings).fit(known).transform(known)
    known.save(tmp_path / "cohort")
    monkeypatch.setattr(packing, "IN_MEMORY_BELOW", 0)
    loaded = Cohort.load(tmp_path / "cohort")
    run = NERVE(**settings).fit(loaded, run_dir=tmp_path / "run")
    np.testing.assert_allclose(run.transform(loaded), expected, atol=1e-5)
    resumed = NERVE(**settings).fit(loaded, run_dir=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.transform(loaded), run.transform(loaded))


@pytest.mark.slow
def test_explanations_of_a_model_read_recentred_matrices(fitted, planted, tmp_path):
    expected = fitted.transform(planted)
    for patching in (fitted.patching_, Patching.grid(R, 6)):
        features = embedding_of(fitted, planted, patching).features
        np.testing.assert_allclose(features(np.arange(140, 150)), expected[140:150], atol=1e-5)
    trained = NERVE(**{**SMALL, "epochs": 1}, recentre="site").fit(planted)
    report = describe_run(trained, planted, tmp_path)
    plain = NERVE(**{**SMALL, "epochs": 1}).fit(planted)
    assert (
        report["group_mean"] < 0.7 * describe_run(plain, planted, tmp_path)["group_mean"]
    )  # sites are no error now


def test_what_cannot_be_recentred_is_refused(known):
    with pytest.raises(
        NerveError, match=r"recentre is 'site' and view is fc, expected the view tangent or shrunk"
    ):
        NERVE(**SMALL | {"view": "fc"}, recentre="site").fit(known)
    with pytest.raises(NerveError, match="there is no column 'scanner'"):
        NERVE(**SMALL, recentre="scanner").fit(known)
    with pytest.raises(NerveError, match="'array': there is no column 'site'"):
        NERVE(**SMALL, recentre="site", patching="grid4").fit(known.connectivity)


@pytest.mark.slow
def test_the_command_line_trains_it_and_marks_rows_of_cohorts_whose_sites_it_has_not_seen(
    planted, known, tmp_path, undrawn
):
    def nerve(*words):
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == 0, result.output

    new = planted.subset(np.flatnonzero(planted.participants["site"].isin(["s3", "s4"])))
    new = Cohort(new.connectivity, new.participants, new.parcellation, name="new")
    for cohort in (known, new):
        cohort.save(tmp_path / cohort.name)
    settings = ["view=tangent", "recentre=site", "dim=16", "epochs=1", "n_components=16"]
    nerve("pretrain", tmp_path / "planted", "--out", tmp_path / "run", "--preset", "small", "--device", "cpu",
          *(word for one in settings for word in ("--set", one)))  # fmt: skip
    options = ["--targets", "score", "--site", "site", "--n-folds", "3", "--n-bootstrap", "20"]
    nerve(
        "evaluate",
        tmp_path / "new",
        "--features",
        f"raw,{tmp_path / 'run'}",
        *options,
        "--out",
        tmp_path / "out",
    )
    scores = Results.load(tmp_path / "out").scores
    assert list(scores["adapted"]) == ["", UNSEEN_SITES]
    assert (
        scores["site_accuracy"].iloc[0] > 0.9 > 0.7 > scores["site_accuracy"].iloc[1]
    )  # chance is 0.5
    assert UNSEEN_SITES in (tmp_path / "out" / "report.html").read_text()
