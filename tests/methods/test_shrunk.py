"""Shrunk tangent space: the textbook's formula, a planted score in new participants, any order of regions."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from tests.evaluation.conftest import predict

from nerve import Cohort, Parcellation
from nerve._utils.errors import NerveError
from nerve.core.views import TangentView
from nerve.methods import make_method
from nerve.methods.shrunk import ShrunkTangentSpace, TangentSpace

LABELS = [f"r{i:02}" for i in range(24)]
REGIONS = Parcellation.from_table(
    pd.DataFrame({"label": LABELS, "network": list("XYZ") * 8}), name="few"
)


@pytest.fixture(scope="module")
def participants() -> Cohort:
    """120 participants whose score is how much the first six regions share; scans have 40 volumes."""
    rng = np.random.default_rng(0)
    series, score = rng.normal(size=(120, 24, 40)), rng.uniform(0, 2, 120)
    series[:, 1:6] += score[:, None, None] * series[:, :1]
    table = pd.DataFrame({"participant_id": [f"p{i:03}" for i in range(120)], "score": score})
    return Cohort(np.stack([np.corrcoef(one) for one in series]), table, REGIONS, name="few")


def test_scores_are_multiplied_by_one_minus_median_over_variance(participants):
    values = TangentSpace(shrinkage=0.3).fit_transform(participants).astype(float)
    values -= values.mean(0)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    sizes, directions = np.linalg.svd(values, full_matrices=False)[1:]
    variances = sizes[:119] ** 2  # 120 participants differ in 119 directions
    expected = values @ directions[:119].T * np.maximum(0, 1 - np.median(variances) / variances)
    features = ShrunkTangentSpace(shrinkage=0.3).fit_transform(participants)
    assert features.shape == (
        120,
        60,
    )  # 59 variances are above the median; one more number for the turn
    np.testing.assert_allclose(pdist(features), pdist(expected), rtol=1e-3)
    np.testing.assert_allclose(features.sum(axis=1), 0, atol=1e-5)


@pytest.mark.slow
def test_a_planted_score_is_found_in_participants_who_were_not_in_the_fit(participants):
    predictions = predict(
        {"shrunk": ShrunkTangentSpace()}, participants, ["score"], n_folds=4, motion=None
    )
    assert np.corrcoef(predictions["observed"], predictions["predicted"])[0, 1] > 0.8


def test_it_is_saved_and_reads_any_order_of_regions(participants, tmp_path):
    model = ShrunkTangentSpace(n_components=4).fit(participants.subset(np.arange(80)))
    features = model.transform(participants)
    again = ShrunkTangentSpace.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.transform(participants), features)
    order = np.random.default_rng(0).permutation(24)
    fc = np.asarray(participants.connectivity)[:, order][:, :, order]
    moved = Cohort(fc, participants.participants, REGIONS.subset(order), name="moved")
    np.testing.assert_allclose(model.transform(moved), features, atol=1e-5)


def test_the_logarithms_of_training_participants_are_taken_once(
    participants, tmp_path, monkeypatch
):
    some = participants.subset(np.arange(80))
    model = ShrunkTangentSpace().fit(some)
    expected = ShrunkTangentSpace.load(model.save(tmp_path / "model")).transform(some)
    others = np.asarray(participants.connectivity)[40:]
    assert not np.array_equal(model.transform(others), expected)
    monkeypatch.setattr(TangentView, "apply", None)
    np.testing.assert_array_equal(model.transform(participants.subset(np.arange(80))), expected)
    assert model.set_params(n_components=3).transform(some).shape == (80, 4)


def test_what_cannot_be_shrunk_is_refused(participants):
    with pytest.raises(NerveError, match="2 participants, expected at least 3"):
        ShrunkTangentSpace().fit(participants.subset(np.arange(2)))
    with pytest.raises(NerveError, match="is the same"):
        ShrunkTangentSpace().fit(np.asarray(participants.connectivity)[[0] * 5])
    with pytest.raises(
        NerveError, match="recentre"
    ):  # tangent space has it; here it would do nothing
        make_method("shrunk", settings={"recentre": "site"})
