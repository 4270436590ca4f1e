"""A kept model meets a cohort of another atlas, other ages or another mean: resampled when asked, said, calibrated."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from tests.evaluation.test_transfer import planted
from typer.testing import CliRunner

import nerve
from nerve import Cohort, KeptModel, NerveError, Parcellation, Protocol
from nerve._utils.errors import NerveWarning
from nerve._utils.files import read_tsv
from nerve.cli import app
from nerve.data.connectivity import pearson
from nerve.data.parcellation import load_parcellation
from nerve.methods.raw import RawFC
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.methods.tangent import TangentSpace

FINE = "schaefer400-17"
ATLASES = ("schaefer200-17", "schaefer100-17", "shen268")
BAR = 0.7  # rank correlation of participants' features across atlases, first component


def seen_through(fine, atlas_name, name):
    """A cohort as another atlas sees it: averages of the small regions nearest to each centre."""
    atlas = load_parcellation(atlas_name)
    regions = fine.parcellation
    distances = np.linalg.norm(regions.coordinates[:, None] - atlas.coordinates, axis=2)
    sides = np.array(["L" if x < 0 else "R" for x in atlas.coordinates[:, 0]])
    distances[np.array(regions.hemispheres)[:, None] != sides] = np.inf
    nearest = distances.argmin(axis=1)
    members = nearest == np.unique(nearest)[:, None]
    members = members / members.sum(axis=1, keepdims=True)
    labels = tuple(f"{atlas_name} {number}" for number in range(len(members)))
    networks = ("cortex",) * len(labels)
    centres = members @ regions.coordinates
    parcellation = Parcellation(labels, networks, coordinates=centres, name=atlas_name)
    fc = []
    for part in fine.timeseries:
        series = np.asarray(part, float)
        standardised = (series - series.mean(axis=0)) / series.std(axis=0)
        fc.append(pearson(standardised @ members.T))
    return Cohort(np.array(fc, np.float32), fine.participants, parcellation, name=name)


@pytest.fixture(scope="module")
def population():
    """One hundred participants in 400 small regions; a score couples two networks of theirs."""
    cohort = nerve.simulate_cohort(100, FINE, 120, seed=3, name="population")
    rng = np.random.default_rng(5)
    score = rng.normal(size=100)
    coupled = np.isin(cohort.parcellation.networks, ["DefaultA", "SomMotA"])
    series = []
    for part, value in zip(cohort.timeseries, score, strict=True):
        part = np.array(part, float)
        shared = rng.normal(size=(len(part), 1)) * part.std()
        part[:, coupled] += 0.5 * (1 + np.tanh(value)) * shared
        series.append(part.astype(np.float32))
    fc = np.array([pearson(part) for part in series], np.float32)
    table = cohort.participants.assign(score=score)
    return Cohort(fc, table, cohort.parcellation, series, name="population")


@pytest.fixture(scope="module")
def views(population):
    """The same population through three atlases."""
    return {name: seen_through(population, name, name) for name in ATLASES}


@pytest.mark.slow
def test_three_atlases_rank_participants_alike_and_permuted_regions_do_not(views):
    """Scores on the components of one atlas, of all three carried to the same regions."""
    space = ShrunkTangentSpace(n_components=3, recentre="cohort")
    carried = {name: view.resample("schaefer100-17") for name, view in views.items()}
    space.fit(carried["schaefer200-17"])

    def agreement(one, other):
        features = [space.transform(cohort)[:, :3] for cohort in (one, other)]
        return np.mean(
            [spearmanr(*pair).statistic for pair in zip(*(f.T for f in features), strict=True)]
        )

    first = carried["schaefer200-17"]
    for name in ("schaefer100-17", "shen268"):
        assert agreement(first, carried[name]) > BAR
        shuffled = np.random.default_rng(0).permutation(views[name].n_regions)
        fc = views[name].connectivity[:, shuffled][:, :, shuffled]
        wrong = Cohort(fc, views[name].participants, views[name].parcellation, name="wrong")
        assert abs(agreement(first, wrong.resample("schaefer100-17"))) < 0.5 * BAR


@pytest.mark.slow
def test_an_effect_learned_in_one_atlas_predicts_in_another_and_shuffled_labels_do_not(views):
    ids = views["schaefer200-17"].participants["participant_id"]
    here = views["schaefer200-17"].subset(np.arange(60)).resample("schaefer100-17")
    there = views["shen268"].subset(np.arange(60, 100)).resample("schaefer100-17")
    assert not set(ids[:60]) & set(there.participants["participant_id"])
    protocol = Protocol(targets="score", motion="none")

    def transfer(training):
        model = KeptModel(TangentSpace(recentre="cohort"), protocol).fit(training)
        predicted = model.predict(there)["predicted"].to_numpy()
        return np.corrcoef(predicted, there.participants["score"])[0, 1]

    assert transfer(here) > 0.7
    shuffled = here.subset(np.arange(60))
    labels = here.participants["score"]
    shuffled.participants["score"] = np.random.default_rng(1).permutation(labels)
    assert transfer(shuffled) < 0.35


@pytest.mark.slow
def test_the_commands_do_the_same(views, tmp_path):
    views["schaefer200-17"].subset(np.arange(60)).save(tmp_path / "here")
    views["shen268"].subset(np.arange(60, 100)).save(tmp_path / "there")

    def run(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    done = run(
        "evaluate", tmp_path / "here", "--features", "tangent", "--targets", "age", "--motion",
        "none", "--n-folds", 3, "--parcellation", "schaefer100-17", "--out", tmp_path / "out",
        "--save-model", tmp_path / "model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    refused = run("predict", tmp_path / "model", tmp_path / "there", tmp_path / "p.tsv")
    assert isinstance(refused.exception, NerveError)
    assert "--resample" in str(refused.exception)
    with pytest.warns(NerveWarning, match="was resampled: shen268"):
        done = run(
            "predict", tmp_path / "model", tmp_path / "there", tmp_path / "p.tsv", "--resample"
        )
    assert done.exit_code == 0, done.output
    table = read_tsv(tmp_path / "p.tsv")
    there = Cohort.load(tmp_path / "there").resample("schaefer100-17")
    expected = KeptModel.load(tmp_path / "model").predict(there)
    assert np.allclose(table["predicted"], expected["predicted"])


@pytest.fixture(scope="module")
def here():
    return planted(120, 1, "here")


@pytest.fixture(scope="module")
def there():
    return planted(80, 2, "there", offset=40.0)


@pytest.fixture(scope="module")
def model(here):
    return KeptModel(RawFC(), Protocol(targets="score,group", motion="none")).fit(here)


@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_intervals_cover_participants_who_were_not_trained_on(model):
    """Nine of ten, of other participants of the same population."""
    others = planted(300, 7, "others")
    table = model.predict(others)
    scores = table[table["target"] == "score"]
    observed = others.participants["score"].to_numpy()
    covered = ((scores["low"] <= observed) & (observed <= scores["high"])).mean()
    assert 0.83 < covered < 0.97
    assert table.loc[table["target"] != "score", "low"].isna().all()  # a class has none


@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_a_few_labels_move_predictions_to_the_mean_of_the_new_cohort(model, there):
    truth = there.participants["score"].to_numpy()
    plain = model.predict(there)
    plain = plain[plain["target"] == "score"]["predicted"].to_numpy()
    assert np.mean(truth - plain) > 30
    table = there.participants[["participant_id", "score", "group"]].iloc[:15]
    found = model.predict(there, table)
    found = found[found["target"] == "score"]
    assert np.abs(np.mean(truth - found["predicted"])) < 2
    # one shift for everyone, from the mean error of the fifteen
    shift = found["predicted"].to_numpy() - plain
    assert np.allclose(shift, np.mean((truth - plain)[:15]))
    assert found["calibrated_on"].sum() == 15


@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_calibrations_of_too_few_or_unknown_values_are_refused(model, there):
    table = there.participants[["participant_id", "score", "group"]]
    with pytest.raises(NerveError, match="4 participants of the cohort have a value of 'score'"):
        model.predict(there, table.iloc[:4])
    with pytest.raises(NerveError, match="'group' holds other, expected the classes"):
        model.predict(there, table.assign(group="other"))
    with pytest.raises(NerveError, match="score"):
        model.predict(there, table[["participant_id"]])


def test_other_ages_cause_a_warning(model, there):
    older = there.subset(np.arange(len(there)))
    older.participants["age"] += 40
    with pytest.warns(NerveWarning, match="have 'age' outside .* its intervals do not hold"):
        model.predict(older)


def test_other_preprocessing_causes_a_warning(model, there):
    fc = there.connectivity.copy() * 0.3
    fc[:, np.arange(8), np.arange(8)] = 1
    changed = Cohort(fc, there.participants, there.parcellation, name="changed")
    with pytest.warns(NerveWarning, match="does not look like what the model was fitted on"):
        model.predict(changed)


@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_signature_ranges_and_intervals_are_saved(model, there, tmp_path):
    model.save(tmp_path / "model")
    loaded = KeptModel.load(tmp_path / "model")
    table = there.participants[["participant_id", "score", "group"]].iloc[:40]
    pd.testing.assert_frame_equal(loaded.predict(there, table), model.predict(there, table))
    assert loaded.signature_.n == model.signature_.n
    assert loaded.about_["ranges"].keys() == {"score", "age"}


@pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
def test_ranges_are_not_those_of_single_participants(model, here):
    low, high = model.about_["ranges"]["age"]
    ages = here.participants["age"]
    assert ages.min() < low < high < ages.max()
