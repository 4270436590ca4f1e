"""OCRead: pool the tokens of a graph into clusters around fixed orthonormal centres."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class OCRead(nn.Module):
    """Orthonormal clustering readout.

    An autoencoder over the whole graph, R·d → hidden → hidden → R·d, refines the tokens to H. With centres E, K
    orthonormal vectors that are drawn once and never trained, the soft assignment of token i to cluster k and the
    pooled tokens are

        P_ik = softmax_k((H_i · E_k)²),     Z = Pᵀ H.

    Parameters
    ----------
    n_tokens, width : int
        R and d.
    n_clusters : int
        K, at most `width`: there are no more orthonormal vectors.
    hidden : int
        Width of the autoencoder's middle; its two outer layers hold 2·R·d·hidden weights, most of the model.
    """

    centres: Tensor

    def __init__(self, n_tokens: int, width: int, n_clusters: int = 100, hidden: int = 32) -> None:
        super().__init__()
        self.refine = nn.Sequential(
            nn.Linear(n_tokens * width, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, n_tokens * width),
        )
        self.register_buffer("centres", orthonormal_centres(n_clusters, width))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, R, d) → pooled tokens (batch, K, d) and the assignment (batch, R, K)."""
        refined = self.refine(tokens.flatten(1)).view_as(tokens)  # (batch, R, d)
        assignment = torch.softmax((refined @ self.centres.T) ** 2, dim=-1)  # (batch, R, K)
        return assignment.transpose(1, 2) @ refined, assignment


def orthonormal_centres(n_clusters: int, width: int) -> Tensor:
    """(clusters, width) orthonormal rows: Gram–Schmidt on a Glorot-uniform draw from torch's generator.

    Examples
    --------
    >>> centres = orthonormal_centres(3, 5)
    >>> torch.allclose(centres @ centres.T, torch.eye(3), atol=1e-6)
    True
    """
    draw = torch.empty(n_clusters, width)
    nn.init.xavier_uniform_(draw)
    return torch.linalg.qr(draw.T).Q.T.contiguous()  # QR is Gram–Schmidt, up to signs that the square removes
