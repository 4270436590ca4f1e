"""`nerve.evaluate`: features and a cohort in, `Results` out.

`nerve.evaluation` evaluates one feature set on one cohort. Here this is done for every row and
cohort, and encoders are trained or loaded for it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveWarning, in_python, naming_parameters
from nerve._utils.privacy import for_screen, name_in_results
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.evaluation.evaluate import EvaluatedCohort, Evaluation, combine, evaluate_features
from nerve.evaluation.feature_sets import (
    NAMED,
    FeatureSet,
    FitInFold,
    LearnedInFolds,
    TrainedInFolds,
)
from nerve.evaluation.own_probe import checked_probe, probe_name
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import Protocol, known_fields
from nerve.evaluation.results import Results
from nerve.evaluation.rows import SUPERVISED
from nerve.evaluation.transfer import prepare_transfer, shared_participants
from nerve.evaluation.user_features import make_feature_set
from nerve.experiments.encoders import (
    fit_and_describe,
    is_trained,
    keep_description,
    learns_in_folds,
    pretrained_encoder_of,
    scope_of_seen,
    training_counts,
)
from nerve.experiments.method_rows import citations_of, is_model
from nerve.experiments.requested_rows import RequestedRow, request_rows
from nerve.experiments.run_key import code_version, package_versions
from nerve.methods import load_method
from nerve.methods.runs import compared

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
    """Predict each target out of fold, the same folds for every feature set; compare the rows.

    Parameters
    ----------
    features : array, DataFrame, path, str, estimator, or a mapping of several
        (n, d) numbers in the order of the cohort's participants; a table or TSV with
        `participant_id`, joined by id; the name of a method ("raw", "pca", "tangent", "covariates"
        …), perhaps with settings ("tangent:recentre=site"), fitted on training folds; a trained
        model (folder, archive or name); "finetune:MODEL", which trains it with the target inside
        each fold; or an estimator with `fit(cohort)` and
        `transform(cohort)`, or `fit(cohort, y)` and `predict(cohort)`, fitted inside each fold.
        ``{"NERVE": Z, "raw": "raw"}`` and ``["raw", "pca"]`` give several rows.
    cohort : Cohort
        Its participants are predicted, those of each fold by models of the other folds.
    targets : names of columns of the participants table
        Numbers or classes; of three or more each is predicted against all others. A missing value
        drops that participant for that target only.
    covariates : names of columns
        Regressed from the targets with coefficients of the training fold. Mean framewise
        displacement is added when the cohort has it (``motion="none"`` leaves it out).
    test : Cohort, optional
        Fit everything on `cohort` and predict this one instead, regions matched by label. Arrays
        of features then hold the participants of `cohort`, followed by those of `test`.
    probe : estimator, optional
        The model that predicts targets from features, instead of kernel ridge: an estimator as in
        scikit-learn, also a pipeline or `GridSearchCV`, cloned for every fold and target. A
        classifier needs classes and no covariates.
    **options
        Other fields of `nerve.Protocol`, with its defaults: ``groups`` (a column of families, kept
        whole in folds), ``site`` (for ``combat=True``, ``leave_site_out=True`` and permutation
        within sites), ``n_folds``, ``n_repeats``, ``kernel``, ``seed``, ``regress_features``,
        ``n_permutations``, ``labels`` …

    Returns
    -------
    Results
        `scores` has one row per target and row, with intervals; `predictions`, `comparisons` and
        more beside it. `save(folder)` writes them.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(40, parcellation="schaefer100-17", timepoints=60)
    >>> results = nerve.evaluate(["raw", "pca"], cohort, targets="age", motion="none", n_folds=4)
    >>> results.scores["row"].tolist()
    ['raw', 'pca']
    """
    fields: dict[str, Any] = {"targets": targets, "covariates": covariates}
    protocol = Protocol(**fields, **known_fields(options, "evaluate()"))
    pair = (cohort, None) if test is None else (test, cohort)
    with naming_parameters():
        evaluated = evaluate_rows(request_rows(features, protocol), [pair], protocol, probe=probe)
    for note in evaluated.notes:
        warnings.warn(in_python(for_screen(note)), NerveWarning, stacklevel=2)
    return evaluated.results


@dataclass
class EvaluatedRows:  # numpydoc ignore=PR02
    """What `evaluate_rows` gives.

    Parameters
    ----------
    results : Results
        Of all rows and cohorts.
    cohorts : list of EvaluatedCohort
        The cohorts that were predicted.
    notes : list of str
        What the user should be told; ids of participants may be in it.
    encoders : dict
        Row → its encoder, where one encoder serves all folds.
    """

    results: Results
    cohorts: list[EvaluatedCohort]
    notes: list[str]
    encoders: dict[str, Any]


def evaluate_rows(
    rows: Sequence[RequestedRow],
    pairs: Sequence[tuple[Cohort, Cohort | None]],
    protocol: Protocol,
    *,
    probe: Any = None,
    title: str = "",
    command: str = "",
    folder: Path | None = None,
) -> EvaluatedRows:
    """Evaluate every row on every cohort.

    Parameters
    ----------
    rows : sequence of RequestedRow
        What `request_rows` gives.
    pairs : sequence of (Cohort, Cohort or None)
        The cohort that is predicted, and the one that is trained on where that is another.
    protocol : Protocol
        Of all cohorts.
    probe : estimator, optional
        The model that predicts targets from features, instead of kernel ridge.
    title, command : str
        What the report says.
    folder : Path, optional
        The results folder, where FOLDER/models keeps what a report shows of encoders.

    Returns
    -------
    EvaluatedRows
        Results and what they were made from.
    """
    if probe is not None:
        checked_probe(probe)
        variant = probe_name(probe)
        for requested in rows:
            settings = {**requested.row.settings, "probe": variant}
            requested.row = replace(requested.row, variant=variant, settings=settings)

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
        # both cohorts in one, where another is trained on
        combined = cohort
        if trained_on is None:
            participants, resolved = prepare_participants(cohort, protocol)
        else:
            combined, participants, resolved = prepare_transfer(trained_on, cohort, protocol)
        participants = replace(participants, cohort=name)
        tested = _TestedCohort(cohort, trained_on, combined, resolved, number=len(cohorts))
        cohorts.append(EvaluatedCohort(cohort, participants, resolved))
        notes += participants.notes
        bar = progress_bar(rows, label="evaluation", unit="feature sets")
        for row_number, requested in enumerate(bar):
            start = time.process_time()
            model_folder = None if folder is None else folder / MODELS / str(row_number)
            features = _make_features(requested, tested, encoders, model_folder)
            if probe is not None:
                features.probe = checked_probe(probe)
            row_protocol = replace(resolved, **requested.settings)
            if isinstance(features, TrainedInFolds):
                # a network is trained for each target: permutations and curves would take weeks
                row_protocol = replace(row_protocol, n_permutations=0, labels=())
            evaluation = evaluate_features(
                features,
                combined,
                participants,
                row_protocol,
                requested.row,
                predict_site=not _trains_in_folds(features, requested),
            )
            evaluation.facts["seconds"] = time.process_time() - start
            evaluations.append(evaluation)
            notes += evaluation.facts["notes"]

    about = {
        "title": title or f"Evaluation of {names[0]}",
        "kind": "evaluation",
        "layout": "methods",
        "command": command,
        "parcellation": pairs[0][0].parcellation.name,
        "target_labels": {name: {} for name in names},
        "citations": citations_of([requested.row for requested in rows]),
        "seeds": sorted({requested.row.seed for requested in rows}),
        "versions": dict(package_versions()),
        "code": code_version(),
        "data": {evaluated.name: evaluated.cohort.fingerprint for evaluated in cohorts},
    }
    results = combine(evaluations, cohorts, [requested.row for requested in rows], about)
    return EvaluatedRows(results, cohorts, list(dict.fromkeys(notes)), encoders)


@dataclass
class _TestedCohort:
    """A cohort that rows are evaluated on."""

    cohort: Cohort  # its participants are predicted
    trained_on: Cohort | None  # another cohort, where the rows are trained on that one
    combined: Cohort  # `trained_on` followed by `cohort`; without the former, `cohort`
    protocol: Protocol
    number: int  # counted from 0


def _make_features(
    requested: RequestedRow, tested: _TestedCohort, encoders: dict[str, Any], folder: Path | None
) -> FeatureSet:
    """What a row predicts from on one cohort.

    An encoder that serves all folds is made once, and kept in `encoders` for the other cohorts.
    """
    name = requested.row.row
    if requested.make is None:
        if isinstance(requested.value, str) and is_model(requested.value):
            return _features_of_model(requested, tested, encoders, folder)
        return make_feature_set(requested.value, tested.combined, name)

    make = requested.make
    if requested.value in NAMED:
        return NAMED[requested.value](name)
    if requested.row.kind == SUPERVISED:
        network = TrainedInFolds(name)
        network.estimator = FitInFold(network, make)
        _note_pretraining(network, make(), tested)
        return network
    method = make()
    if learns_in_folds(tested.protocol, getattr(method, "recentre", None)):
        in_folds = LearnedInFolds(name, fit=lambda training: make().fit(training))
        if tested.trained_on is not None:
            in_folds.trained_on = {tested.trained_on.name: len(tested.trained_on)}
        return in_folds

    training = tested.cohort if tested.trained_on is None else tested.trained_on
    if name not in encoders:
        encoders[name] = fit_and_describe(method, [training], folder, requested.row)
    encoder = encoders[name]
    scope = "all"
    if tested.trained_on is not None:
        scope = _scope_by_matrices(tested.cohort, training)
    features = make_feature_set(encoder.transform(tested.combined), tested.combined, name, scope)
    features.trained_on = {training.name: len(training)}
    features.adapted = encoder.adapted_
    return features


def _features_of_model(
    requested: RequestedRow, tested: _TestedCohort, encoders: dict[str, Any], folder: Path | None
) -> FeatureSet:
    """Features of the cohort from a trained model of the user's."""
    name = requested.row.row
    if name not in encoders:
        encoders[name] = load_method(requested.value, device="auto")
        if folder is not None:
            keep_description(requested.value, encoders[name], folder)
    encoder = encoders[name]
    if hasattr(encoder, "likeness"):
        likeness = compared(encoder, tested.combined)
        if folder is not None:
            likeness_folder = folder / "likeness" / str(tested.number)
            likeness_folder.mkdir(parents=True, exist_ok=True)
            likeness.save(likeness_folder)
    scope = _scope_of_model(encoder, tested.cohort, tested.trained_on)
    features = make_feature_set(encoder.transform(tested.combined), tested.combined, name, scope)
    features.trained_on = training_counts(encoder)
    features.adapted = encoder.adapted_
    return features


def _note_pretraining(network: TrainedInFolds, method: Any, tested: _TestedCohort) -> None:
    """Note the scope and cohorts of the model that is fine-tuned, as for one that stays frozen."""
    encoder = pretrained_encoder_of(method)
    if encoder is None:
        return
    compared(encoder, tested.combined)
    network.scope = _scope_of_model(encoder, tested.cohort, tested.trained_on)
    network.trained_on = training_counts(encoder)


def _trains_in_folds(features: FeatureSet, requested: RequestedRow) -> bool:
    """Whether an encoder is trained in each fold; further folds, for the site, take hours."""
    if not isinstance(features, LearnedInFolds):
        return False
    return requested.make is None or is_trained(requested.make())


def _scope_of_model(model: Any, cohort: Cohort, trained_on: Cohort | None) -> str:
    """The scope of a model of the user's; "not stated" where that is not known."""
    if model.trained_on_all_of(cohort):
        return "all"
    # of several cohorts, another may hold the tested participants
    is_of_one_cohort = len(model.data_.get("fc", ())) == 1
    if trained_on is not None and is_of_one_cohort and model.trained_on_all_of(trained_on):
        return _scope_by_matrices(cohort, trained_on)
    return "not stated"


def _scope_by_matrices(cohort: Cohort, trained_on: Cohort) -> str:
    """The scope on a cohort of an encoder that was trained on another cohort."""
    return scope_of_seen(shared_participants(cohort, trained_on))
