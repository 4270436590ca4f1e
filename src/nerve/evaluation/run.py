"""`nerve.evaluate`: features and a cohort in, the predictions table out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveWarning, listed, naming
from nerve.cohort import Cohort
from nerve.evaluation.features import FeatureSet, feature_sets, goes_through_landmarks, model_and_source
from nerve.evaluation.people import People, as_names, prepare_people
from nerve.evaluation.predict import null_correlations, out_of_fold_predictions
from nerve.evaluation.settings import Settings
from nerve.evaluation.statistics import COLUMNS

Progress = Callable[[str, float], None]


def evaluate(
    features: Any,
    cohort: Cohort,
    targets: str | Sequence[str],
    covariates: str | Sequence[str] = (),
    *,
    groups: str | None = None,
    site: str | None = None,
    n_folds: int = 10,
    n_repeats: int = 1,
    kernel: str = "correlation",
    seed: int = 42,
    method: str | None = None,
    variant: str = "",
    model_seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Predict each target out of fold, the same folds for every feature set.

    Parameters
    ----------
    features : array, DataFrame, path, str, estimator, or a mapping of several
        (n, d) numbers in the order of the cohort's participants; a table or TSV with `participant_id`, joined by id;
        "raw" (FC above the diagonal), "pca" (of it, fitted on training folds) or "covariates"; or an estimator with
        `fit(cohort, y)` and `predict(cohort)`, trained inside each fold. ``{"NERVE": Z, "raw": "raw"}`` gives several.
    cohort : Cohort
    targets : names of columns of the participants table
        Numbers, or two classes. A missing value drops that person for that target only.
    covariates : names of columns
        Regressed from the targets with coefficients of the training fold. Mean framewise displacement is added when
        the cohort has it (``motion=None`` leaves it out).
    groups : column of families, kept whole in folds
    site : column of the site, for ``combat=True``, ``leave_site_out=True`` and permutation within sites
    method, variant, model_seed : what the columns method, variant and seed say
    progress : function, optional
        Called with a label and the share of the work done.
    **options
        Other fields of `nerve.evaluation.Settings`, e.g. ``combat``, ``leave_site_out``, ``regress_features``.
        Bootstrap and permutations come after predictions: see `score_table` and `evaluate_to`.

    Returns
    -------
    DataFrame
        cohort, target, method, variant, seed, participant, fold, observed (covariates removed), predicted,
        observed_raw, and repeat if there is more than one. Pass it to `nerve.evaluation.score_table` and `compare`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(rng.normal(size=(4, 50))) for _ in range(40)])
    >>> table = pd.DataFrame({"participant_id": [f"sub-{i:02}" for i in range(40)], "iq": rng.normal(100, 15, 40)})
    >>> regions = pd.DataFrame({"label": list("abcd"), "network": ["A", "A", "B", "B"]})
    >>> import nerve
    >>> parcellation = nerve.Parcellation.from_table(regions, name="four")
    >>> cohort = nerve.Cohort(fc, table, parcellation)
    >>> len(evaluate(rng.normal(size=(40, 3)), cohort, targets=["iq"]))
    40
    """
    settings = make_settings(
        targets, covariates, groups=groups, site=site, n_folds=n_folds, n_repeats=n_repeats, kernel=kernel, seed=seed,
        **options,
    )  # fmt: skip
    people, settings = prepare_people(cohort, settings)
    sets = feature_sets(features, cohort, method, settings.pretrain_scope)
    for note in all_notes(people, sets, settings):
        warnings.warn(note, NerveWarning, stacklevel=2)
    parts = []
    for one in sets:
        part = predict_one(one, cohort, people, settings, progress)
        parts.append(part.assign(variant=variant, seed=seed if model_seed is None else model_seed))
    return pd.concat(parts, ignore_index=True)


def make_settings(targets: Any, covariates: Any = (), **options: Any) -> Settings:
    """Settings from what a user gives; names may be a list or separated by commas."""
    fields = Settings.__dataclass_fields__
    unknown = [name for name in options if name not in fields]
    if unknown:
        raise TypeError(f"evaluate() got an unexpected argument {unknown[0]!r}, expected one of {', '.join(fields)}.")
    if "preserve" in options:
        options["preserve"] = as_names(options["preserve"])
    if "lambdas" in options:
        options["lambdas"] = tuple(float(value) for value in options["lambdas"])
    return Settings(targets=as_names(targets), covariates=as_names(covariates), **options)


def all_notes(people: People, sets: Sequence[FeatureSet], settings: Settings) -> list[str]:
    """What a user should be told: who is left out, what was added, what to beware of."""
    notes = [*people.notes, *(note for one in sets for note in one.notes)]
    if settings.regress_features and settings.covariates:
        notes.append(
            "Covariates are regressed from the features too: with a non-linear probe this can leak confounds into the "
            "prediction instead of removing them. Compare with regress_features=False."
        )
    wide = [one.name for one in sets if goes_through_landmarks(one, len(people.ids), settings)]
    if wide:
        notes.append(
            f"{listed(wide)}: with more than {settings.exact_up_to:,} people the kernel goes through "
            f"{settings.n_landmarks:,} of them (Nyström) and is approximate."
        )
    return notes


def predict_one(
    features: FeatureSet, cohort: Cohort, people: People, settings: Settings, progress: Progress | None = None
) -> pd.DataFrame:
    """The predictions table of one feature set, over all repeats."""
    with naming(people.ids):
        table = _predictions(features, cohort, people, settings, progress)
    _warn_of_no_difference(table, features.name)
    return table[[*COLUMNS, "observed_raw", *(["repeat"] if settings.n_repeats > 1 else [])]]


def _predictions(
    features: FeatureSet, cohort: Cohort, people: People, settings: Settings, progress: Progress | None
) -> pd.DataFrame:
    label = features.name
    say = (lambda part: progress(label, part)) if progress else None
    model, source = model_and_source(features, cohort, people, settings, _share(say, 0.0, 0.3))
    mine = people.without(features.missing)
    parts = []
    for repeat, folds in enumerate(people.folds):
        step = 0.7 / len(people.folds)
        part = out_of_fold_predictions(
            model,
            source,
            mine.targets,
            folds,
            covariates=None if features.kind == "covariates" else people.covariates,
            groups=people.inner_groups,
            order=people.order,
            progress=_share(say, 0.3 + repeat * step, step),
        )
        parts.append(part.assign(repeat=repeat))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(
        cohort=people.cohort,
        method=features.name,
        variant="",
        seed=settings.seed,
        participant=people.ids[table["row"].to_numpy(int)],
    )


def _warn_of_no_difference(table: pd.DataFrame, name: str) -> None:
    """Say of which targets everyone in a fold is predicted to be alike: r then only compares means of folds."""
    alike = []
    for target, rows in table.groupby("target", sort=False):
        folds = [part for _, part in rows.groupby(["repeat", "fold"]) if len(part) > 1]
        spread = max((float(np.ptp(part["predicted"])) for part in folds), default=np.inf)
        if spread <= 1e-9 * float(rows["observed"].std()):
            alike.append(str(target))
    if alike:
        warnings.warn(
            f"{name}: everyone in a fold is predicted to be alike in {listed(alike)}; the features say nothing of it, "
            "and its r only compares means of folds.",
            NerveWarning,
            stacklevel=3,
        )


def null_of_one(
    features: FeatureSet, cohort: Cohort, people: People, settings: Settings, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """Correlations of permuted targets, {target: (permutations,)}, on the folds of the first repeat."""
    say = (lambda part: progress(f"{features.name}, permuted", part)) if progress else None
    with naming(people.ids):
        return _null(features, cohort, people, settings, say)


def _null(
    features: FeatureSet,
    cohort: Cohort,
    people: People,
    settings: Settings,
    say: Callable[[float], None] | None,
) -> dict[str, np.ndarray]:
    model, source = model_and_source(features, cohort, people, settings, _share(say, 0.0, 0.3))
    return null_correlations(
        model,
        source,
        people.without(features.missing).targets,
        people.folds[0],
        n_permutations=settings.n_permutations,
        seed=settings.seed,
        covariates=None if features.kind == "covariates" else people.covariates,
        groups=people.groups,
        blocks=people.sites,
        order=people.order,
        progress=_share(say, 0.3, 0.7),
    )


def _share(say: Callable[[float], None] | None, start: float, length: float) -> Callable[[float], None] | None:
    return (lambda part: say(start + length * part)) if say else None
