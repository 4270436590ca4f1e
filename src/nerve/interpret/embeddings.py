"""Features of people, and their features with each patch hidden in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nerve.patching import Patching

TOKEN_POOLINGS = ("mean", "cls", "tokens")


class Embedding:
    """Any function of FC: patches are hidden in the matrices.

    Parameters
    ----------
    embed : function
        (k, R, R) → (k, …) features; further axes are flattened.
    patching : Patching
        The patches to hide.
    """

    def __init__(self, embed: Callable[[np.ndarray], np.ndarray], patching: Patching) -> None:
        self.embed, self.patching = embed, patching

    def features(self, fc: np.ndarray) -> np.ndarray:
        """(k, R, R) → (k, d)."""
        return self.embed(fc).reshape(len(fc), -1)

    def hidden(self, fc: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
        """(k, d) once for each patch, with that patch taken from `mean` (R, R)."""
        for matrices in hidden_one_by_one(fc, mean, self.patching):
            yield self.features(matrices)


class TokenEmbedding(Embedding):
    """NERVE: a patch is a token, so people are tokenized once and only the encoder runs for each hidden patch.

    Not with completion, where every token depends on all patches.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__(encoder.transform, encoder.patching_)
        self.encoder, self.pooling = encoder, _pooling_of(encoder)

    def hidden(self, fc: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
        """The same as in the base, without making the matrices."""
        import torch

        module = self.encoder.module_.eval()
        with torch.inference_mode():
            everyone = self._sequence(fc)  # (k, 1 + P, dim), CLS first
            average = self._sequence(np.asarray(mean, np.float32)[None])  # (1, 1 + P, dim)
            for token in range(1, everyone.shape[1]):
                x = everyone.clone()
                x[:, token] = average[:, token]
                for block in module.encoder:
                    x = block(x)
                yield self._pooled(module.encoder_norm(x)).float().cpu().numpy().reshape(len(fc), -1)

    def _sequence(self, fc: np.ndarray) -> Any:
        import torch

        module = self.encoder.module_
        packed = torch.from_numpy(self.patching.pack(fc)).to(module.positions.device)  # (k, S)
        return module._sequence(module.reading(packed), None)

    def _pooled(self, encoded: Any) -> Any:
        """As `MaskedAutoencoder.embed` does."""
        if self.pooling == "cls":
            return encoded[:, 0]
        return encoded[:, 1:].mean(1) if self.pooling == "mean" else encoded[:, 1:]


def embedding_of(encoder: Any, patching: Patching) -> Embedding:
    """Of "raw" (FC above the diagonal), or of a fitted encoder."""
    if isinstance(encoder, str):
        return Embedding(_upper, patching)
    module = encoder.module_
    of_tokens = hasattr(module, "_sequence") and _pooling_of(encoder) in TOKEN_POOLINGS
    if of_tokens and module.completion is None and encoder.patching_ == patching:
        return TokenEmbedding(encoder)
    return Embedding(encoder.transform, patching)


def _pooling_of(encoder: Any) -> str | None:
    """What `transform` gives: the parameter, or what stands for None."""
    resolved = getattr(encoder, "_pooling", None)
    return encoder.pooling if resolved is None else resolved(encoder.pooling)


def hidden_one_by_one(fc: np.ndarray, mean: np.ndarray, patching: Patching) -> Iterator[np.ndarray]:
    """(k, R, R) once for each patch, with that patch, and its mirror image, taken from `mean` (R, R)."""
    for a, b in patching.pairs:
        hidden = fc.copy()
        block = np.ix_(patching.members[a], patching.members[b])
        hidden[:, block[0], block[1]] = mean[block]
        hidden[:, block[1].T, block[0].T] = mean[block].T
        yield hidden


def _upper(fc: np.ndarray) -> np.ndarray:
    rows, columns = np.triu_indices(fc.shape[-1], 1)
    return fc[:, rows, columns]
