"""Features of participants, and their features with each patch hidden in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from nerve.cohort import Cohort
from nerve.patching import Patching
from nerve.views import View


class Embedding:
    """Any function of a matrix: patches are hidden in the matrices.

    Parameters
    ----------
    embed : function
        (k, R, R) → (k, …) features; further axes are flattened.
    matrices : function
        Rows of a cohort → their (k, R, R).
    patching : Patching
        The patches to hide.
    view : View
        What makes the matrices of FC. Patches are hidden in them: FC with another participant's patch need not be one.
    """

    def __init__(
        self,
        embed: Callable[[np.ndarray], np.ndarray],
        matrices: Callable[[np.ndarray], np.ndarray],
        patching: Patching,
        view: View | None = None,
    ) -> None:
        self.embed, self.matrices, self.patching, self.view = embed, matrices, patching, view or View()

    def features(self, rows: np.ndarray) -> np.ndarray:
        """(k, d) of k participants."""
        return self._flat(self.embed(self.matrices(rows)))

    def hidden(self, rows: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
        """(k, d) once for each patch, with that patch taken from the view of `mean` (R, R)."""
        matrices, average = self.matrices(rows), self.average(mean)
        for hidden in hidden_one_by_one(matrices, average, self.patching):
            yield self._flat(self.embed(hidden))

    def average(self, mean: np.ndarray) -> np.ndarray:
        """(R, R): the view of mean FC."""
        return self.view.apply(np.asarray(mean)[None])[0]

    def _flat(self, features: np.ndarray) -> np.ndarray:
        return features.reshape(len(features), -1)


class TokenEmbedding(Embedding):
    """NERVE: a patch is a token, so participants are tokenized once and only the transformer runs per hidden patch."""

    def __init__(self, encoder: Any, cohort: Cohort) -> None:
        matrices = encoder.packing(cohort).matrices
        super().__init__(encoder.embed_matrices, matrices, encoder.patching_, encoder.view_)
        self.module, self.pooling = encoder.module_, encoder.config().pooling

    def hidden(self, rows: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
        """The same as in the base, without making the matrices."""
        import torch

        self.module.eval()
        with torch.inference_mode():
            everyone = self._sequence(self.matrices(rows))  # (k, 1 + P, dim), CLS first
            average = self._sequence(self.average(mean)[None])
            for token in range(1, everyone.shape[1]):
                x = everyone.clone()
                x[:, token] = average[:, token]
                pooled = self.module.pool(self.module.stream(x), self.pooling)
                yield self._flat(pooled.float().cpu().numpy())

    def _sequence(self, matrices: np.ndarray) -> Any:
        import torch

        packed = torch.from_numpy(self.patching.pack(matrices))  # (k, S)
        return self.module.sequence(packed.to(self.module.positions.device), None)


def embedding_of(encoder: Any, cohort: Cohort, patching: Patching) -> Embedding:
    """Of "raw" (FC above the diagonal), or of a fitted encoder; the cohort is in its region order."""
    if not hasattr(encoder, "embed_matrices"):
        embed = _upper if isinstance(encoder, str) else encoder.transform
        return Embedding(embed, partial(cohort.inputs, "fc"), patching)
    if encoder.patching_ == patching:
        return TokenEmbedding(encoder, cohort)
    return Embedding(encoder.embed_matrices, encoder.packing(cohort).matrices, patching, encoder.view_)


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
