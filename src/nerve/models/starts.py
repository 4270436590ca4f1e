"""Starts computed from training people: their mean, the group's factors, the size of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from nerve.models.masked_autoencoder import MaskedAutoencoder


@torch.no_grad()
def start_from(model: MaskedAutoencoder, batches: Iterable[torch.Tensor]) -> None:
    """Prepare a model from packed FC of training people, in place; does nothing that its options do not ask for.

    Parameters
    ----------
    model : MaskedAutoencoder
    batches : iterable of (people, S) tensors
        Read once; the first is also the sample for the size of tokens, some hundred people at best.
    """
    if model.mean is None and model.token_scale is None and model.completion is None:
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
    if model.token_scale is not None:
        tokens = model.tokenizer.embed(model.reading(sample))  # (people, P, dim)
        model.token_scale.copy_(tokens.square().mean().sqrt().clamp_min(1e-6))
