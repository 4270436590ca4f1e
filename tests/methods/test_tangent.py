"""Tangent space as a row: the entries of the view, and participants without a logarithm refused by name."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from nerve import Cohort, Parcellation
from nerve._utils.errors import NerveError
from nerve.core.views import TangentView
from nerve.methods.tangent import TangentSpace

REGIONS = Parcellation.from_table(
    pd.DataFrame({"label": list("abcdef"), "network": list("XXXYYY")}), name="six"
)


@pytest.fixture(scope="module")
def participants() -> Cohort:
    """Seventy participants: more than are read at a time."""
    series = np.random.default_rng(0).normal(size=(70, 6, 30))
    ids = pd.DataFrame({"participant_id": [f"p{i:02}" for i in range(70)]})
    return Cohort(np.stack([np.corrcoef(one) for one in series]), ids, REGIONS, name="few")


def test_features_are_the_entries_of_the_view(participants):
    training = participants.subset(np.arange(66))
    features = TangentSpace(shrinkage=0.3).fit(training).transform(participants)
    matrices = TangentView(0.3).fit(training.connectivity).apply(participants.connectivity)
    np.testing.assert_allclose(features, matrices[:, *np.triu_indices(6)], atol=1e-6)


def test_what_is_no_correlation_is_refused_by_name(participants):
    fc = np.array(participants.connectivity)
    fc[3, 0, 1] = fc[3, 1, 0] = 4.0
    bad = Cohort(fc, participants.participants, REGIONS, name="few")
    with pytest.raises(
        NerveError, match=r"The FC of p03 is not positive definite.*larger `shrinkage`"
    ):
        TangentSpace().fit(participants).transform(bad)
    with pytest.raises(NerveError, match="mean FC is not positive definite"):
        TangentSpace().fit(fc[[3, 3, 3]])
    with pytest.raises(NerveError, match=r"shrinkage is 1\.0, expected less than 1"):
        TangentSpace(shrinkage=1.0).fit(participants)


def test_components_keep_the_distances_of_the_entries_and_are_saved(participants, tmp_path):
    entries = TangentSpace().fit_transform(participants)
    model = TangentSpace(n_components=21).fit(participants)  # all there are for six regions
    scores = model.transform(participants)
    np.testing.assert_allclose(pdist(scores), pdist(entries), rtol=1e-3)
    np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-5)
    again = TangentSpace.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.transform(participants), scores)
