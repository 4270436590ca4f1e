"""Make the tables of docs/any-atlas.md on transfer between cohorts of different atlases.

`python -m studies.transfer labels --data FOLDER OUT.tsv`: age and sex from ABIDE (CC200) to UCLA (Schaefer-400) and back, in
one parcellation: raw FC, tangent space, shrunk tangent space and NERVE, with and without recentring by cohort, and the tested
cohort's own ten folds in the same space. STAGES has neither age nor sex. λ comes from inner folds of the training cohort;
no label of the tested cohort is used.

`python -m studies.transfer pool --data FOLDER OUT.tsv`: NERVE trained without labels on the two other cohorts, on all three, on the
judged one, and not at all (the weights of before training, with the view of the other two), judged by ten folds and at 25, 50, 100 and 200
labels of the cohort that was left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from studies.real_cohorts import stages_session
from studies.recipe import abide, ucla

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_tsv
from nerve.data.common_space import bring_together, mean_correlation
from nerve.methods.raw import RawFC
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.methods.tangent import TangentSpace

SETTINGS = {"device": "cpu", "seed": 0}
LABELS = (25, 50, 100, 200)
DRAWS = 20


def cohorts(data: Path, parcellation: str) -> dict[str, nerve.Cohort]:
    """The three cohorts in one parcellation, sex written alike."""
    table = pd.read_csv(data / "abide_cc200" / "regions.tsv", sep="\t", dtype=str)
    first = abide(data)
    regions = first.parcellation
    centres = table[["x", "y", "z"]].to_numpy(float)
    regions = nerve.Parcellation(
        regions.labels, regions.networks, coordinates=centres, name="abide-cc200"
    )
    participants = first.participants.assign(sex=first.participants["sex"].map({1: "M", 2: "F"}))
    first = nerve.Cohort(first.connectivity, participants, regions, name="abide")
    stages = stages_session(data, 1, "stages")
    together = bring_together([first, ucla(data), stages], parcellation)
    return {cohort.name: cohort for cohort in together}


def methods() -> dict[str, Any]:
    """Row → estimator, without and with recentring by cohort."""
    rows: dict[str, Any] = {
        "raw": RawFC(),
        "tangent": TangentSpace(),
        "tangent, by cohort": TangentSpace(recentre="cohort"),
        "shrunk": ShrunkTangentSpace(),
        "shrunk, by cohort": ShrunkTangentSpace(recentre="cohort"),
        "NERVE": nerve.NERVE.from_preset("small", **SETTINGS),
        "NERVE, by cohort": nerve.NERVE.from_preset("small", recentre="cohort", **SETTINGS),
    }
    return rows


def scores_of(features: Any, cohort: nerve.Cohort, **options: Any) -> pd.DataFrame:
    """Scores of age and sex."""
    site = {"site": "site"} if "site" in cohort.participants else {}
    results = nerve.evaluate(
        features, cohort, ["age", "sex"], motion="none", n_bootstrap=1000, **site, **options
    )
    return results.scores


def labels(data: Path, parcellation: str) -> pd.DataFrame:
    """One row per direction, method and target."""
    everyone = cohorts(data, parcellation)
    for names in (("abide", "ucla"), ("abide", "stages"), ("ucla", "stages")):
        r = mean_correlation(*(everyone[name] for name in names))
        print(f"group means of {' and '.join(names)} correlate by {r:.3f}", flush=True)
    rows = []
    for train, test in (("abide", "ucla"), ("ucla", "abide")):
        for name, method in methods().items():
            began = time.process_time()
            fitted = method.fit(everyone[train])
            features = np.concatenate(
                [np.asarray(fitted.transform(everyone[one])) for one in (train, test)]
            )
            scores = scores_of({name: features}, everyone[train], test=everyone[test])
            own = scores_of(
                {name: method.fit(everyone[test]).transform(everyone[test])}, everyone[test]
            )
            for target in ("age", "sex"):
                found = scores.set_index("target").loc[target]
                inside = own.set_index("target").loc[target]
                column = "r" if target == "age" else "auc"
                rows.append(
                    {
                        "train": train,
                        "test": test,
                        "row": name,
                        "target": target,
                        "score": column,
                        "transfer": found[column],
                        "low": found[f"{column}_low"],
                        "high": found[f"{column}_high"],
                        "r_within_site": found.get("r_within_site", np.nan),
                        "own_10_folds": inside[column],
                        "seconds": round(time.process_time() - began),
                    }
                )
            print(pd.DataFrame(rows[-2:]).round(3).to_string(header=False), flush=True)
    return pd.DataFrame(rows)


def pool(data: Path, parcellation: str) -> pd.DataFrame:
    """One row per judged cohort, pretraining and target."""
    everyone = cohorts(data, parcellation)
    rows = []
    for judged in ("abide", "ucla"):
        others = [cohort for name, cohort in everyone.items() if name != judged]
        preset = {"preset": "small", "options": {"recentre": "cohort", **SETTINGS}}
        trainings = {
            "the two others": (others, {}),
            "untrained (the two others)": (others, {"epochs": 0}),
            "all three": (list(everyone.values()), {}),
            "the judged cohort": ([everyone[judged]], {}),
        }
        sets: dict[str, Any] = {}
        for name, (training, changes) in trainings.items():
            encoder = nerve.NERVE.from_preset(preset["preset"], **preset["options"], **changes)
            encoder.fit(training)
            sets[f"NERVE, {name}"] = encoder.transform(everyone[judged])
            print(judged, name, "done", flush=True)
        sets["shrunk, the judged cohort"] = ShrunkTangentSpace().fit_transform(everyone[judged])
        together = ShrunkTangentSpace(recentre="cohort").fit(list(everyone.values()))
        sets["shrunk, all three"] = together.transform(everyone[judged])
        n_labels = [n for n in LABELS if n < 0.7 * len(everyone[judged])]
        results = nerve.evaluate(
            sets,
            everyone[judged],
            ["age", "sex"],
            motion="none",
            n_bootstrap=100,
            labels=tuple(n_labels),
            n_draws=DRAWS,
        )
        curves = results.curves
        for score in results.scores.itertuples():
            row = {
                "judged": judged,
                "row": score.row,
                "target": score.target,
                "ten folds": score.r if score.target == "age" else score.auc,
            }
            of_row = curves[(curves["row"] == score.row) & (curves["target"] == score.target)]
            for n, mean in of_row.groupby("labels")["score"].mean().items():
                row[f"{n} labels"] = mean
            rows.append(row)
        print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=["labels", "pool"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parcellation", default="schaefer200-17")
    parser.add_argument("out", type=Path, help="the table, a .tsv file")
    args = parser.parse_args()
    warnings.simplefilter("ignore", NerveWarning)
    table = {"labels": labels, "pool": pool}[args.table](args.data, args.parcellation)
    write_tsv(args.out, table)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
