"""Make the table of docs/howto/sites.md: what recentring by site does on a cohort of many sites.

`python -m studies.sites COHORT OUT.tsv`. Tangent space with and without recentring, for each target: r of all participants together, r within sites, AUC, in ten
folds and with whole sites left out, and how well the features predict the site. The point at which the tangent space is
taken is the mean of everyone, without labels, once; shifts of sites, λ and coefficients are learned in training folds.
"""

from __future__ import annotations

import argparse
import time
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


class Recentred(FeatureSet):
    """Rows of a matrix, recentred by what training participants say."""

    entries: np.ndarray
    sites: np.ndarray
    recentre: bool

    def prepare(self, cohort: Cohort, participants: Any, protocol: Protocol) -> Recentred:
        """Kernel ridge on the recentred entries."""
        self.model = ridge_of(protocol)
        return self

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Any = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Features of the two sets of participants."""
        if not self.recentre:
            return self.entries[train], self.entries[test]
        training, sites = self.entries[train], self.sites
        shifts = SiteShifts.of(training.__getitem__, sites[train])
        parts = (training, sites[train]), (self.entries[test], sites[test])
        return tuple(
            shifts.with_new_sites(x.__getitem__, where).apply(x, where) for x, where in parts
        )  # type: ignore[return-value]


def measure(folder: Path, out: Path) -> None:
    """Measure and write one row per protocol, features and target."""
    cohort = Cohort.load(folder)
    entries = TangentSpace().fit_transform(cohort)
    sites = cohort.participants["site"].astype(str).to_numpy(object)
    rows = []
    for name, options in {"10 folds": {}, "leave_site_out": {"leave_site_out": True}}.items():
        given = Protocol(targets=TARGETS, site="site", motion="none", **options)  # type: ignore[arg-type]
        people, protocol = prepare_participants(cohort, given)
        for recentre in (False, True):
            began = time.process_time()
            features = Recentred("tangent")
            features.entries, features.sites, features.recentre = entries, sites, recentre
            features.prepare(cohort, people, protocol)
            predictions = predict_targets(features, people, protocol).assign(row="tangent")
            inside = site_table(predictions, dict(zip(people.ids, people.sites, strict=True)))  # type: ignore[arg-type]
            table = score_table(predictions, n_bootstrap=0).merge(
                inside, on=["cohort", "target", "row"]
            )
            accuracy = np.nan if options else site_accuracy(features, people, protocol)
            about = {"protocol": name, "recentred": recentre, "site_accuracy": accuracy}
            kept = table[["target", "n", "r", "r_fold_mean", "r_within_site", "auc"]]
            rows.append(kept.assign(**about, seconds=round(time.process_time() - began)))
            print(pd.concat(rows).to_string(), flush=True)
    write_tsv(out, pd.concat(rows, ignore_index=True))


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
