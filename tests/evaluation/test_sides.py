"""Whatever makes folds: no participant, family or copy of a participant is on both sides.

Cohorts are drawn at random, with families, copies of participants under other ids and sites that have nothing to do
with either. A recorder notes whom each feature set is trained on and tested on.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator
from tests.evaluation.conftest import make_cohort

from nerve import Cohort, NerveError, Protocol
from nerve.evaluation import KernelRidge, make_feature_set
from nerve.evaluation.bootstrap import resample_counts
from nerve.evaluation.cross_validation import predict_permuted_targets, predict_targets
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy
from nerve.evaluation.transfer import prepare_transfer

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
# a cohort that fails is shown as it was drawn: to find a smaller one would take minutes
EXAMPLES = settings(
    max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


class Recorder:
    """Pairs of participants trained on and tested on, by id."""

    def __init__(self):
        self.splits = []

    def watch(self, features, people):
        """The same features; whom each split is of is noted."""
        split = features.split

        def noted(train, test, targets=()):
            self.splits.append((list(people.ids[train]), list(people.ids[test])))
            return split(train, test, targets)

        features.split = noted
        return features


class Learner(BaseEstimator):
    """Learns a mean without labels; notes whom it has seen and whom it was asked about."""

    def __init__(self, splits):
        self.splits = splits

    def __sklearn_clone__(self):
        return type(self)(self.splits)

    def fit(self, cohort, y=None):
        self.seen = list(cohort.participants["participant_id"])
        self.mean = cohort.inputs("upper").mean(axis=0)
        return self

    def transform(self, cohort):
        asked = list(cohort.participants["participant_id"])
        if asked != self.seen:  # features of training participants are asked for too
            self.splits.append((self.seen, asked))
        return cohort.inputs("upper") - self.mean


class Network(BaseEstimator):
    """A supervised predictor of the mean."""

    def __init__(self, splits):
        self.splits = splits

    def __sklearn_clone__(self):
        return type(self)(self.splits)

    def fit(self, cohort, y):
        self.seen = list(cohort.participants["participant_id"])
        self.mean = np.mean(y)
        return self

    def predict(self, cohort):
        self.splits.append((self.seen, list(cohort.participants["participant_id"])))
        return self.mean + cohort.inputs("upper")[:, 0]


class NotingRidge(KernelRidge):
    """Kernel ridge on features whose first column says whose they are; notes its inner folds and targets."""

    noted = []  # of all copies: (rows of the cohort, inner folds, targets)

    def fit(self, X, y, groups=None, strata=None):
        super().fit(X, y, groups=groups, strata=strata)
        targets = np.asarray(y, float).reshape(len(X), -1)
        folds = self._inner_folds(targets - targets.mean(axis=0), groups, strata)
        self.noted.append((X[:, 0].round().astype(int), folds, targets))
        return self


@st.composite
def cohorts(draw, name="cohort", fewest=24, most=40):
    """A cohort, and a label for each of its ids that relatives (by family or copy, in any chain) share."""
    n_single = draw(st.integers(fewest, most))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    single = make_cohort(n_single, seed=seed)
    n_copied = draw(st.integers(0, 8))
    original = np.concatenate(
        [np.arange(n_single), rng.integers(0, n_single, n_copied)]
    )  # a row's participant
    rows = len(original)
    fc = single.connectivity[original].copy()
    noise = rng.normal(size=fc.shape) * 1e-6
    is_copy = np.arange(rows) >= n_single
    fc[is_copy] = draw(
        st.sampled_from(
            [fc, (fc + noise).astype(np.float32), fc.astype(np.float16).astype(np.float32)]
        )
    )[is_copy]
    family = rng.integers(0, draw(st.integers(n_single // 2, 2 * n_single)), rows).astype(object)
    family[rng.random(rows) < 0.3] = None
    table = pd.DataFrame(
        {
            "participant_id": [f"{name}-{i:03}" for i in rng.permutation(rows)],
            "y": rng.normal(size=rows),
            "z": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "age": rng.normal(size=rows),
            "family": family,
            "site": rng.choice(["a", "b", "c", "d"], rows),
        }
    )
    return Cohort(fc, table, single.parcellation, name=name), original


def relatives(table, original, with_families=True):
    """A label per row of the table; rows of one participant, or of one family, share it."""
    families = pd.factorize(table["family"])[0] if with_families else np.full(len(table), -1)
    n = len(table)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    links = [
        (i, j) for i, j in pairs if original[i] == original[j] or families[i] == families[j] >= 0
    ]
    left, right = (np.array([link[side] for link in links], int) for side in (0, 1))
    graph = coo_matrix((np.ones(len(links)), (left, right)), shape=(n, n))
    return dict(
        zip(table["participant_id"], connected_components(graph, directed=False)[1], strict=True)
    )


def assert_apart(splits, label):
    assert splits
    for train, test in splits:
        assert train
        assert test
        assert not {label[one] for one in train} & {label[one] for one in test}


def prepared_for(name, cohort, people, protocol, recorder):
    """A feature set by name, made ready, with everything that is split noted."""
    rng = np.random.default_rng(0)
    what = {
        "given": rng.normal(size=(len(cohort), 4)),
        "learned": Learner(recorder.splits),
        "predictor": Network(recorder.splits),
    }
    features = make_feature_set(what.get(name, name), cohort)
    return recorder.watch(features.prepare(cohort, people, protocol), people)


# words of the errors that groups and few participants may end in
REFUSALS = ("group", "fold", "to be tested on", "train on", "can be labelled")
FEATURES = ["raw", "pca", "covariates", "given", "learned", "predictor"]


@pytest.mark.parametrize("name", FEATURES)
@given(
    data=cohorts(), families=st.booleans(), n_folds=st.integers(2, 5), leave_site_out=st.booleans()
)
@EXAMPLES
def test_no_participant_is_on_both_sides_of_folds_permutations_and_draws(
    name, data, families, n_folds, leave_site_out
):
    cohort, original = data
    protocol = Protocol(
        targets="y,z",
        covariates="age",
        groups="family" if families else None,
        site="site",
        leave_site_out=leave_site_out,
        n_folds=n_folds,
        n_repeats=2,
        n_inner_folds=2,
        n_permutations=2,
        labels="5,9",
        n_draws=2,
        n_components=4,
        lambdas=[1.0, 10.0],
    )
    label = relatives(cohort.participants, original, families)
    recorder = Recorder()
    try:
        people, protocol = prepare_participants(cohort, protocol)
        features = prepared_for(name, cohort, people, protocol, recorder)
        predict_targets(features, people, protocol)
        learning_curve(features, people, protocol)
        site_accuracy(features, people, protocol)
        if features.permutes:
            predict_permuted_targets(features, people, protocol)
    except (
        NerveError
    ) as error:  # a group larger than a fold, or too few to be tested: refused, not ignored
        assert any(words in str(error) for words in REFUSALS)  # noqa: PT017
        reject()
    assert_apart(recorder.splits, label)


@pytest.mark.parametrize("name", FEATURES)
@given(train=cohorts("here"), test=cohorts("there", 14, 20), n_both=st.integers(0, 10))
@EXAMPLES
def test_no_participant_of_the_tested_cohort_is_trained_on(name, train, test, n_both):
    here, original_here = train
    there, original_there = test
    fc = np.array(there.connectivity)
    fc[:n_both] = here.connectivity[:n_both]  # the same participants under other ids
    original_there = original_there + 500
    original_there[:n_both] = original_here[:n_both]
    there = Cohort(fc, there.participants, there.parcellation, name="there")
    both = pd.concat([here.participants, there.participants], ignore_index=True)
    original = np.concatenate([original_here, original_there])
    label = relatives(both, original)
    protocol = Protocol(
        targets="y",
        covariates="age",
        groups="family",
        n_inner_folds=2,
        labels="5",
        n_draws=2,
        n_components=4,
        lambdas=[1.0, 10.0],
    )
    recorder = Recorder()
    try:
        cohort, people, protocol = prepare_transfer(here, there, protocol)
        features = prepared_for(name, cohort, people, protocol, recorder)
        predict_targets(features, people, protocol)
        learning_curve(features, people, protocol)
    except NerveError as error:
        assert any(words in str(error) for words in REFUSALS)  # noqa: PT017
        reject()
    assert_apart(recorder.splits, label)


@given(data=cohorts(), families=st.booleans(), leave_site_out=st.booleans(), transfer=st.booleans())
@settings(EXAMPLES, max_examples=40)
def test_inner_folds_permutations_and_resamples_keep_relatives_together(
    data, families, leave_site_out, transfer
):
    cohort, original = data
    protocol = Protocol(
        targets="y",
        groups="family" if families else None,
        site="site",
        leave_site_out=leave_site_out,
        n_folds=3,
        n_permutations=3,
        labels="9",
        n_draws=2,
    )
    label = relatives(cohort.participants, original, families)
    rng = np.random.default_rng(0)
    numbered = np.column_stack([np.arange(len(cohort)), rng.normal(size=(len(cohort), 3))])
    model = NotingRidge("rows", lambdas=[1.0, 10.0], n_inner_folds=3)
    NotingRidge.noted.clear()
    try:
        if transfer:  # the first half is trained on, the second tested
            half = np.arange(len(cohort)) < len(cohort) // 2
            train, test = cohort.subset(half), cohort.subset(~half)
            cohort, people, protocol = prepare_transfer(train, test, protocol)
        else:
            people, protocol = prepare_participants(cohort, protocol)
        features = make_feature_set(numbered, cohort)
        features.prepare(cohort, people, protocol).model = model
        predict_targets(features, people, protocol)
        predict_permuted_targets(features, people, protocol)
        learning_curve(features, people, protocol)
    except NerveError as error:
        assert any(words in str(error) for words in REFUSALS)  # noqa: PT017
        reject()
    of_row = np.array([label[one] for one in people.ids])
    y = cohort.participants["y"].to_numpy()
    assert NotingRidge.noted
    for rows, folds, targets in NotingRidge.noted:
        pairs = set(zip(of_row[rows], folds, strict=True))
        assert len(pairs) == len(set(of_row[rows]))  # one inner fold for all relatives
        for (
            column
        ) in targets.T:  # permuted or not, training has the values of training participants
            np.testing.assert_array_equal(np.sort(column), np.sort(y[rows]))
    counts = resample_counts(len(cohort), 20, 0, people.groups)
    for one in np.unique(of_row):
        members = counts[:, of_row == one]
        assert (members == members[:, :1]).all()
