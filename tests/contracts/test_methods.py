"""What every method in METHODS promises, checked over all of them: a new line there is tested without a new test."""

import copy
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils._python_dispatch import TorchDispatchMode

import nerve.methods
from nerve._utils.errors import MissingInput, NerveError, NotFitted
from nerve.core.randomness import Draws
from nerve.core.training import LabelledDataset
from nerve.core.views import VIEWS
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.simulate import Target, simulate_cohort
from nerve.evaluation.cross_validation import out_of_fold_predictions
from nerve.evaluation.feature_sets import TrainedInFolds
from nerve.methods import METHODS, load_method, make_method, method_class
from nerve.methods.parameters import parameter_descriptions
from nerve.methods.trained import TrainedMethod

TRAINED = [name for name in METHODS if issubclass(method_class(name), TrainedMethod)]
SUPERVISED = [name for name in TRAINED if method_class(name).role == "supervised"]
SELF_SUPERVISED = [name for name in TRAINED if method_class(name).role == "self-supervised"]
SEVERAL_CLASSES = {"finetune"}  # supervised methods that learn three and more classes
COMPARED = [*SUPERVISED, *(name for name in SELF_SUPERVISED if name != "nerve")]
PARTS = {
    "base",
    "brainmarks",
    "configuration",
    "graph_layers",
    "hub",
    "inputs",
    "kept_model",
    "packing",
    "parameters",
    "pretrained",
    "recentring",
    "run_folder",
    "runs",
    "trained",
    "training_logs",
}  # modules that are no method
DOCS = Path(__file__).parents[2] / "docs" / "methods"

NETWORKS = ("VisCent", "SomMotA", "DorsAttnA", "DefaultA", "ContA", "LimbicB")
TINY = Parcellation(
    tuple(f"{network}_{i}" for network in NETWORKS for i in range(4)),
    tuple(network for network in NETWORKS for _ in range(4)),
    name="tiny",
)


@pytest.fixture(scope="session")
def planted() -> Cohort:
    """260 people whose score follows, by r = 0.95, a factor that changes the coupling of three network pairs."""
    targets = [Target("score", 0.95, {"general": 1.0})]
    return simulate_cohort(260, TINY, 150, seed=1, targets=targets, strength=0.3)


@pytest.fixture(scope="session")
def cohort(planted) -> Cohort:
    return planted.subset(np.arange(30))


@pytest.fixture(scope="session")
def fitted(cohort):
    """Each method after a few epochs, made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = fit(quick(name), cohort)
        return made[name]

    return get


def quick(name, **changes):
    short = {"epochs": 2} if name in TRAINED else {}
    return make_method(name, "small", {**short, **changes}, device="cpu")


def briefest(name):
    """One epoch, where anything that was trained will do."""
    return quick(name, **({"epochs": 1} if name in TRAINED else {}))


def fit(method, cohort):
    return method.fit(cohort, scores(cohort)) if is_supervised(method) else method.fit(cohort)


def apply(method, data):
    return method.predict(data) if is_supervised(method) else method.transform(data)


def is_supervised(method) -> bool:
    return method.role == "supervised"


def scores(cohort) -> np.ndarray:
    return cohort.participants["score"].to_numpy(float)


def without_series(cohort) -> Cohort:
    return Cohort(cohort.connectivity, cohort.participants, cohort.parcellation, name="fc-only")


# ---- the registry


def test_every_file_of_a_method_has_its_line():
    files = {module.name for module in pkgutil.iter_modules(nerve.methods.__path__)} - PARTS
    assert files == {target.split(":")[0].rsplit(".", 1)[1] for target in METHODS.values()}


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_is_in_the_signature_and_described(name):
    cls = method_class(name)
    parameters = inspect.signature(cls).parameters
    assert all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters.values())
    descriptions = parameter_descriptions(cls)
    assert list(descriptions) == list(parameters)
    assert all(descriptions.values())


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_is(name):
    cls = method_class(name)
    assert cls.citation
    assert cls.title
    assert cls.role in ("reference", "supervised", "self-supervised")
    assert {"paper", "small"} <= set(cls.presets)
    assert len(inspect.getdoc(cls)) > 200
    for preset in cls.presets:
        assert make_method(name, preset, {}).view in VIEWS  # tables print it


@pytest.mark.parametrize("name", COMPARED)
def test_a_compared_method_says_what_is_its_own_and_what_is_ours(name):
    cls = method_class(name)
    text = inspect.getdoc(cls).lower()
    assert cls.adapted
    assert "method's own" in text
    assert "ours" in text
    assert "not say" in text or "not said" in text


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_page(name):
    page = DOCS / ("references.md" if name not in TRAINED else f"{name}.md")
    if name != "nerve":
        assert page.is_file(), f"docs/methods/{page.name} is missing"
        assert page.stem in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("name", METHODS)
def test_clone_keeps_parameters_and_init_only_stores(name):
    method = quick(name, **({"seed": 7} if name in TRAINED else {}))
    copy = clone(method)
    assert copy.get_params() == method.get_params()
    assert not [attribute for attribute in vars(method) if attribute.endswith("_")]


# ---- fit and apply


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_shapes(name, cohort, fitted):
    found = apply(fitted(name), cohort)
    assert found.shape[0] == len(cohort)
    assert found.ndim == (1 if is_supervised(method_class(name)) else 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", METHODS)
def test_before_fit_it_says_so(name, cohort, tmp_path):
    method = quick(name)
    with pytest.raises(NotFitted, match="not fitted"):
        apply(method, cohort)
    with pytest.raises(NotFitted, match="not fitted"):
        method.save(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_every_trainable_weight(name, cohort, fitted):
    method = copy.deepcopy(fitted(name))
    source = method.dataset(cohort)
    if is_supervised(method):
        source = LabelledDataset(source, scores(cohort))
    module = method.module_.train()
    rows = np.arange(min(len(source), 24))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module.zero_grad(set_to_none=True)
        module.training_loss(source.batch(rows), Draws(0, 0, len(rows))).backward()
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    assert weights
    unreached = [
        name
        for name, weight in weights.items()
        if weight.grad is None or not weight.grad.abs().max() > 0
    ]
    assert not unreached


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_same_seed_same_result_other_seed_another(name, cohort, fitted):
    torch.manual_seed(123)  # whatever the caller did with the global generator
    again, other = (
        fit(clone(fitted(name)), cohort),
        fit(clone(fitted(name)).set_params(seed=5), cohort),
    )
    np.testing.assert_array_equal(apply(again, cohort), apply(fitted(name), cohort))
    assert not np.array_equal(apply(other, cohort), apply(fitted(name), cohort))


class SumsInAnyOrder(TorchDispatchMode):
    """Notes sums into one place whose order torch leaves to its threads: gradients of x[i] where i repeats itself.

    They differ by rounding from run to run, but only where the machine is busy and the tensor is large.
    """

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "index_put" in function.__name__ and len(args) > 3 and args[3]:
            numbers = [
                index for index in args[1] if index is not None and index.dtype != torch.bool
            ]
            places = (
                torch.stack(torch.broadcast_tensors(*numbers)).flatten(1)
                if numbers
                else torch.zeros(1, 0)
            )
            if places.unique(dim=1).shape[1] < places.shape[1]:
                self.found.append(tuple(args[0].shape))
        return function(*args, **(kwargs or {}))


BIASED = {"tokenizer": "specific", "warmup_epochs": 0}  # of the preset paper: one bias per patch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "preset", "settings"),
    [*((name, "small", {}) for name in TRAINED), ("nerve", "paper", BIASED)],
)
def test_gradients_are_summed_in_one_order(name, preset, settings, cohort):
    with SumsInAnyOrder() as mode:
        fit(
            make_method(name, preset, {"epochs": 1, **settings}, device="cpu"),
            cohort.subset(np.arange(16)),
        )
    assert mode.found == []


@pytest.mark.slow
def test_sums_in_any_order_are_seen():
    x, places = torch.ones(3, 2, requires_grad=True), torch.tensor([[0, 1], [1, 2]])
    with SumsInAnyOrder() as mode:
        x[places].sum().backward()
        x[:, torch.tensor([1, 0])].sum().backward()
    assert mode.found == [(3, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_applying_is_deterministic_even_if_the_module_was_left_in_training_mode(
    name, cohort, fitted
):
    first = apply(fitted(name), cohort)
    fitted(name).module_.train()
    np.testing.assert_array_equal(apply(fitted(name), cohort), first)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_saving_and_loading_changes_nothing(name, cohort, fitted, tmp_path):
    fitted(name).save(tmp_path)
    loaded = method_class(name).load(tmp_path, device="cpu")
    np.testing.assert_array_equal(apply(loaded, cohort), apply(fitted(name), cohort))
    assert type(load_method(tmp_path, device="cpu")) is method_class(name)
    assert loaded.adapted_ == fitted(name).adapted_
    text = "".join(
        path.read_text() for path in tmp_path.iterdir() if path.suffix in (".json", ".md", ".tsv")
    )
    assert not [person for person in cohort.participants["participant_id"] if person in text]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_input_is_not_touched_nor_the_global_random_state(name, cohort):
    fc = np.array(cohort.connectivity)
    fc.flags.writeable = False
    frozen = Cohort(fc, cohort.participants.copy(), cohort.parcellation, cohort.timeseries)
    torch.manual_seed(9)
    expected = torch.rand(2)
    torch.manual_seed(9)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    apply(fit(briefest(name), frozen), frozen)
    assert torch.equal(torch.rand(2), expected)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(frozen.connectivity, cohort.connectivity)
    pd.testing.assert_frame_equal(frozen.participants, cohort.participants)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_cohort_in_another_region_order_gives_the_same_result(name, cohort, fitted):
    order = np.random.default_rng(0).permutation(TINY.n_regions)
    moved = cohort.align(
        Parcellation(
            tuple(TINY.labels[i] for i in order),
            tuple(TINY.networks[i] for i in order),
            name="moved",
        )
    )
    assert not np.array_equal(moved.connectivity, cohort.connectivity)
    np.testing.assert_allclose(apply(fitted(name), moved), apply(fitted(name), cohort), atol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "covariates"])
def test_any_number_of_regions(name):
    """13 is odd, prime and not a multiple of any number of heads."""
    rng = np.random.default_rng(0)
    series = rng.normal(size=(24, 120, 13))
    labels = tuple(f"r{i}" for i in range(13))
    people = pd.DataFrame(
        {"participant_id": [f"p{i}" for i in range(24)], "score": rng.normal(size=24)}
    )
    fc = np.stack([np.corrcoef(one.T) for one in series])
    parcellation = Parcellation(labels, tuple("aaabbbbccccdd"), name="thirteen")
    thirteen = Cohort(fc, people, parcellation, list(series))
    assert np.isfinite(apply(fit(briefest(name), thirteen), thirteen)).all()


@pytest.mark.parametrize("name", TRAINED)
def test_a_cohort_without_time_series_is_refused_or_marked(name, cohort, fitted):
    bare = without_series(cohort)
    if method_class(name).inputs == "timeseries":
        with pytest.raises(MissingInput, match="fc-only"):
            fit(quick(name), bare)
        with pytest.raises(MissingInput, match="fc-only"):
            apply(fitted(name), bare)
        return
    method = fit(briefest(name), bare)
    assert np.isfinite(apply(method, bare)).all()
    assert bool(method.adapted_) == (name in ("braingnn", "brainmass"))
    assert not fitted(name).adapted_


# ---- what is learned

# enough for so few participants and regions
SHORTER = {
    "braingnn": {"epochs": 10},
    "braingsls": {"epochs": 8},
    "brainmass": {"epochs": 3, "n_layers": 1},
    "brainnetcnn": {"epochs": 10},
    "brainnettf": {"epochs": 5, "lr": 1e-3},
    "gate": {"epochs": 75, "n_windows": 5, "other_windows": (20, 40)},
    "graphmae": {"epochs": 5, "width": 64, "lr": 1e-3},
    "nerve": {"epochs": 5, "view": "fc", "lr": 3e-3, "dim": 32, "standardise": False},
}
N_TRAINING = 180
CHANCE_80, CHANCE_260 = (
    0.19,
    0.105,
)  # correlations that chance exceeds once in twenty times, for so many people
# self-supervised methods that do not beat their own untrained weights here; their pages say so
NO_BETTER_THAN_UNTRAINED = {"nerve", "graphmae", "braingsls", "gate"}


@pytest.fixture(scope="module")
def trained(planted):
    """Each method trained with its small preset on 180 of the people, made once."""
    made = {}

    def get(name):
        if name not in made:
            method = make_method(name, "small", SHORTER.get(name, {}), device="cpu")
            made[name] = fit(method, planted.subset(np.arange(N_TRAINING)))
        return made[name]

    return get


def r_of_features(features, y) -> float:
    """Correlation of the score with its prediction by ridge regression, out of sample in five folds."""
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 5, 13)))
    folds = KFold(5, shuffle=True, random_state=0)
    return float(np.corrcoef(cross_val_predict(ridge, features, y, cv=folds), y)[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_loss_falls(name, trained):
    history = trained(name).history_["training_loss"]
    assert history.iloc[-3:].mean() < history.iloc[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUPERVISED)
def test_a_planted_effect_is_predicted_in_new_people(name, planted, trained):
    new = planted.subset(np.arange(N_TRAINING, 260))
    assert np.corrcoef(trained(name).predict(new), scores(new))[0, 1] > CHANCE_80


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SELF_SUPERVISED, "raw", "pca"])
def test_a_planted_effect_is_in_the_features(name, planted, trained):
    assert r_of_features(trained(name).transform(planted), scores(planted)) > CHANCE_260


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF_SUPERVISED)
def test_training_beats_untrained_weights_or_the_page_says_that_it_does_not(name, planted, trained):
    if name in NO_BETTER_THAN_UNTRAINED:
        assert "untrained" in (DOCS / f"{name}.md").read_text()
        return
    found = r_of_features(trained(name).transform(planted), scores(planted))
    untrained = [
        r_of_features(transform_untrained(trained(name), planted, seed), scores(planted))
        for seed in range(2)
    ]
    assert found > np.mean(untrained)


def transform_untrained(method, planted, seed) -> np.ndarray:
    """The features of a method that is as its seed drew it, with what it takes from the training people."""
    raw = copy.copy(method).set_params(seed=seed)
    training = planted.subset(np.arange(N_TRAINING))
    source = raw.begin_training(training, np.arange(len(training)))
    raw.finish(raw.module_, source)
    return raw.transform(planted)


@pytest.mark.slow
def test_two_valued_targets(planted):
    """Of one method: the others share how targets are learned, and the next test is of all."""
    name = "brainnetcnn"
    train, new = planted.subset(np.arange(N_TRAINING)), planted.subset(np.arange(N_TRAINING, 260))
    high = scores(planted) > np.median(scores(planted))
    method = method_class(name).from_preset("small", device="cpu", **SHORTER.get(name, {}))
    method.fit(train, np.where(high, "patient", "control")[:N_TRAINING])
    assert roc_auc_score(high[N_TRAINING:], method.predict_proba(new)[:, 1]) > 0.6
    assert set(method.predict(new)) == {"patient", "control"}
    np.testing.assert_allclose(method.predict_proba(new).sum(1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUPERVISED)
def test_words_and_numbers_are_the_same_two_valued_target(name, cohort):
    high = scores(cohort) > np.median(scores(cohort))
    words = briefest(name).fit(cohort, np.where(high, "patient", "control"))
    numbers = briefest(name).fit(cohort, np.where(high, 3.0, 1.0))
    np.testing.assert_allclose(numbers.predict(cohort), 1 + 2 * words.predict_proba(cohort)[:, 1])
    with pytest.raises(NerveError, match="no probabilities"):
        fit(briefest(name), cohort).predict_proba(cohort)


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_target_that_cannot_be_learned_is_refused(name, cohort):
    y = scores(cohort)
    with pytest.raises(NerveError, match="1 missing"):
        quick(name).fit(cohort, np.where(np.arange(len(y)) == 3, np.nan, y))
    with pytest.raises(NerveError, match="one value per participant"):
        quick(name).fit(cohort, np.column_stack([y, y]))
    if name not in SEVERAL_CLASSES:
        with pytest.raises(NerveError, match="3 different values"):
            quick(name).fit(cohort, np.array(["a", "b", "c"])[np.arange(len(y)) % 3])
    with pytest.raises(NerveError, match="expected one each"):
        quick(name).fit(cohort, y[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SUPERVISED)
def test_the_cross_validation_loop_trains_a_new_copy_in_each_fold(name, cohort):
    method = quick(name, epochs=1)
    table, folds = cohort.participants, np.arange(len(cohort)) % 2
    found = out_of_fold_predictions(
        method,
        TrainedInFolds(cohort=cohort),
        table[["score"]],
        folds,
        covariates=table[["age"]],
        inner_groups=np.repeat(np.arange(len(cohort) // 2), 2),
    )
    assert found["position"].tolist() == list(range(len(cohort)))
    assert np.isfinite(found["predicted"]).all()
    assert not hasattr(method, "module_")


@pytest.mark.parametrize("name", SUPERVISED)
def test_families_are_whole_in_the_inner_validation(name, cohort):
    families = np.repeat(np.arange(len(cohort) // 3), 3)
    method = briefest(name)
    seen = []
    split = type(method).validation_split

    def spy(self, *arguments):
        seen.append(split(self, *arguments))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(method), "validation_split", spy)
        method.fit(cohort, scores(cohort), groups=families)
    training, validation = seen[0]
    assert len(validation) >= 3
    assert not set(families[training]) & set(families[validation])
