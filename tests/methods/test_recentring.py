"""Recentring by site: a planted shift of sites goes, what differs within sites stays, and unseen sites are met."""

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import predict
from typer.testing import CliRunner

from nerve import Cohort, NerveError, Parcellation, Protocol
from nerve.cli import app
from nerve.evaluation import Results, score_table
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy
from nerve.evaluation.user_features import make_feature_set
from nerve.methods.recentring import UNSEEN_SITES, SiteShifts
from nerve.methods.tangent import TangentSpace

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
N, R = 120, 10


@pytest.fixture(scope="module")
def planted():
    """Five sites that shift all of FC, also where a score moves it within sites; the score does not differ by site."""
    rng = np.random.default_rng(4)
    site, score = np.repeat(np.arange(5), N // 5), rng.normal(size=N)
    above = np.triu_indices(R, 1)
    effect, shift = rng.normal(size=len(above[0])), rng.normal(size=(5, len(above[0])))
    shift += (
        np.linspace(-2, 2, 5)[:, None] * effect
    )  # the direction of the score, so that it misleads
    entries = (
        0.2
        + 0.02 * score[:, None] * effect
        + 0.06 * shift[site]
        + 0.05 * rng.normal(size=(N, len(above[0])))
    )
    fc = np.tile(np.eye(R), (N, 1, 1))
    fc[:, above[0], above[1]] = fc[:, above[1], above[0]] = entries.clip(-0.9, 0.9)
    table = pd.DataFrame(
        {"participant_id": [f"p{i:03}" for i in range(N)], "score": score, "site": site}
    )
    regions = pd.DataFrame({"label": [f"r{i}" for i in range(R)], "network": ["A", "B"] * (R // 2)})
    return Cohort(fc, table, Parcellation.from_table(regions, name="ten"), name="planted")


def leave_site_out(cohort, **settings):
    table = predict(
        {"tangent": TangentSpace(**settings)},
        cohort,
        "score",
        site="site",
        leave_site_out=True,
        n_folds=5,
    )
    return score_table(table, n_bootstrap=0)["r"].iloc[0]


@pytest.mark.slow
def test_an_unseen_site_is_recentred_by_its_own_participants(planted):
    assert leave_site_out(planted) < 0.3
    assert leave_site_out(planted, recentre="site") > 0.6
    assert leave_site_out(planted, recentre="site", n_components=20) > 0.6


@pytest.mark.slow
def test_sites_are_no_longer_told_apart(planted):
    participants, protocol = prepare_participants(planted, Protocol(targets="score", site="site"))

    def accuracy(model):
        prepared = make_feature_set(model, planted).prepare(planted, participants, protocol)
        return site_accuracy(prepared, participants, protocol)

    assert accuracy(TangentSpace()) > 0.9
    assert accuracy(TangentSpace(recentre="site")) < 0.4  # chance is 0.2


@pytest.mark.slow
def test_of_a_known_site_only_training_participants_count(planted):
    train, test = np.arange(0, N, 2), np.arange(1, N, 2)
    model = TangentSpace(recentre="site").fit(planted.subset(train))
    together = model.transform(planted.subset(test))
    alone = np.concatenate([model.transform(planted.subset([k])) for k in test])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert model.adapted_ == ""


def test_every_site_has_nearly_the_common_mean(planted):
    seen = planted.participants["site"].to_numpy() != 4
    model = TangentSpace(recentre="site").fit(planted.subset(np.flatnonzero(seen)))
    features = model.transform(planted)
    assert model.adapted_ == UNSEEN_SITES
    plain = TangentSpace().fit(planted.subset(np.flatnonzero(seen))).transform(planted)
    common = plain[seen].mean(axis=0)
    for site in range(5):
        mine = (planted.participants["site"] == site).to_numpy()
        n = mine.sum()
        wanted = common + (plain[mine].mean(axis=0) - common) / (n + 1)
        np.testing.assert_allclose(features[mine].mean(axis=0), wanted, atol=1e-5)
        within = plain[mine] - plain[mine].mean(axis=0)
        np.testing.assert_allclose(features[mine] - features[mine].mean(axis=0), within, atol=1e-5)


def test_a_site_of_one_participant_is_shifted_half_of_the_way():
    shifts = SiteShifts.of(np.zeros((4, 2)).__getitem__, np.array(list("aabb")))
    alone, site = np.array([[2.0, 4.0]]), np.array(["c"])
    np.testing.assert_allclose(
        shifts.with_new_sites(alone.__getitem__, site).apply(alone, site), [[1.0, 2.0]]
    )


def test_reading_some_participants_at_a_time_changes_nothing():
    features, sites = np.random.default_rng(0).normal(size=(150, 3)), np.repeat(list("abc"), 50)
    found = SiteShifts.of(features.__getitem__, sites)  # in chunks of 64, which cut through sites
    assert dict(found.sizes) == {"a": 50, "b": 50, "c": 50}
    np.testing.assert_allclose(found.common, features.mean(axis=0))
    wanted = 50 / 51 * (features.reshape(3, 50, 3).mean(axis=1) - features.mean(axis=0))
    np.testing.assert_allclose(found.shifts, wanted, atol=1e-6)


def test_it_is_saved_with_its_sites(planted, tmp_path):
    model = TangentSpace(recentre="site", n_components=5).fit(planted)
    again = TangentSpace.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.transform(planted), model.transform(planted))


def test_a_cohort_without_sites_is_refused(planted):
    with pytest.raises(NerveError, match="scanner"):
        TangentSpace(recentre="scanner").fit(planted)
    empty = planted.participants.assign(site=[np.nan, *planted.participants["site"].iloc[1:]])
    gaps = Cohort(planted.connectivity, empty, planted.parcellation, name="gaps")
    with pytest.raises(
        NerveError,
        match=r"column 'site' is empty for 1 of 120 participants, expected a site for every participant",
    ):
        TangentSpace(recentre="site").fit_transform(gaps)


@pytest.mark.slow
def test_the_command_line_has_the_row_and_says_how_unseen_sites_were_met(
    planted, tmp_path, monkeypatch
):
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    planted.save(tmp_path / "cohort")
    words = ["evaluate", str(tmp_path / "cohort"), "--features", "tangent,tangent:recentre=site", "--targets", "score",
             "--site", "site", "--leave-site-out", "--n-folds", "5", "--n-bootstrap", "20"]  # fmt: skip
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    scores = Results.load(tmp_path / "out").scores.set_index("row")
    assert list(scores["adapted"]) == ["", UNSEEN_SITES]
    assert scores["site_accuracy"].iloc[0] > 0.9 > 0.4 > scores["site_accuracy"].iloc[1]
    assert scores["r"].iloc[1] > scores["r"].iloc[0] + 0.3
    assert "(recentre site)" in result.output


def test_sites_of_few_participants_are_not_saved_and_are_recentred_like_unseen_ones():
    rng = np.random.default_rng(1)
    sites = np.array(["large"] * 12 + ["small"] * 4 + ["tiny"] * 6)
    features = rng.normal(size=(22, 5)) + 9 * (sites == "small")[:, None]
    shifts = SiteShifts.of(features.__getitem__, sites)
    assert dict(shifts.sizes) == {"large": 12}
    assert shifts.shifts.shape == (1, 5)
    moved = shifts.with_new_sites(features.__getitem__, sites).apply(features, sites)
    own = features[12:16].mean(axis=0)
    np.testing.assert_allclose(
        moved[12:16], features[12:16] - 4 / 5 * (own - features.mean(axis=0)), atol=1e-5
    )
    none = SiteShifts.of(features[12:].__getitem__, sites[12:])
    assert none.shifts.shape == (0, 5)


def test_the_mean_of_few_participants_cannot_be_computed_from_the_common_mean_and_the_shifts():
    sites = np.array(["large"] * 30 + ["middle"] * 11 + ["small"])
    features = np.random.default_rng(1).normal(size=(42, 500))
    shifts = SiteShifts.of(features.__getitem__, sites)
    kept = [
        n * ((n + 1) / n * s + shifts.common)
        for n, s in zip(shifts.sizes.values(), shifts.shifts, strict=True)
    ]
    rest = 42 * shifts.common - np.sum(kept, axis=0)  # the sum of whom nothing is kept
    assert dict(shifts.sizes) == {"large": 30}
    np.testing.assert_allclose(
        rest, features[30:].sum(axis=0), atol=1e-4
    )  # twelve, among whom nobody stands out
