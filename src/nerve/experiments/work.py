"""What runs compute: an encoder is trained (`Encode`), features are probed (`Probe`), a network is trained in folds
(`Train`).

Every work has a key, plain JSON that determines its result, and `run`, which writes it into the folder of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from typing import Protocol as Interface

import numpy as np
from sklearn.base import clone

from nerve.checks import MissingInput, NerveError, NerveWarning, problem
from nerve.cohort import Cohort
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.features import NAMED, Features, Given, Learned, Predictor, one_feature_set, ridge_of
from nerve.evaluation.people import People
from nerve.evaluation.rows import GIVEN, SELF_SUPERVISED
from nerve.evaluation.run import feature_notes, null_of_one, predict_one
from nerve.evaluation.sites import site_accuracy
from nerve.evaluation.sources import FittedInFolds, Source
from nerve.experiments.select import BestVariant, Variants
from nerve.experiments.store import DONE, UNAVAILABLE, fingerprint
from nerve.experiments.workspace import Workspace
from nerve.files import atomic_file, claim, read_json, write_json, write_npy, write_tsv
from nerve.interpret.pretraining import describe_run
from nerve.methods.pretrained import located
from nerve.protocol import Protocol
from nerve.store import open_npy

_DESCRIPTION = ("config.json", "history.tsv", "README.md", "reconstruction.json", "reconstruction.npz")


@dataclass(frozen=True)
class Job:
    """Where a work runs."""

    workspace: Workspace
    folder: Path
    device: str


@dataclass(frozen=True)
class Recipe:
    """What is trained: a method with its settings and seed."""

    method: str
    preset: str
    settings: Mapping[str, Any]
    seed: int

    def make(self, device: str) -> Any:
        """The estimator."""
        from nerve.methods import make_method

        return make_method(self.method, self.preset, self.settings, seed=self.seed, device=device)


@dataclass(frozen=True)
class Evaluated:
    """A cohort under a protocol, as it enters the key of a run."""

    cohort: str
    data: str
    timeseries: bool
    protocol: Mapping[str, Any]
    code: str


class Work(Interface):
    """What a run does."""

    kind: ClassVar[str]

    @property
    def target(self) -> str:
        """The one target that it is about, if it is about one."""

    def key(self) -> dict[str, Any]:
        """What determines the result."""

    def run(self, job: Job) -> dict[str, Any]:
        """Compute and write; what is returned is recorded."""


@dataclass(frozen=True)
class Encode:
    """An encoder trained, without labels, on the pooled cohorts; it goes on from its last checkpoint."""

    kind: ClassVar[str] = "encode"
    target: ClassVar[str] = ""
    recipe: Recipe
    pretrained_on: Mapping[str, str]  # cohort → fingerprint
    timeseries: Mapping[str, bool]
    code: str

    def key(self) -> dict[str, Any]:
        """Recipe, data and code."""
        return {"kind": self.kind, **asdict(self)}

    def run(self, job: Job) -> dict[str, Any]:
        """Train, save, and describe for the report."""
        cohorts = [job.workspace.cohort(name) for name in self.pretrained_on]
        method = fitted(self.recipe.make(job.device), cohorts, job.folder)
        method.save(job.folder)
        try:
            describe_run(method, cohorts, job.folder)
        except NerveError as error:  # the encoder is trained and saved: its description is for the report only
            warnings.warn(f"The reconstruction could not be described: {error}", NerveWarning, stacklevel=2)
        return {"adapted": method.adapted_, "parameters": method.parameter_count(method.parcellation_)}


@dataclass(frozen=True)
class Probe:
    """All targets of a cohort, predicted from features by kernel ridge."""

    kind: ClassVar[str] = "probe"
    target: ClassVar[str] = ""
    features: Spec
    on: Evaluated

    def key(self) -> dict[str, Any]:
        """What the features are, and how the cohort is evaluated."""
        return {"kind": self.kind, "features": self.features.key(), **asdict(self.on)}

    def run(self, job: Job) -> dict[str, Any]:
        """Predict, and predict permuted targets where the protocol asks for it."""
        cohort, people, protocol = job.workspace.prepared(self.on.cohort)
        protocol = self.features.changed(protocol)
        features = self.features.load(job, cohort)
        write_tsv(job.folder / "predictions.tsv", predict_one(features, cohort, people, protocol))
        if protocol.n_permutations and features.permutes:
            write_tsv(job.folder / "null.tsv", null_of_one(features, cohort, people, protocol))
        if protocol.labels:
            write_tsv(job.folder / "curve.tsv", learning_curve(features, cohort, people, protocol))
        return {
            "n": len(cohort), "adapted": features.adapted, "scope": _scope(features, people),
            "width": features.width(cohort, protocol), "notes": feature_notes(features, people, protocol),
            "site_accuracy": site_accuracy(features, cohort, people, protocol) if features.quick else None,
        }  # fmt: skip


@dataclass(frozen=True)
class Train:
    """A supervised network trained inside each fold, for one target."""

    kind: ClassVar[str] = "train"
    recipe: Recipe
    on: Evaluated
    target: str

    def key(self) -> dict[str, Any]:
        """Recipe, target, and how the cohort is evaluated; folds are shared by all targets of the cohort."""
        return {"kind": self.kind, "recipe": asdict(self.recipe), "target": self.target, **asdict(self.on)}

    def run(self, job: Job) -> dict[str, Any]:
        """Train in each fold and predict the participants left out."""
        cohort, people, protocol = job.workspace.prepared(self.on.cohort)
        method = self.recipe.make(job.device)
        usable_cohorts(method, [cohort])
        watched = _Watched(method)
        features = Predictor(self.recipe.method, np.zeros(len(cohort), bool), estimator=watched)
        write_tsv(job.folder / "predictions.tsv", predict_one(features, cohort, people.only(self.target), protocol))
        return {"n": len(cohort), "adapted": next(iter(watched.adapted), ""), "scope": _scope(features, people)}


# ---- where the features of a probe come from


class Spec(Interface):
    """Features as a plan knows them: before anything is computed."""

    def key(self) -> dict[str, Any]:
        """What determines them."""

    def changed(self, protocol: Protocol) -> Protocol:
        """The protocol with what belongs to these features alone."""

    def load(self, job: Job, cohort: Cohort) -> Features:
        """The features of a cohort."""


class _Unchanged:
    def changed(self, protocol: Protocol) -> Protocol:
        return protocol


@dataclass(frozen=True)
class Named:
    """Raw FC, its principal components, or covariates; settings are fields of the protocol (`n_components`)."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def key(self) -> dict[str, Any]:
        """Name and settings."""
        return {"named": self.name, **self.settings}

    def changed(self, protocol: Protocol) -> Protocol:
        """The protocol with the settings of the row."""
        return replace(protocol, **self.settings)

    def load(self, job: Job, cohort: Cohort) -> Features:
        """The evaluation computes them itself."""
        return NAMED[self.name](self.name, np.zeros(len(cohort), bool))


@dataclass(frozen=True)
class Encoded(_Unchanged):
    """What the encoder of another run gives."""

    encoder: str

    def key(self) -> dict[str, Any]:
        """The id of the run."""
        return {"encoder": self.encoder}

    def load(self, job: Job, cohort: Cohort) -> Features:
        """Features of the cohort, computed once by the encoder and kept beside its weights."""
        manifest = _trained_run(job.workspace, self.encoder)
        seen = set(manifest["key"]["pretrained_on"].values())  # fingerprints: a cohort may stand under two names
        scope = "all" if job.workspace.inputs()[0][cohort.name] in seen else "other_people"
        matrix, adapted = _kept_features(job, self.encoder, manifest, cohort)
        features = one_feature_set(matrix, cohort, manifest["key"]["recipe"]["method"], scope)
        features.adapted = adapted
        return features


@dataclass(frozen=True)
class Chosen(_Unchanged):
    """The encoders of several variants, among which each fold chooses on its training participants."""

    encoders: tuple[str, ...]

    def key(self) -> dict[str, Any]:
        """The ids of the runs."""
        return {"choose": list(self.encoders)}

    def load(self, job: Job, cohort: Cohort) -> Features:
        """Features of all of them, side by side."""
        every = [Encoded(one).load(job, cohort) for one in self.encoders]
        arrays = [one.matrix for one in every if isinstance(one, Given)]
        return _BestOf(every[0].name, every[0].missing, scope=every[0].scope, arrays=arrays)


@dataclass
class _BestOf(Features):
    arrays: list[np.ndarray] = field(default_factory=list)

    def prepare(self, cohort: Cohort, people: Any, protocol: Protocol, progress: Any = None) -> tuple[Any, Source]:
        return BestVariant(ridge_of(protocol)), Variants(self.arrays)


@dataclass(frozen=True)
class InFolds(_Unchanged):
    """An encoder that has never seen the fold's test participants (`pretrain_scope: train_folds`)."""

    encode: Encode

    def key(self) -> dict[str, Any]:
        """What the encoder of every fold is trained by."""
        return {"encoder_in_folds": self.encode.key()}

    def load(self, job: Job, cohort: Cohort) -> Features:
        """Trained when a fold asks for it, and kept."""
        return _Strict("in folds", np.zeros(len(cohort), bool), encode=self.encode, job=job)


@dataclass
class _Strict(Learned):
    encode: Any = None
    job: Any = None

    def source(self, cohort: Cohort) -> Source:
        return _TrainedInFolds(self, cohort)

    @property
    def quick(self) -> bool:
        return not is_trained(self.encode.recipe.make("cpu"))


class _TrainedInFolds(FittedInFolds):
    """Encoders of training participants and of the other pooled cohorts, each in a folder of its own."""

    def __init__(self, features: _Strict, cohort: Cohort) -> None:
        super().__init__(None, cohort)
        self.features = features

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As a `FittedInFolds`; what the encoder had to substitute is said by the row."""
        parts = super().split(train, test, targets)
        self.features.adapted = self.features.adapted or self.method.adapted_
        return parts

    def fitted(self, cohort: Cohort) -> Any:
        encode, job = self.features.encode, self.features.job
        own = job.workspace.inputs()[0][cohort.name]  # by fingerprint: the same participants may stand under two names
        pooled = [cohort if data == own else job.workspace.cohort(name) for name, data in encode.pretrained_on.items()]
        folder = job.folder / "encoders" / fingerprint(cohort.participants["participant_id"].tolist())
        method = encode.recipe.make(job.device)
        if (folder / "config.json").is_file():
            method = type(method).load(folder, device=job.device)
        else:
            method = fitted(method, pooled or [cohort], folder)
            method.save(folder)
        self.method = method
        return method


@dataclass(frozen=True)
class FromModel(_Unchanged):
    """A trained model in a folder or an archive of its own; what a report tells of it is kept beside its features."""

    path: str
    content: str
    scope: str
    method: str
    view: str
    kind: str = SELF_SUPERVISED

    def key(self) -> dict[str, Any]:
        """What the folder holds."""
        return {"model": self.content}

    def load(self, job: Job, cohort: Cohort) -> Features:
        """The cohort, embedded once."""
        from nerve.methods import load_method

        model = load_method(self.path, device=job.device)

        def described() -> Any:
            self._describe(model, cohort, job.folder / "model")
            return model

        matrix, adapted = _embedded(job.folder / "features.npy", cohort, described)
        scope = self._seen(model, job.workspace, cohort.name)
        features = one_feature_set(matrix, cohort, Path(self.path).stem, scope)
        features.adapted = adapted
        return features

    def _seen(self, model: Any, workspace: Workspace, name: str) -> str:
        """Whether the model was fitted on who is tested, on who is trained on elsewhere, or on others."""
        fitted_on, elsewhere = model.data_.get("fingerprint"), workspace.config.cohorts[name].train_on
        if fitted_on == workspace.cohort(name).fingerprint:
            return "all"
        return "other_people" if elsewhere and fitted_on == workspace.cohort(elsewhere).fingerprint else self.scope

    def _describe(self, model: Any, cohort: Cohort, folder: Path) -> None:
        """Keep what a report shows of the model, and say where the cohort is not like its training cohort."""
        claim(folder)
        with located(self.path) as model_folder:
            for name in _DESCRIPTION:
                if (model_folder / name).is_file():
                    with atomic_file(folder / name) as stream:
                        stream.write((model_folder / name).read_bytes())
        write_json(folder / "manifest.json", {"result": {"parameters": model.parameter_count(model.parcellation_)}})
        if hasattr(model, "likeness"):
            like = model.likeness(cohort)
            like.save(folder)
            for difference in like.differences:
                text = f"Cohort {cohort.name!r} does not look like what the model was trained on. {difference}"
                warnings.warn(text, NerveWarning, stacklevel=2)


@dataclass(frozen=True)
class FromTable(_Unchanged):
    """The user's own numbers, joined by participant_id."""

    path: str
    content: str
    scope: str
    method: str = "features"
    view: str = "fc"
    kind: str = GIVEN

    def key(self) -> dict[str, Any]:
        """What the file holds."""
        return {"table": self.content}

    def load(self, job: Job, cohort: Cohort) -> Features:
        """The rows of the cohort's participants."""
        return one_feature_set(self.path, cohort, Path(self.path).stem, self.scope)


def given_features(path: str, scope: str, content: str) -> FromModel | FromTable:
    """A trained model (folder or archive) or a table of features, as a plan knows it."""
    if not Path(path).is_dir() and Path(path).suffix.lower() != ".zip":
        return FromTable(path, content, scope)
    with located(path) as folder:
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else None
    if not isinstance(config, dict) or "method" not in config:
        raise problem(path, "it holds no trained model", expected="a folder that `nerve pretrain` wrote")
    from nerve.methods import METHODS, method_class

    names = {method_class(name).__name__: name for name in METHODS}
    name = names.get(str(config["method"]))
    if name is None or not hasattr(method_class(name), "transform"):
        raise NerveError(
            f"{path}: holds a {config['method']}, which was trained on a target, expected an encoder. "
            "Supervised methods are trained inside each fold: name the method itself."
        )
    view = str((config.get("parameters") or {}).get("view") or "fc")
    return FromModel(path, content, scope, name, view, str(method_class(name).role))


# ---- shared


def fitted(method: Any, cohorts: list[Cohort], folder: Path) -> Any:
    """The method trained on the cohorts that it can read; checkpoints of what is trained stand in the folder."""
    usable = usable_cohorts(method, cohorts)
    return method.fit(usable, run_dir=folder, resume=True) if is_trained(method) else method.fit(usable)


def _scope(features: Features, people: People) -> str:
    """Whom features had seen; training folds are another cohort where one is trained on."""
    return "other_people" if people.trained_on and features.scope == "train_folds" else features.scope


def is_trained(method: Any) -> bool:
    """Whether a method is trained by gradient, with checkpoints; references look at the data once."""
    return hasattr(method, "training_settings")


def usable_cohorts(method: Any, cohorts: list[Cohort]) -> list[Cohort]:
    """The cohorts that have what the method reads; none is an error that tables print as "--"."""
    if method.kind != "timeseries":
        return cohorts
    usable = [cohort for cohort in cohorts if cohort.timeseries is not None]
    if not usable:
        cohorts[0].inputs("timeseries", [])  # raises MissingInput with the cohort's name
    return usable


def _trained_run(workspace: Workspace, run_id: str) -> dict[str, Any]:
    manifest = workspace.store.manifest(run_id)
    if manifest is not None and manifest["status"] == UNAVAILABLE:
        raise MissingInput(manifest["reason"])
    if manifest is None or manifest["status"] != DONE:
        reason = "it has not run" if manifest is None else manifest.get("reason", "")
        raise NerveError(f"Its encoder is not trained: {reason}")
    return manifest


def _kept_features(job: Job, run_id: str, manifest: Mapping[str, Any], cohort: Cohort) -> tuple[np.ndarray, str]:
    from nerve.methods import method_class

    folder, data = job.workspace.store.run_folder(run_id), job.workspace.inputs()[0][cohort.name]
    kept = folder / "features" / f"{data}-{'ts' if cohort.timeseries is not None else 'fc'}.npy"
    method = method_class(manifest["key"]["recipe"]["method"])
    return _embedded(kept, cohort, lambda: method.load(folder, device=job.device))


def _embedded(kept: Path, cohort: Cohort, make: Callable[[], Any]) -> tuple[np.ndarray, str]:
    """Features of a cohort, computed once, and what the encoder had to substitute for them."""
    beside = kept.with_suffix(".json")
    if not (kept.is_file() and beside.is_file()):
        method = make()
        usable_cohorts(method, [cohort])
        features = _flat(method.transform(cohort))
        write_json(beside, {"adapted": method.adapted_})
        write_npy(kept, features)
    return np.asarray(open_npy(kept, "Remove it: it is made again.")), str(read_json(beside)["adapted"])


def _flat(features: np.ndarray) -> np.ndarray:
    return features.reshape(len(features), -1)


class _Watched:
    """A supervised method whose copies, one per fold, tell what they had to substitute."""

    def __init__(self, method: Any, adapted: set[str] | None = None) -> None:
        self.method, self.adapted = method, set() if adapted is None else adapted

    def __deepcopy__(self, memo: Any) -> _Watched:
        return _Watched(clone(self.method), self.adapted)

    def fit(self, X: Any, y: Any, groups: Any = None) -> _Watched:
        self.method.fit(X, y, groups=groups)
        self.adapted |= {self.method.adapted_} - {""}
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.method.predict(X)
