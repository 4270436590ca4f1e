"""Models trained together are the models that would have been trained alone."""

import numpy as np
import pytest
import torch

from nerve.checks import NerveError
from nerve.methods.nerve import NERVE
from nerve.methods.together import SeveralPatchings, fit_together
from nerve.simulate import simulate_cohort

SETTINGS = {
    "dim": 16,
    "depth": 1,
    "heads": 2,
    "batch_size": 16,
    "epochs": 4,
    "keep": "last",
    "clip": 0.05,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def cohort():
    return simulate_cohort(30, "schaefer100-7", 40, keep_timeseries=False)


def make(number, **changes):
    return NERVE.from_preset("small", patching=f"permuted{number}", **(SETTINGS | changes))


@pytest.mark.slow
def test_each_ends_with_the_weights_it_would_have_had_alone(cohort):
    alone = [make(k).fit(cohort) for k in range(3)]
    together = fit_together([make(k) for k in range(3)], cohort)
    for one, other in zip(alone, together, strict=True):
        for name, tensor in one.module_.state_dict().items():
            assert torch.allclose(tensor, other.module_.state_dict()[name], atol=2e-5), name
        assert np.allclose(one.transform(cohort), other.transform(cohort), atol=1e-4)
    assert not np.allclose(together[0].transform(cohort), together[1].transform(cohort), atol=1e-2)


def test_a_permutation_is_an_index_into_the_same_matrices(cohort):
    patchings = [make(k)._patching(cohort.parcellation) for k in range(2)]
    batch = SeveralPatchings(cohort, patchings).batch(np.array([4, 1]))
    for k, patching in enumerate(patchings):
        assert np.array_equal(batch[:, k], patching.pack(cohort.connectivity[[4, 1]]))


@pytest.mark.slow
def test_an_interrupted_ensemble_goes_on_bit_for_bit(cohort, tmp_path, monkeypatch):
    changes = {"checkpoint_seconds": 0.0}
    whole = fit_together([make(0, **changes), make(1, **changes)], cohort, run_dir=tmp_path / "a")
    read, calls = SeveralPatchings.batch, []

    def fails_later(self, rows):
        calls.append(rows)
        if len(calls) == 6:
            raise MemoryError
        return read(self, rows)

    monkeypatch.setattr(SeveralPatchings, "batch", fails_later)
    with pytest.raises(MemoryError):
        fit_together([make(0, **changes), make(1, **changes)], cohort, run_dir=tmp_path / "b")
    monkeypatch.undo()
    methods = [make(0, **changes), make(1, **changes)]
    resumed = fit_together(methods, cohort, run_dir=tmp_path / "b", resume=True)
    for one, other in zip(whole, resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.module_.parameters(), other.module_.parameters(), strict=True))


def test_different_settings_are_refused(cohort):
    with pytest.raises(NerveError, match="same settings and seed"):
        fit_together([make(0), make(1, lr=0.5)], cohort)


@pytest.mark.slow
def test_completion_is_trained_together_too(cohort):
    alone = [make(k, completion=8).fit(cohort) for k in range(2)]
    together = fit_together([make(k, completion=8) for k in range(2)], cohort)
    for one, other in zip(alone, together, strict=True):
        assert np.allclose(one.transform(cohort, "factors"), other.transform(cohort, "factors"), atol=1e-4)
        assert np.allclose(one.transform(cohort), other.transform(cohort), atol=1e-3)
