"""Cohort folders of the real data sets beside the checkout, for configs/*_benchmark.yaml.

`python -m studies.real_cohorts --data ../shared/data --out cohorts` writes cohorts/abide (with series), cohorts/ucla and
the two sessions of STAGES, cohorts/stages and cohorts/stages-again; names after it choose some of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from studies.recipe import abide, ucla

import nerve


def abide_with_series(data: Path) -> object:
    """ABIDE without participants who have constant regions, with the series of each."""
    cohort = abide(data)
    folder = data / "abide_cc200"
    series = np.load(folder / "timeseries_200.npy", mmap_mode="r")
    table = pd.read_csv(folder / "timeseries_rows.tsv", sep="\t")
    rows = dict(
        zip(
            table["participant_id"].astype(str),
            zip(table["first"], table["n_volumes"], strict=True),
            strict=True,
        )
    )
    places = [rows[str(one)] for one in cohort.participants["participant_id"]]
    cohort.timeseries = type(cohort)(
        cohort.connectivity, cohort.participants, cohort.parcellation,
        timeseries=[np.asarray(series[first : first + n], np.float32) for first, n in places],
    ).timeseries  # fmt: skip
    return cohort


def stages_session(data: Path, session: int, name: str) -> object:
    """Everyone in a session of STAGES, in the region order of UCLA."""
    series = np.load(data / "stages" / f"timeseries_ses-{session}.npz", allow_pickle=False)
    fc = np.stack([np.corrcoef(series[key]) for key in series.files]).astype(np.float32)
    people = pd.DataFrame({"participant_id": series.files})
    cohort = nerve.Cohort(fc, people, "schaefer400-7+aseg19").align("schaefer400-17+aseg19")
    cohort.name = name
    return cohort


COHORTS = {
    "abide": abide_with_series,
    "ucla": ucla,
    "stages": lambda data: stages_session(data, 1, "stages"),
    "stages-again": lambda data: stages_session(data, 2, "stages-again"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(COHORTS)}"
    )
    args = parser.parse_args()
    for name in args.names or COHORTS:
        cohort = COHORTS[name](args.data)
        print(cohort.save(args.out / name), len(cohort))


if __name__ == "__main__":
    main()
