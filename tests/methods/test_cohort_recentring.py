"""Each cohort by its own mean: a pipeline that mixes regions is undone, few participants are refused, models keep it."""

import numpy as np
import pandas as pd
import pytest

from nerve import NERVE, Cohort, NerveError, Parcellation
from nerve.core.views import OwnWhitenings, TangentView
from nerve.methods.recentring import CohortMeans, groups_of, is_by_cohort
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.methods.tangent import TangentSpace

R = 12
REGIONS = Parcellation(tuple(f"r{i}" for i in range(R)), ("A", "B", "C") * (R // 3), name="twelve")


def population(n, seed, name, mixing=None, sites=None):
    """Participants whose score couples two regions; a pipeline mixes regions linearly."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    fc = []
    for value in score:
        covariance = np.eye(R) + 0.3
        covariance[0, 1] = covariance[1, 0] = 0.3 + 0.25 * np.tanh(value)
        series = rng.multivariate_normal(np.zeros(R), covariance, size=150)
        if mixing is not None:
            series = series @ mixing.T
        fc.append(np.corrcoef(series.T))
    table = pd.DataFrame({"participant_id": [f"{name}{i}" for i in range(n)], "score": score})
    if sites is not None:
        table["site"] = sites
    return Cohort(np.array(fc, np.float32), table, REGIONS, name=name)


@pytest.fixture(scope="module")
def here():
    return population(80, 0, "here")


@pytest.fixture(scope="module")
def there():
    """Another pipeline: each region holds some of its neighbours."""
    mixing = np.eye(R) + 0.35 * np.eye(R, k=1) - 0.25 * np.eye(R, k=-2)
    return population(80, 1, "there", mixing)


@pytest.mark.parametrize("method", [TangentSpace, ShrunkTangentSpace])
def test_cohorts_of_two_pipelines_have_one_mean_after_it(here, there, method):
    plain = method().fit(here)
    own = method(recentre="cohort").fit(here)
    spread = plain.transform(here).std(axis=0).mean()

    def distance(model):
        means = [model.transform(cohort).mean(axis=0) for cohort in (here, there)]
        return np.abs(means[0] - means[1]).mean() / spread

    assert distance(plain) > 0.3
    assert distance(own) < 0.25 * distance(plain)
    assert own.adapted_.startswith("cohorts that were not trained on")


def test_the_training_cohort_is_as_without_recentring(here):
    """Of one cohort, the own mean is the common mean."""
    plain = TangentSpace().fit_transform(here)
    own = TangentSpace(recentre="cohort").fit_transform(here)
    assert np.allclose(plain, own, atol=1e-5)


def test_a_part_of_a_known_cohort_is_whitened_by_the_training_participants(here):
    own = TangentSpace(recentre="cohort").fit(here)
    assert np.allclose(own.transform(here.subset([3])), own.transform(here)[[3]], atol=1e-5)
    assert own.adapted_ == ""


def test_few_participants_of_a_new_cohort_are_refused(here, there):
    own = TangentSpace(recentre="cohort").fit(here)
    with pytest.raises(NerveError, match=r"9 participants of there .* expected at least 10"):
        own.transform(there.subset(np.arange(9)))


def test_a_pool_is_whitened_cohort_by_cohort(here, there):
    pool = Cohort.concat([here, there])
    own = TangentSpace(recentre="cohort").fit(pool)
    assert dict(own.sites_) == {"here": 80, "there": 80}
    alone = TangentSpace().fit_transform(there)
    assert np.allclose(own.transform(pool)[80:], alone, atol=1e-5)


def test_sites_are_groups_within_their_cohort():
    sites = ["a"] * 30 + ["b"] * 20 + ["c"] * 4 + [None] * 6
    cohort = population(60, 2, "many", sites=sites)
    groups = groups_of(cohort, "cohort+site")
    assert pd.Series(groups).value_counts().to_dict() == {"many: a": 30, "many: b": 20, "many": 10}
    # nine others: the smallest site shares their mean, from which they could be told else
    fewer = cohort.subset(np.arange(59))
    assert pd.Series(groups_of(fewer, "cohort+site")).value_counts().to_dict() == {
        "many: a": 30,
        "many": 29,
    }
    # one that was trained on needs no ten
    known = {"many: c": 40, "many": 40}
    assert (groups_of(cohort, "cohort+site", known)[50:54] == "many: c").all()
    with pytest.raises(NerveError, match="scanner"):
        groups_of(cohort, "cohort+scanner")


def test_whitening_by_group_is_that_of_each_group_alone(here, there):
    pool = np.concatenate([here.connectivity, there.connectivity])
    view = TangentView().fit(pool)
    matrices = np.stack([view.whitening_of(c.connectivity) for c in (here, there)])
    own = OwnWhitenings(matrices, np.repeat([0, 1], 80))
    found = view.apply(pool, own)
    for number, cohort in enumerate((here, there)):
        alone = TangentView().fit(cohort.connectivity).apply(cohort.connectivity)
        assert np.allclose(found[80 * number : 80 * (number + 1)], alone, atol=1e-5)


@pytest.mark.parametrize("recentre", [None, "site", "cohort", "cohort+site", "cohorts"])
def test_which_words_mean_the_cohort(recentre):
    assert is_by_cohort(recentre) == (recentre in ("cohort", "cohort+site"))


def test_shrunk_tangent_space_refuses_a_shift_by_site():
    with pytest.raises(NerveError, match="expected cohort or cohort"):
        ShrunkTangentSpace(recentre="site").fit(population(12, 0, "x", sites=["a"] * 12))


@pytest.mark.parametrize("method", [TangentSpace, ShrunkTangentSpace])
def test_references_are_saved_with_the_means_of_cohorts(here, there, tmp_path, method):
    own = method(recentre="cohort").fit(Cohort.concat([here, there]))
    own.save(tmp_path / "model")
    loaded = method.load(tmp_path / "model")
    new = population(30, 5, "new")
    assert np.allclose(loaded.transform(new), own.transform(new), atol=1e-4)
    assert np.allclose(loaded.transform(here), own.transform(here), atol=1e-4)


@pytest.mark.parametrize("view", ["tangent", "shrunk"])
def test_nerve_is_trained_saved_and_used_with_the_means_of_cohorts(here, there, tmp_path, view):
    options = {"dim": 16, "epochs": 1, "n_components": 8, "device": "cpu", "view": view}
    encoder = NERVE(**options, recentre="cohort").fit([here, there])
    assert dict(encoder.means_.sizes) == {"here": 80, "there": 80}
    encoder.save(tmp_path / "run")
    loaded = NERVE.load(tmp_path / "run", device="cpu")
    new = population(30, 5, "new", np.eye(R) + 0.3 * np.eye(R, k=1))
    assert np.allclose(loaded.transform(new), encoder.transform(new), atol=1e-4)
    assert loaded.adapted_.startswith("cohorts that were not trained on")
    with pytest.raises(NerveError, match="at least 10"):
        loaded.transform(new.subset([0, 1]))


def test_the_view_fc_is_not_recentred():
    with pytest.raises(NerveError, match="FC shifted by its site is not FC"):
        NERVE(view="fc", recentre="cohort").check_parameters()


def test_means_of_one_view_are_found_once(here):
    means = CohortMeans.of(TangentView(), here, "cohort")
    own, has_new = means.whitenings_of(TangentView(), here, "cohort")
    assert not has_new
    assert np.array_equal(own.matrices, means.whitenings)
