"""How many parameters a model has, for any patching."""

from __future__ import annotations

from typing import Any

import torch

from nerve.models.masked_autoencoder import MaskedAutoencoder
from nerve.models.tokenizers import TOKENIZERS
from nerve.patching import Patching

_PARTS = {"tokenizer.embed": "tokenizer", "tokenizer.reconstruct": "reconstruction"}


def parameter_counts(patching: Patching, tokenizer: str = "bilinear", **options: Any) -> dict[str, int]:
    """Parameters of the tokenizer, its way back, and the whole model, without allocating them.

    Examples
    --------
    >>> parameter_counts(Patching.from_parcellation("schaefer400-17"))
    {'tokenizer': 102400, 'reconstruction': 25600, 'transformer': 3275712, 'total': 3403712}
    """
    with torch.device("meta"):
        model = MaskedAutoencoder(patching, tokenizer, **options)
    parts = {"tokenizer": 0, "reconstruction": 0, "transformer": 0}
    for name, parameter in model.named_parameters():
        part = next((kind for prefix, kind in _PARTS.items() if name.startswith(prefix)), "transformer")
        parts[part] = parts.get(part, 0) + parameter.numel()
    return {**parts, "total": sum(parts.values())}


def parameter_table(patching: Patching, **options: Any) -> list[dict[str, Any]]:
    """One row per tokenizer: its name as ``kind``, and its `parameter_counts`.

    Examples
    --------
    >>> [row["tokenizer"] for row in parameter_table(Patching.grid(12, 4), dim=8, heads=2)]
    [128, 768, 96]
    """
    return [{"kind": name, **parameter_counts(patching, name, **options)} for name in TOKENIZERS]
