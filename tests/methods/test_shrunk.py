"""Shrunk tangent space as a row: the view on its directions, for participants seen and new, in any order of regions."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

import nerve
from nerve import Cohort, Parcellation
from nerve.checks import NerveError
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.views import ShrunkView

LABELS = [f"r{i:02}" for i in range(24)]
REGIONS = Parcellation.from_table(pd.DataFrame({"label": LABELS, "network": list("XYZ") * 8}), name="few")


@pytest.fixture(scope="module")
def people() -> Cohort:
    """120 participants whose score is how much the first six regions share; scans have 40 volumes."""
    rng = np.random.default_rng(0)
    series, score = rng.normal(size=(120, 24, 40)), rng.uniform(0, 2, 120)
    series[:, 1:6] += score[:, None, None] * series[:, :1]
    table = pd.DataFrame({"participant_id": [f"p{i:03}" for i in range(120)], "score": score})
    return Cohort(np.stack([np.corrcoef(one) for one in series]), table, REGIONS, name="few")


def test_features_are_the_view_on_its_directions(people):
    features = ShrunkTangentSpace(shrinkage=0.3).fit_transform(people)
    matrices = ShrunkView(0.3).fit(people.connectivity).apply(people.connectivity)
    np.testing.assert_allclose(pdist(features), pdist(matrices[:, *np.triu_indices(24)]), rtol=1e-3)
    np.testing.assert_allclose(features.sum(axis=1), 0, atol=1e-5)
    fewer = ShrunkTangentSpace(shrinkage=0.3, n_components=4).fit_transform(people)
    assert features.shape == (120, 60)  # 59 of 119 variances are above the median; one more number for the turn
    assert fewer.shape == (120, 5)


def test_a_planted_score_is_found_in_participants_who_were_not_in_the_fit(people):
    predictions = nerve.evaluate({"shrunk": ShrunkTangentSpace()}, people, ["score"], n_folds=4, motion=None)
    assert np.corrcoef(predictions["observed"], predictions["predicted"])[0, 1] > 0.8


def test_it_is_saved_and_reads_any_order_of_regions(people, tmp_path):
    model = ShrunkTangentSpace(n_components=4).fit(people.subset(np.arange(80)))
    features = model.transform(people)
    again = ShrunkTangentSpace.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.transform(people), features)
    order = np.random.default_rng(0).permutation(24)
    fc = np.asarray(people.connectivity)[:, order][:, :, order]
    moved = Cohort(fc, people.participants, REGIONS.subset(order), name="moved")
    np.testing.assert_allclose(model.transform(moved), features, atol=1e-5)


def test_what_cannot_be_shrunk_is_refused(people):
    with pytest.raises(NerveError, match="2 participants, expected at least 3"):
        ShrunkTangentSpace().fit(people.subset(np.arange(2)))
    with pytest.raises(NerveError, match="is the same"):
        ShrunkTangentSpace().fit(np.asarray(people.connectivity)[[0] * 5])
