"""BrainGNN: its inputs, its loss, and what happens without time series."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests.methods.modules import untrained

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.connectivity import partial
from nerve.data.parcellation import Parcellation
from nerve.methods import braingnn
from nerve.methods.braingnn import (
    BrainGNN,
    GraphDataset,
    consistency_loss,
    node_features,
    pooling_loss,
)

REGIONS = 8


@pytest.fixture
def cohort() -> Cohort:
    rng = np.random.default_rng(0)
    series = rng.normal(size=(12, 60, REGIONS)) + rng.normal(size=(12, 60, 1))
    participants = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(12)]})
    parcellation = Parcellation(
        tuple(f"r{i}" for i in range(REGIONS)), ("all",) * REGIONS, name="eight"
    )
    return Cohort(
        np.stack([np.corrcoef(one.T) for one in series]), participants, parcellation, list(series)
    )


def without_series(cohort: Cohort, fc=None) -> Cohort:
    return Cohort(
        cohort.connectivity if fc is None else fc, cohort.participants, cohort.parcellation
    )


@pytest.mark.slow
def test_parameters_at_400_regions():
    regions, width, communities = 400, 32, 8
    first = regions * communities + regions * (communities + 1) * width + width
    second = regions * communities + width * (communities + 1) * width + width
    head = (4 * width * 32 + 32 + 64) + (32 * 512 + 512 + 1024) + 513
    with torch.device("meta"):
        model = untrained(BrainGNN(), regions)
    assert (
        sum(p.numel() for p in model.parameters()) == first + second + 2 * width + head == 153_569
    )


def test_edges_are_partial_correlations_of_the_time_series(cohort):
    fc, edges = GraphDataset(cohort, 0.1).batch(np.array([3, 1]))
    np.testing.assert_array_equal(fc, cohort.connectivity[[3, 1]])
    expected = np.abs(partial(cohort.timeseries[3]))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(edges[0], expected, atol=1e-3)


def test_edges_of_fc_alone_are_correlations_of_residuals(cohort):
    """A partial correlation is that of what two regions keep after regression on all others."""
    edges = GraphDataset(without_series(cohort), 0.1).batch(np.array([2]))[1][0].numpy()
    covariance = 0.9 * cohort.connectivity[2].astype(float) + 0.1 * np.eye(REGIONS)
    for i, j in ((0, 1), (2, 7)):
        pair, rest = [i, j], [k for k in range(REGIONS) if k not in (i, j)]
        between = covariance[np.ix_(pair, rest)]
        left = covariance[np.ix_(pair, pair)] - between @ np.linalg.solve(
            covariance[np.ix_(rest, rest)], between.T
        )
        assert edges[i, j] == pytest.approx(
            abs(left[0, 1]) / np.sqrt(left[0, 0] * left[1, 1]), abs=1e-3
        )
    assert np.diag(edges).max() == 0


def test_keeping_edges_in_memory_changes_nothing(cohort, monkeypatch):
    kept = GraphDataset(cohort, 0.1)
    kept.batch(np.array([5, 0]))
    monkeypatch.setattr(braingnn, "CACHE_BELOW", 0)
    rows = np.array([0, 5, 9])
    np.testing.assert_array_equal(kept.batch(rows)[1], GraphDataset(cohort, 0.1).batch(rows)[1])


def test_a_matrix_without_an_inverse_is_refused_by_name(cohort):
    fc = np.array(cohort.connectivity)
    fc[4] = -1 + 2 * np.eye(REGIONS)  # all regions opposed to all others: no data can do that
    y = np.arange(12.0)
    with pytest.raises(NerveError, match=r"sub-4.*no partial correlation.*shrinkage"):
        BrainGNN.from_preset("small", epochs=1, device="cpu").fit(without_series(cohort, fc), y)


def test_features_are_fisher_z_with_nothing_for_the_region_itself():
    fc = torch.tensor([[[1.0, 0.5], [0.5, 1.0]]])
    expected = torch.tensor([[[0.0, np.arctanh(0.5)], [np.arctanh(0.5), 0.0]]])
    torch.testing.assert_close(node_features(fc), expected.float())
    assert node_features(torch.ones(1, 2, 2)).isfinite().all()


@pytest.mark.parametrize("binary", [False, True])
def test_training_and_validation_add_the_losses_of_pooling(cohort, binary):
    """The release sums the same terms when it picks the epoch."""
    model = untrained(BrainGNN(width=4, n_communities=2, hidden=(4, 4), dropout=0.0), REGIONS)
    model.binary = binary
    inputs = GraphDataset(cohort, 0.1).batch(np.arange(12))
    target = torch.linspace(-1, 1, 12)
    target = (target > 0).float() if binary else target
    for training in (True, False):
        model.train(training)
        predicted, gates = model.with_gates(inputs)
        expected = model.error(predicted, target) + 0.1 * sum(
            pooling_loss(gate, 0.5) for gate in gates
        )
        expected = expected + 0.1 * consistency_loss(gates[0], target > (0.5 if binary else 0.0))
        torch.testing.assert_close(model.training_loss((inputs, target), None), expected)


def test_a_batch_of_one_is_refused(cohort):
    with pytest.raises(NerveError, match="batch_size is 1"):
        BrainGNN(batch_size=1, epochs=1, device="cpu").fit(cohort, np.arange(12.0))
