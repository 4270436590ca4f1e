"""Tokenizers: patches → tokens and tokens → patches, one matrix W_p (entries × dim) for every patch p.

    embed        t_p = W_pᵀ vec(x_p)          W_p of width d_E
    reconstruct  x̂_p = V_p z_p                V_p of width d_D, of the same kind

They differ in where W_p comes from: `shared` cuts one matrix to the patch's size, `specific` has one for each patch,
`bilinear` builds it from one factor matrix per network, [W_lm]_(i,j),k = [U_l]_i,k [U_m]_j,k (Khatri–Rao).

A packed FC holds its patches one after another (see `Patching`), so a tokenizer is one matrix product per patch on
contiguous columns: nothing is gathered from the matrix or padded to the largest patch, and the weights of a patch are
made once for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from nerve._utils.threads import in_one_thread
from nerve.core.patching import Patching

INITS = ("scaled", "released", "signs")
TYPICAL_FC = 0.25  # root mean square of FC off the diagonal
# multiplications per patch from which several threads are quicker (`python -m benchmarks beside`)
WORTH_THREADS = 2**24


class PatchChoice:
    """K patches of each participant, sorted by patch once so that each patch is one matrix product.

    Parameters
    ----------
    patches : (participants, K) tensor of int
        The chosen patches of each participant.
    n_patches : int
    """

    def __init__(self, patches: torch.Tensor, n_patches: int) -> None:
        self.patches = patches
        flat = patches.flatten()
        self.order = flat.argsort(stable=True)  # from patch-major places to participant-major ones
        self.inverse = self.order.argsort()
        self.counts: list[int] = torch.bincount(flat, minlength=n_patches).tolist()
        self.participants_of_patch = (self.order // patches.shape[1]).split(self.counts)

    def by_participant(self, values: torch.Tensor) -> torch.Tensor:
        """(participants · K, dim) sorted by patch → (participants, K, dim)."""
        return values.index_select(0, self.inverse).view(*self.patches.shape, -1)

    def by_patch(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(participants, K, dim) → for each patch (participants that chose it, dim)."""
        return values.flatten(0, 1).index_select(0, self.order).split(self.counts)


class Tokenizer(nn.Module):
    """Base of the three; a new one provides the two `…_weights` and `initialise`.

    Parameters
    ----------
    patching : Patching
        The pairs, their order and sizes.
    dim, decoder_dim : int
        Width of the tokens that `embed` makes and that `reconstruct` takes.
    bias : bool
        Add the biases that the released code of the paper has (`shared` and `specific` only).
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.sizes: list[int] = patching.sizes.tolist()
        self.mean_size, self.n_patches = patching.n_entries / patching.n_patches, patching.n_patches
        self.dim, self.decoder_dim = dim, decoder_dim
        self.embed_bias: nn.Parameter | None = None
        self.reconstruct_bias: nn.Parameter | None = None

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """W_p: (size of patch p, dim), in the order of the patches."""
        raise NotImplementedError

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """V_p: (size of patch p, decoder_dim), in the order of the patches."""
        raise NotImplementedError

    def initialise(self, how: str = "scaled", size: float = TYPICAL_FC) -> None:
        """Draw the initial weights.

        Parameters
        ----------
        how : {"scaled", "released", "signs"}
            Normal numbers such that tokens of every patch have unit size and reconstructions the size of the entries;
            as in the released code of the paper; or random signs on the way to the tokens, of one size for all patches,
            so that the tokens of a matrix are a sketch that keeps the distances between matrices.
        size : float
            Root mean square of the entries that are read.
        """
        raise NotImplementedError

    def embed(self, packed: torch.Tensor, visible: PatchChoice | None = None) -> torch.Tensor:
        """Patches → tokens.

        Parameters
        ----------
        packed : (participants, S) tensor
        visible : PatchChoice, optional
            Only these patches are read, `K` for each participant; all P by default.

        Returns
        -------
        (participants, K or P, dim) tensor
        """

        def tokens_of(packed: torch.Tensor) -> torch.Tensor:
            columns: Iterable[torch.Tensor] = packed.split(self.sizes, dim=1)  # P of (participants, size)
            if visible is not None:  # P of (participants that see this patch, size)
                seen = zip(columns, visible.participants_of_patch, strict=True)
                columns = (column.index_select(0, rows) for column, rows in seen)
            tokens = [x @ w for x, w in zip(columns, self.embed_weights(), strict=True)]
            return torch.stack(tokens, 1) if visible is None else torch.cat(tokens)

        tokens = self._patch_by_patch(tokens_of, packed)
        bias: torch.Tensor | None = self.embed_bias
        if visible is not None:
            tokens = visible.by_participant(tokens)  # (participants, K, dim)
            if bias is not None and bias.ndim == 2:
                bias = nn.functional.embedding(visible.patches, bias)
        return tokens if bias is None else tokens + bias

    def reconstruct(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens → patches: (participants, P, decoder_dim) → packed (participants, S)."""

        def entries_of(tokens: torch.Tensor) -> torch.Tensor:
            return torch.cat([tokens[:, p] @ v.T for p, v in enumerate(self.reconstruct_weights())], 1)

        packed = self._patch_by_patch(entries_of, tokens)
        bias = self._entry_biases()
        return packed if bias is None else packed + torch.cat(list(bias))

    def squared_errors(self, tokens: torch.Tensor, packed: torch.Tensor, chosen: PatchChoice) -> torch.Tensor:
        """Σ (x̂ - x)² of each patch over the participants that chose it, without building the other patches.

        Parameters
        ----------
        tokens : (participants, K, decoder_dim) tensor
            Decoded tokens of the chosen patches.
        packed : (participants, S) tensor
            The truth.
        chosen : PatchChoice

        Returns
        -------
        (P,) tensor
        """
        columns = packed.split(self.sizes, dim=1)

        def errors_of(tokens: torch.Tensor) -> torch.Tensor:
            tokens_of_patch = chosen.by_patch(tokens)  # P of (participants that chose it, decoder_dim)
            bias = self._entry_biases()
            errors = []
            for p, weights in enumerate(self.reconstruct_weights()):
                predicted = tokens_of_patch[p] @ weights.T  # (participants that chose it, size)
                if bias is not None:
                    predicted = predicted + bias[p]
                truth = columns[p].index_select(0, chosen.participants_of_patch[p])
                errors.append(nn.functional.mse_loss(predicted.to(truth.dtype), truth, reduction="sum"))
            return torch.stack(errors)

        return self._patch_by_patch(errors_of, tokens)

    def _patch_by_patch(self, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """A function that goes from patch to patch: in one thread where the patches are small."""
        large = len(x) * self.mean_size * self.dim > WORTH_THREADS
        if large or x.device.type != "cpu" or torch.compiler.is_compiling():
            return function(x)
        return in_one_thread(function, x, self.parameters())

    def _entry_biases(self) -> Sequence[torch.Tensor] | None:
        """The bias of each patch's entries, or None."""
        return None


class BilinearTokenizer(Tokenizer):
    """One factor matrix per network: U_l (regions of l × dim), and D_l for the way back. R · dim parameters.

    t_lm,k = Σ_ij U_l[i,k] x_ij U_m[j,k] and x̂_ij = Σ_k z_k D_l[i,k] D_m[j,k].
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__(patching, dim, decoder_dim)
        self.embed_factors = nn.Parameter(torch.empty(patching.n_regions, dim))  # U, rows in the order of regions
        self.reconstruct_factors = nn.Parameter(torch.empty(patching.n_regions, decoder_dim))  # D
        self.pairs: list[list[int]] = patching.pairs.tolist()
        self.group_of: list[int] = patching.group_of.tolist()
        self.group_sizes = [len(members) for members in patching.members]
        self.regions_by_group = nn.Buffer(torch.from_numpy(np.concatenate(patching.members)), persistent=False)

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """U_l ⊙ U_m."""
        return self._products(self.embed_factors)

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """D_l ⊙ D_m."""
        return self._products(self.reconstruct_factors)

    def _products(self, factors: torch.Tensor) -> Iterator[torch.Tensor]:
        groups = factors[self.regions_by_group].split(self.group_sizes)
        for row, column in self.pairs:
            product = groups[row][:, None] * groups[column][None]  # (regions of l, regions of m, dim)
            yield product.flatten(0, 1)  # (size, dim)

    @torch.no_grad()
    def initialise(self, how: str = "scaled", size: float = TYPICAL_FC) -> None:
        """``scaled``: U_l ~ N(0, 1 / (n_l · size)), D ~ N(0, size / √decoder_dim). ``released``: N(0, 1)."""
        nn.init.normal_(self.embed_factors)
        nn.init.normal_(self.reconstruct_factors)
        if how == "released":
            return
        if how == "signs":
            self.embed_factors.sign_().mul_((self.mean_size**0.5 * size) ** -0.5)
        else:
            scale = torch.tensor([[(self.group_sizes[g] * size) ** -0.5] for g in self.group_of])  # (regions, 1)
            self.embed_factors.mul_(scale)
        self.reconstruct_factors.mul_(size**0.5 * self.decoder_dim**-0.25)


class SpecificTokenizer(Tokenizer):
    """One matrix for each patch: the rows of one large matrix are dealt out. Σ sizes · dim parameters."""

    shared: ClassVar[bool] = False

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__(patching, dim, decoder_dim)
        rows = max(self.sizes) if self.shared else sum(self.sizes)
        self.embed_matrix = nn.Parameter(torch.empty(rows, dim))
        self.reconstruct_matrix = nn.Parameter(torch.empty(rows, decoder_dim))
        if bias:
            self.embed_bias = nn.Parameter(torch.zeros(dim) if self.shared else torch.zeros(self.n_patches, dim))
            self.reconstruct_bias = nn.Parameter(torch.zeros(rows))

    def _cut(self, rows: torch.Tensor) -> Sequence[torch.Tensor]:
        """The rows of each patch."""
        return [rows[:size] for size in self.sizes] if self.shared else rows.split(self.sizes)

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """The patch's rows."""
        return iter(self._cut(self.embed_matrix))

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """The patch's rows."""
        return iter(self._cut(self.reconstruct_matrix))

    def _entry_biases(self) -> Sequence[torch.Tensor] | None:
        return None if self.reconstruct_bias is None else self._cut(self.reconstruct_bias)

    @torch.no_grad()
    def initialise(self, how: str = "scaled", size: float = TYPICAL_FC) -> None:
        """``scaled``: N(0, 1 / (entries of a patch · size²)). ``released``: Xavier, by patch or of the largest."""
        matrices = self.embed_matrix, self.reconstruct_matrix
        for there, back in [matrices] if self.shared else zip(*map(self._cut, matrices), strict=True):
            entries = self.mean_size if self.shared or how == "signs" else len(there)
            _draw(there, how, entries**-0.5 / size)
            _draw(back, "scaled" if how == "signs" else how, size * self.decoder_dim**-0.5)


class SharedTokenizer(SpecificTokenizer):
    """One matrix for all, cut to each patch's size (the paper pads the patch with zeros: the same). S_max · dim."""

    shared = True


def _draw(weights: torch.Tensor, how: str, scale: float) -> None:
    """Initial numbers of a matrix (entries, width), in place; Xavier's are those of a linear layer between the two."""
    if how == "released":
        bound = (6 / sum(weights.shape)) ** 0.5
        weights.uniform_(-bound, bound)
        return
    weights.normal_()
    if how == "signs":
        weights.sign_()
    weights.mul_(scale)


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "shared": SharedTokenizer,
    "specific": SpecificTokenizer,
    "bilinear": BilinearTokenizer,
}
