"""What a pooled score hides: how much of it lies between sites, and how well features tell sites apart."""

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

N_FOLDS = 5
LEAST = 3  # participants of a site, to be part of a score within sites


def site_table(predictions: pd.DataFrame, sites: Any) -> pd.DataFrame:
    """r within sites of each row and target: the correlation after both sides are centred by site.

    Parameters
    ----------
    sites : mapping or Series
        participant → site. Sites with fewer than three participants are left out.
    """
    table = predictions.assign(site=predictions["participant"].map(dict(sites)))

    def inside(runs: pd.DataFrame) -> dict[str, float]:
        both = runs.groupby("site")[["observed", "predicted"]]
        centred = (runs[["observed", "predicted"]] - both.transform("mean"))[
            both.transform("size") >= LEAST
        ]
        r = correlation(centred["observed"], centred["predicted"]) if len(centred) else np.nan
        return {"r_within_site": r}

    return score_each_row(table, inside)


def site_accuracy(features: FeatureSet, participants: Participants, protocol: Protocol) -> float:
    """Balanced accuracy with which features predict the site itself, one against the rest; 1 / sites is chance.

    Families, and participants of the same FC, are kept whole in the folds, as everywhere.
    Not a number where there is one site, or where the participants of another cohort are trained on.
    """
    if participants.sites is None or participants.trained_on or len(set(participants.sites)) < 2:
        return float("nan")
    sites = participants.sites.astype(str)
    targets = pd.DataFrame(
        {f"site {name}": (sites == name).astype(float) for name in np.unique(sites)}
    )
    codes, folds = targets.to_numpy().argmax(axis=1), np.empty(len(sites), int)
    groups = None if participants.groups is None else participants.groups[participants.order]
    folds[participants.order] = stratified_folds(
        codes[participants.order, None],
        N_FOLDS,
        groups=groups,
        seed=protocol.seed,
        groups_may_exceed_folds=True,
    )
    with naming_participants(participants.ids):
        predicted = out_of_fold_predictions(
            features.model,
            features,
            targets,
            folds,
            groups=participants.groups,
            order=participants.order,
        )
    guessed = predicted.pivot(index="position", columns="target", values="predicted")[
        list(targets)
    ].to_numpy()
    return float(balanced_accuracy_score(codes, guessed.argmax(axis=1)))


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
