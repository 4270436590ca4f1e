"""What runs compute: each task writes its result into the folder of its run.

    class                            kind     computes
    EncoderTask                      encode   an encoder, trained once for all folds and cohorts
    PredictionTask                   predict  predictions of all targets from one feature set:
      PredictionFromNamedFeatures             raw FC, its components, or covariates
      PredictionFromEncoder                   the encoder that an EncoderTask has trained
      PredictionFromFoldEncoders              encoders that are trained anew inside each fold
      PredictionFromTable                     a table of the user's
      PredictionFromSavedModel                a trained model of the user's
    NetworkTask                      train    predictions of one target by a supervised network,
                                              trained inside each fold

Tasks that predict fit kernel ridge on the features. What determines the result of a run, and its
id, is in `run_key`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nerve._utils.errors import MissingInput, NerveError
from nerve._utils.files import read_tsv, write_tsv
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.evaluation.evaluate import Evaluation, evaluate_features
from nerve.evaluation.feature_sets import (
    NAMED,
    FeatureSet,
    FitInFold,
    LearnedInFolds,
    TrainedInFolds,
)
from nerve.evaluation.rows import Row, line_label
from nerve.evaluation.user_features import make_feature_set
from nerve.experiments.encoders import (
    can_read,
    fit_and_describe,
    fit_and_save,
    is_trained,
    keep_description,
    pretrained_encoder_of,
    training_counts,
    usable_cohorts,
)
from nerve.experiments.run_key import Recipe, check_content, fingerprint, run_id
from nerve.experiments.run_store import DONE, UNAVAILABLE
from nerve.methods import load_method
from nerve.methods.runs import compared

if TYPE_CHECKING:
    from nerve.experiments.experiment import Experiment

_TABLES = ("predictions", "nulls", "curves")
_FOLD_ENCODERS = "encoders"  # in the folder of a run that is not done yet
# Participants; an encoder of fewer is not saved. Part of them is for validation, and no mean of
# fewer than `FEWEST` participants is kept.
_ENOUGH_TO_SAVE = 2 * FEWEST


@dataclass(frozen=True, kw_only=True)
class Task:  # numpydoc ignore=PR02
    """One run: what it does, and the row of the tables that it is for.

    The fields that a subclass adds are part of its key too (`run_key`).

    Parameters
    ----------
    row : Row
        The row that it is for.
    determined_by : mapping
        Data, code and protocol: what `cohort_in_key` gives or, of an `EncoderTask`, `pool_in_key`.
    cohort : str
        The cohort that it predicts; empty for an `EncoderTask`.
    target : str
        The target that a `NetworkTask` predicts; empty for the others.
    needs : tuple of str
        Ids of runs that must be done before.
    """

    kind: ClassVar[str]
    row: Row
    determined_by: Mapping[str, Any]
    cohort: str = ""
    target: str = ""
    needs: tuple[str, ...] = ()

    def run(self, experiment: Experiment, folder: Path) -> dict[str, Any]:
        """Compute, and write into the folder of the run.

        Parameters
        ----------
        experiment : Experiment
            Which the run is of.
        folder : Path
            Of the run.

        Returns
        -------
        dict
            What the manifest records of the result.
        """
        raise NotImplementedError

    def check_inputs(self, experiment: Experiment) -> None:
        """Refuse if code or data are no longer those of the key; called before and after `run`."""
        experiment.check_code()
        for name in self.cohorts:
            experiment.check_cohort(name)

    @property
    def cohorts(self) -> list[str]:
        """The cohorts that the run reads."""
        return [self.cohort] if self.cohort else list(self.determined_by["pretrained_on"])

    @cached_property
    def id(self) -> str:
        """The hash of the key, which names the folder of the run."""
        return run_id(self)

    @property
    def label(self) -> str:
        """What the progress, the status and runs.tsv call the run."""
        seed = f"seed {self.row.seed}" if self.row.seed else ""
        parts = [line_label(self.row, most=3), seed, self.cohort, self.target]
        return f"{self.kind} " + " · ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class EncoderTask(Task):
    """Trains an encoder, without labels, on the pooled cohorts.

    A training that was killed goes on from its last checkpoint, which is in the folder of the run.
    """

    kind: ClassVar[str] = "encode"
    recipe: Recipe

    def run(self, experiment: Experiment, folder: Path) -> dict[str, Any]:
        """Train, save, and describe for the report."""
        cohorts = [experiment.cohort(name) for name in self.determined_by["pretrained_on"]]
        encoder = self.recipe.make(experiment.config.device)
        encoder = fit_and_describe(encoder, cohorts, folder, self.row)
        usable = usable_cohorts(encoder, cohorts)
        return {
            "adapted": encoder.adapted_,
            "parameters": encoder.parameter_count(encoder.parcellation_),
            "trained_on": {cohort.name: len(cohort) for cohort in usable},
        }


@dataclass(frozen=True, kw_only=True)
class NetworkTask(Task):
    """Trains a supervised network inside each fold, for one target.

    It keeps no checkpoints: a run that was killed begins again. `scope` says which participants the
    model that is fine-tuned had seen, where the hashes of its training data do not tell.
    """

    kind: ClassVar[str] = "train"
    recipe: Recipe
    scope: str = "not stated"

    def run(self, experiment: Experiment, folder: Path) -> dict[str, Any]:
        """Train in each fold and predict the participants left out."""
        cohort, participants, protocol = experiment.prepared(self.cohort)
        features = TrainedInFolds(self.recipe.method)
        features.estimator = FitInFold(features, lambda: self.recipe.make(experiment.config.device))
        encoder = pretrained_encoder_of(self.recipe.make())
        if encoder is not None:
            compared(encoder, cohort)
            features.scope = _scope_of_model(encoder, experiment, cohort.name, self.scope)
            features.trained_on = training_counts(encoder)
        # a network is trained for each target: permutations and curves would take weeks
        protocol = replace(protocol, n_permutations=0, labels=())
        evaluation = evaluate_features(
            features,
            cohort,
            participants.with_target(self.target),
            protocol,
            self.row,
            predict_site=False,
        )
        return _save_evaluation(evaluation, folder)


@dataclass(frozen=True, kw_only=True)
class PredictionTask(Task):
    """Predicts all targets of a cohort from one feature set, by kernel ridge.

    Subclasses say where the features come from. `settings` change the protocol for this row.
    """

    kind: ClassVar[str] = "predict"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """What the row predicts from.

        Parameters
        ----------
        experiment : Experiment
            Which the run is of.
        folder : Path
            Of the run; what a report shows of an encoder is kept there.
        cohort : Cohort
            The cohort that is predicted; where another one is trained on, that one followed by it.

        Returns
        -------
        FeatureSet
            Not prepared.
        """
        raise NotImplementedError

    @property
    def predicts_site(self) -> bool:
        """Whether the site is predicted too: that is a few more folds."""
        return True

    def run(self, experiment: Experiment, folder: Path) -> dict[str, Any]:
        """Evaluate the features, and write the predictions."""
        cohort, participants, protocol = experiment.prepared(self.cohort)
        evaluation = evaluate_features(
            self.features(experiment, folder, cohort),
            cohort,
            participants,
            replace(protocol, **self.settings),
            self.row,
            predict_site=self.predicts_site,
        )
        return _save_evaluation(evaluation, folder)


@dataclass(frozen=True, kw_only=True)
class PredictionFromNamedFeatures(PredictionTask):
    """Predicts from raw FC, its principal components, or covariates."""

    name: str

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """Features that the evaluation computes itself."""
        return NAMED[self.name](self.name)


class PredictionFromEncoder(PredictionTask):
    """Predicts from the encoder that an `EncoderTask` of this experiment has trained."""

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """Features of the cohort; they are not saved, since training costs far more."""
        (encoder_id,) = self.needs
        manifest = experiment.store.manifest(encoder_id)
        if manifest is None:
            raise NerveError("Its encoder is not trained: it has not run")
        if manifest["status"] == UNAVAILABLE:
            raise MissingInput(manifest["reason"])
        if manifest["status"] != DONE:
            raise NerveError(f"Its encoder is not trained: {manifest['reason']}")
        name = manifest["key"]["recipe"]["method"]
        # not all of the pool, where a method needs time series
        trained_on = manifest["result"]["trained_on"]
        scope = experiment.scope_of(cohort.name, trained_on)
        run_folder = experiment.store.run_folder(encoder_id)
        encoder = load_method(run_folder, device=experiment.config.device)
        features = make_feature_set(encoder.transform(cohort), cohort, name, scope)
        features.adapted = encoder.adapted_
        features.trained_on = trained_on
        return features


@dataclass(frozen=True, kw_only=True)
class PredictionFromFoldEncoders(PredictionTask):
    """Predicts from encoders that have never seen the test participants of their fold.

    That is `pretrain_scope: train_folds`. Each encoder is trained on training participants and on
    the other cohorts of the pool, when a fold asks for it. What is trained by gradient is kept
    until the run is done, so that a run that was killed goes on: with the encoders that are
    trained, and from the last checkpoint of the one that was not. Nothing is kept afterwards: the
    difference between the encoders of two folds can give away the FC of the participants that one
    of them left out.
    """

    recipe: Recipe
    pool: Mapping[str, Any]

    @property
    def cohorts(self) -> list[str]:
        """The cohort that is predicted, and the others of the pool."""
        return list(dict.fromkeys([self.cohort, *self.pool["pretrained_on"]]))

    @property
    def predicts_site(self) -> bool:
        """Only where an encoder is fitted in seconds rather than hours."""
        return not is_trained(self.recipe.make())

    def run(self, experiment: Experiment, folder: Path) -> dict[str, Any]:
        """Evaluate the features, and remove the encoders that the folds trained."""
        facts = super().run(experiment, folder)
        shutil.rmtree(folder / _FOLD_ENCODERS, ignore_errors=True)
        return facts

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """Features that are computed when a fold asks for them."""
        device = experiment.config.device
        pool = self.pool["pretrained_on"]
        # cohorts are compared by fingerprint: one may be listed under two names
        data = experiment.inputs().data[cohort.name]

        encoders_in_memory: dict[str, Any] = {}

        def fit(training: Cohort) -> Any:
            fold = fingerprint(training.participants["participant_id"].tolist())
            encoder_folder = folder / _FOLD_ENCODERS / fold
            if (encoder_folder / "config.json").is_file():
                return load_method(encoder_folder, device=device)
            pooled = []
            for name, other_data in pool.items():
                pooled.append(training if other_data == data else experiment.cohort(name))
            pooled = pooled or [training]
            method = self.recipe.make(device)
            n_participants = sum(len(part) for part in pooled)
            if is_trained(method) and n_participants >= _ENOUGH_TO_SAVE:
                return fit_and_save(method, pooled, encoder_folder)
            if fold not in encoders_in_memory:
                encoders_in_memory[fold] = method.fit(usable_cohorts(method, pooled))
            return encoders_in_memory[fold]

        features = LearnedInFolds("in folds", fit=fit)
        method = self.recipe.make()
        others = [experiment.cohort(name) for name in pool if pool[name] != data]
        readable = [other for other in others if can_read(method, other)]
        features.trained_on = {other.name: len(other) for other in readable}
        if readable:  # other cohorts are trained on too, or alone
            scope = experiment.scope_of(cohort.name, features.trained_on)
            is_pooled = data in pool.values()
            features.scope = "train_folds" if is_pooled and scope == "other_people" else scope
        return features


@dataclass(frozen=True, kw_only=True)
class _PredictionFromFile(PredictionTask):
    """Predicts from a file or folder of the user's.

    `content` is its hash. `scope` says which of the tested participants it was trained on.
    """

    path: str
    content: str
    scope: str

    def check_inputs(self, experiment: Experiment) -> None:
        """Refuse also if the file is not the one that was planned with."""
        super().check_inputs(experiment)
        check_content(self.path, self.content)


class PredictionFromTable(_PredictionFromFile):
    """Predicts from a table of the user's own numbers, joined by participant_id."""

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """The rows of the cohort's participants."""
        return make_feature_set(self.path, cohort, Path(self.path).stem, self.scope)


class PredictionFromSavedModel(_PredictionFromFile):
    """Predicts from a trained model of the user's: a folder or an archive."""

    def features(self, experiment: Experiment, folder: Path, cohort: Cohort) -> FeatureSet:
        """Features of the cohort; what a report shows of the model is kept in the run."""
        model = load_method(self.path, device=experiment.config.device)
        keep_description(self.path, model, folder / "model")
        if hasattr(model, "likeness"):
            compared(model, cohort).save(folder / "model")
        scope = _scope_of_model(model, experiment, cohort.name, self.scope)
        features = make_feature_set(model.transform(cohort), cohort, Path(self.path).stem, scope)
        features.adapted = model.adapted_
        features.trained_on = training_counts(model)
        return features


def _save_evaluation(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Write the tables of an evaluation into the folder of its run.

    Parameters
    ----------
    evaluation : Evaluation
        What a run computed.
    folder : Path
        Of the run.

    Returns
    -------
    dict
        Its facts, for the manifest.
    """
    for name in _TABLES:
        table = getattr(evaluation, name)
        if len(table):
            write_tsv(folder / f"{name}.tsv", table)
    return evaluation.facts


def load_evaluation(row: Row, cohort: str, folder: Path, facts: dict[str, Any]) -> Evaluation:
    """Read what `_save_evaluation` wrote, for one of the rows that share the run.

    Parameters
    ----------
    row : Row
        Which the evaluation is for.
    cohort : str
        Whose targets were predicted.
    folder : Path
        Of the run.
    facts : dict
        From its manifest.

    Returns
    -------
    Evaluation
        As it was saved.
    """
    tables = {}
    for name in _TABLES:
        path = folder / f"{name}.tsv"
        if path.is_file():
            tables[name] = read_tsv(path, dtype={"participant": str, "target": str})
    return Evaluation(row, cohort, facts=facts, **tables)


def _scope_of_model(model: Any, experiment: Experiment, name: str, otherwise: str) -> str:
    """The scope of a model of the user's on a cohort; `otherwise` where that is not known."""
    if _is_fitted_on(model, experiment, name):
        return "all"
    trained_on = experiment.config.cohorts[name].train_on
    # of several cohorts, another may hold the tested participants
    is_of_one_cohort = len(model.data_.get("fc", ())) == 1
    if trained_on and is_of_one_cohort and _is_fitted_on(model, experiment, trained_on):
        return experiment.scope_of(name, [trained_on])
    return otherwise


def _is_fitted_on(model: Any, experiment: Experiment, name: str) -> bool:
    """Whether a model was fitted on a cohort, reordered for the experiment or as on disk."""
    cohorts = [experiment.cohort(name), Cohort.load(experiment.cohort_folder(name))]
    return any(model.trained_on_all_of(cohort) for cohort in cohorts)
