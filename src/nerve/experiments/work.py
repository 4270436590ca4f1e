"""What runs compute: an encoder is trained (`Encode`), features are probed (`Probe`), a network is trained in folds
(`Train`).

Every task has a key, plain JSON that determines its result, and `run`, which writes it into the folder of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import clone

from nerve.checks import MissingInput, NerveError, NerveWarning
from nerve.cohort import Cohort
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.features import NAMED, Features, Given, Learned, Predictor, one_feature_set
from nerve.evaluation.people import People
from nerve.evaluation.rows import GIVEN, Row, line_label
from nerve.evaluation.run import feature_notes, null_of_one, predict_one
from nerve.evaluation.sites import site_accuracy
from nerve.evaluation.sources import FittedInFolds, Source
from nerve.experiments.select import BestOf
from nerve.experiments.store import DONE, UNAVAILABLE, content_hash, fingerprint
from nerve.files import atomic_file, claim, read_json, write_json, write_npy, write_tsv
from nerve.interpret.pretraining import describe_run
from nerve.methods import METHODS, load_method, make_method, method_class
from nerve.methods.base import read_configuration
from nerve.methods.pretrained import located
from nerve.protocol import Protocol
from nerve.store import open_npy

if TYPE_CHECKING:
    from nerve.experiments.workspace import Workspace

_DESCRIPTION = ("config.json", "history.tsv", "README.md", "reconstruction.json", "reconstruction.npz")


@dataclass(frozen=True)
class Recipe:
    """What is trained: a method with its settings and seed."""

    method: str
    preset: str
    settings: Mapping[str, Any]
    seed: int

    def make(self, device: str = "cpu") -> Any:
        """The estimator."""
        return make_method(self.method, self.preset, self.settings, seed=self.seed, device=device)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run: what it does, and the row of the tables that it is for.

    Parameters
    ----------
    row : Row
    on : mapping
        The data, the protocol and the code, as they enter the key.
    cohort : str
        Whose targets it predicts; none for the training of an encoder.
    target : str
        The one target that it is about, if it is about one.
    needs : tuple of str
        Ids of runs that must be done before.
    """

    kind: ClassVar[str]
    row: Row
    on: Mapping[str, Any]
    cohort: str = ""
    target: str = ""
    needs: tuple[str, ...] = ()

    def key(self) -> dict[str, Any]:
        """What determines the result; it says nothing about how the run is called."""
        raise NotImplementedError

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Compute and write into the folder; what is returned is recorded."""
        raise NotImplementedError

    @cached_property
    def id(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(self.key())

    @property
    def label(self) -> str:
        """What progress and status call it."""
        parts = [line_label(self.row), f"seed {self.row.seed}" if self.row.seed else "", self.cohort, self.target]
        return f"{self.kind} " + " · ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Encode(Task):
    """An encoder trained, without labels, on the pooled cohorts; it goes on from its last checkpoint."""

    kind: ClassVar[str] = "encode"
    recipe: Recipe

    def key(self) -> dict[str, Any]:
        """Recipe, data and code."""
        return {"kind": self.kind, "recipe": asdict(self.recipe), **self.on}

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Train, save, and describe for the report."""
        cohorts = [workspace.cohort(name) for name in self.on["pretrained_on"]]
        method = fitted(self.recipe.make(workspace.config.device), cohorts, folder)
        method.save(folder)
        try:
            describe_run(method, cohorts, folder)
        except NerveError as error:  # the encoder is trained and saved: its description is for the report only
            warnings.warn(f"The reconstruction could not be described: {error}", NerveWarning, stacklevel=2)
        return {"adapted": method.adapted_, "parameters": method.parameter_count(method.parcellation_)}


@dataclass(frozen=True, kw_only=True)
class Probe(Task):
    """All targets of a cohort, predicted from features by kernel ridge."""

    kind: ClassVar[str] = "probe"
    features: Spec

    def key(self) -> dict[str, Any]:
        """What the features are, and how the cohort is evaluated."""
        return {"kind": self.kind, "features": self.features.key(), **self.on}

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Predict, and predict permuted targets where the protocol asks for it."""
        cohort, people, protocol = workspace.prepared(self.cohort)
        protocol = self.features.changed(protocol)
        features = self.features.load(workspace, folder, cohort)
        write_tsv(folder / "predictions.tsv", predict_one(features, cohort, people, protocol))
        if protocol.n_permutations and features.permutes:
            write_tsv(folder / "null.tsv", null_of_one(features, cohort, people, protocol))
        if protocol.labels:
            write_tsv(folder / "curve.tsv", learning_curve(features, cohort, people, protocol))
        return {
            "n": len(cohort), "adapted": features.adapted, "scope": _scope(features, people),
            "width": features.width(cohort, protocol), "notes": feature_notes(features, people, protocol),
            "site_accuracy": site_accuracy(features, cohort, people, protocol) if features.quick else None,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """A supervised network trained inside each fold, for one target."""

    kind: ClassVar[str] = "train"
    recipe: Recipe

    def key(self) -> dict[str, Any]:
        """Recipe, target, and how the cohort is evaluated; folds are shared by all targets of the cohort."""
        return {"kind": self.kind, "recipe": asdict(self.recipe), "target": self.target, **self.on}

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Train in each fold and predict the participants left out."""
        cohort, people, protocol = workspace.prepared(self.cohort)
        watched = _Watched(self.recipe.make(workspace.config.device))
        usable_cohorts(watched.method, [cohort])
        features = Predictor(self.recipe.method, np.zeros(len(cohort), bool), estimator=watched)
        write_tsv(folder / "predictions.tsv", predict_one(features, cohort, people.only(self.target), protocol))
        return {"n": len(cohort), "adapted": next(iter(watched.adapted), ""), "scope": _scope(features, people)}


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


# ---- where the features of a probe come from


class Spec:
    """Features as a plan knows them: before anything is computed."""

    def key(self) -> dict[str, Any]:
        """What determines them."""
        return {"from": type(self).__name__, **vars(self)}

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The features of a cohort; what is kept of them stands in the folder of the run."""
        raise NotImplementedError

    def changed(self, protocol: Protocol) -> Protocol:
        """The protocol with what belongs to these features alone."""
        return protocol


@dataclass(frozen=True)
class Named(Spec):
    """Raw FC, its principal components, or covariates; settings are fields of the protocol (`n_components`)."""

    name: str
    settings: Mapping[str, Any]

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The evaluation computes them itself."""
        return NAMED[self.name](self.name, np.zeros(len(cohort), bool))

    def changed(self, protocol: Protocol) -> Protocol:
        """The protocol with the settings of the row."""
        return replace(protocol, **self.settings)


@dataclass(frozen=True)
class Encoded(Spec):
    """What the encoder of another run gives; of several, variants of one another, each fold chooses one by itself."""

    encoders: tuple[str, ...]

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """Features of the cohort, computed once by the encoder and kept."""
        every = [self._given(one, workspace, cohort) for one in self.encoders]
        if len(every) == 1:
            return every[0]
        arrays = [one.matrix for one in every if isinstance(one, Given)]
        return BestOf(every[0].name, every[0].missing, scope=every[0].scope, arrays=arrays)

    def _given(self, encoder: str, workspace: Workspace, cohort: Cohort) -> Features:
        trained = workspace.store.run_folder(encoder)
        manifest = workspace.store.manifest(encoder) or {"status": "", "reason": "it has not run"}
        if manifest["status"] == UNAVAILABLE:
            raise MissingInput(manifest["reason"])
        if manifest["status"] != DONE:
            raise NerveError(f"Its encoder is not trained: {manifest['reason']}")
        data, key = workspace.inputs()[0][cohort.name], manifest["key"]
        # not in the folder of the model, which may be passed on: features are a row per participant
        kept = workspace.folder / "features" / encoder / f"{data}-{'ts' if cohort.timeseries is not None else 'fc'}.npy"
        # by fingerprint: a cohort may stand under two names
        scope = "all" if data in key["pretrained_on"].values() else "other_people"
        make = partial(load_method, trained, device=workspace.config.device)
        return _embedded(kept, cohort, make, key["recipe"]["method"], scope)


@dataclass(frozen=True)
class InFolds(Spec):
    """An encoder that has never seen the fold's test participants (`pretrain_scope: train_folds`)."""

    encode: Encode

    def key(self) -> dict[str, Any]:
        """What the encoder of every fold is trained by."""
        return {"encoder_in_folds": self.encode.key()}

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """Trained when a fold asks for it, and kept."""
        return _Strict("in folds", np.zeros(len(cohort), bool), encode=self.encode, workspace=workspace, folder=folder)


@dataclass
class _Strict(Learned):
    """Encoders of training participants and of the other pooled cohorts, each in a folder of its own."""

    encode: Any = None
    workspace: Any = None
    folder: Any = None
    method: Any = None

    def source(self, cohort: Cohort) -> Source:
        return _Noting(self, cohort)

    def __sklearn_clone__(self) -> _Strict:
        return self

    @property
    def quick(self) -> bool:
        return not is_trained(self.encode.recipe.make())

    def fit(self, cohort: Cohort) -> Any:
        workspace, on = self.workspace, self.encode.on["pretrained_on"]
        own = workspace.inputs()[0][cohort.name]  # by fingerprint: the same participants may stand under two names
        pooled = [cohort if data == own else workspace.cohort(name) for name, data in on.items()]
        folder = self.folder / "encoders" / fingerprint(cohort.participants["participant_id"].tolist())
        if (folder / "config.json").is_file():
            method = load_method(folder, device=workspace.config.device)
        else:
            method = fitted(self.encode.recipe.make(workspace.config.device), pooled or [cohort], folder)
            method.save(folder)
        self.method = method
        return method


class _Noting(FittedInFolds):
    """Once the encoder of a fold has read its participants, the row says what it had to substitute for them."""

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        parts = super().split(train, test, targets)
        self.estimator.adapted = self.estimator.adapted or self.estimator.method.adapted_
        return parts


@dataclass(frozen=True)
class FromTable(Spec):
    """The user's own numbers, joined by participant_id."""

    path: str
    content: str
    scope: str
    method: str = "features"
    view: str = "fc"
    kind: str = GIVEN

    def key(self) -> dict[str, Any]:
        """What the file or the folder holds."""
        return {"given": self.content}

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The rows of the cohort's participants."""
        return one_feature_set(self.path, cohort, Path(self.path).stem, self.scope)


class FromModel(FromTable):
    """A trained model in a folder or an archive of its own; what a report tells of it is kept beside its features."""

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The cohort, embedded once."""
        model = load_method(self.path, device=workspace.config.device)

        def described() -> Any:
            self._describe(model, cohort, folder / "model")
            return model

        scope = self._seen(model, workspace, cohort.name)
        return _embedded(folder / "features.npy", cohort, described, Path(self.path).stem, scope)

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


def given_spec(path: str, scope: str) -> FromTable:
    """A trained model (folder or archive) or a table of features, as a plan knows it."""
    content = content_hash(path)
    if not Path(path).is_dir() and Path(path).suffix.lower() != ".zip":
        return FromTable(path, content, scope)
    with located(path) as folder:
        config = read_configuration(folder)
    names = {target.partition(":")[2]: name for name, target in METHODS.items()}
    name = names.get(str(config.get("method")))
    if name is None or not hasattr(method_class(name), "transform"):
        raise NerveError(
            f"{path}: holds a {config.get('method')}, which was trained on a target, expected an encoder. "
            "Supervised methods are trained inside each fold: name the method itself."
        )
    view = str((config.get("parameters") or {}).get("view") or "fc")
    return FromModel(path, content, scope, name, view, str(method_class(name).role))


# ---- shared


def fitted(method: Any, cohorts: list[Cohort], folder: Path) -> Any:
    """The method trained on the cohorts that it can read; checkpoints of what is trained stand in the folder."""
    usable = usable_cohorts(method, cohorts)
    return method.fit(usable, run_dir=folder, resume=True) if is_trained(method) else method.fit(usable)


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


def _scope(features: Features, people: People) -> str:
    """Whom features had seen; training folds are another cohort where one is trained on."""
    return "other_people" if people.trained_on and features.scope == "train_folds" else features.scope


def _embedded(kept: Path, cohort: Cohort, make: Callable[[], Any], name: str, scope: str) -> Features:
    """Features of a cohort, computed once, with what the encoder had to substitute for them."""
    beside = kept.with_suffix(".json")
    if not (kept.is_file() and beside.is_file()):
        method = make()
        usable_cohorts(method, [cohort])
        values = method.transform(cohort)
        write_json(beside, {"adapted": method.adapted_})
        write_npy(kept, values.reshape(len(values), -1))
    features = one_feature_set(open_npy(kept, "Remove it: it is made again."), cohort, name, scope)
    features.adapted = str(read_json(beside)["adapted"])
    return features
