"""Probabilistic PCA: the textbook's conditional expectation, planted factors, nothing hidden is read."""

import numpy as np
import pytest

from nerve._utils.errors import NerveError
from nerve.core.patching import Patching
from nerve.methods.ppca import PPCA


@pytest.fixture(scope="module")
def participants() -> np.ndarray:
    """60 participants who differ along three directions of FC, and some noise."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(3, 12, 12))
    fc = 0.1 * np.einsum("pk,kij->pij", rng.normal(size=(60, 3)), directions) + 0.02 * rng.normal(
        size=(60, 12, 12)
    )
    fc = (fc + fc.transpose(0, 2, 1)) / 2
    fc[:, range(12), range(12)] = 1
    return fc.astype(np.float32)


def test_masked_patches_are_the_conditional_expectation_of_the_gaussian(participants):
    model = PPCA(n_components=4, patching="grid4").fit(participants[:40])
    patching = Patching.grid(12, 4)
    mean, loadings, noise = (model.arrays_[n].astype(float) for n in ("mean", "loadings", "noise"))
    covariance = loadings @ loadings.T + noise * np.eye(len(mean))
    new = participants[40:42]
    masked = np.array([[0, 3, 5], [1, 2, 4]])
    found = patching.pack(model.reconstruct(new, masked))
    for person, hidden_patches in enumerate(masked):
        hidden = np.isin(patching.patch_of, hidden_patches)
        seen = patching.pack(new[person])[~hidden] - mean[~hidden]
        gain = covariance[np.ix_(hidden, ~hidden)] @ np.linalg.inv(
            covariance[np.ix_(~hidden, ~hidden)]
        )
        np.testing.assert_allclose(found[person, hidden], mean[hidden] + gain @ seen, atol=1e-4)


def test_planted_directions_are_filled_in_and_hidden_values_are_not_read(participants):
    model = PPCA(n_components=3, patching="grid4").fit(participants[:40])
    patching, new = model.patching_, participants[40:]
    masked = np.stack([np.random.default_rng(i).permutation(6)[:3] for i in range(20)])
    hidden = np.stack([np.isin(patching.patch_of, row) for row in masked])
    truth = patching.pack(new)
    rebuilt = patching.pack(model.reconstruct(new, masked))
    of_mean = np.square(patching.pack(participants[:40]).mean(0) - truth)[hidden].mean()
    assert np.square(rebuilt - truth)[hidden].mean() < 0.2 * of_mean
    junk = patching.unpack(np.where(hidden, 100.0, truth).astype(np.float32))
    junk = (junk + junk.transpose(0, 2, 1)) / 2
    np.testing.assert_allclose(
        model.reconstruct(junk, masked), model.reconstruct(new, masked), atol=1e-5
    )


def test_too_few_participants_and_wrong_masks_are_refused(participants):
    assert PPCA(n_components=50, patching="grid4").fit_transform(participants[:6]).shape == (6, 4)
    with pytest.raises(NerveError, match="at least 3"):
        PPCA().fit(participants[:2])
    model = PPCA(n_components=3, patching="grid4").fit(participants)
    with pytest.raises(NerveError, match="1 rows, expected one for each of 60 participants"):
        model.reconstruct(participants, np.zeros((1, 2), int))
