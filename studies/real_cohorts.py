"""Write the real data sets as cohort folders, for the benchmark and for other studies.

`python -m studies.real_cohorts --data ../shared/data --out cohorts` writes cohorts/abide (with time
series), cohorts/ucla and the two sessions of STAGES, cohorts/stages and cohorts/stages-again. Names
at the end of the command choose some of them. No page has numbers of this script itself:
`configs/*_benchmark.yaml`, `studies.sites` and `studies.finetuning` read the folders.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from studies._cohorts import abide_series, read_abide, read_stages_session, read_ucla

import nerve


def read_abide_with_series(data: Path) -> nerve.Cohort:
    """Read ABIDE with the time series of each participant."""
    cohort = read_abide(data)
    series = []
    for scan in abide_series(data, cohort.participants["participant_id"]):
        series.append(np.asarray(scan, np.float32))
    return nerve.Cohort(
        cohort.connectivity,
        cohort.participants,
        cohort.parcellation,
        timeseries=series,
        name=cohort.name,
    )


COHORTS = {
    "abide": read_abide_with_series,
    "ucla": read_ucla,
    "stages": lambda data: read_stages_session(data, 1, "stages"),
    "stages-again": lambda data: read_stages_session(data, 2, "stages-again"),
}


def main() -> None:
    """Read the command line and write the cohort folders."""
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
