"""Make the table of docs/any-atlas.md on the width of a resampling, where the truth is known.

`python -m studies.resampling_width --data FOLDER OUT.tsv`. Series of many small regions (STAGES, 400; simulated, 1,000) are
averaged into the regions of two coarser atlases: each small region goes to the nearest centre of its hemisphere. FC of
the first atlas is carried to the second and compared with FC that was computed there. No label is used. Two figures per
width: the correlation of the two group means, and that of a participant's departures from the group mean, on average.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import nerve
from nerve._utils.files import write_tsv
from nerve.data.resampling import Resampling
from nerve.data.resampling_weights import is_cortical, spacing_of

FACTORS = (0.2, 0.3, 0.4, 0.44, 0.48, 0.52, 0.56, 0.6, 0.7, 0.8, 1.0)
ATLASES = ("schaefer100-17", "schaefer200-17", "schaefer400-17", "cc200", "shen268")
N_STAGES = 30  # participants
N_SIMULATED = 20


def stages_series(data: Path) -> tuple[list[np.ndarray], nerve.Parcellation]:
    """Series of the 400 cortical regions of some participants of STAGES."""
    file = np.load(data / "stages" / "timeseries_ses-1.npz", allow_pickle=False)
    series = [file[key].T[:, :400] for key in file.files[:N_STAGES]]
    return series, nerve.load_parcellation("schaefer400-7")


def simulated_series() -> tuple[list[np.ndarray], nerve.Parcellation]:
    """Simulated series of 1,000 regions."""
    cohort = nerve.simulate_cohort(N_SIMULATED, "schaefer1000-17", 200)
    return [np.asarray(part) for part in cohort.timeseries], cohort.parcellation


def averaging(fine: nerve.Parcellation, name: str) -> tuple[np.ndarray, nerve.Parcellation]:
    """Which small regions each region of an atlas is the average of, and the atlas of their centres."""
    atlas = nerve.load_parcellation(name)
    atlas = atlas.subset(np.flatnonzero(is_cortical(atlas)))
    distances = cdist(fine.coordinates, atlas.coordinates)
    other_side = np.outer(np.sign(fine.coordinates[:, 0]), np.sign(atlas.coordinates[:, 0])) < 0
    distances[other_side] = np.inf
    nearest = distances.argmin(axis=1)
    members = nearest == np.unique(nearest)[:, None]  # (regions, small regions)
    members = members / members.sum(axis=1, keepdims=True)
    labels = tuple(f"{name} {number + 1}" for number in range(len(members)))
    networks = ("cortex",) * len(members)
    centres = members @ fine.coordinates
    return members, nerve.Parcellation(labels, networks, coordinates=centres, name=name)


def fc_of(series: list[np.ndarray], members: np.ndarray) -> np.ndarray:
    """(n, R, R) FC of the averages of standardised series."""
    matrices = []
    for part in series:
        standardised = (part - part.mean(axis=0)) / part.std(axis=0)
        matrices.append(np.corrcoef((standardised @ members.T).T))
    return np.stack(matrices)


def agreement(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Correlation of the group means, and of the departures from them (mean over participants)."""
    rows, columns = np.triu_indices(truth.shape[-1], 1)
    found = found[:, rows, columns].astype(float)
    truth = truth[:, rows, columns]
    group = np.corrcoef(found.mean(axis=0), truth.mean(axis=0))[0, 1]
    own = []
    for mine, theirs in zip(found - found.mean(axis=0), truth - truth.mean(axis=0), strict=True):
        own.append(np.corrcoef(mine, theirs)[0, 1])
    return float(group), float(np.mean(own))


def measure(data: Path) -> pd.DataFrame:
    """One row per data set, pair of atlases and width."""
    rows = []
    for name, (series, fine) in {
        "STAGES": stages_series(data),
        "simulated": simulated_series(),
    }.items():
        atlases = {}
        for atlas in ATLASES:
            if nerve.load_parcellation(atlas).n_regions < fine.n_regions:
                members, parcellation = averaging(fine, atlas)
                atlases[atlas] = (fc_of(series, members), parcellation)
        for source, (fc, here) in atlases.items():
            for target, (truth, there) in atlases.items():
                if source == target:
                    continue
                spacing = (spacing_of(here) + spacing_of(there)) / 2
                for factor in FACTORS:
                    resampling = Resampling.between(
                        here, there, width=factor * spacing, farthest=np.inf
                    )
                    group, own = agreement(resampling.carry(fc), truth)
                    rows.append(
                        {
                            "data": name,
                            "source": source,
                            "target": target,
                            "spacing_mm": spacing,
                            "factor": factor,
                            "r_group_mean": group,
                            "r_participant": own,
                        }
                    )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("out", type=Path, help="the table, a .tsv file")
    args = parser.parse_args()
    table = measure(args.data)
    write_tsv(args.out, table)
    means = table.groupby(["factor"])[["r_group_mean", "r_participant"]].mean()
    print(means.round(4).to_string())
    by_data = table.pivot_table(index="factor", columns="data", values="r_participant")
    print(by_data.round(4).to_string())
    places = table.groupby(["data", "source", "target"])["r_participant"].idxmax()
    print(table.loc[places].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
