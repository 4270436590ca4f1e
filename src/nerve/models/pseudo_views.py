"""Two noisy versions of a person's FC: from subsets of the volumes, or, without time series, from a Wishart draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nerve.models.randomness import Draws


def correlation(series: Tensor) -> Tensor:
    """Pearson correlation of the columns of (…, volumes, regions); a constant column correlates with nothing (0)."""
    centred = series - series.mean(-2, keepdim=True)
    norm = centred.norm(dim=-2, keepdim=True)
    unit = centred / norm.clamp(min=1e-12)
    fc = unit.transpose(-1, -2) @ unit  # (…, regions, regions)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(fc[..., 0]), dim1=-2, dim2=-1)


def dropped_volume_views(series: Sequence[Tensor], dropped: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Two pseudo-FC a person, each from another random choice of volumes (Yang et al. 2024).

    Parameters
    ----------
    series : list of (volumes, regions)
        Lengths may differ.
    dropped : float
        Share of the volumes that each view leaves out.

    Returns
    -------
    Two (batch, regions, regions) tensors.
    """
    seeds = (draws.uniform(2) * 2**24).long().cpu()  # one seed a person and view: lengths differ, seeds do not
    views: list[list[Tensor]] = [[], []]
    for person, own in zip(series, seeds.tolist(), strict=True):
        n_kept = max(3, len(person) - int(dropped * len(person)))
        for view, seed in zip(views, own, strict=True):
            order = torch.randperm(len(person), generator=torch.Generator().manual_seed(seed))
            kept = order[:n_kept].sort().values.to(person.device)
            view.append(correlation(person[kept]))
    return torch.stack(views[0]), torch.stack(views[1])


def wishart_views(fc: Tensor, degrees: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Two FC a person, as two more scans of the same length would give if the person's true FC were the one seen.

    With FC = Q Λ Qᵀ and ν degrees of freedom, ν volumes Z Λ^½ Qᵀ with Z standard normal have a covariance matrix that
    follows the Wishart law W(FC, ν); their correlation is the view. Λ is clipped at 0: FC of fewer volumes than regions
    is singular, and stored in 16 bits slightly indefinite.

    Parameters
    ----------
    fc : (batch, regions, regions)
    degrees : (batch,)
        Volumes less one, of each scan.
    """
    values, vectors = torch.linalg.eigh(fc.float())
    root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)  # (batch, regions, regions), root rootᵀ = fc
    seeds = (draws.uniform(2) * 2**24).long().cpu()
    views: list[list[Tensor]] = [[], []]
    for one, degree, own in zip(root, degrees.long().tolist(), seeds.tolist(), strict=True):
        for view, seed in zip(views, own, strict=True):
            generator = torch.Generator().manual_seed(seed)  # on the CPU: a GPU run sees the same views
            noise = torch.randn(max(3, degree), fc.shape[-1], generator=generator).to(fc.device)
            view.append(correlation(noise @ one.T))
    return torch.stack(views[0]), torch.stack(views[1])
