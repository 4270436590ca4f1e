"""Noisy versions of a participant's FC: from subsets of the volumes, or, without time series, from a Wishart draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def correlation(series: Tensor) -> Tensor:
    """Pearson correlation of the columns of (…, volumes, regions); a constant column correlates with nothing (0)."""
    centred = series - series.mean(-2, keepdim=True)
    norm = centred.norm(dim=-2, keepdim=True)
    unit = centred / norm.clamp(min=1e-12)
    fc = unit.transpose(-1, -2) @ unit  # (…, regions, regions)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(fc[..., 0]), dim1=-2, dim2=-1)


def dropped_volume_views(series: Tensor, dropped: float, seeds: Sequence[int]) -> list[Tensor]:
    """Pseudo-FC of one scan (volumes, regions), each from another random choice of volumes (Yang et al. 2024).

    Parameters
    ----------
    series : (volumes, regions)
    dropped : float
        Share of the volumes that each view leaves out.
    seeds : sequence of int
        One per view.
    """
    n_kept = max(3, len(series) - int(dropped * len(series)))
    orders = [torch.randperm(len(series), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return [correlation(series[order[:n_kept].sort().values.to(series.device)]) for order in orders]


def wishart_views(fc: Tensor, degrees: Tensor, seeds: Sequence[int]) -> list[Tensor]:
    """FC as more scans of the same length would give if the participant's true FC were the one seen.

    With FC = Q Λ Qᵀ and ν degrees of freedom, ν volumes Z Λ^½ Qᵀ with Z standard normal have a covariance matrix that
    follows the Wishart law W(FC, ν); their correlation is the view. Λ is clipped at 0: FC of fewer volumes than regions
    is singular, and stored in 16 bits slightly indefinite.

    Parameters
    ----------
    fc : (regions, regions)
    degrees : scalar tensor
        Volumes less one.
    seeds : sequence of int
        One per view.
    """
    values, vectors = torch.linalg.eigh(fc.float())
    root = vectors * values.clamp(min=0).sqrt()  # root rootᵀ = fc
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]  # on the CPU: a GPU run sees the same views
    shape = max(3, int(degrees)), len(fc)
    return [correlation(torch.randn(shape, generator=one).to(fc.device) @ root.T) for one in generators]
