"""Embeddings are numbers and differ between participants, or somebody is told."""

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort, Parcellation
from nerve._utils.errors import NerveError, NerveWarning
from nerve.methods.base import checked_features
from nerve.methods.inputs import CohortDataset
from nerve.methods.pca import PrincipalComponents
from nerve.methods.ppca import PPCA
from nerve.methods.raw import RawFC

REGIONS = Parcellation.from_table(
    pd.DataFrame({"label": list("abcd"), "network": list("XXYY")}), name="four"
)


def cohort_of(fc):
    return Cohort(
        fc,
        pd.DataFrame({"participant_id": [f"sub-{i:02}" for i in range(len(fc))]}),
        REGIONS,
        name="few",
    )


@pytest.fixture
def fc():
    return np.stack(
        [np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 4, 30))]
    ).astype(np.float32)


def test_participants_whose_features_are_not_finite_are_named(fc):
    values = np.zeros((12, 2, 3))
    values[5, 1, 2], values[9] = np.nan, np.inf
    with pytest.raises(NerveError, match="embedding of sub-05, sub-09 is not finite"):
        checked_features(values, cohort_of(fc))


def test_identical_features_cause_a_warning(fc):
    with pytest.warns(NerveWarning, match="all 12 participants have the same embedding"):
        checked_features(np.ones((12, 3)), cohort_of(fc))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
@pytest.mark.parametrize("method", [PrincipalComponents(), PPCA(patching="grid2")])
def test_methods_name_participants_whose_fc_cannot_be_used(fc, value, method):
    fc[7, 0, 1] = fc[7, 1, 0] = value
    with pytest.raises(NerveError, match="sub-07"):
        method.fit(cohort_of(fc))


def test_missing_raw_fc_is_not_handed_on(fc):
    fc[7, 0, 1] = fc[7, 1, 0] = np.nan
    with pytest.raises(NerveError, match="sub-07"):
        RawFC().fit_transform(cohort_of(fc))


def test_batches_name_participants_whose_fc_cannot_be_used(fc):
    fc[7] = np.nan
    source = CohortDataset(cohort_of(fc), "fc")
    source.batch(np.arange(5))
    with pytest.raises(
        NerveError, match="Participant sub-07 of few: the input holds missing values"
    ):
        source.batch(np.array([2, 7]))


@pytest.mark.parametrize("method", [PrincipalComponents, PPCA])
def test_components_of_identical_participants_are_refused(fc, method):
    with pytest.raises(NerveError, match="the FC of all 12 participants is the same"):
        method(n_components=3).fit(cohort_of(np.repeat(fc[:1], 12, axis=0)))


@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_components_have_no_units(fc, scale):
    for method in (PrincipalComponents(n_components=3), PPCA(n_components=3)):
        scores = method.fit_transform(cohort_of(fc))
        other = method.fit_transform(cohort_of(fc * np.float32(scale)))
        unit = scale if isinstance(method, PrincipalComponents) else 1.0
        np.testing.assert_allclose(other / unit, scores, rtol=1e-2, atol=1e-3)


def test_ppca_refuses_fc_that_float32_cannot_square(fc):
    with pytest.raises(NerveError, match="no value of FC exceeds 1e-30"):
        PPCA(n_components=3).fit(cohort_of(fc * np.float32(1e-30)))
