"""How much of a pooled score lies between sites, and how well features tell sites apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score

from nerve._utils.errors import naming_participants
from nerve.evaluation.bootstrap import correlation
from nerve.evaluation.cross_validation import out_of_fold_predictions
from nerve.evaluation.feature_sets import FeatureSet
from nerve.evaluation.folds import stratified_folds
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.statistics import score_each_row

_N_FOLDS = 5
# sites with fewer participants are left out of scores within sites
_LEAST_PER_SITE = 3


def site_table(predictions: pd.DataFrame, sites: Any) -> pd.DataFrame:
    """Correlation of each row and target after observed and predicted are centred by site.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    sites : mapping or Series
        Participant → site. Sites with fewer than three participants are left out.

    Returns
    -------
    DataFrame
        cohort, target, row, r_within_site.
    """
    table = predictions.assign(site=predictions["participant"].map(dict(sites)))

    def score_within_sites(runs: pd.DataFrame) -> dict[str, float]:
        by_site = runs.groupby("site")[["observed", "predicted"]]
        centred = runs[["observed", "predicted"]] - by_site.transform("mean")
        centred = centred[by_site.transform("size") >= _LEAST_PER_SITE]
        if not len(centred):
            return {"r_within_site": np.nan}
        return {"r_within_site": correlation(centred["observed"], centred["predicted"])}

    return score_each_row(table, score_within_sites)


def site_accuracy(features: FeatureSet, participants: Participants, protocol: Protocol) -> float:
    """Balanced accuracy with which features predict the site; chance is 1 / sites.

    Each site is predicted against the rest. Families, and participants with the same FC, are kept
    together in the folds.

    Parameters
    ----------
    features : FeatureSet
        Prepared.
    participants : Participants
        With sites and groups.
    protocol : Protocol
        With the seed of the folds.

    Returns
    -------
    float
        NaN where there is one site, or where another cohort is trained on.
    """
    if participants.sites is None or participants.trained_on or len(set(participants.sites)) < 2:
        return float("nan")
    sites = participants.sites.astype(str)
    targets = pd.DataFrame(
        {f"site {name}": (sites == name).astype(float) for name in np.unique(sites)}
    )
    codes = targets.to_numpy().argmax(axis=1)  # (n,)
    order = participants.order
    groups = participants.groups
    folds = np.empty(len(sites), int)
    folds[order] = stratified_folds(
        codes[order, None],
        _N_FOLDS,
        groups=None if groups is None else groups[order],
        seed=protocol.seed,
        groups_may_exceed_folds=True,
    )
    with naming_participants(participants.ids):
        predicted = out_of_fold_predictions(
            features.model,
            features,
            targets,
            folds,
            inner_groups=groups,
            order=order,
        )
    wide = predicted.pivot(index="position", columns="target", values="predicted")
    predicted_codes = wide[list(targets)].to_numpy().argmax(axis=1)
    return float(balanced_accuracy_score(codes, predicted_codes))


def site_verdict(r: float, r_within: float) -> str:
    """How to read a pooled r beside the r within sites.

    Parameters
    ----------
    r : float
        Over all participants.
    r_within : float
        After observed and predicted values are centred by site.

    Returns
    -------
    str
        A phrase; empty where r is too small to tell.

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
    if share < 0.9:
        return "part of this r is between sites"
    return "this r holds within sites"
