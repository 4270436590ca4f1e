"""On real cohorts: person factors predict masked patches of held-out participants far better than the group mean."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nerve
from nerve.data.parcellation import Parcellation
from nerve.methods import make_method

pytestmark = [pytest.mark.realdata, pytest.mark.slow]


def whole(upper: np.ndarray, n_regions: int) -> np.ndarray:
    """(n, R (R - 1) / 2) → (n, R, R) with a unit diagonal."""
    fc = np.zeros((len(upper), n_regions, n_regions), np.float32)
    rows, cols = np.triu_indices(n_regions, 1)
    fc[:, rows, cols] = fc[:, cols, rows] = upper
    fc[:, range(n_regions), range(n_regions)] = 1
    return fc


def abide(folder: Path) -> list[nerve.Cohort]:
    table = pd.read_csv(folder / "abide_cc200" / "regions.tsv", sep="\t", dtype=str)
    network = next(column for column in table if "17" in column)
    parcellation = Parcellation(
        tuple(table["label"]), tuple(table[network].fillna("NonCortical")), name="cc200"
    )
    people = pd.read_csv(folder / "abide_cc200" / "participants.tsv", sep="\t")
    good = (people["n_constant_rois"] == 0).to_numpy()
    upper = np.load(folder / "abide_cc200" / "fc_upper_200.npy", mmap_mode="r")
    ids = pd.DataFrame({"participant_id": [f"a{i}" for i in range(good.sum())]})
    return [nerve.Cohort(whole(upper[good], 200), ids, parcellation, name="abide")]


def ucla_and_stages(folder: Path) -> list[nerve.Cohort]:
    """Two cohorts in two region orders; both are brought into the 17-network order by label."""
    target = nerve.load_parcellation("schaefer400-17")
    upper = np.load(folder / "ucla_cnp" / "fc_upper_419.npy")
    ids = pd.DataFrame({"participant_id": [f"u{i}" for i in range(len(upper))]})
    ucla = nerve.Cohort(whole(upper, 419), ids, "schaefer400-17+aseg19", name="ucla").align(target)
    labels = pd.read_csv(folder / "ucla_cnp" / "regions.tsv", sep="\t", dtype=str)["label"]
    assert list(labels[:400]) == list(target.labels)
    series = np.load(folder / "stages" / "timeseries_ses-1.npz", allow_pickle=False)
    fc = np.stack([np.corrcoef(_by_region(series[key])) for key in series.files[:60]]).astype(
        np.float32
    )
    ids = pd.DataFrame({"participant_id": [f"s{i}" for i in range(len(fc))]})
    return [ucla, nerve.Cohort(fc, ids, "schaefer400-7+aseg19", name="stages").align(target)]


def fewer(cohort: nerve.Cohort) -> nerve.Cohort:
    """60 of the people and every n-th of the regions, about 50 of them in all networks: minutes become seconds."""
    rows = np.random.default_rng(1).permutation(len(cohort))[:60]
    regions = np.arange(0, cohort.parcellation.n_regions, cohort.parcellation.n_regions // 50)
    return cohort.subset(rows).align(cohort.parcellation.subset(regions))


def _by_region(series: np.ndarray) -> np.ndarray:
    return series if series.shape[0] == 419 else series.T


@pytest.mark.parametrize("reader", [abide, ucla_and_stages])
def test_held_out_people_are_predicted_better_than_by_the_group_mean(shared_data, reader, capsys):
    cohorts = [fewer(cohort) for cohort in reader(shared_data)]
    generator = np.random.default_rng(0)
    held_out = [generator.permutation(len(cohort))[: len(cohort) // 5] for cohort in cohorts]
    training = [
        c.subset(np.setdiff1d(np.arange(len(c)), out))
        for c, out in zip(cohorts, held_out, strict=True)
    ]
    testing = nerve.Cohort.concat([c.subset(out) for c, out in zip(cohorts, held_out, strict=True)])
    encoder = make_method("factors", "small", {"epochs": 3}, device="cpu").fit(training)
    patching = encoder.patching_
    shuffled = np.argsort(
        np.random.default_rng(7).random((len(testing), patching.n_patches)), axis=1
    )
    masked = shuffled[:, patching.n_patches // 2 :]
    truth = patching.pack(testing.connectivity)
    mean = np.mean([patching.pack(fc) for cohort in training for fc in cohort.connectivity], axis=0)
    rebuilt = patching.pack(encoder.reconstruct(testing, masked))

    def error(predicted: np.ndarray) -> float:
        """Mean over masked patches of the mean squared error of a patch."""
        sums = (
            np.add.reduceat(np.square(predicted - truth), patching.offsets[:-1], axis=1)
            / patching.sizes
        )
        return float(np.take_along_axis(sums, masked, 1).mean())

    model, group_mean = error(rebuilt), error(mean)
    with capsys.disabled():  # both numbers belong in the log of a test run
        print(f"\n{reader.__name__}: masked error {model:.5f}, of the group mean {group_mean:.5f}")  # noqa: T201
    assert model < 0.5 * group_mean, f"{model:.5f} against {group_mean:.5f}"
