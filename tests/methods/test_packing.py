"""Nothing is kept beside a cohort: what is computed from it is what the code of today computes."""

from shutil import rmtree

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.data.parcellation import Parcellation
from nerve.data.simulate import simulate_cohort
from nerve.methods.nerve import NERVE
from nerve.methods.tangent import TangentSpace

TABLE = pd.DataFrame({"label": [f"r{i}" for i in range(20)], "network": ["A"] * 8 + ["B"] * 12})
REGIONS = Parcellation.from_table(TABLE, name="twenty")


@pytest.fixture(scope="module")
def participants() -> Cohort:
    """Seventy participants: more than are computed at a time."""
    return simulate_cohort(70, REGIONS, 60, keep_timeseries=False, seed=3)


@pytest.fixture
def folder(participants, tmp_path):
    return participants.save(tmp_path / "cohort")


def encoder(view: str = "tangent") -> NERVE:
    return NERVE.from_preset("small", view=view, dim=8, epochs=1, device="cpu", n_components=4)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["pca", "mean", "cls", "tokens"])
def test_features_follow_the_code_on_disk_and_in_memory_alike(
    participants, folder, monkeypatch, pooling
):
    fitted = encoder().fit(Cohort.load(folder))
    before = fitted.transform(Cohort.load(folder), pooling)
    np.testing.assert_array_equal(fitted.transform(participants, pooling), before)
    original = MaskedAutoencoder.embed
    monkeypatch.setattr(MaskedAutoencoder, "embed", lambda *given: original(*given) + 100)
    np.testing.assert_allclose(
        fitted.transform(Cohort.load(folder), pooling), before + 100, atol=1e-4
    )
    np.testing.assert_allclose(fitted.transform(participants, pooling), before + 100, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [encoder(), encoder("fc"), TangentSpace()], ids=["tangent", "fc", "reference"]
)
def test_nothing_is_written_beside_a_cohort(participants, folder, method):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    on_disk = method.fit(Cohort.load(folder)).transform(Cohort.load(folder))
    np.testing.assert_array_equal(on_disk, method.fit(participants).transform(participants))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_cohort_can_be_read_after_its_folder_is_gone(participants, folder):
    """That of `nerve.read_cohort` is, as soon as the cohort is returned."""
    cohort = Cohort.load(folder)
    rmtree(folder)
    np.testing.assert_array_equal(
        encoder().fit(cohort).transform(cohort), encoder().fit(participants).transform(participants)
    )
    assert cohort.fingerprint == participants.fingerprint
    assert not folder.exists()
