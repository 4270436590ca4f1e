"""Tangent space: the textbook's matrix functions, a group at the origin, no logarithm of what has none."""

import numpy as np
import pandas as pd
import pytest
from scipy import linalg

from nerve import Cohort, Parcellation
from nerve.checks import NerveError
from nerve.methods.tangent import TangentSpace

REGIONS = Parcellation.from_table(pd.DataFrame({"label": list("abcdef"), "network": list("XXXYYY")}), name="six")


@pytest.fixture(scope="module")
def people() -> Cohort:
    """Seventy people: more than are read at a time."""
    series = np.random.default_rng(0).normal(size=(70, 6, 30))
    series[:, 1] += series[:, 0]
    ids = pd.DataFrame({"participant_id": [f"p{i:02}" for i in range(70)]})
    return Cohort(np.stack([np.corrcoef(one) for one in series]), ids, REGIONS, name="few")


def test_it_is_the_logarithm_of_whitened_fc(people):
    model = TangentSpace(shrinkage=0.3).fit(people.subset(np.arange(66)))
    features = model.transform(people)
    shrunk = 0.7 * np.asarray(people.connectivity, float) + 0.3 * np.eye(6)
    root = linalg.inv(linalg.sqrtm(shrunk[:66].mean(0)))
    for person in (0, 65, 69):
        expected = linalg.logm(root @ shrunk[person] @ root)[np.triu_indices(6)]
        np.testing.assert_allclose(features[person], expected, atol=1e-5)


def test_somebody_like_the_group_is_at_the_origin_and_the_diagonal_is_not_read(people):
    group = np.mean(people.connectivity, axis=0, keepdims=True)
    other = group + 5 * np.eye(6)
    model = TangentSpace().fit(people)
    np.testing.assert_allclose(model.transform(group), 0, atol=1e-5)
    np.testing.assert_array_equal(model.transform(other), model.transform(group))


def test_what_is_no_correlation_is_refused_by_name(people):
    fc = np.array(people.connectivity)
    fc[3, 0, 1] = fc[3, 1, 0] = 4.0
    bad = Cohort(fc, people.participants, REGIONS, name="few")
    with pytest.raises(NerveError, match=r"the FC of p03 is not positive definite.*larger `shrinkage`"):
        TangentSpace().fit(people).transform(bad)
    with pytest.raises(NerveError, match="the mean FC is not positive definite"):
        TangentSpace().fit(fc[[3, 3, 3]])
    with pytest.raises(NerveError, match="less than 1"):
        TangentSpace(shrinkage=1.0).fit(people)
