"""`nerve.evaluate`: features and a cohort in, `Results` out.

What users call features is recognised here, names of methods and trained models included. How they are evaluated is
the work of `nerve.evaluation`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from sklearn.base import clone

from nerve._utils.errors import NerveError, NerveWarning, did_you_mean, listed, problem
from nerve._utils.privacy import for_screen, name_in_results, printable_name
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.evaluation.evaluate import (
    EvaluatedCohort,
    Evaluation,
    combine,
    evaluate_features,
)
from nerve.evaluation.feature_sets import (
    NAMED,
    FeatureSet,
    FitInFold,
    LearnedInFolds,
    TrainedInFolds,
    make_feature_set,
)
from nerve.evaluation.own_probe import checked_probe, probe_name
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import Protocol, known_fields
from nerve.evaluation.results import Results
from nerve.evaluation.rows import GIVEN, REFERENCE, SUPERVISED, Row, line_label
from nerve.evaluation.transfer import prepare_transfer, shared_participants
from nerve.experiments.method_rows import given_row, is_model, method_row
from nerve.experiments.store import code_version, versions
from nerve.experiments.work import fit_and_describe, is_trained, keep_description
from nerve.methods import METHODS, NAME_OF_CLASS, load_method, make_method, method_class
from nerve.methods.pretrained import find_model, packaged_models
from nerve.methods.runs import compared

PRESET = "small"  # of methods that are named and not given as an object
MODELS = "models"  # in a results folder: what a report shows of encoders


def evaluate(
    features: Any,
    cohort: Cohort,
    targets: str | Sequence[str],
    covariates: str | Sequence[str] = (),
    *,
    test: Cohort | None = None,
    probe: Any = None,
    **options: Any,
) -> Results:
    """Predict each target out of fold, the same folds for every feature set, and compare the rows.

    Parameters
    ----------
    features : array, DataFrame, path, str, estimator, or a mapping of several
        (n, d) numbers in the order of the cohort's participants; a table or TSV with `participant_id`, joined by id;
        the name of a method ("raw", "pca", "tangent", "covariates" …), perhaps with settings
        ("tangent:recentre=site"), fitted on training folds; a trained model (folder, archive or name); or an estimator
        with `fit(cohort)` and `transform(cohort)`, or `fit(cohort, y)` and `predict(cohort)`, fitted inside each fold.
        ``{"NERVE": Z, "raw": "raw"}`` and ``["raw", "pca"]`` give several rows.
    cohort : Cohort
    targets : names of columns of the participants table
        Numbers or classes; of three or more each is predicted against all others. A missing value drops that
        participant for that target only.
    covariates : names of columns
        Regressed from the targets with coefficients of the training fold. Mean framewise displacement is added when
        the cohort has it (``motion="none"`` leaves it out).
    test : Cohort, optional
        Fit everything on `cohort` and predict this one instead, regions matched by label. Arrays of features then hold
        the participants of `cohort`, followed by those of `test`.
    probe : estimator, optional
        What reads the features instead of kernel ridge: any estimator of scikit-learn's kind, a pipeline or
        `GridSearchCV` too, cloned for every fold and target. A classifier needs classes and no covariates.
    **options
        Other fields of `nerve.Protocol`, with its defaults: ``groups`` (a column of families, kept whole in folds),
        ``site`` (for ``combat=True``, ``leave_site_out=True`` and permutation within sites), ``n_folds``,
        ``n_repeats``, ``kernel``, ``seed``, ``regress_features``, ``n_permutations``, ``labels`` …

    Returns
    -------
    Results
        `scores` has one row per target and row, with intervals; `predictions`, `comparisons` and more beside it.
        `save(folder)` writes them.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(40, parcellation="schaefer100-17", timepoints=60)
    >>> results = nerve.evaluate(["raw", "pca"], cohort, targets="age", motion="none", n_folds=4)
    >>> results.scores["row"].tolist()
    ['raw', 'pca']
    """
    given = {"targets": targets, "covariates": covariates, **known_fields(options, "evaluate()")}
    protocol = Protocol(**given)
    tested = cohort if test is None else test
    trained_on = None if test is None else cohort
    entries = recognise(features, protocol)
    evaluated = evaluate_cohorts(entries, [(tested, trained_on)], protocol, probe=probe)
    for note in dict.fromkeys(evaluated.notes):
        warnings.warn(for_screen(note), NerveWarning, stacklevel=2)
    return evaluated.results


@dataclass
class Entry:
    """One row that was asked for, before it is evaluated.

    Parameters
    ----------
    row : Row
    value : object
        Numbers, a table, a path of these, or an estimator; for a method its name, for a model its path.
    make : callable, optional
        Of a method: no arguments → the estimator, not fitted.
    settings : mapping
        Of "raw", "pca" and "covariates": fields of the protocol that this row changes.
    """

    row: Row
    value: Any
    make: Callable[[], Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Evaluated:
    """Results, the cohorts that they are of, and what the user should be told, with ids."""

    results: Results
    cohorts: list[EvaluatedCohort]
    notes: list[str]
    encoders: dict[str, Any]  # row → its encoder, where one encoder serves all folds


# ---- what users call features


def recognise(features: Any, protocol: Protocol) -> list[Entry]:
    """List the rows that `features` asks for; two that a reader could not tell apart are refused.

    Parameters
    ----------
    features : see `evaluate`
    protocol : Protocol

    Returns
    -------
    list of Entry
    """
    if isinstance(features, Mapping):
        entries = [_entry(value, protocol, str(name)) for name, value in features.items()]
    elif isinstance(features, (list, tuple)) and all(
        isinstance(one, (str, os.PathLike)) or hasattr(one, "fit") for one in features
    ):
        entries = [_entry(one, protocol) for one in features]
    else:
        entries = [_entry(features, protocol)]
    labels = [line_label(entry.row) for entry in entries]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise NerveError(f"Two rows are called {listed(twice)}: give each a name of its own.")
    ids = [entry.row.row for entry in entries]
    for number, entry in enumerate(entries):
        if ids.count(entry.row.row) > 1:
            own = f"{entry.row.row} {number + 1}"
            entry.row = replace(entry.row, row=own, line=own)
    return entries


def _entry(value: Any, protocol: Protocol, name: str | None = None) -> Entry:
    """One row; `name` is what the user calls it."""
    if isinstance(value, (str, os.PathLike)):
        text = str(value)
        method, *settings = text.split(":")
        if method in METHODS:
            entry = _method_entry(text, method, dict(map(_setting, settings)), protocol)
        elif Path(text).exists() or text in packaged_models():
            path = find_model(text)
            stem = path.stem if path.is_file() else path.resolve().name
            label = printable_name(stem, most=60)
            row = replace(given_row(label, str(path)), label=label)
            entry = Entry(row, str(path))
        else:
            raise problem(
                f"features {text}",
                "there is no such file, folder, method or model",
                expected="a trained model (folder, archive or name of `nerve models list`), a table with "
                f"participant_id, or one of {listed(METHODS, most=30)}",
                remedy=did_you_mean(text, [*METHODS, *packaged_models()]).strip(),
            )
    elif isinstance(value, FeatureSet):
        row = Row(value.name, value.name, "features", value.name, GIVEN, given=True)
        entry = Entry(row, value)
    elif type(value).__name__ in NAME_OF_CLASS and hasattr(value, "differences"):
        method = NAME_OF_CLASS[type(value).__name__]
        nearest = type(value).nearest_preset(value.described_parameters())
        row = method_row(type(value).__name__, method, value, nearest, {}, {})
        entry = Entry(row, method, make=lambda: clone(value))
    else:
        called = type(value).__name__ if hasattr(value, "fit") else "features"
        entry = Entry(Row(called, called, "features", called, GIVEN, given=True), value)
    if name is not None:
        entry.row = replace(entry.row, row=name, line=name, label=name)
    return entry


def _method_entry(text: str, method: str, settings: dict[str, Any], protocol: Protocol) -> Entry:
    """A row of a method by name; it is called by its settings."""

    def make() -> Any:
        return make_method(method, PRESET, settings, seed=0, device="auto")

    try:
        row = method_row(text, method, make(), PRESET, settings, settings, [protocol])
    except NerveError as error:
        raise NerveError(f"features {text}: {error}") from None
    return Entry(row, method, make=make, settings=settings if method in NAMED else {})


def _setting(text: str) -> tuple[str, Any]:
    """One setting as YAML reads it."""
    name, sign, value = text.partition("=")
    if not sign:
        raise problem(
            f"features …:{text}", "there is no '='", expected="settings as tangent:recentre=site"
        )
    return name, yaml.safe_load(value)


# ---- the evaluation of several rows on several cohorts


def evaluate_cohorts(
    entries: Sequence[Entry],
    pairs: Sequence[tuple[Cohort, Cohort | None]],
    protocol: Protocol,
    *,
    probe: Any = None,
    title: str = "",
    command: str = "",
    folder: Path | None = None,
) -> Evaluated:
    """Evaluate every row on every cohort.

    Parameters
    ----------
    entries : sequence of Entry
    pairs : sequence of (Cohort, Cohort or None)
        The cohort that is predicted, and the one that is trained on where that is another.
    protocol : Protocol
    probe : estimator, optional
        What reads the features instead of kernel ridge.
    title, command : str
        What the report says.
    folder : Path, optional
        The results folder, where FOLDER/models keeps what a report shows of encoders.

    Returns
    -------
    Evaluated
    """
    if probe is not None:
        checked_probe(probe)
        for entry in entries:
            named = {"probe": probe_name(probe)}
            settings = {**entry.row.settings, **named}
            entry.row = replace(entry.row, variant=probe_name(probe), settings=settings)
    evaluations: list[Evaluation] = []
    cohorts: list[EvaluatedCohort] = []
    notes: list[str] = []
    encoders: dict[str, Any] = {}
    names: list[str] = []
    for cohort, trained_on in pairs:
        name = name_in_results(cohort.name)
        if name in names:
            name = f"{name[:90]} {len(names) + 1}"
        names.append(name)
        if trained_on is None:
            whole = cohort
            participants, resolved = prepare_participants(cohort, protocol)
        else:
            whole, participants, resolved = prepare_transfer(trained_on, cohort, protocol)
        participants = replace(participants, cohort=name)
        cohorts.append(EvaluatedCohort(cohort, participants, resolved))
        notes += participants.notes
        for number, entry in enumerate(
            progress_bar(entries, label="evaluation", unit="feature sets")
        ):
            began = time.process_time()
            models = None if folder is None else folder / MODELS / str(number)
            features = _feature_set(
                entry, cohort, trained_on, whole, resolved, encoders, models, len(cohorts) - 1
            )
            if probe is not None:
                features.probe = checked_probe(probe)
            own_protocol = replace(resolved, **entry.settings)
            # predicting the site takes a few more folds, in each of which an encoder is trained
            trains_in_folds = isinstance(features, LearnedInFolds) and (
                entry.make is None or is_trained(entry.make())
            )
            if isinstance(features, TrainedInFolds):
                own_protocol = replace(own_protocol, n_permutations=0, labels=())
            evaluation = evaluate_features(
                features,
                whole,
                participants,
                own_protocol,
                entry.row,
                predict_site=not trains_in_folds,
            )
            evaluation.facts["seconds"] = time.process_time() - began
            evaluations.append(evaluation)
            notes += evaluation.facts["notes"]
    about = {
        "title": title or f"Evaluation of {names[0]}",
        "kind": "evaluation",
        "layout": "methods",
        "command": command,
        "parcellation": pairs[0][0].parcellation.name,
        "target_labels": {name: {} for name in names},
        "citations": citations_of([entry.row for entry in entries]),
        "seeds": [0],
        "versions": dict(versions()),
        "code": code_version(),
        "data": {one.name: one.cohort.fingerprint for one in cohorts},
    }
    results = combine(evaluations, cohorts, [entry.row for entry in entries], about)
    return Evaluated(results, cohorts, list(dict.fromkeys(notes)), encoders)


def citations_of(rows: Sequence[Row]) -> dict[str, str]:
    """The works to cite for the methods of rows: references and features of the user's have none."""
    methods = dict.fromkeys(row.method for row in rows if row.kind not in (GIVEN, REFERENCE))
    return {name: method_class(name).citation for name in methods}


def _feature_set(
    entry: Entry,
    cohort: Cohort,
    trained_on: Cohort | None,
    whole: Cohort,
    protocol: Protocol,
    encoders: dict[str, Any],
    folder: Path | None,
    cohort_number: int,
) -> FeatureSet:
    """What a row predicts from on one cohort.

    `whole` is the cohort behind the one that is trained on, if another is; encoders that serve all folds are fitted
    once and kept in `encoders`.
    """
    name = entry.row.row
    if entry.make is not None and entry.value in NAMED:
        return NAMED[entry.value](name)
    if entry.make is not None and entry.row.kind == SUPERVISED:
        network = TrainedInFolds(name)
        network.estimator = FitInFold(network, entry.make)
        return network
    if entry.make is not None:
        method = entry.make()
        # with everyone's means the participants of a site sum to zero: who is tested would be known from the others
        if protocol.pretrain_scope == "train_folds" or getattr(method, "recentre", None):
            make = entry.make
            in_folds = LearnedInFolds(name, fit=lambda training: make().fit(training))
            if trained_on is not None:
                in_folds.trained_on = {trained_on.name: len(trained_on)}
            return in_folds
        training = cohort if trained_on is None else trained_on
        if name not in encoders:
            encoders[name] = fit_and_describe(method, [training], folder, entry.row)
        encoder = encoders[name]
        scope = "all" if trained_on is None else scope_by_matrices(cohort, training)
        features = make_feature_set(encoder.transform(whole), whole, name, scope)
        features.trained_on = {training.name: len(training)}
        features.adapted = encoder.adapted_
        return features
    if isinstance(entry.value, str) and is_model(entry.value):
        if name not in encoders:
            encoders[name] = load_method(entry.value, device="auto")
            if folder is not None:
                keep_description(entry.value, encoders[name], folder)
        encoder = encoders[name]
        if hasattr(encoder, "likeness"):
            likeness = compared(encoder, whole)
            if folder is not None:
                like_folder = folder / "likeness" / str(cohort_number)
                like_folder.mkdir(parents=True, exist_ok=True)
                likeness.save(like_folder)
        scope = _scope_of_model(encoder, cohort, trained_on)
        features = make_feature_set(encoder.transform(whole), whole, name, scope)
        counts = encoder.data_.get("cohorts", {})
        features.trained_on = {str(one): int(count) for one, count in counts.items()}
        features.adapted = encoder.adapted_
        return features
    return make_feature_set(entry.value, whole, name)


def _scope_of_model(model: Any, cohort: Cohort, trained_on: Cohort | None) -> str:
    """Whether a model was fitted on who is tested, or on who is trained on; "not stated" where that is not known."""
    if model.trained_on_all_of(cohort):
        return "all"
    # another of its cohorts may hold who is tested
    one_cohort = len(model.data_.get("fc", ())) == 1
    if trained_on is not None and one_cohort and model.trained_on_all_of(trained_on):
        return scope_by_matrices(cohort, trained_on)
    return "not stated"


def scope_by_matrices(cohort: Cohort, trained_on: Cohort) -> str:
    """Whom of a cohort an encoder has seen that was trained on another: a name of `rows.SCOPES`."""
    shared = shared_participants(cohort, trained_on)
    if shared.all():
        return "all"
    return "some" if shared.any() else "other_people"
