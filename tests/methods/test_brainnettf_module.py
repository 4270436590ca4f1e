"""OCRead: orthogonal centres that stay as drawn, and the assignment by its formula."""

import numpy as np
import pytest
import torch

from nerve.methods.brainnettf import OCRead, cluster_centres


def test_centres_are_orthogonal_at_the_papers_size_and_the_first_keeps_its_length():
    torch.manual_seed(0)
    centres = cluster_centres(100, 400)
    products = centres @ centres.T
    first = float(products[0, 0])
    assert first == pytest.approx(
        400 * (6 / 500) / 3, rel=0.2
    )  # 400 entries, uniform within ±√(6 / 500)
    expected = torch.diag(torch.tensor([first] + [1.0] * 99))
    torch.testing.assert_close(products, expected, atol=1e-5, rtol=0)


def test_centres_are_those_of_the_releases_gram_schmidt():
    """Its loop begins at the second vector, so that the first is never scaled to unit length."""
    torch.manual_seed(3)
    centres = cluster_centres(4, 6)
    torch.manual_seed(3)
    draw = torch.empty(4, 6)
    torch.nn.init.xavier_uniform_(draw)
    basis = [draw[0]]
    for vector in draw[1:]:
        for earlier in basis:
            vector = vector - (vector @ earlier) / (earlier @ earlier) * earlier
        basis.append(vector / vector.norm())
    assert torch.equal(centres[0], draw[0])
    torch.testing.assert_close(centres.abs(), torch.stack(basis).abs(), atol=1e-5, rtol=1e-4)


def test_assignment_and_pooling_follow_the_formula():
    readout = OCRead(n_tokens=5, width=6, n_clusters=3, hidden=4)
    tokens = torch.randn(2, 5, 6)
    pooled, assignment = readout(tokens)
    refined = readout.refine(tokens.reshape(2, 30)).reshape(2, 5, 6).detach().numpy()
    centres = readout.centres.numpy()
    for b in range(2):
        expected = np.zeros((3, 6))
        for i in range(5):
            strength = np.array(
                [np.exp((refined[b, i] @ e) ** 2 / np.linalg.norm(e)) for e in centres]
            )
            share = strength / strength.sum()
            np.testing.assert_allclose(assignment[b, i].detach(), share, rtol=1e-4)
            for k in range(3):
                expected[k] += share[k] * refined[b, i]
        np.testing.assert_allclose(pooled[b].detach(), expected, rtol=1e-4, atol=1e-6)


def test_centres_are_saved_but_not_trained():
    readout = OCRead(4, 4, 2)
    assert "centres" in readout.state_dict()
    assert "centres" not in dict(readout.named_parameters())
