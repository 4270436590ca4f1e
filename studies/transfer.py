"""Do models carry over between cohorts of different atlases? Tables of docs/any-atlas.md.

`python -m studies.transfer labels --data FOLDER OUT.tsv` predicts age and sex of UCLA
(Schaefer-400) with models of ABIDE (CC200), and the reverse, both in one parcellation: raw FC,
tangent space, shrunk tangent space and NERVE, with and without recentring by cohort. Ten folds of
the tested cohort by itself are given for comparison. λ comes from inner folds of the training
cohort; no label of the tested cohort is used. STAGES has neither age nor sex: only its mean FC is
compared.

`python -m studies.transfer pool --data FOLDER OUT.tsv` trains NERVE without labels on the two other
cohorts, on all three, on the judged one, and not at all (the weights before training, with the view
of the other two). Its features are judged on ABIDE and on UCLA, by ten folds and with few labels.
"""

from __future__ import annotations

import os

# numpy and torch read this once, when they are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from studies._cohorts import read_abide, read_stages_session, read_ucla

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_tsv
from nerve.data.common_space import bring_together, mean_correlation
from nerve.methods.raw import RawFC
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.methods.tangent import TangentSpace

SETTINGS = {"device": "cpu", "seed": 0}
METRICS = {"age": "r", "sex": "auc"}  # target → metric
LABELS = (25, 50, 100, 200)
DRAWS = 20


def read_cohorts(data: Path, parcellation: str) -> dict[str, nerve.Cohort]:
    """Read the three cohorts in one parcellation, with sex as M and F."""
    abide = read_abide(data)
    sex = abide.participants["sex"].map({1: "M", 2: "F"})
    abide = nerve.Cohort(
        abide.connectivity, abide.participants.assign(sex=sex), abide.parcellation, name="abide"
    )
    stages = read_stages_session(data, 1, "stages")
    resampled = bring_together([abide, read_ucla(data), stages], parcellation)
    return {cohort.name: cohort for cohort in resampled}


def make_methods() -> dict[str, Any]:
    """Return the method of each row, without and with recentring by cohort."""
    return {
        "raw": RawFC(),
        "tangent": TangentSpace(),
        "tangent, by cohort": TangentSpace(recentre="cohort"),
        "shrunk": ShrunkTangentSpace(),
        "shrunk, by cohort": ShrunkTangentSpace(recentre="cohort"),
        "NERVE": nerve.NERVE.from_preset("small", **SETTINGS),
        "NERVE, by cohort": nerve.NERVE.from_preset("small", recentre="cohort", **SETTINGS),
    }


def score(features: Any, cohort: nerve.Cohort, **options: Any) -> pd.DataFrame:
    """Return the scores of one feature set, one row per target."""
    if "site" in cohort.participants:
        options["site"] = "site"
    results = nerve.evaluate(
        features, cohort, list(METRICS), motion="none", n_bootstrap=1000, **options
    )
    return results.scores.set_index("target")


def transfer_labels(data: Path, parcellation: str) -> pd.DataFrame:
    """Return one row per direction, method and target."""
    cohorts = read_cohorts(data, parcellation)
    for first, second in (("abide", "ucla"), ("abide", "stages"), ("ucla", "stages")):
        r = mean_correlation(cohorts[first], cohorts[second])
        print(f"group means of {first} and {second} correlate by {r:.3f}", flush=True)
    rows = []
    for train, test in (("abide", "ucla"), ("ucla", "abide")):
        for name, method in make_methods().items():
            began = time.process_time()
            method.fit(cohorts[train])
            # training participants first, as `test=` expects them
            training_features = np.asarray(method.transform(cohorts[train]))
            test_features = np.asarray(method.transform(cohorts[test]))
            features = np.concatenate([training_features, test_features])
            transfer_scores = score({name: features}, cohorts[train], test=cohorts[test])

            own_features = method.fit(cohorts[test]).transform(cohorts[test])
            own_scores = score({name: own_features}, cohorts[test])
            seconds = round(time.process_time() - began)
            for target, metric in METRICS.items():
                scores = transfer_scores.loc[target]
                row = {
                    "train": train,
                    "test": test,
                    "row": name,
                    "target": target,
                    "score": metric,
                    "transfer": scores[metric],
                    "low": scores[f"{metric}_low"],
                    "high": scores[f"{metric}_high"],
                    "r_within_site": scores.get("r_within_site", np.nan),
                    "own_10_folds": own_scores.loc[target, metric],
                    "seconds": seconds,
                }
                rows.append(row)
            print(pd.DataFrame(rows[-2:]).round(3).to_string(header=False), flush=True)
    return pd.DataFrame(rows)


def pool_cohorts(data: Path, parcellation: str) -> pd.DataFrame:
    """Return one row per judged cohort, pretraining and target."""
    cohorts = read_cohorts(data, parcellation)
    everyone = list(cohorts.values())
    rows = []
    for name in ("abide", "ucla"):
        judged = cohorts[name]
        others = [cohort for cohort in everyone if cohort is not judged]
        # name of the row → training cohorts, and settings that differ
        trainings: dict[str, tuple[list[nerve.Cohort], dict[str, Any]]] = {
            "the two others": (others, {}),
            "untrained (the two others)": (others, {"epochs": 0}),
            "all three": (everyone, {}),
            "the judged cohort": ([judged], {}),
        }
        feature_sets: dict[str, Any] = {}
        for training_name, (training_cohorts, changes) in trainings.items():
            encoder = nerve.NERVE.from_preset("small", recentre="cohort", **SETTINGS, **changes)
            encoder.fit(training_cohorts)
            feature_sets[f"NERVE, {training_name}"] = encoder.transform(judged)
            print(name, training_name, "done", flush=True)
        feature_sets["shrunk, the judged cohort"] = ShrunkTangentSpace().fit_transform(judged)
        shrunk_of_all = ShrunkTangentSpace(recentre="cohort").fit(everyone)
        feature_sets["shrunk, all three"] = shrunk_of_all.transform(judged)

        results = nerve.evaluate(
            feature_sets,
            judged,
            list(METRICS),
            motion="none",
            n_bootstrap=100,
            labels=tuple(n for n in LABELS if n < 0.7 * len(judged)),
            n_draws=DRAWS,
        )
        curves = results.curves
        for scores in results.scores.to_dict("records"):
            row = {
                "judged": name,
                "row": scores["row"],
                "target": scores["target"],
                "ten folds": scores[METRICS[scores["target"]]],
            }
            is_of_row = (curves["row"] == scores["row"]) & (curves["target"] == scores["target"])
            for n, mean in curves[is_of_row].groupby("labels")["score"].mean().items():
                row[f"{n} labels"] = mean
            rows.append(row)
        print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    return pd.DataFrame(rows)


TABLES = {"labels": transfer_labels, "pool": pool_cohorts}


def main() -> None:
    """Read the command line and make one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parcellation", default="schaefer200-17")
    parser.add_argument("out", type=Path, help="the table, a .tsv file")
    args = parser.parse_args()
    warnings.simplefilter("ignore", NerveWarning)
    table = TABLES[args.table](args.data, args.parcellation)
    write_tsv(args.out, table)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
