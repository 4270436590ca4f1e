"""Raw FC, principal components and covariates alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from nerve._utils.errors import MissingInput, NerveError
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.covariates import Covariates
from nerve.methods.pca import PrincipalComponents
from nerve.methods.raw import RawFC


@pytest.fixture
def cohort() -> Cohort:
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(30, 9, 40))])
    labels = tuple(f"r{i}" for i in range(9))
    participants = pd.DataFrame(
        {
            "participant_id": [f"p{i}" for i in range(30)],
            "age": rng.uniform(8, 20, 30),
            "sex": rng.choice(["F", "M"], 30),
        }
    )
    return Cohort(fc, participants, Parcellation(labels, ("all",) * 9, name="nine"))


def test_raw_is_the_upper_triangle(cohort):
    features = RawFC().fit_transform(cohort)
    np.testing.assert_array_equal(features[4], cohort.connectivity[4][np.triu_indices(9, 1)])


def test_components_keep_the_distances_of_those_of_scikit_learn(cohort):
    ours = PrincipalComponents(n_components=6).fit(cohort)
    theirs = PCA(n_components=6, svd_solver="full").fit(cohort.inputs("upper"))
    new = cohort.inputs("fc")[::-1] ** 2  # other matrices than those fitted
    expected, found = theirs.transform(new[:, *np.triu_indices(9, 1)]), ours.transform(new)
    np.testing.assert_allclose(
        found @ found.T, expected @ expected.T, atol=1e-4
    )  # turned: distances are the same
    np.testing.assert_allclose(found.sum(1), 0, atol=1e-4)


def test_there_are_fewer_components_than_participants(cohort):
    few = cohort.subset(np.arange(5))
    assert PrincipalComponents(n_components=256).fit_transform(few).shape == (
        5,
        5,
    )  # four components, turned
    with pytest.raises(NerveError, match="at least 2"):
        PrincipalComponents().fit(cohort.subset([0]))


def test_components_survive_saving_when_fewer_than_asked(cohort, tmp_path):
    fitted = PrincipalComponents(n_components=100).fit(cohort)
    fitted.save(tmp_path)
    np.testing.assert_array_equal(
        PrincipalComponents.load(tmp_path).transform(cohort), fitted.transform(cohort)
    )


def test_covariates_are_numbers_of_the_table_and_not_of_fc(cohort):
    features = Covariates(columns=("age", "sex")).fit_transform(cohort)
    assert features.shape == (30, 3)
    np.testing.assert_allclose(
        features[:, 0], cohort.participants["age"] - cohort.participants["age"].mean(), atol=1e-5
    )
    empty = Cohort(np.zeros_like(cohort.connectivity), cohort.participants, cohort.parcellation)
    np.testing.assert_array_equal(Covariates().fit_transform(empty), features)


def test_covariates_of_an_array_are_missing_and_a_misspelt_one_is_named(cohort):
    with pytest.raises(MissingInput, match="none of the covariates age, sex"):
        Covariates().fit(np.asarray(cohort.connectivity))
    with pytest.raises(NerveError, match="no column 'agee'"):
        Covariates(columns=("agee", "sex")).fit(cohort)
