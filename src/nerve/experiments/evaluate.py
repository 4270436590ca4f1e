"""`nerve.evaluate`: features and a cohort in, the predictions table out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.evaluation import evaluate as evaluate_under
from nerve.evaluation.features import NAMED
from nerve.evaluation.protocol import Protocol, known_fields
from nerve.methods import METHODS, method_class


def evaluate(
    features: Any,
    cohort: Cohort,
    targets: str | Sequence[str],
    covariates: str | Sequence[str] = (),
    *,
    test: Cohort | None = None,
    probe: Any = None,
    method: str | None = None,
    variant: str = "",
    model_seed: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Predict each target out of fold, the same folds for every feature set.

    Parameters
    ----------
    features : array, DataFrame, path, str, estimator, or a mapping of several
        (n, d) numbers in the order of the cohort's participants; a table or TSV with `participant_id`, joined by id;
        the name of a reference row ("raw", "pca", "tangent", "covariates" …), fitted on training folds; or
        an estimator with `fit(cohort)` and `transform(cohort)`, or `fit(cohort, y)` and `predict(cohort)`, fitted
        inside each fold. ``{"NERVE": Z, "raw": "raw"}`` gives several.
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
        `GridSearchCV` too, cloned for every fold and target. A classifier needs classes and no covariates. `variant`
        then names it, with a hash of its parameters.
    method, variant, model_seed : what the columns method, variant and seed say
    **options
        Other fields of `nerve.Protocol`, with its defaults: ``groups`` (a column of families, kept whole in folds),
        ``site`` (for ``combat=True``, ``leave_site_out=True`` and permutation within sites), ``n_folds``,
        ``n_repeats``, ``kernel``, ``seed``, ``regress_features`` …
        Bootstrap and permutations come after predictions: see `nerve.evaluation.score_table`.

    Returns
    -------
    DataFrame
        cohort, target, method, variant, seed, participant, fold, observed (covariates removed), predicted,
        observed_raw, and repeat if there is more than one. Pass it to `nerve.evaluation.score_table` and `compare`.

    Examples
    --------
    >>> import numpy as np
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
    given = {"targets": targets, "covariates": covariates, **known_fields(options, "evaluate()")}
    names: dict[str, Any] = {"method": method, "variant": variant, "model_seed": model_seed}
    return evaluate_under(
        _resolved(features), cohort, Protocol(**given), test=test, probe=probe, **names
    )


def _resolved(features: Any) -> Any:
    """Names of reference rows as estimators; everything else as it is."""
    if isinstance(features, Mapping):
        return {name: _resolved(value) for name, value in features.items()}
    if isinstance(features, (list, tuple)) and all(isinstance(one, str) for one in features):
        return {one: _resolved(one) for one in features}
    if not isinstance(features, str) or features not in METHODS or features in NAMED:
        return features
    cls = method_class(features)
    if cls.role != "reference":
        raise NerveError(
            f"{features!r} is a method that is trained, expected an estimator ({cls.__name__}(…)), which is trained "
            "inside each fold, or the features that it gives."
        )
    return cls()
