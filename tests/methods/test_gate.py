"""GATE: population graph, convolution and loss against literal versions; windows; what a new cohort gets."""

import numpy as np
import pandas as pd
import pytest
import torch

from nerve._utils.errors import MissingInput, NerveError
from nerve.data.cohort import Cohort
from nerve.data.connectivity import ledoit_wolf
from nerve.data.parcellation import Parcellation
from nerve.methods.gate import (
    GATE,
    PopulationConvolution,
    agreement_loss,
    nearest_participants,
    window_connectivity,
    window_starts,
)

R = 8
TINY = {
    "n_components": 6,
    "width": 5,
    "n_windows": 4,
    "window": 12,
    "stride": 8,
    "other_windows": (6, 16),
}


def cohort(n=10, volumes=50, with_series=True, seed=0, **columns) -> Cohort:
    rng = np.random.default_rng(seed)
    many = [rng.normal(size=(volumes + i, R)) @ rng.normal(size=(R, R)) for i in range(n)]
    participants = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(n)], **columns})
    regions = Parcellation(tuple(f"r{i}" for i in range(R)), ("a",) * R, name="test")
    return Cohort(
        np.stack([np.corrcoef(one.T) for one in many]),
        participants,
        regions,
        many if with_series else None,
    )


def gate(**changes) -> GATE:
    return GATE(**{**TINY, "epochs": 6, "device": "cpu", **changes})


def random_features(n=9, width=6, seed=0) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def test_convolution_agrees_with_dense_algebra():
    x = random_features()
    neighbours, weights = nearest_participants(x, 3)
    layer = PopulationConvolution(6, 4)
    torch.nn.init.normal_(layer.bias)
    dense = torch.eye(9)
    for i in range(9):
        for j, w in zip(neighbours[i], weights[i], strict=True):
            dense[i, j] += w
    normalised = dense / (dense.sum(1)[:, None] * dense.sum(0)[None, :]).sqrt()
    expected = normalised @ x @ layer.linear.weight.T + layer.bias
    torch.testing.assert_close(layer(x, neighbours, weights), expected, rtol=1e-4, atol=1e-5)


def test_a_dropped_edge_is_an_edge_that_was_never_there():
    x = random_features()
    neighbours, weights = nearest_participants(x, 3)
    layer = PopulationConvolution(6, 4)
    dropped = weights.clone()
    dropped[:, 2] = 0
    torch.testing.assert_close(
        layer(x, neighbours, dropped), layer(x, neighbours[:, :2], weights[:, :2])
    )


def test_neighbours_and_weights_are_those_of_the_gaussian_of_correlation_distance():
    x = random_features(n=12)
    distance = 1 - np.corrcoef(x.numpy())
    sigma = distance[~np.eye(12, dtype=bool)].mean()
    affinity = np.exp(-(distance**2) / (2 * sigma**2))
    np.fill_diagonal(affinity, -1)
    for block in (1024, 5):
        neighbours, weights = nearest_participants(x, 4, block=block)
        for i in range(12):
            expected = np.argsort(affinity[i])[::-1][:4]
            assert neighbours[i].tolist() == expected.tolist()
            np.testing.assert_allclose(weights[i], affinity[i][expected], rtol=1e-4)


def test_phenotypes_multiply_the_edges():
    x = random_features(n=12)
    group = torch.arange(12).float().unsqueeze(-1) % 2
    neighbours, weights = nearest_participants(x, 3, group, torch.tensor([0.5]))
    assert (neighbours % 2 == torch.arange(12).unsqueeze(-1) % 2).all()
    assert (weights > 0).all()
    columns = {"sex": ["F", "M"] * 5, "age": np.linspace(8, 20, 10)}
    assert gate(phenotypes=("sex", "age")).fit(cohort(**columns)).transform(
        cohort(**columns)
    ).shape == (10, 5)
    with pytest.raises(NerveError, match="no column 'sx'"):
        gate(phenotypes=("sx",)).fit(cohort(**columns))


def test_loss_is_the_soft_canonical_correlation_of_the_paper():
    a, b = random_features(20, 4, 1).double(), random_features(20, 4, 2).double()
    za, zb = ((v - v.mean(0)) / v.std(0, correction=0) for v in (a, b))
    cosines = [float(p @ q / (p.norm() * q.norm())) for p, q in zip(za, zb, strict=True)]
    decorrelation = 0.0
    for z in (za, zb):
        correlation = np.corrcoef(z.numpy().T)
        decorrelation += np.mean((correlation - np.eye(4)) ** 2)
    expected = 1 - np.mean(cosines) + 0.2 * decorrelation
    assert float(agreement_loss(a, b, 0.2)) == pytest.approx(expected, rel=1e-5)


def test_the_second_view_is_a_target_for_cosines_and_not_a_source_of_gradient():
    a, b = random_features(20, 4, 1).requires_grad_(), random_features(20, 4, 2).requires_grad_()
    agreement_loss(a, b, 0.0).backward()
    assert a.grad.abs().sum() > 0
    assert b.grad is None or b.grad.abs().sum() == 0


def test_equal_and_uncorrelated_views_have_no_loss():
    basis, _ = torch.linalg.qr(
        random_features(40, 5).double() - random_features(40, 5).double().mean(0)
    )
    basis = basis - basis.mean(0)
    basis, _ = torch.linalg.qr(basis)
    assert float(agreement_loss(basis, basis, 0.2)) == pytest.approx(0, abs=1e-3)


def test_windows_of_other_lengths_share_their_centres_and_stay_in_the_scan():
    series = torch.randn(50, R, generator=torch.Generator().manual_seed(0))
    rows, columns = np.triu_indices(R, 1)
    for length in (12, 6, 16):
        got = window_connectivity(series, length, window=12, n_windows=4, stride=8).numpy()
        for i, start in enumerate([0, 8, 16, 24]):
            first = max(0, int(start + 6 - length / 2))
            expected = ledoit_wolf(series[first : first + length].numpy())[rows, columns]
            np.testing.assert_allclose(got[i], expected, atol=1e-5)


def test_fc_of_a_window_is_nilearns_default():
    connectome = pytest.importorskip("nilearn.connectome")
    series = torch.randn(40, R, generator=torch.Generator().manual_seed(1))
    got = window_connectivity(series, 30, window=30, n_windows=2, stride=10).numpy()
    measure = connectome.ConnectivityMeasure(kind="correlation")
    expected = measure.fit_transform([series[:30].numpy(), series[10:40].numpy()])
    np.testing.assert_allclose(got, expected[:, *np.triu_indices(R, 1)], atol=1e-5)


def test_edges_are_of_the_component_scores_and_not_of_fc():
    data = cohort()
    fitted = gate().fit(data)
    batch = fitted.dataset(data).batch(np.array([0]))
    for length, window in ((0, 0), (2, 3)):
        scores = batch["features"][length, window].numpy()  # (participants, components)
        distance = 1 - np.corrcoef(scores)
        np.fill_diagonal(distance, np.inf)
        assert scores.shape == (10, 6)
        assert batch["neighbours"][length, window, :, 0].tolist() == distance.argmin(1).tolist()


def test_short_scans_have_windows_spread_over_them():
    starts = window_starts(40, 30, 15, 15)
    assert len(starts) == 15
    assert starts[0] == 0
    assert starts[-1] == 10
    with pytest.raises(NerveError, match=r"sub-0.*9 volumes.*12"):
        gate().fit(cohort(volumes=9))


def test_a_cohort_without_time_series_is_refused():
    with pytest.raises(MissingInput, match="only FC"):
        gate().fit(cohort(with_series=False))
    with pytest.raises(MissingInput, match="only FC"):
        gate().fit(cohort(with_series=False).inputs("fc"))
    with pytest.raises(MissingInput, match="only FC"):
        gate().fit(cohort()).transform(cohort(with_series=False))


def test_projection_has_orthonormal_components_of_the_windows_and_empty_ones_where_there_are_too_few():
    fitted = gate(n_components=20).fit(cohort(n=3))
    components = fitted.module_.components
    used = components.abs().sum(-1) > 0
    assert used.sum() == 11  # three participants with four windows each, about their mean
    torch.testing.assert_close(
        components[used] @ components[used].T, torch.eye(11), rtol=1e-3, atol=1e-4
    )


class Fixed:
    """Draws that say what they are told for the choice of views and drop nothing."""

    def __init__(self, *choice):
        self.choice = torch.tensor(choice)

    def shared_uniform(self, *shape):
        return self.choice if shape == (3,) else torch.ones(shape)


@pytest.mark.parametrize(
    ("choice", "window", "length"),
    [
        ((0.0, 0.0, 0.0), 0, 0),
        ((0.99, 0.4, 0.9), 2, 0),
        ((0.5, 0.6, 0.1), 1, 1),
        ((0.5, 0.6, 0.9), 1, 2),
    ],
)
def test_views_are_consecutive_windows_the_second_also_of_another_length(choice, window, length):
    data = cohort()
    fitted = gate(dropout=0.0).fit(data)
    batch = fitted.dataset(data).batch(np.array([0]))
    module = fitted.module_
    a = module.embed(
        *(batch[n][0, window] if n == "features" else batch[n][0, window, :, :1] for n in batch)
    )
    b = module.embed(*(batch[n][length, window + 1] for n in batch))
    torch.testing.assert_close(
        module.training_loss(batch, Fixed(*choice)), agreement_loss(a, b, 0.2)
    )


def test_the_features_are_the_mean_over_windows_on_the_graph_of_the_cohort_given():
    data, other = cohort(), cohort(seed=5, n=7)
    fitted = gate().fit(data)
    windows = fitted.dataset(other).batch(np.array([0]))["features"][0]
    expected = 0
    with torch.no_grad():
        for participants in windows:
            expected = expected + fitted.module_.embed(
                participants, *nearest_participants(participants, 1)
            ) / len(windows)
    np.testing.assert_allclose(fitted.transform(other), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(fitted.transform(other.subset([0, 1])), fitted.transform(other)[:2])


@pytest.mark.slow
def test_the_card_counts_participants():
    assert gate().fit(cohort()).data_["n_training"] == 10
