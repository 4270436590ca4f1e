"""What runs compute: an encoder is trained (`Encode`), features are probed (`KeptModel`), a network is trained in folds
(`Train`).

Every task has a key, plain JSON that determines its result, and `run`, which writes it into the folder of the run.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nerve._utils.errors import MissingInput, NerveError, NerveWarning
from nerve._utils.files import atomic_file, claim, read_tsv, write_json, write_tsv
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.evaluation.evaluate import Evaluation, evaluate_features
from nerve.evaluation.feature_sets import (
    NAMED,
    FeatureSet,
    FitInFold,
    LearnedInFolds,
    TrainedInFolds,
    make_feature_set,
)
from nerve.evaluation.rows import NULL, Row, line_label
from nerve.experiments.store import DONE, UNAVAILABLE, check_content, fingerprint
from nerve.interpret.pretraining import describe_run
from nerve.methods import load_method, make_method
from nerve.methods.pretrained import located
from nerve.methods.runs import compared

if TYPE_CHECKING:
    from nerve.experiments.workspace import Workspace

TABLES = ("predictions", "nulls", "curves")
_NO_KEY = ("row", "on", "path", "scope")  # how a run is called, and where its files lie
_OF_FOLDS = "encoders"  # in the folder of a run that is not done yet
# participants; of fewer, a share of whom is for validation, no checkpoints are saved
_ENOUGH_TO_KEEP = 2 * FEWEST
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
        method = fit_and_describe(
            self.recipe.make(workspace.config.device), cohorts, folder, self.row
        )
        return {
            "adapted": method.adapted_,
            "parameters": method.parameter_count(method.parcellation_),
            "trained_on": {one.name: len(one) for one in usable_cohorts(method, cohorts)},
        }


@dataclass(frozen=True, kw_only=True)
class KeptModel(Task):
    """All targets of a cohort, predicted from features by kernel ridge; `settings` change the protocol for this row."""

    kind: ClassVar[str] = "probe"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """The features of a cohort; what is kept of them stands in the folder of the run."""
        raise NotImplementedError

    @property
    def quick(self) -> bool:
        """Whether another few folds, to predict the site, take seconds rather than hours."""
        return True

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Evaluate the features, and write what was found."""
        cohort, participants, protocol = workspace.prepared(self.cohort)
        protocol = replace(protocol, **self.settings)
        features = self.load(workspace, folder, cohort)
        evaluation = evaluate_features(
            features, cohort, participants, protocol, self.row, predict_site=self.quick
        )
        return save_evaluation(evaluation, folder)


@dataclass(frozen=True, kw_only=True)
class Train(Task):
    """A supervised network trained inside each fold, for one target."""

    kind: ClassVar[str] = "train"
    recipe: Recipe

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Train in each fold and predict the participants left out."""
        cohort, participants, protocol = workspace.prepared(self.cohort)
        features = TrainedInFolds(self.recipe.method)
        features.estimator = FitInFold(features, lambda: self.recipe.make(workspace.config.device))
        # a network is trained for each target: permutations and curves would take weeks
        protocol = replace(protocol, n_permutations=0, labels=())
        evaluation = evaluate_features(
            features,
            cohort,
            participants.only(self.target),
            protocol,
            self.row,
            predict_site=False,
        )
        return save_evaluation(evaluation, folder)


def save_evaluation(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Write the tables of an evaluation into the folder of its run; returns its facts, for the record."""
    for name in TABLES:
        table = getattr(evaluation, name)
        if len(table):
            write_tsv(folder / f"{name}.tsv", table)
    return evaluation.facts


def load_evaluation(row: Row, cohort: str, folder: Path, facts: dict[str, Any]) -> Evaluation:
    """The inverse of `save_evaluation`, for a row that asked for the run."""
    tables = {}
    for name in TABLES:
        path = folder / f"{name}.tsv"
        if path.is_file():
            tables[name] = read_tsv(path, dtype={"participant": str, "target": str})
    return Evaluation(row, cohort, facts=facts, **tables)


# ---- where the features of a probe come from


@dataclass(frozen=True, kw_only=True)
class Named(KeptModel):
    """Raw FC, its principal components, or covariates."""

    name: str

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """The evaluation computes them itself."""
        return NAMED[self.name](self.name)


class Encoded(KeptModel):
    """What the encoder that it needs gives."""

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """Features of the cohort."""
        (encoder,) = self.needs
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
        features = make_feature_set(
            method.transform(cohort), cohort, key["recipe"]["method"], scope
        )
        features.adapted = method.adapted_
        features.trained_on = trained_on
        return features


@dataclass(frozen=True, kw_only=True)
class InFolds(KeptModel):
    """Encoders that have never seen the test participants of their fold (`pretrain_scope: train_folds`).

    Each is trained on training participants and the other cohorts of the pool, when a fold asks for it. What is trained
    by gradient is kept until the run is done, so that one that was stopped goes on; nothing is kept afterwards: the
    difference between two folds of the same participants is the FC of those whom one of them left out.
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

    def run(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Evaluate the features, and remove the encoders that the folds trained."""
        facts = super().run(workspace, folder)
        shutil.rmtree(folder / _OF_FOLDS, ignore_errors=True)
        return facts

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """Nothing is computed before a fold asks for it."""
        device, pool = workspace.config.device, self.pool["pretrained_on"]
        own = workspace.inputs()[0][
            cohort.name
        ]  # by fingerprint: a cohort may stand under two names

        in_memory: dict[str, Any] = {}

        def fit(training: Cohort) -> Any:
            pooled = [
                training if data == own else workspace.cohort(name) for name, data in pool.items()
            ]
            pooled = pooled or [training]
            key = fingerprint(training.participants["participant_id"].tolist())
            kept = folder / _OF_FOLDS / key
            if (kept / "config.json").is_file():
                return load_method(kept, device=device)
            method = self.recipe.make(device)
            if is_trained(method) and sum(map(len, pooled)) >= _ENOUGH_TO_KEEP:
                return fitted(method, pooled, kept)
            if key not in in_memory:
                in_memory[key] = method.fit(usable_cohorts(method, pooled))
            return in_memory[key]

        features = LearnedInFolds("in folds", fit=fit)
        others = [workspace.cohort(name) for name, data in pool.items() if data != own]
        readable = [one for one in others if is_readable(self.recipe.make(), one)]
        features.trained_on = {one.name: len(one) for one in readable}
        if readable:  # beside the training folds, or instead of them
            scope = workspace.scope_of(cohort.name, features.trained_on)
            in_pool = own in pool.values()
            features.scope = "train_folds" if in_pool and scope == "other_people" else scope
        return features


@dataclass(frozen=True, kw_only=True)
class FromTable(KeptModel):
    """The user's own numbers, joined by participant_id."""

    path: str
    content: str
    scope: str

    def check_inputs(self, workspace: Workspace) -> None:
        """Also that the table, or the model, is the one that was planned with."""
        super().check_inputs(workspace)
        check_content(self.path, self.content)

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """The rows of the cohort's participants."""
        return make_feature_set(self.path, cohort, Path(self.path).stem, self.scope)


class FromModel(FromTable):
    """A trained model in a folder or an archive of its own; what a report tells of it is kept in the run."""

    def load(self, workspace: Workspace, folder: Path, cohort: Cohort) -> FeatureSet:
        """The cohort, embedded."""
        model = load_method(self.path, device=workspace.config.device)
        keep_description(self.path, model, folder / "model")
        if hasattr(model, "likeness"):
            compared(model, cohort).save(folder / "model")
        scope = self._seen(model, workspace, cohort.name)
        features = make_feature_set(model.transform(cohort), cohort, Path(self.path).stem, scope)
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


# ---- shared


def fit_and_describe(method: Any, cohorts: list[Cohort], folder: Path | None, row: Row) -> Any:
    """Train an encoder and, where there is a folder, save it there with what a report shows of it.

    Parameters
    ----------
    method : estimator
        Not fitted. It goes on from its last checkpoint in the folder.
    cohorts : list of Cohort
        Pooled, but for those that lack what the method reads.
    folder : Path, optional
    row : Row
        What warnings call it.

    Returns
    -------
    estimator
        The method, fitted.
    """
    if folder is None:
        return method.fit(usable_cohorts(method, cohorts))
    method = fitted(method, cohorts, folder)
    try:
        described = describe_run(method, cohorts, folder)
        if described:
            ratio = described["model"] / described["group_mean"]
            doubt = method.save_masked_error(folder, ratio)
            if doubt and row.kind != NULL:  # not one warning per null model
                warnings.warn(f"{line_label(row, most=3)}: {doubt}", NerveWarning, stacklevel=2)
    except NerveError as error:  # the encoder is saved: its description is for the report only
        text = f"The reconstruction could not be described: {error}"
        warnings.warn(text, NerveWarning, stacklevel=2)
    return method


def keep_description(path: str, model: Any, folder: Path) -> None:
    """Keep what a report shows of a trained model (folder or archive) that was given."""
    claim(folder)
    with located(path) as model_folder:
        for name in _DESCRIPTION:
            if (model_folder / name).is_file():
                with atomic_file(folder / name) as stream:
                    stream.write((model_folder / name).read_bytes())
    parameters = model.parameter_count(model.parcellation_)
    write_json(folder / "manifest.json", {"result": {"parameters": parameters}})


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
