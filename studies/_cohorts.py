"""The real data sets that the studies read, as cohorts in memory.

`data` is the folder of the data sets everywhere: `../shared/data` beside the checkout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import nerve

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ABIDE_COLUMNS = {
    "FILE_ID": "participant_id",
    "AGE_AT_SCAN": "age",
    "SEX": "sex",
    "DX_GROUP": "diagnosis",
    "SITE_ID": "site",
}


def read_abide(data: Path) -> nerve.Cohort:
    """Read ABIDE (CC200) without the participants who have constant regions.

    Networks are those of Yeo-17, and NonCortical. Regions have their MNI centres, so that the
    cohort can be resampled.
    """
    folder = data / "abide_cc200"
    regions = pd.read_csv(folder / "regions.tsv", sep="\t", dtype={"label": str})
    parcellation = nerve.Parcellation(
        labels=tuple(regions["label"]),
        networks=tuple(regions["net17"].fillna("NonCortical")),
        coordinates=regions[["x", "y", "z"]].to_numpy(float),
        name="cc200",
    )
    participants = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")
    has_all_regions = (participants["n_constant_rois"] == 0).to_numpy()
    participants = participants[has_all_regions].reset_index(drop=True)
    upper = np.load(folder / "fc_upper_200.npy", mmap_mode="r")[has_all_regions]
    return nerve.Cohort(
        fc_from_upper(upper, parcellation.n_regions),
        participants.rename(columns=ABIDE_COLUMNS),
        parcellation,
        name="abide",
    )


def abide_series(data: Path, participant_ids: Iterable[str]) -> Iterator[np.ndarray]:
    """Yield the (volumes, regions) time series of participants of ABIDE, in half precision."""
    folder = data / "abide_cc200"
    series = np.load(folder / "timeseries_200.npy", mmap_mode="r")
    rows = pd.read_csv(folder / "timeseries_rows.tsv", sep="\t", dtype={"participant_id": str})
    rows = rows.set_index("participant_id").loc[list(participant_ids)]
    for first, n_volumes in zip(rows["first"], rows["n_volumes"], strict=True):
        yield series[first : first + n_volumes]


def read_ucla(data: Path) -> nerve.Cohort:
    """Read UCLA, 400 cortical and 19 subcortical regions; a diagnosis is any or none."""
    folder = data / "ucla_cnp"
    participants = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")
    is_control = participants["diagnosis"] == "CONTROL"
    participants["diagnosis"] = np.where(is_control, "control", "patient")
    fc = fc_from_upper(np.load(folder / "fc_upper_419.npy"), 419)
    return nerve.Cohort(fc, participants, "schaefer400-17+aseg19", name="ucla")


def read_stages_session(data: Path, session: int, name: str) -> nerve.Cohort:
    """Read everyone in a session of STAGES (1 or 2), in the region order of UCLA."""
    file = np.load(data / "stages" / f"timeseries_ses-{session}.npz", allow_pickle=False)
    matrices = [np.corrcoef(file[participant_id]) for participant_id in file.files]
    fc = np.stack(matrices).astype(np.float32)
    participants = pd.DataFrame({"participant_id": file.files})
    cohort = nerve.Cohort(fc, participants, "schaefer400-7+aseg19").align("schaefer400-17+aseg19")
    cohort.name = name
    return cohort


def read_stages_twice(data: Path) -> tuple[nerve.Cohort, nerve.Cohort]:
    """Read both sessions of the participants of STAGES who came twice, in the same order."""
    first = read_stages_session(data, 1, "stages")
    second = read_stages_session(data, 2, "stages-again")
    ids = first.participants["participant_id"]
    came_twice = ids[ids.isin(second.participants["participant_id"])]
    return first.subset(came_twice), second.subset(came_twice)


def fc_from_upper(upper: np.ndarray, n_regions: int) -> np.ndarray:
    """Return symmetric (n, R, R) FC with a unit diagonal, from its (n, R (R − 1) / 2) entries."""
    fc = np.ones((len(upper), n_regions, n_regions), np.float32)
    rows, columns = np.triu_indices(n_regions, 1)
    fc[:, rows, columns] = upper
    fc[:, columns, rows] = upper
    return fc
