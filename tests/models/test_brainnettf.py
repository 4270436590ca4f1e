"""OCRead: orthonormal centres that stay as drawn, and the assignment by its formula."""

import numpy as np
import torch

from nerve.models.brainnettf import OCRead, orthonormal_centres


def test_centres_are_orthonormal_at_the_papers_size():
    centres = orthonormal_centres(100, 400)
    torch.testing.assert_close(centres @ centres.T, torch.eye(100), atol=1e-5, rtol=0)


def test_centres_span_what_gram_schmidt_spans():
    """Row by row: centre k lies in the span of the first k + 1 drawn vectors."""
    torch.manual_seed(3)
    centres = orthonormal_centres(4, 6)
    torch.manual_seed(3)
    draw = torch.empty(4, 6)
    torch.nn.init.xavier_uniform_(draw)
    basis: list[torch.Tensor] = []
    for vector in draw:
        for earlier in basis:
            vector = vector - (vector @ earlier) * earlier
        basis.append(vector / vector.norm())
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
            strength = np.array([np.exp((refined[b, i] @ centre) ** 2) for centre in centres])
            share = strength / strength.sum()
            np.testing.assert_allclose(assignment[b, i].detach(), share, rtol=1e-4)
            for k in range(3):
                expected[k] += share[k] * refined[b, i]
        np.testing.assert_allclose(pooled[b].detach(), expected, rtol=1e-4, atol=1e-6)


def test_centres_are_saved_but_not_trained():
    readout = OCRead(4, 4, 2)
    assert "centres" in readout.state_dict()
    assert "centres" not in dict(readout.named_parameters())
