"""Starts computed from training people: their mean and its factors, each network's eigenvectors, the size of tokens.

A multiplicative decoder x̂_ij = Σ_k z_k D_ik D_jk started at small random factors sits near a saddle and spends hundreds
of steps on the average brain. Here the average is taken away first (`center`), the factors start where people differ
(`init="eigen"`) and the decoded tokens start small, so that the first prediction is the mean and the gradient is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from nerve.models.masked_autoencoder import MaskedAutoencoder
from nerve.models.tokenizers import BilinearTokenizer
from nerve.patching import Patching

SMALL_START = 0.1  # gain of the decoder's last norm when factors start at eigenvectors


@torch.no_grad()
def start_from(model: MaskedAutoencoder, batches: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Prepare a model from packed FC of training people, in place; does nothing that its options do not ask for.

    Parameters
    ----------
    model : MaskedAutoencoder
    batches : iterable of (people, S) tensors
        Read once; the first is also the sample for eigenvectors and token sizes, some hundred people at best.
    generator : torch.Generator
        Chooses which eigenvectors meet in the later columns.
    """
    if model.mean is None and model.init != "eigen" and model.token_scale is None and model.completion is None:
        return
    sample: torch.Tensor | None = None
    total, count = torch.zeros(model.patching.n_entries, dtype=torch.float64), 0
    for batch in batches:
        sample = batch if sample is None else sample
        total += batch.sum(0, dtype=torch.float64)
        count += len(batch)
    if sample is None:
        return
    mean = (total / count).float()
    if model.mean is not None:
        model.mean.copy_(mean)
    if model.completion is not None:
        model.completion.start(mean)
    if model.init == "eigen" and isinstance(model.tokenizer, BilinearTokenizer):
        vectors = network_eigenvectors(sample - mean, model.patching)
        start_factors(model.tokenizer, vectors, generator)
        if model.completion is None:
            model.decoder_norm.weight.fill_(SMALL_START)
    if model.token_scale is not None:
        tokens = model.tokenizer.embed(sample if model.mean is None else sample - mean)  # (people, P, dim)
        model.token_scale.copy_(tokens.square().mean((0, 2)).sqrt().clamp_min(1e-6)[:, None])


def network_eigenvectors(residual: torch.Tensor, patching: Patching) -> list[torch.Tensor]:
    """Directions in which people differ within each network.

    The columns of V_l are the eigenvectors, largest first, of Σ_people Σ_m X_lm X_lmᵀ with X the FC minus its mean.

    Returns
    -------
    list of (regions of l, regions of l) tensors
    """
    sizes = [len(members) for members in patching.members]
    moments = [torch.zeros(size, size) for size in sizes]
    for (row, column), patch in zip(patching.pairs, residual.split(patching.sizes.tolist(), 1), strict=True):
        block = patch.view(-1, sizes[row], sizes[column])  # (people, regions of l, regions of m)
        moments[row] += torch.einsum("pij,pkj->ik", block, block)
        if row != column:
            moments[column] += torch.einsum("pij,pik->jk", block, block)
    return [torch.linalg.eigh(moment).eigenvectors.flip(1) for moment in moments]


def start_factors(tokenizer: BilinearTokenizer, vectors: list[torch.Tensor], generator: torch.Generator) -> None:
    """Set U and D to a constant column followed by eigenvectors.

    Column k of network l is its k-th eigenvector while there are any; later columns draw among the leading ones
    independently for each network, so that patch (l, m) also sees pairs of *different* ranks. All have unit size.
    """
    for factors, gain in ((tokenizer.embed_factors, 1.0), (tokenizer.reconstruct_factors, 1.0)):
        for group, basis in enumerate(vectors):
            size, width = len(basis), factors.shape[1]
            columns = torch.arange(width - 1)
            drawn = (torch.rand(width - 1, generator=generator).square() * size).long()  # leading ones more often
            chosen = torch.where(columns < min(size, width // 4), columns.clamp_max(size - 1), drawn)
            members = [i for i, g in enumerate(tokenizer.group_of) if g == group]
            constant = torch.full((size, 1), size**-0.5)
            factors[members] = torch.cat([constant, basis[:, chosen]], 1) * (size * 0.2) ** 0.5 * gain
