"""Held-out reconstruction, against the formula written out."""

import numpy as np
import pandas as pd
import pytest

from nerve._utils.files import read_json
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.views import make_view
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.interpret.pretraining import describe_run
from nerve.methods.packing import PatchDataset
from nerve.methods.ppca import PPCA
from nerve.report.load import load_results

PARCELLATION = Parcellation(tuple("abcdefgh"), ("A", "A", "B", "B", "B", "C", "C", "C"))


class Guesser:
    """An encoder whose reconstruction is known: the truth plus a constant.

    The first four participants are those of training.
    """

    seed = 3
    parcellation_ = PARCELLATION
    patching_ = Patching.from_parcellation(PARCELLATION)
    module_ = MaskedAutoencoder(patching_, dim=4, depth=1, heads=1, decoder_dim=4, mask_ratio=0.5)

    def __init__(self, off: float) -> None:
        self.off = off

    def training_settings(self):
        return None

    def validation_split(self, cohort, settings):
        return np.arange(4), np.arange(4, len(cohort))

    def reconstruct(self, cohort, masked):
        self.masked = masked
        return cohort.inputs("fc") + self.off


def make_cohort(n):
    fc = np.random.default_rng(0).uniform(-1, 1, (n, 8, 8)).astype(np.float32)
    fc = (fc + fc.transpose(0, 2, 1)) / 2
    return Cohort(fc, pd.DataFrame({"participant_id": [f"p{i}" for i in range(n)]}), PARCELLATION)


@pytest.fixture
def cohort():
    return make_cohort(7)


@pytest.fixture
def many():
    return make_cohort(40)


def test_errors_are_those_of_the_formula(cohort, tmp_path):
    training, held_out = cohort.subset(range(4)), cohort.subset(range(4, 7))
    method = Guesser(0.5)
    report = describe_run(method, cohort, tmp_path)
    assert report["model"] == pytest.approx(0.25, rel=1e-4)
    mean = training.connectivity.mean(axis=0)
    members, pairs = method.patching_.members, method.patching_.pairs
    group, patch = [], []
    for fc, masked in zip(held_out.connectivity, method.masked, strict=True):
        errors = []
        for p in masked:
            block = np.ix_(members[pairs[p][0]], members[pairs[p][1]])
            errors.append(
                (
                    ((fc[block] - mean[block]) ** 2).mean(),
                    ((fc[block] - mean[block].mean()) ** 2).mean(),
                )
            )
        group.append(np.mean([e[0] for e in errors]))
        patch.append(np.mean([e[1] for e in errors]))
    assert report["group_mean"] == pytest.approx(np.mean(group), rel=1e-4)
    assert report["patch_mean"] == pytest.approx(np.mean(patch), rel=1e-4)
    assert read_json(tmp_path / "reconstruction.json") == report


def pictures(folder):
    with np.load(folder / "reconstruction.npz", allow_pickle=False) as stored:
        return dict(stored)


@pytest.mark.parametrize("one", [False, True])
def test_example_hides_what_was_masked_and_nothing_else(many, tmp_path, one):
    describe_run(Guesser(0.25), many, tmp_path, one_participant=one)
    shown = pictures(tmp_path)
    hidden = np.isnan(shown["masked"])
    assert hidden.any()
    assert not hidden.all()
    np.testing.assert_array_equal(hidden, hidden.T)
    np.testing.assert_allclose(
        shown["reconstructed"] - shown["original"], np.where(hidden, 0.25, 0), atol=2e-3
    )


def test_no_participant_is_shown_unless_asked_for(many, tmp_path):
    report = describe_run(Guesser(0.25), many, tmp_path)
    assert report["example_n"] == len(many) - 4
    original = pictures(tmp_path)["original"].astype(np.float32)
    np.testing.assert_allclose(original, many.connectivity[4:].mean(axis=0), atol=2e-3)
    upper = np.triu_indices(8, 1)
    likeness = [np.corrcoef(one[upper], original[upper])[0, 1] for one in many.connectivity]
    assert max(likeness) < 0.7
    describe_run(Guesser(0.25), many, tmp_path, one_participant=True)
    original = pictures(tmp_path)["original"].astype(np.float32)
    assert max(np.corrcoef(one[upper], original[upper])[0, 1] for one in many.connectivity) > 0.999


@pytest.mark.parametrize("view", ["tangent", "shrunk"])
def test_the_example_of_another_view_is_fc(tmp_path, view):
    """The group is at zero in these views: a model that says zero gives the group's FC."""
    series = np.random.default_rng(0).normal(size=(40, 8, 60)) + np.random.default_rng(1).normal(
        size=(40, 1, 60)
    )
    fc = np.stack([np.corrcoef(one) for one in series]).astype(np.float32)
    cohort = Cohort(
        fc, pd.DataFrame({"participant_id": [f"p{i}" for i in range(40)]}), PARCELLATION
    )
    fitted = make_view(view).fit(fc)

    class OfView(Guesser):
        def patch_dataset(self, cohort):
            return PatchDataset(cohort, self.patching_, fitted)

        def reconstruct(self, cohort, masked):
            return np.zeros((len(cohort), 8, 8), np.float32)

    report = describe_run(OfView(0.0), cohort, tmp_path)
    shown = {name: array.astype(float) for name, array in pictures(tmp_path).items()}
    np.testing.assert_allclose(
        shown["original"], fc[4:].mean(axis=0), atol=0.1 if view == "shrunk" else 2e-3
    )
    assert np.abs(shown["reconstructed"] - shown["original"]).max() < 0.2
    assert report["example_r"] > 0.9
    assert report["view"] == view


def test_fewer_than_ten_are_not_shown(many, tmp_path):
    report = describe_run(Guesser(0.25), many.subset(range(13)), tmp_path)
    assert not (tmp_path / "reconstruction.npz").exists()
    assert "example_n" not in report
    assert report["n_people"] == 9


def test_methods_that_reconstruct_nothing_write_nothing(cohort, tmp_path):
    assert describe_run(object(), cohort, tmp_path) is None
    assert (
        describe_run(PPCA(n_components=2).fit(cohort), cohort, tmp_path) is None
    )  # it rebuilds, and trains on all
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_trained_nerve_is_described_on_its_held_out_participants(tmp_path):
    import nerve

    cohort = nerve.simulate_cohort(n=40, timepoints=60, parcellation="schaefer100-7", seed=0)
    encoder = nerve.NERVE.from_preset("small", dim=16, depth=1, epochs=3, device="cpu").fit(cohort)
    report = describe_run(encoder, cohort, tmp_path)
    assert report["n_people"] == encoder.data_["n_validation"]
    assert report["model"] < report["patch_mean"] * 1.5


def test_a_page_has_no_mean_of_fewer_than_ten_participants(tmp_path):
    (tmp_path / "history.tsv").write_text("epoch\ttrain_loss\n1\t0.5\n")
    found = load_results(tmp_path, {"few": make_cohort(9), "many": make_cohort(10)}).cohorts
    assert found["few"].mean is None
    assert found["many"].mean.shape == (8, 8)
