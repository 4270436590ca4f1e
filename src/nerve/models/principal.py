"""Principal components from the people's own Gram matrix: right for fewer people than columns."""

from __future__ import annotations

import torch

LEAST_SHARE = 1e-7  # of the largest eigenvalue: what float32 can tell from nothing


def principal_components(
    values: torch.Tensor, width: int, *, center: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean, unit components and variances of the rows of a table.

    With X centred and X Xᵀ = V diag(λ) Vᵀ, component k is Xᵀ v_k / √λ_k and its variance λ_k / n. Signs are fixed so
    that a component's largest loading is positive.

    Parameters
    ----------
    values : (n, p) tensor
    width : int
        Components to return; columns of zeros where there are fewer.
    center : bool
        Take the mean away first; otherwise the mean is zero, and variances are mean squares.

    Returns
    -------
    (p,), (p, width) and (n,) tensors
        The variances are all of them, largest first.
    """
    mean = values.mean(0) if center else torch.zeros_like(values[0])
    centred = values - mean  # (n, p)
    unit = centred.abs().amax()
    if unit <= 4 * torch.finfo(values.dtype).eps * mean.abs().amax():  # the rounding of the mean: all rows are alike
        centred = torch.zeros_like(centred)
    unit = unit.clamp_min(torch.finfo(values.dtype).tiny)
    centred = centred / unit  # components have no units, and float32 little room for squares
    eigenvalues, vectors = torch.linalg.eigh((centred @ centred.T).double())
    eigenvalues, vectors = eigenvalues.flip(0).clamp_min(0), vectors.flip(1)  # largest first
    kept = int((eigenvalues[:width] > LEAST_SHARE * eigenvalues[0]).sum())
    scaled = vectors[:, :kept] / eigenvalues[:kept].sqrt()  # (n, kept)
    found = centred.T @ scaled.to(centred.dtype)  # (p, kept)
    components = values.new_zeros(values.shape[1], width)
    if kept:
        largest = found.gather(0, found.abs().argmax(0, keepdim=True))  # (1, kept)
        components[:, :kept] = found * largest.sign()
    return mean, components, eigenvalues * unit.double() ** 2 / len(values)
