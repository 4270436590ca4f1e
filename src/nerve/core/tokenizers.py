"""Tokenizers: patches → tokens and tokens → patches (Methods, "Tokenization").

With W_p (entries of patch p × d) the weights of patch p, and V_p those of the way back,

    embed        t_p = W_pᵀ vec(x_p)          W_p of width d_E
    reconstruct  x̂_p = V_p z_p                V_p of width d_D

The three tokenizers of the paper differ in where W_p comes from:

    shared       one matrix for all patches, cut to the size of the patch
    specific     one matrix for each patch
    bilinear     [W_lm]_(i,j),k = [U_l]_i,k [U_m]_j,k, one factor matrix U_l per network

A packed FC holds its patches one after another (see `Patching`), so a tokenizer is one matrix
product per patch on contiguous columns: nothing is padded to the largest patch, and the weights of
a patch are made once for the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from nerve.core.patching import Patching

INITS = ("scaled", "released", "signs")
# Root mean square of FC off the diagonal.
TYPICAL_FC = 0.25


class PatchChoice:
    """K patches of each participant, sorted by patch once so that each is one matrix product.

    Parameters
    ----------
    patches : (participants, K) tensor of int
        The chosen patches of each participant.
    n_patches : int
        Number of patches of a matrix.
    """

    def __init__(self, patches: torch.Tensor, n_patches: int) -> None:
        self.patches = patches
        flat = patches.flatten()
        self.order = flat.argsort(stable=True)  # participant-major places, sorted by patch
        self.places_by_participant = self.order.argsort()
        self.counts: list[int] = torch.bincount(flat, minlength=n_patches).tolist()
        self.participants_of_patch = (self.order // patches.shape[1]).split(self.counts)

    def by_participant(self, values: torch.Tensor) -> torch.Tensor:
        """(participants · K, dim) sorted by patch → (participants, K, dim)."""
        return values.index_select(0, self.places_by_participant).view(*self.patches.shape, -1)

    def by_patch(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(participants, K, dim) → for each patch (participants that chose it, dim)."""
        return values.flatten(0, 1).index_select(0, self.order).split(self.counts)


class Tokenizer(nn.Module):
    """Base class. A new tokenizer provides the two `…_weights` methods and `initialise`.

    Parameters
    ----------
    patching : Patching
        The pairs, their order and sizes.
    dim : int
        Width of the tokens that `embed` makes.
    decoder_dim : int
        Width of the tokens that `reconstruct` takes.
    bias : bool
        Add the biases of the released code (`shared` and `specific` only).
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.sizes: list[int] = patching.sizes.tolist()
        self.n_patches = patching.n_patches
        self.mean_size = patching.n_entries / patching.n_patches
        self.dim = dim
        self.decoder_dim = decoder_dim
        self.embed_bias: nn.Parameter | None = None
        self.reconstruct_bias: nn.Parameter | None = None

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """W_p: (entries of patch p, dim), in the order of the patches."""
        raise NotImplementedError

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """V_p: (entries of patch p, decoder_dim), in the order of the patches."""
        raise NotImplementedError

    def initialise(self, init: str = "scaled", entry_size: float = TYPICAL_FC) -> None:
        """Draw the initial weights.

        Parameters
        ----------
        init : {"scaled", "released", "signs"}
            ``scaled``: normal numbers such that the tokens of every patch have unit size and
            reconstructions the size of the entries. ``released``: as in the released code of the
            paper. ``signs``: random signs on the way to the tokens, of one size for all patches,
            so that the tokens of a matrix are a sketch that keeps the distances between matrices.
        entry_size : float
            Root mean square of the entries that are read.
        """
        raise NotImplementedError

    def embed(self, packed: torch.Tensor, visible: PatchChoice | None = None) -> torch.Tensor:
        """Patches → tokens.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `Patching.pack` gives them.
        visible : PatchChoice, optional
            Only these patches are read, K for each participant; all P by default.

        Returns
        -------
        (participants, K or P, dim) tensor
        """
        columns = packed.split(self.sizes, dim=1)  # P of (participants, entries)
        tokens_of_patch = []
        for patch, weights in enumerate(self.embed_weights()):
            entries = columns[patch]
            if visible is not None:
                entries = entries.index_select(0, visible.participants_of_patch[patch])
            tokens_of_patch.append(entries @ weights)  # (participants that show it, dim)
        if visible is None:
            tokens = torch.stack(tokens_of_patch, dim=1)  # (participants, P, dim)
        else:
            tokens = visible.by_participant(torch.cat(tokens_of_patch))  # (participants, K, dim)
        if self.embed_bias is None:
            return tokens
        if visible is None or self.embed_bias.ndim == 1:
            return tokens + self.embed_bias
        return tokens + nn.functional.embedding(visible.patches, self.embed_bias)

    def reconstruct(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens → patches.

        Parameters
        ----------
        tokens : (participants, P, decoder_dim) tensor
            Decoded tokens of all patches.

        Returns
        -------
        (participants, S) tensor
        """
        entries = []
        for patch, weights in enumerate(self.reconstruct_weights()):
            entries.append(tokens[:, patch] @ weights.T)  # (participants, entries)
        packed = torch.cat(entries, dim=1)  # (participants, S)
        bias = self._entry_biases()
        return packed if bias is None else packed + torch.cat(list(bias))

    def squared_errors(
        self, tokens: torch.Tensor, packed: torch.Tensor, chosen: PatchChoice
    ) -> torch.Tensor:
        """Σ (x̂ - x)² of each patch over the participants that chose it.

        x̂ is what `reconstruct` gives; training calls this instead, which builds chosen patches
        only.

        Parameters
        ----------
        tokens : (participants, K, decoder_dim) tensor
            Decoded tokens of the chosen patches.
        packed : (participants, S) tensor
            The truth.
        chosen : PatchChoice
            The masked patches, whose errors are the loss.

        Returns
        -------
        (P,) tensor
        """
        columns = packed.split(self.sizes, dim=1)  # P of (participants, entries)
        tokens_of_patch = chosen.by_patch(tokens)  # P of (participants that chose it, dim)
        bias = self._entry_biases()
        errors = []
        for patch, weights in enumerate(self.reconstruct_weights()):
            predicted = tokens_of_patch[patch] @ weights.T  # (participants, entries)
            if bias is not None:
                predicted = predicted + bias[patch]
            truth = columns[patch].index_select(0, chosen.participants_of_patch[patch])
            predicted = predicted.to(truth.dtype)
            errors.append(nn.functional.mse_loss(predicted, truth, reduction="sum"))
        return torch.stack(errors)

    def _entry_biases(self) -> Sequence[torch.Tensor] | None:
        """The bias of each patch's entries, or None."""
        return None


class BilinearTokenizer(Tokenizer):
    """The paper's tokenizer: one factor matrix U_l per network, and D_l for the way back.

    t_lm,k = Σ_ij U_l[i,k] x_ij U_m[j,k] and x̂_ij = Σ_k z_k D_l[i,k] D_m[j,k]. The factors of all
    networks together have R · dim parameters.

    Parameters
    ----------
    patching, dim, decoder_dim, bias
        As of `Tokenizer`; there are no biases.
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__(patching, dim, decoder_dim)
        # U and D, rows in the order of the regions
        self.embed_factors = nn.Parameter(torch.empty(patching.n_regions, dim))
        self.reconstruct_factors = nn.Parameter(torch.empty(patching.n_regions, decoder_dim))
        self.pairs: list[list[int]] = patching.pairs.tolist()
        self.group_of: list[int] = patching.group_of.tolist()
        self.group_sizes = [len(members) for members in patching.members]
        regions_by_group = torch.from_numpy(np.concatenate(patching.members))
        self.regions_by_group = nn.Buffer(regions_by_group, persistent=False)

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """U_l ⊙ U_m: every row of U_l times every row of U_m, column by column."""
        return self._khatri_rao_products(self.embed_factors)

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """D_l ⊙ D_m, as above."""
        return self._khatri_rao_products(self.reconstruct_factors)

    def _khatri_rao_products(self, factors: torch.Tensor) -> Iterator[torch.Tensor]:
        """[U_l]_i,k [U_m]_j,k of every pair: (n_l · n_m, width)."""
        factors_of_group = factors[self.regions_by_group].split(self.group_sizes)
        for l, m in self.pairs:  # noqa: E741  # the paper's names
            product = factors_of_group[l][:, None] * factors_of_group[m][None]  # (n_l, n_m, width)
            yield product.flatten(0, 1)

    @torch.no_grad()
    def initialise(self, init: str = "scaled", entry_size: float = TYPICAL_FC) -> None:
        """Draw the factors.

        Parameters
        ----------
        init : str
            ``scaled``: U_l ~ N(0, 1 / (n_l · entry_size)), D ~ N(0, entry_size / √decoder_dim).
            ``released``: N(0, 1). ``signs``: U of one size, with random signs.
        entry_size : float
            Typical size of an entry of a patch.
        """
        nn.init.normal_(self.embed_factors)
        nn.init.normal_(self.reconstruct_factors)
        if init == "released":
            return
        if init == "signs":
            self.embed_factors.sign_().mul_((self.mean_size**0.5 * entry_size) ** -0.5)
        else:
            scale = [[(self.group_sizes[group] * entry_size) ** -0.5] for group in self.group_of]
            self.embed_factors.mul_(torch.tensor(scale))  # (regions, 1)
        self.reconstruct_factors.mul_(entry_size**0.5 * self.decoder_dim**-0.25)


class SpecificTokenizer(Tokenizer):
    """One matrix for each patch: S · dim parameters, as the rows of one large matrix.

    Parameters
    ----------
    patching, dim, decoder_dim, bias
        As of `Tokenizer`.
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__(patching, dim, decoder_dim)
        self.embed_matrix = nn.Parameter(torch.empty(patching.n_entries, dim))
        self.reconstruct_matrix = nn.Parameter(torch.empty(patching.n_entries, decoder_dim))
        if bias:
            self.embed_bias = nn.Parameter(torch.zeros(patching.n_patches, dim))
            self.reconstruct_bias = nn.Parameter(torch.zeros(patching.n_entries))

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """The patch's own rows."""
        return iter(self.embed_matrix.split(self.sizes))

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """The patch's own rows."""
        return iter(self.reconstruct_matrix.split(self.sizes))

    def _entry_biases(self) -> Sequence[torch.Tensor] | None:
        return None if self.reconstruct_bias is None else self.reconstruct_bias.split(self.sizes)

    @torch.no_grad()
    def initialise(self, init: str = "scaled", entry_size: float = TYPICAL_FC) -> None:
        """``scaled``: N(0, 1 / (entries of the patch · entry_size²)). ``released``: Xavier."""
        matrices = zip(self.embed_weights(), self.reconstruct_weights(), strict=True)
        for embed_matrix, reconstruct_matrix in matrices:
            n_entries = self.mean_size if init == "signs" else len(embed_matrix)
            _draw_matrices(
                embed_matrix, reconstruct_matrix, init, n_entries, entry_size, self.decoder_dim
            )


class SharedTokenizer(Tokenizer):
    """One matrix for all patches, cut to each patch's size: S_max · dim parameters.

    The paper pads each patch with zeros to the size of the largest instead, which is the same.

    Parameters
    ----------
    patching, dim, decoder_dim, bias
        As of `Tokenizer`.
    """

    def __init__(self, patching: Patching, dim: int, decoder_dim: int, bias: bool = False) -> None:
        super().__init__(patching, dim, decoder_dim)
        largest = max(self.sizes)
        self.embed_matrix = nn.Parameter(torch.empty(largest, dim))
        self.reconstruct_matrix = nn.Parameter(torch.empty(largest, decoder_dim))
        if bias:
            self.embed_bias = nn.Parameter(torch.zeros(dim))
            self.reconstruct_bias = nn.Parameter(torch.zeros(largest))

    def embed_weights(self) -> Iterator[torch.Tensor]:
        """The first rows, as many as the patch has entries."""
        return (self.embed_matrix[:size] for size in self.sizes)

    def reconstruct_weights(self) -> Iterator[torch.Tensor]:
        """The first rows, as many as the patch has entries."""
        return (self.reconstruct_matrix[:size] for size in self.sizes)

    def _entry_biases(self) -> Sequence[torch.Tensor] | None:
        if self.reconstruct_bias is None:
            return None
        return [self.reconstruct_bias[:size] for size in self.sizes]

    @torch.no_grad()
    def initialise(self, init: str = "scaled", entry_size: float = TYPICAL_FC) -> None:
        """``scaled``: N(0, 1 / (entries of a mean patch · entry_size²)). ``released``: Xavier."""
        _draw_matrices(
            self.embed_matrix,
            self.reconstruct_matrix,
            init,
            self.mean_size,
            entry_size,
            self.decoder_dim,
        )


def _draw_matrices(
    embed_matrix: torch.Tensor,
    reconstruct_matrix: torch.Tensor,
    init: str,
    n_entries: float,
    entry_size: float,
    decoder_dim: int,
) -> None:
    """Draw the two matrices (entries, width) of a patch in place; see `Tokenizer.initialise`."""
    if init == "released":
        # Xavier's bound of a linear layer between the entries and the tokens
        for matrix in (embed_matrix, reconstruct_matrix):
            bound = (6 / sum(matrix.shape)) ** 0.5
            matrix.uniform_(-bound, bound)
        return
    embed_matrix.normal_()
    if init == "signs":
        embed_matrix.sign_()
    embed_matrix.mul_(n_entries**-0.5 / entry_size)
    reconstruct_matrix.normal_()
    reconstruct_matrix.mul_(entry_size * decoder_dim**-0.5)


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "shared": SharedTokenizer,
    "specific": SpecificTokenizer,
    "bilinear": BilinearTokenizer,
}
