"""How wide should a resampling be? The table of docs/any-atlas.md on widths.

`python -m studies.resampling_width --data FOLDER OUT.tsv`. Time series of many small regions
(STAGES, 400; simulated, 1,000) are averaged into the regions of two coarser atlases: each small
region goes to the nearest centre of its hemisphere. FC of the first atlas is resampled to the
second, and compared with the truth: FC that was computed there. No label is used. There are two
correlations per width: of the two group means, and of each participant's deviations from them, on
average.
"""

from __future__ import annotations

import os

# numpy and torch read this once, when they are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import nerve
from nerve._utils.files import write_tsv
from nerve.data.resampling import Resampling
from nerve.data.resampling_weights import is_cortical, spacing_of

# widths are these shares of the mean spacing of the two atlases
FACTORS = (0.2, 0.3, 0.4, 0.44, 0.48, 0.52, 0.56, 0.6, 0.7, 0.8, 1.0)
ATLASES = ("schaefer100-17", "schaefer200-17", "schaefer400-17", "cc200", "shen268")
N_STAGES = 30  # participants
N_SIMULATED = 20


def stages_series(data: Path) -> tuple[list[np.ndarray], nerve.Parcellation]:
    """Return (volumes, 400) series of participants of STAGES, and their cortical regions."""
    file = np.load(data / "stages" / "timeseries_ses-1.npz", allow_pickle=False)
    series = [file[key].T[:, :400] for key in file.files[:N_STAGES]]
    return series, nerve.load_parcellation("schaefer400-7")


def simulated_series() -> tuple[list[np.ndarray], nerve.Parcellation]:
    """Return simulated (volumes, 1000) series, and their regions."""
    cohort = nerve.simulate_cohort(N_SIMULATED, "schaefer1000-17", 200)
    return [np.asarray(volumes) for volumes in cohort.timeseries], cohort.parcellation


def average_into(fine: nerve.Parcellation, name: str) -> tuple[np.ndarray, nerve.Parcellation]:
    """Average small regions into those of a built-in atlas.

    Parameters
    ----------
    fine : Parcellation
        The small regions.
    name : str
        Of the atlas; only its cortical regions are used.

    Returns
    -------
    weights : (regions, small regions) array
        Of the averages. Regions that no small region is nearest to are left out.
    parcellation : Parcellation
        The regions, with the mean of the centres of their small regions.
    """
    atlas = nerve.load_parcellation(name)
    atlas = atlas.subset(np.flatnonzero(is_cortical(atlas)))
    distances = cdist(fine.coordinates, atlas.coordinates)  # (small regions, regions)
    sides = np.sign(fine.coordinates[:, 0])
    atlas_sides = np.sign(atlas.coordinates[:, 0])
    is_other_side = np.outer(sides, atlas_sides) < 0
    distances[is_other_side] = np.inf
    nearest = distances.argmin(axis=1)
    is_member = nearest == np.unique(nearest)[:, None]
    weights = is_member / is_member.sum(axis=1, keepdims=True)
    n_regions = len(weights)
    parcellation = nerve.Parcellation(
        labels=tuple(f"{name} {number + 1}" for number in range(n_regions)),
        networks=("cortex",) * n_regions,
        coordinates=weights @ fine.coordinates,
        name=name,
    )
    return weights, parcellation


def fc_of_averages(series: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return FC of averaged regions, (n, R, R); each small region is standardised first."""
    matrices = []
    for volumes in series:
        standardised = (volumes - volumes.mean(axis=0)) / volumes.std(axis=0)
        averages = standardised @ weights.T  # (volumes, R)
        matrices.append(np.corrcoef(averages.T))
    return np.stack(matrices)


def agreement(resampled: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Correlate resampled FC with the truth, both (n, R, R).

    Returns
    -------
    r_group_mean : float
        Correlation of the two group means.
    r_participant : float
        Correlation of deviations from the group mean, on average over participants.
    """
    rows, columns = np.triu_indices(truth.shape[-1], 1)
    resampled = resampled[:, rows, columns].astype(float)
    truth = truth[:, rows, columns]
    resampled_mean = resampled.mean(axis=0)
    true_mean = truth.mean(axis=0)
    r_group_mean = np.corrcoef(resampled_mean, true_mean)[0, 1]
    by_participant = []
    for i in range(len(truth)):
        r = np.corrcoef(resampled[i] - resampled_mean, truth[i] - true_mean)[0, 1]
        by_participant.append(r)
    return float(r_group_mean), float(np.mean(by_participant))


def measure(data: Path) -> pd.DataFrame:
    """Return one row per data set, ordered pair of atlases and width."""
    data_sets = {"STAGES": stages_series(data), "simulated": simulated_series()}
    rows = []
    for data_name, (series, fine) in data_sets.items():
        fc = {}
        parcellations = {}
        for atlas in ATLASES:
            if nerve.load_parcellation(atlas).n_regions < fine.n_regions:
                weights, parcellations[atlas] = average_into(fine, atlas)
                fc[atlas] = fc_of_averages(series, weights)
        for source, target in permutations(fc, 2):
            here = parcellations[source]
            there = parcellations[target]
            spacing = (spacing_of(here) + spacing_of(there)) / 2
            for factor in FACTORS:
                resampling = Resampling.between(
                    here, there, width=factor * spacing, farthest=np.inf
                )
                resampled = resampling.carry(fc[source])
                r_group_mean, r_participant = agreement(resampled, fc[target])
                row = {
                    "data": data_name,
                    "source": source,
                    "target": target,
                    "spacing_mm": spacing,
                    "factor": factor,
                    "r_group_mean": r_group_mean,
                    "r_participant": r_participant,
                }
                rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Read the command line, make the table, and print its means and the best width per pair."""
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
    best_rows = table.groupby(["data", "source", "target"])["r_participant"].idxmax()
    print(table.loc[best_rows].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
