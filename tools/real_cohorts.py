"""Cohort folders of the real data sets beside the checkout, for configs/*_benchmark.yaml.

`python -m tools.real_cohorts --data ../shared/data --out cohorts` writes cohorts/abide (with series) and cohorts/ucla.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from tools.recipe import abide, ucla


def abide_with_series(data: Path) -> object:
    """ABIDE without participants who have constant regions, with the series of each."""
    cohort = abide(data)
    folder = data / "abide_cc200"
    series = np.load(folder / "timeseries_200.npy", mmap_mode="r")
    table = pd.read_csv(folder / "timeseries_rows.tsv", sep="\t")
    rows = dict(
        zip(table["participant_id"].astype(str), zip(table["first"], table["n_volumes"], strict=True), strict=True)
    )
    places = [rows[str(one)] for one in cohort.participants["participant_id"]]
    cohort.timeseries = type(cohort)(
        cohort.connectivity, cohort.participants, cohort.parcellation,
        timeseries=[np.asarray(series[first : first + n], np.float32) for first, n in places],
    ).timeseries  # fmt: skip
    return cohort


COHORTS = {"abide": abide_with_series, "ucla": ucla}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for name, make in COHORTS.items():
        cohort = make(args.data)
        print(cohort.save(args.out / name), len(cohort))


if __name__ == "__main__":
    main()
