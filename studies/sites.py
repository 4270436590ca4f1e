"""What does recentring by site do on a cohort of many sites? The table of docs/howto/sites.md.

`python -m studies.sites COHORT OUT.tsv`, with a cohort folder of `python -m studies.real_cohorts`
(the page: ABIDE). Tangent space with and without recentring, in ten folds and with whole sites left
out: per target, r of all participants together, r within sites, AUC, and how well the features
predict the site. Tangent space is taken once, at the mean of everyone, without labels; shifts of
sites, λ and coefficients are learned in training folds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve import Cohort, Protocol
from nerve._utils.files import write_tsv
from nerve.evaluation.cross_validation import predict_targets
from nerve.evaluation.feature_sets import FeatureSet, ridge_of
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.sites import site_accuracy, site_table
from nerve.evaluation.statistics import score_table
from nerve.methods.recentring import SiteShifts
from nerve.methods.tangent import TangentSpace

TARGETS = "age,sex,diagnosis"
SPLITS: dict[str, dict[str, Any]] = {
    "10 folds": {},
    "leave_site_out": {"leave_site_out": True},
}  # name in the table → options of the protocol
SCORES = ["target", "n", "r", "r_fold_mean", "r_within_site", "auc"]


@dataclass
class RecentredFeatures(FeatureSet):
    """Features whose site means are moved to the common mean of the training participants.

    Parameters
    ----------
    values : (n, d) array
    sites : (n,) array of str
    recentre : bool
        False gives the values as they are.
    """

    values: np.ndarray | None = None
    sites: np.ndarray | None = None
    recentre: bool = True

    def prepare(self, cohort: Cohort, participants: Any, protocol: Protocol) -> RecentredFeatures:
        """Choose kernel ridge as the model."""
        self.model = ridge_of(protocol)
        return self

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return features of training and test participants; a new site has its own mean."""
        training = self.values[train]
        tested = self.values[test]
        if not self.recentre:
            return training, tested
        training_sites = self.sites[train]
        test_sites = self.sites[test]
        # SiteShifts reads features of some rows by a function of these rows
        shifts = SiteShifts.of(training.__getitem__, training_sites)
        training_shifts = shifts.with_new_sites(training.__getitem__, training_sites)
        test_shifts = shifts.with_new_sites(tested.__getitem__, test_sites)
        return (
            training_shifts.apply(training, training_sites),
            test_shifts.apply(tested, test_sites),
        )


def measure(folder: Path, out: Path) -> None:
    """Write one row per way of splitting, features and target."""
    cohort = Cohort.load(folder)
    values = TangentSpace().fit_transform(cohort)
    sites = cohort.participants["site"].astype(str).to_numpy(object)
    tables = []
    for split_name, options in SPLITS.items():
        protocol = Protocol(targets=TARGETS, site="site", motion="none", **options)
        participants, protocol = prepare_participants(cohort, protocol)
        site_of = dict(zip(participants.ids, participants.sites, strict=True))
        for recentre in (False, True):
            began = time.process_time()
            features = RecentredFeatures(
                "tangent", values=values, sites=sites, recentre=recentre
            ).prepare(cohort, participants, protocol)
            predictions = predict_targets(features, participants, protocol)
            predictions = predictions.assign(row="tangent")
            scores = score_table(predictions, n_bootstrap=0)
            scores_within_sites = site_table(predictions, site_of)
            scores = scores.merge(scores_within_sites, on=["cohort", "target", "row"])
            accuracy = np.nan  # sites that are left out cannot be predicted
            if not protocol.leave_site_out:
                accuracy = site_accuracy(features, participants, protocol)
            table = scores[SCORES].assign(
                protocol=split_name,
                recentred=recentre,
                site_accuracy=accuracy,
                seconds=round(time.process_time() - began),
            )
            tables.append(table)
            print(pd.concat(tables).to_string(), flush=True)
    write_tsv(out, pd.concat(tables, ignore_index=True))


def main() -> None:
    """Read the command line and make the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cohort", type=Path, help="folder of a cohort with a column `site`")
    parser.add_argument("out", type=Path, help="the table, a .tsv file")
    args = parser.parse_args()
    measure(args.cohort, args.out)


if __name__ == "__main__":
    main()
