"""scikit-learn all the way: cohorts in its tools, its checks on our estimators, tables by participant, notebooks."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import validate_data

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.evaluation import KernelRidge
from nerve.methods import METHODS, make_method, method_class
from nerve.methods.nerve import NERVE
from nerve.methods.pca import PrincipalComponents
from nerve.methods.ppca import PPCA
from nerve.methods.raw import RawFC
from nerve.methods.tangent import TangentSpace
from nerve.methods.trained import TrainedMethod

REGIONS = Parcellation(tuple("abcdefgh"), tuple("AABBCCDD"), name="letters")


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    rng = np.random.default_rng(0)
    series = (
        rng.normal(size=(24, 60, 8))
        + rng.normal(size=(24, 60, 1)) * np.linspace(0, 2, 24)[:, None, None]
    )
    fc = np.stack([np.corrcoef(one.T) for one in series])
    participants = pd.DataFrame(
        {"participant_id": [f"p{i:02}" for i in range(24)], "age": np.linspace(8, 20, 24)}
    )
    participants["sex"] = ["f", "m"] * 12
    return Cohort(fc, participants, REGIONS, list(series), "tiny", notes={"region_match": "size"})


# ---- a cohort is chosen from as an array is


@pytest.mark.parametrize(
    "rows",
    [
        3,
        -1,
        slice(2, 9, 3),
        [5, 2],
        np.arange(24) % 5 == 0,
        np.array([], int),
        np.int64(4),
        (np.array([1]), ...),
    ],
)
def test_rows_are_those_of_an_array(cohort, rows):
    chosen, plain = cohort[rows], rows[0] if isinstance(rows, tuple) else rows
    where = np.atleast_1d(np.arange(24)[plain])
    assert chosen.shape == (len(where), 8, 8) == (len(chosen), 8, 8)
    np.testing.assert_array_equal(chosen.connectivity, cohort.connectivity[where])
    assert chosen.participants["participant_id"].tolist() == [f"p{i:02}" for i in where]
    assert [len(one) for one in chosen.timeseries] == [60] * len(where)


def test_an_array_of_a_cohort_is_its_fc_and_iteration_ends(cohort):
    np.testing.assert_array_equal(np.asarray(cohort), cohort.connectivity)
    assert [one.participants["participant_id"].item() for one in cohort[:3]] == [
        "p00",
        "p01",
        "p02",
    ]
    with pytest.raises(IndexError):
        cohort[24]
    with pytest.raises(NerveError, match="participants only"):
        cohort[:, 3]
    with pytest.raises(NerveError, match="chosen twice"):
        cohort[[1, 1]]


def test_cross_validation_of_a_cohort_is_that_of_its_array(cohort):
    pipe, y = make_pipeline(PrincipalComponents(3), Ridge()), cohort.participants["age"]
    ours, theirs = (
        cross_val_predict(pipe, data, y, cv=KFold(4)) for data in (cohort, np.asarray(cohort))
    )
    np.testing.assert_array_equal(ours, theirs)
    assert np.corrcoef(ours, y)[0, 1] > 0.8  # planted: a common signal that grows with age


def test_settings_are_searched_on_a_cohort(cohort):
    pipe = make_pipeline(PrincipalComponents(), KernelRidge())
    search = GridSearchCV(
        pipe, {"principalcomponents__n_components": [1, 4]}, cv=3, error_score="raise"
    )
    search.fit(cohort, cohort.participants["age"].to_numpy())
    assert search.predict(cohort[:5]).shape == (5,)


# ---- tables


@pytest.mark.parametrize(
    "method",
    [RawFC(), PrincipalComponents(3), PPCA(3), TangentSpace(), TangentSpace(n_components=3)],
    ids=lambda method: method.title,
)
def test_tables_have_participants_as_rows(cohort, method):
    expected = method.fit_transform(cohort)
    table = method.set_output(transform="pandas").fit_transform(cohort)
    assert table.index.equals(
        pd.Index(cohort.participants["participant_id"], name="participant_id")
    )
    assert (
        list(table.columns)
        == [f"dim{k}" for k in range(expected.shape[1])]
        == list(method.get_feature_names_out())
    )
    np.testing.assert_array_equal(table, expected)
    assert method.transform(np.asarray(cohort)).index.tolist() == list(range(24))
    assert method.transform([cohort[5:7], cohort[:1]]).index.tolist() == ["p05", "p06", "p00"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in METHODS if method_class(name).role != "supervised"]
)
def test_every_transformer_knows_its_width(cohort, name):
    short = {"epochs": 1} if issubclass(method_class(name), TrainedMethod) else {}
    if name == "gate":
        short |= {"window": 10, "other_windows": (12,), "n_windows": 2, "n_components": 4}
    method = make_method(name, "small", short, device="cpu").fit(cohort)
    assert len(method.get_feature_names_out()) == method.transform(cohort).shape[1]


# ---- refusals


def test_vectors_are_refused_with_what_to_do():
    with pytest.raises(
        NerveError, match=r"triangles of 8 regions.*vec_to_sym_matrix.*nerve ingest --unfolding"
    ):
        RawFC().fit(np.zeros((5, 28)))


def test_not_fitted_is_scikit_learns(cohort):
    for use in (lambda: RawFC().transform(cohort), lambda: KernelRidge().predict(np.ones((2, 2)))):
        with pytest.raises(NotFittedError, match="not fitted") as caught:
            use()
        assert isinstance(caught.value, NerveError)


# ---- scikit-learn's own checks


class _Flat:
    """Lets scikit-learn's checks, which know tables of numbers only, reach a method of FC matrices.

    A row of a table becomes a matrix: its values mixed into eight regions, x xᵀ, and tanh of it.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    def begin_fit(self, data):
        cohort = super().begin_fit(data)
        self.n_features_in_ = np.asarray(data).shape[1]
        return cohort

    def align_and_check_measure(self, data, parcellation):
        if isinstance(data, Cohort):
            return data
        table = validate_data(self, data, reset=parcellation is None, dtype=float)
        mixed = np.sin(
            table @ np.cos(np.arange(table.shape[1] * 8.0)).reshape(-1, 8) + np.arange(8)
        )
        return super().align_and_check_measure(
            np.tanh(mixed[:, :, None] * mixed[:, None, :]), parcellation or REGIONS
        )


class FlatRawFC(_Flat, RawFC):
    n_features = 28  # pairs of the eight regions


class FlatPrincipalComponents(_Flat, PrincipalComponents):
    def __init__(self, n_components=2):
        super().__init__(n_components)


class FlatNERVE(_Flat, NERVE):
    def __init__(
        self,
        view="fc",
        dim=8,
        depth=1,
        epochs=1,
        pooling="mean",
        device="cpu",
        seed=0,
    ):
        settings = {"view": view, "dim": dim, "depth": depth, "epochs": epochs, "pooling": pooling}
        super().__init__(device=device, seed=seed, **settings)


# check -> why it does not apply
NOT_OURS = {
    "check_array_api_input": "arrays of other libraries: FC is read from NumPy arrays and memory maps only",
    "check_fit2d_1sample": "one participant: the sentence says participant, where scikit-learn wants to read sample",
    "check_fit2d_1feature": "one column: it is a table's, not a matrix's, and eight regions are made of it",
    "check_methods_sample_order_invariance": "float32: batches in another order differ by more than 1e-9",
    "check_methods_subset_invariance": "float32: batches of other sizes differ by up to 1e-5 of the largest value",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method",
    [FlatRawFC(), FlatPrincipalComponents(), pytest.param(FlatNERVE(), marks=pytest.mark.slow)],
    ids=lambda m: m.title,
)
def test_the_checks_of_scikit_learn_that_apply(method):
    failed, seen = {}, set()
    for estimator, check in estimator_checks_generator(method):
        name = check.func.__name__
        seen.add(name)
        if name in NOT_OURS:
            continue
        try:
            check(estimator)
        except Exception as error:  # all of them are wanted in one list
            failed[name] = f"{type(error).__name__}: {error}"[:300]
    assert not failed
    assert len(seen - set(NOT_OURS)) > 35


# ---- notebooks


def test_a_notebook_shows_the_most_important_numbers_first(cohort):
    page = cohort._repr_html_()
    for said in (
        ">24<",
        "8 in 4 networks",
        "letters",
        "not confirmed",
        "no column mean_fd",
        "age (24)",
        "Pearson",
    ):
        assert said in page
    moved = Cohort(
        cohort.connectivity, cohort.participants.assign(mean_fd=0.125), REGIONS, name="<script>"
    )
    assert "median 0.125 mm" in moved._repr_html_()
    assert "<script>" not in moved._repr_html_()
    fitted = PrincipalComponents(3).fit(cohort)._repr_html_()
    assert "tiny (24)" in fitted
    assert "n_components" in fitted
    assert "tiny" not in PrincipalComponents(3)._repr_html_()
