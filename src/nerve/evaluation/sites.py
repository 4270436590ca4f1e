"""What a pooled score hides: how much of it lies between sites, and how well features tell sites apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from nerve.checks import naming
from nerve.cohort import Cohort
from nerve.evaluation.bootstrap import weighted_correlations
from nerve.evaluation.features import Features
from nerve.evaluation.folds import stratified_folds
from nerve.evaluation.people import People
from nerve.evaluation.statistics import IDENTITY
from nerve.protocol import Protocol

N_FOLDS = 5
LEAST = 3  # participants of a site, to be part of a score within sites


def site_table(predictions: pd.DataFrame, sites: Any) -> pd.DataFrame:
    """r within sites of each row and target: the correlation after both sides are centred by site.

    Parameters
    ----------
    sites : mapping or Series
        participant → site. Sites with fewer than three participants are left out.
    """
    table = predictions.assign(site=predictions["participant"].map(dict(sites))).dropna(subset=["site"])
    identity = ["cohort", "target", *(name for name in IDENTITY if name in table)]
    table = table[table.groupby([*identity, "site"])["predicted"].transform("size") >= LEAST]
    rows = []
    for key, runs in table.groupby(identity, sort=False, dropna=False):
        sides = [runs[name] - runs.groupby("site")[name].transform("mean") for name in ("observed", "predicted")]
        left, right = (side.to_numpy(float)[:, None] for side in sides)
        r = float(weighted_correlations(np.ones((1, len(left))), left, right)[0, 0]) if len(left) > 2 else np.nan
        rows.append(dict(zip(identity, key, strict=True)) | {"r_within_site": r})
    return pd.DataFrame(rows, columns=[*identity, "r_within_site"])


def site_accuracy(features: Features, cohort: Cohort, people: People, protocol: Protocol) -> float:
    """Balanced accuracy with which features predict the site itself, one against the rest; 1 / sites is chance.

    Not a number where there is one site, or where the participants of another cohort are trained on.
    """
    if people.sites is None or people.trained_on:
        return float("nan")
    names, codes = np.unique(people.sites.astype(str), return_inverse=True)
    if len(names) < 2:
        return float("nan")
    indicators = np.eye(len(names))[codes]  # (n, sites)
    folds = np.empty(len(codes), int)
    folds[people.order] = stratified_folds(codes[people.order, None], N_FOLDS, seed=protocol.seed)
    guessed = np.empty(len(codes), int)
    with naming(people.ids):
        model, source = features.prepare(cohort, people, protocol)
        for fold in np.unique(folds):
            train, test = people.order[folds[people.order] != fold], people.order[folds[people.order] == fold]
            left, right = source.split(train, test, [])
            fitted = clone(model).fit(left, indicators[train])
            guessed[test] = np.asarray(fitted.predict(right)).argmax(axis=1)
    return float(np.mean([np.mean(guessed[codes == code] == code) for code in range(len(names))]))


def site_verdict(r: float, r_within: float) -> str:
    """What a reader should make of a pooled r and the r within sites.

    Examples
    --------
    >>> site_verdict(0.76, 0.30)
    'most of this r is between sites'
    """
    if not (np.isfinite(r) and np.isfinite(r_within)) or r < 0.1:
        return ""
    share = r_within / r
    if share < 0.5:
        return "most of this r is between sites"
    return "part of this r is between sites" if share < 0.9 else "this r holds within sites"
