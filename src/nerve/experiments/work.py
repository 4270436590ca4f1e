"""What runs compute: an encoder is trained (`Encode`), features are probed (`Probe`), a network is trained in folds
(`Train`).

Every task has a key, plain JSON that determines its result, and `run`, which writes it into the folder of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from nerve._utils.errors import MissingInput, NerveError, NerveWarning, naming_participants
from nerve._utils.files import atomic_file, claim, write_json, write_tsv
from nerve.data.cohort import Cohort
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.features import NAMED, Features, Learned, Predictor, one_feature_set, ridge_of
from nerve.evaluation.people import People
from nerve.evaluation.rows import GIVEN, NULL, Row, line_label
from nerve.evaluation.run import feature_notes, null_of_one, predict_one
from nerve.evaluation.sites import site_accuracy
from nerve.experiments.select import BestVariant
from nerve.experiments.store import DONE, UNAVAILABLE, check_content, fingerprint
from nerve.interpret.pretraining import describe_run
from nerve.methods import NAME_OF_CLASS, load_method, make_method, method_class
from nerve.methods.base import read_configuration
from nerve.methods.pretrained import located
from nerve.methods.runs import compared

if TYPE_CHECKING:
    from nerve.experiments.workspace import Workspace

_NO_KEY = ("row", "on", "path", "scope")  # how a run is called, and where its files lie
_DESCRIPTION = (
    "config.json",
    "history.tsv",
    "README.md",
    "reconstruction.json",
    "reconstruction.npz",
)


@dataclass(frozen=True)
class Recipe:
    """What is trained: a method with its settings and seed."""

    method: str
    preset: str
    settings: Mapping[str, Any]
    seed: int
    # settings that name a file → hash of its content
    files: Mapping[str, str] = field(default_factory=dict)

    def make(self, device: str = "cpu") -> Any:
        """The estimator; files that its settings name must be those that were planned with."""
        for name, content in self.files.items():
            check_content(self.settings[name], content)
        return make_method(self.method, self.preset, self.settings, seed=self.seed, device=device)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run: what it does, and the row of the tables that it is for. What a kind of run adds determines its result.

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
        own = {name: value for name, value in asdict(self).items() if name not in _NO_KEY}
        return {"kind": self.kind, **own, **self.on}

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Compute and write into the folder; what is returned is recorded."""
        raise NotImplementedError

    def check_inputs(self, workspace: Workspace) -> None:
        """Refuse if code or data are no longer those of the key; called before and after `run`."""
        workspace.check_code()
        for name in self.cohorts:
            workspace.check_cohort(name)

    @property
    def cohorts(self) -> list[str]:
        """The cohorts that are read."""
        return [self.cohort] if self.cohort else list(self.on["pretrained_on"])

    @cached_property
    def id(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(self.key())

    @property
    def label(self) -> str:
        """What progress and status call it."""
        seed = f"seed {self.row.seed}" if self.row.seed else ""
        parts = [line_label(self.row, most=3), seed, self.cohort, self.target]
        return f"{self.kind} " + " · ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class Encode(Task):
    """An encoder trained, without labels, on the pooled cohorts; it goes on from its last checkpoint."""

    kind: ClassVar[str] = "encode"
    recipe: Recipe

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Train, save, and describe for the report."""
        cohorts = [workspace.cohort(name) for name in self.on["pretrained_on"]]
        method = fitted(self.recipe.make(workspace.config.device), cohorts, folder)
        try:
            described = describe_run(method, cohorts, folder)
            if described:
                doubt = method.save_masked_error(
                    folder, described["model"] / described["group_mean"]
                )
                if doubt and self.row.kind != NULL:  # not one warning per null model
                    warnings.warn(
                        f"{line_label(self.row, most=3)}: {doubt}", NerveWarning, stacklevel=2
                    )
        except (
            NerveError
        ) as error:  # the encoder is trained and saved: its description is for the report only
            warnings.warn(
                f"The reconstruction could not be described: {error}", NerveWarning, stacklevel=2
            )
        return {
            "adapted": method.adapted_,
            "parameters": method.parameter_count(method.parcellation_),
            "trained_on": {one.name: len(one) for one in usable_cohorts(method, cohorts)},
        }


@dataclass(frozen=True, kw_only=True)
class Probe(Task):
    """All targets of a cohort, predicted from features by kernel ridge; `settings` change the protocol for this row."""

    kind: ClassVar[str] = "probe"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The features of a cohort; what is kept of them stands in the folder of the run."""
        raise NotImplementedError

    @property
    def quick(self) -> bool:
        """Whether another few folds, to predict the site, take seconds rather than hours."""
        return True

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Predict, and predict permuted targets where the protocol asks for it."""
        cohort, people, protocol = workspace.prepared(self.cohort)
        protocol = replace(protocol, **self.settings)
        features = self.load(workspace, folder, cohort)
        with naming_participants(people.ids):
            prepared = features.prepare(
                cohort, people, protocol
            )  # once: the kernel of thousands takes long
        write_tsv(folder / "predictions.tsv", predict_one(features, prepared, people, protocol))
        if protocol.n_permutations and features.permutes:
            write_tsv(folder / "null.tsv", null_of_one(features, prepared, people, protocol))
        if protocol.labels:
            write_tsv(folder / "curve.tsv", learning_curve(features, prepared, people, protocol))
        return {
            "n": len(cohort), "adapted": features.adapted, "scope": _scope(features, people),
            "trained_on": features.trained_on, "width": features.width(cohort, protocol),
            "notes": feature_notes(features, people, protocol),
            "site_accuracy": site_accuracy(prepared, people, protocol) if self.quick else None,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """A supervised network trained inside each fold, for one target."""

    kind: ClassVar[str] = "train"
    recipe: Recipe

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Train in each fold and predict the participants left out."""
        cohort, people, protocol = workspace.prepared(self.cohort)

        def fit(X: Cohort, y: np.ndarray, groups: Any) -> Any:
            return self.recipe.make(workspace.config.device).fit(X, y, groups=groups)

        features = _in_folds(Predictor, self.recipe.method, cohort, fit)
        people = people.only(self.target)
        prepared = features.prepare(cohort, people, protocol)
        write_tsv(folder / "predictions.tsv", predict_one(features, prepared, people, protocol))
        return {"n": len(cohort), "adapted": features.adapted, "scope": _scope(features, people)}


# ---- where the features of a probe come from


@dataclass(frozen=True, kw_only=True)
class Named(Probe):
    """Raw FC, its principal components, or covariates."""

    name: str

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The evaluation computes them itself."""
        return NAMED[self.name](self.name, np.zeros(len(cohort), bool))


class Encoded(Probe):
    """What the encoder that it needs gives; of several, variants of one another, each fold chooses one by itself."""

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """Features of the cohort."""
        every = [self._given(one, workspace, cohort) for one in self.needs]
        if len(every) == 1:
            return every[0]
        arrays = [one.matrix for one in every]
        ridge = ridge_of(workspace.people(self.cohort)[1])
        chosen = BestVariant(ridge, tuple(array.shape[1] for array in arrays))
        return replace(every[0], matrix=np.hstack(arrays), probe=chosen)

    def _given(self, encoder: str, workspace: Workspace, cohort: Cohort) -> Any:
        manifest = workspace.store.manifest(encoder) or {"status": "", "reason": "it has not run"}
        if manifest["status"] == UNAVAILABLE:
            raise MissingInput(manifest["reason"])
        if manifest["status"] != DONE:
            raise NerveError(f"Its encoder is not trained: {manifest['reason']}")
        key = manifest["key"]
        trained_on = manifest["result"][
            "trained_on"
        ]  # not all of the pool, where a method needs time series
        scope = workspace.scope_of(cohort.name, trained_on)
        method = load_method(workspace.store.run_folder(encoder), device=workspace.config.device)
        # features are not kept: they are a row per participant, and cost little beside the training
        features = one_feature_set(method.transform(cohort), cohort, key["recipe"]["method"], scope)
        features.adapted = method.adapted_
        features.trained_on = trained_on
        return features


@dataclass(frozen=True, kw_only=True)
class InFolds(Probe):
    """Encoders that have never seen the test participants of their fold (`pretrain_scope: train_folds`).

    Each is trained on training participants and the other cohorts of the pool, when a fold asks for it, and kept.
    """

    recipe: Recipe
    pool: Mapping[str, Any]

    @property
    def cohorts(self) -> list[str]:
        """The one that is predicted, and the others of the pool."""
        return list(dict.fromkeys([self.cohort, *self.pool["pretrained_on"]]))

    @property
    def quick(self) -> bool:
        """References are fitted in seconds."""
        return not is_trained(self.recipe.make())

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """Nothing is computed before a fold asks for it."""
        device, pool = workspace.config.device, self.pool["pretrained_on"]
        own = workspace.inputs()[0][
            cohort.name
        ]  # by fingerprint: a cohort may stand under two names

        def fit(training: Cohort, *_: Any) -> Any:
            pooled = [
                training if data == own else workspace.cohort(name) for name, data in pool.items()
            ]
            kept = (
                folder / "encoders" / fingerprint(training.participants["participant_id"].tolist())
            )
            if (kept / "config.json").is_file():
                return load_method(kept, device=device)
            return fitted(self.recipe.make(device), pooled or [training], kept)

        features = _in_folds(Learned, "in folds", cohort, fit)
        others = [workspace.cohort(name) for name, data in pool.items() if data != own]
        readable = [one for one in others if is_readable(self.recipe.make(), one)]
        features.trained_on = {one.name: len(one) for one in readable}
        if readable:  # beside the training folds, or instead of them
            scope = workspace.scope_of(cohort.name, features.trained_on)
            in_pool = own in pool.values()
            features.scope = "train_folds" if in_pool and scope == "other_people" else scope
        return features


@dataclass(frozen=True, kw_only=True)
class FromTable(Probe):
    """The user's own numbers, joined by participant_id."""

    path: str
    content: str
    scope: str

    def check_inputs(self, workspace: Workspace) -> None:
        """Also that the table, or the model, is the one that was planned with."""
        super().check_inputs(workspace)
        check_content(self.path, self.content)

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The rows of the cohort's participants."""
        return one_feature_set(self.path, cohort, Path(self.path).stem, self.scope)


class FromModel(FromTable):
    """A trained model in a folder or an archive of its own; what a report tells of it is kept in the run."""

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> Features:
        """The cohort, embedded."""
        model = load_method(self.path, device=workspace.config.device)
        self._describe(model, cohort, folder / "model")
        scope = self._seen(model, workspace, cohort.name)
        features = one_feature_set(model.transform(cohort), cohort, Path(self.path).stem, scope)
        features.adapted = model.adapted_
        features.trained_on = _counts(model)
        return features

    def _seen(self, model: Any, workspace: Workspace, name: str) -> str:
        """Whether the model was fitted on who is tested, or on who is trained on elsewhere; else what the row says."""
        elsewhere = workspace.config.cohorts[name].train_on
        if _fitted_on(model, workspace, name):
            return "all"
        one_cohort = (
            len(model.data_.get("fc", ())) == 1
        )  # another of its cohorts may hold who is tested
        if elsewhere and one_cohort and _fitted_on(model, workspace, elsewhere):
            return workspace.scope_of(name, [elsewhere])
        return self.scope

    def _describe(self, model: Any, cohort: Cohort, folder: Path) -> None:
        """Keep what a report shows of the model, and say where the cohort is not like its training cohort."""
        claim(folder)
        with located(self.path) as model_folder:
            for name in _DESCRIPTION:
                if (model_folder / name).is_file():
                    with atomic_file(folder / name) as stream:
                        stream.write((model_folder / name).read_bytes())
        write_json(
            folder / "manifest.json",
            {"result": {"parameters": model.parameter_count(model.parcellation_)}},
        )
        if hasattr(model, "likeness"):
            compared(model, cohort).save(folder)


def given(path: str) -> tuple[type[FromTable], dict[str, Any]]:
    """How a trained model (folder or archive) or a table of features is probed, and what its row says of it."""
    if not Path(path).is_dir() and Path(path).suffix.lower() != ".zip":
        return FromTable, {"method": "features", "kind": GIVEN}
    with located(path) as folder:
        config = read_configuration(folder)
    name = NAME_OF_CLASS.get(str(config.get("method")))
    if name is None or not hasattr(method_class(name), "transform"):
        raise NerveError(
            f"{path}: holds a {config.get('method')}, which was trained on a target, expected an encoder. "
            "Supervised methods are trained inside each fold: name the method itself."
        )
    cls, parameters = method_class(name), dict(config.get("parameters") or {})
    preset = cls.saved_preset(config)
    about = {
        "method": name,
        "kind": str(cls.role),
        "title": cls.title,
        "view": str(parameters.get("view") or "fc"),
    }
    about |= {
        "settings": cls.differences(parameters, preset),
        "seed": int(parameters.get("seed") or 0),
    }
    return FromModel, about | {"preset": preset if cls.has_presets() else ""}


# ---- shared


class _Noting(BaseEstimator):
    """A method that `fit_one` fits anew in each fold; features say what it had to substitute for its participants."""

    def __init__(self, features: Features, fit_one: Callable[..., Any]) -> None:
        self.features, self.fit_one = features, fit_one

    def __sklearn_clone__(self) -> _Noting:
        return self

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> _Noting:
        self.method = self.fit_one(X, y, groups)
        return self

    def transform(self, X: Any) -> np.ndarray:
        return self._noted(self.method.transform(X))

    def predict(self, X: Any) -> np.ndarray:
        return self._noted(self.method.predict(X))

    def _noted(self, values: np.ndarray) -> np.ndarray:
        self.features.adapted = self.method.adapted_ or self.features.adapted
        return values


def _in_folds(
    kind: type[Learned], name: str, cohort: Cohort, fit_one: Callable[..., Any]
) -> Learned:
    """Features, or predictions, of a method that is fitted in each fold."""
    features = kind(name, np.zeros(len(cohort), bool))
    features.estimator = _Noting(features, fit_one)
    return features


def fitted(method: Any, cohorts: list[Cohort], folder: Path) -> Any:
    """The method trained on the cohorts that it can read, and saved; what is trained has its checkpoints there too."""
    usable = usable_cohorts(method, cohorts)
    method.fit(usable, **({"run_dir": folder, "resume": True} if is_trained(method) else {}))
    method.save(folder)
    return method


def is_trained(method: Any) -> bool:
    """Whether a method is trained by gradient, with checkpoints; references look at the data once."""
    return hasattr(method, "training_settings")


def usable_cohorts(method: Any, cohorts: list[Cohort]) -> list[Cohort]:
    """The cohorts that have what the method reads; where none has, all of them, for the method to refuse."""
    return [one for one in cohorts if is_readable(method, one)] or cohorts


def is_readable(method: Any, cohort: Cohort) -> bool:
    """Whether a cohort has what a method reads."""
    return method.inputs != "timeseries" or cohort.timeseries is not None


def _fitted_on(model: Any, workspace: Workspace, name: str) -> bool:
    """Whether a model was fitted on a cohort, in the region order of the experiment or of its own folder."""
    cohorts = [workspace.cohort(name), Cohort.load(workspace.path(name))]
    return any(model.trained_on_all_of(cohort) for cohort in cohorts)


def _counts(method: Any) -> dict[str, int]:
    """The cohorts that a method was fitted on, with their numbers of participants."""
    return {str(name): int(count) for name, count in method.data_.get("cohorts", {}).items()}


def _scope(features: Features, people: People) -> str:
    """Whom features had seen; training folds are another cohort where one is trained on."""
    return (
        "other_people" if people.trained_on and features.scope == "train_folds" else features.scope
    )
