"""The masked autoencoder of the paper, in the order of its Methods: patches, tokens, CLS and positions, masking,
encoder on the visible tokens, mask tokens, light decoder, patches, loss on the masked ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from nerve._utils.errors import NerveError, one_of
from nerve.core.patching import Patching
from nerve.core.tokenizers import INITS, TOKENIZERS, TYPICAL_FC, PatchChoice, Tokenizer
from nerve.core.transformer import Block, initialise_linears

LOSSES = ("patch_mean", "sum")
POOLINGS = ("pca", "mean", "cls", "tokens")


class MaskedAutoencoder(nn.Module):
    """Learns to reconstruct masked patches of FC (or another view of it) from visible ones.

    With M the masked patches of a participant, the loss of a participant is

        patch_mean   1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p      (as released: a small patch weighs as much as a large)
        sum          1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖²               (as the paper writes it)

    Parameters
    ----------
    patching : Patching
        Owner of the pair order: token p is the patch `patching.pairs[p]`.
    tokenizer : {"bilinear", "shared", "specific"} or a class derived from Tokenizer
    dim, depth, heads : int
        Width, layers and attention heads of the encoder.
    decoder_dim, decoder_depth, decoder_heads : int
        The same of the decoder.
    mask_ratio : float
        Share of the patches that is masked; P - int(P (1 - mask_ratio)) of them, in every participant.
    loss : {"patch_mean", "sum"}
    init : {"scaled", "released", "signs"}
        How weights are drawn; see `Tokenizer.initialise`. ``released`` also draws positions as the released code does.
    standardise : bool
        Take the training participants' mean from the entries and bring them to unit size, all together. Losses are then
        in these units, and the decoder begins at the mean.
    tokenizer_bias : bool
        Biases in the `shared` and `specific` tokenizers, as in the released code.
    n_components : int
        Numbers of the pooling ``pca``; 0 for a model without.
    """

    def __init__(
        self,
        patching: Patching,
        tokenizer: str | type[Tokenizer] = "bilinear",
        *,
        dim: int = 256,
        depth: int = 4,
        heads: int = 4,
        decoder_dim: int = 64,
        decoder_depth: int = 1,
        decoder_heads: int = 2,
        mask_ratio: float = 0.5,
        loss: str = "patch_mean",
        init: str = "scaled",
        standardise: bool = False,
        tokenizer_bias: bool = False,
        n_components: int = 0,
    ) -> None:
        super().__init__()
        self.loss, self.init = one_of("loss", loss, LOSSES), one_of("init", init, INITS)
        self.patching = patching
        n_patches = patching.n_patches
        self.n_visible = visible_count(n_patches, mask_ratio)
        kind = TOKENIZERS[one_of("tokenizer", tokenizer, list(TOKENIZERS))] if isinstance(tokenizer, str) else tokenizer
        self.tokenizer = kind(patching, dim, decoder_dim, tokenizer_bias)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1 + n_patches, dim))  # the first belongs to CLS
        self.encoder = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.encoder_norm = nn.LayerNorm(dim)
        self.to_decoder = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.decoder_positions = nn.Parameter(torch.zeros(1 + n_patches, decoder_dim))
        self.decoder = nn.Sequential(*(Block(decoder_dim, decoder_heads) for _ in range(decoder_depth)))
        self.decoder_norm = nn.LayerNorm(decoder_dim)
        self.mean = nn.Buffer(torch.zeros(patching.n_entries)) if standardise else None
        self.scale = nn.Buffer(torch.ones(())) if standardise else None
        self.origin = nn.Buffer(torch.zeros(n_patches * dim)) if n_components else None
        self.components = nn.Buffer(torch.zeros(n_patches * dim, n_components)) if n_components else None
        if not self.cls.is_meta:  # only counted or about to be loaded: meta random numbers would import the compiler
            self._initialise()

    def _initialise(self) -> None:
        initialise_linears(self)
        self.tokenizer.initialise(self.init, TYPICAL_FC if self.mean is None else 1.0)
        for parameter in (self.cls, self.mask_token, self.positions, self.decoder_positions):
            nn.init.normal_(parameter, std=0.02)
        if self.init == "released":
            for positions in (self.positions, self.decoder_positions):
                nn.init.xavier_uniform_(positions.data[None])  # of (1, 1 + P, dim), as there
        if self.mean is not None:
            nn.init.zeros_(self.decoder_norm.weight)  # reconstructions begin at the mean

    # ---- what is taken from the training participants

    @torch.no_grad()
    def standardise_by(self, batches: Iterable[torch.Tensor]) -> None:
        """Set mean and size of the entries from (participants, S) batches, read once; nothing without `standardise`."""
        if self.mean is None or self.scale is None:
            return
        total, squares = torch.zeros(2, self.patching.n_entries, dtype=torch.float64)
        count = 0
        for batch in batches:
            total += batch.sum(0, dtype=torch.float64)
            squares += batch.double().square().sum(0)
            count += len(batch)
        mean = total / max(count, 1)
        variance = (squares / max(count, 1) - mean.square()).clamp_min(0).mean()
        self.mean.copy_(mean)
        self.scale.copy_(variance.sqrt() if variance > 0 else torch.ones(()))

    # ---- the verbs

    def training_loss(self, packed: torch.Tensor, draws: Any | None = None) -> torch.Tensor:
        """Mean reconstruction loss of the masked patches of a batch.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `patching.pack` gives them.
        draws : object with ``uniform(*shape)``, optional
            Where masks come from (`nerve.training.Draws`); torch's own generator by default.
        """
        n_patches = self.patching.n_patches
        noise = torch.rand(len(packed), n_patches, device=packed.device) if draws is None else draws.uniform(n_patches)
        return self.masked_loss(packed, *self.split(noise))

    def embed(self, packed: torch.Tensor, pooling: str = "mean") -> torch.Tensor:
        """Representation of each participant, nothing masked.

        Parameters
        ----------
        packed : (participants, S) tensor
        pooling : {"pca", "mean", "cls", "tokens"}
            Principal components of `apart`; the mean of the patch tokens, without CLS; the CLS token; all patch tokens
            in the order of `patching.pairs`.

        Returns
        -------
        (participants, n_components), (participants, dim), or (participants, P, dim) for ``tokens``
        """
        if one_of("pooling", pooling, POOLINGS) == "pca":
            return self.apart(packed) @ self.components  # type: ignore[operator]  # apart refuses a model without
        encoded = self.encode(packed, None)
        if pooling == "cls":
            return encoded[:, 0]
        return encoded[:, 1:].mean(1) if pooling == "mean" else encoded[:, 1:]

    def apart(self, packed: torch.Tensor) -> torch.Tensor:
        """What sets a participant apart: patch tokens before the last norm, minus those of the mean matrix.

        The norm brings every token to the same length, however little of it is the participant's own.

        (participants, S) → (participants, P · dim)
        """
        if self.origin is None:
            found = "pooling is 'pca', and this model was fitted without components of its tokens."
            raise NerveError(f"{found} Fit it with pooling='pca', or choose mean, cls or tokens.")
        return self.encoder(self.sequence(packed, None))[:, 1:].flatten(1) - self.origin

    @torch.no_grad()
    def set_origin(self, mean: torch.Tensor) -> None:
        """Keep the tokens of the mean matrix, (S,), from which `apart` measures."""
        if self.origin is not None:
            x = self.sequence(mean[None].to(self.origin.device), None)
            self.origin.copy_(self.encoder(x)[0, 1:].flatten())

    def reconstruct(self, packed: torch.Tensor, masked: torch.Tensor | None = None) -> torch.Tensor:
        """Matrices as predicted from their visible patches.

        Parameters
        ----------
        packed : (participants, S) tensor
        masked : (participants, K) tensor of int, optional
            Patches to hide, the same number for each participant; none by default.

        Returns
        -------
        (participants, S) tensor
            Every patch as the decoder gives it, visible ones too.
        """
        visible = None if masked is None else other_patches(masked, self.patching.n_patches)
        predicted = self.tokenizer.reconstruct(self.decode(self.encode(packed, visible), visible))
        return predicted if self.mean is None or self.scale is None else predicted * self.scale + self.mean

    def attention(self, packed: torch.Tensor) -> torch.Tensor:
        """Attention maps of the encoder, nothing masked: (participants, layers, heads, 1 + P, 1 + P), CLS first."""
        x = self.sequence(packed, None)
        maps = []
        for block in self.encoder:
            maps.append(block.attention.weights(block.norm1(x)))  # type: ignore[operator, union-attr]
            x = block(x)
        return torch.stack(maps, 1)

    # ---- the steps, in the paper's order

    def split(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Visible and masked patches of each participant, uniformly at random with an exact count.

        (participants, P) uniform numbers → (participants, K) and (participants, P - K), ascending in each row.
        """
        order = noise.argsort(1)
        return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible :].sort(1).values

    def sequence(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """CLS and the tokens of the visible patches, with the positions that say which pair each one is.

        (participants, S) → (participants, 1 + K, dim); K = P when all are visible.
        """
        choice = None if visible is None else PatchChoice(visible, self.patching.n_patches)
        tokens = self.tokenizer.embed(self._standardised(packed), choice)  # (participants, K, dim)
        positions = self.positions[1:]
        # `embedding` adds gradients in a fixed order; those of positions[visible] come as threads are quick
        tokens = tokens + (positions if visible is None else nn.functional.embedding(visible, positions))
        cls = (self.cls + self.positions[0]).expand(len(packed), -1, -1)
        return torch.cat([cls, tokens], 1)  # (participants, 1 + K, dim)

    def encode(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """Patches → contextual tokens: (participants, 1 + K, dim), CLS first."""
        return self.encoder_norm(self.encoder(self.sequence(packed, visible)))

    def decode(self, encoded: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """Contextual tokens, mask tokens elsewhere → decoded tokens of all patches: (participants, P, decoder_dim)."""
        x = self.to_decoder(encoded)  # (participants, 1 + K, decoder_dim)
        if visible is not None:
            everywhere = self.mask_token.to(x.dtype).expand(len(x), self.patching.n_patches, -1)
            index = visible[..., None].expand(-1, -1, x.shape[-1])
            x = torch.cat([x[:, :1], everywhere.scatter(1, index, x[:, 1:])], 1)  # (participants, 1 + P, decoder_dim)
        return self.decoder_norm(self.decoder(x + self.decoder_positions)[:, 1:])

    def masked_loss(self, packed: torch.Tensor, visible: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """The loss, given which patches are visible and which are masked."""
        decoded = self.decode(self.encode(packed, visible), visible)  # (participants, P, decoder_dim)
        wanted = decoded.gather(1, masked[..., None].expand(-1, -1, decoded.shape[-1]))  # (participants, masked, …)
        choice = PatchChoice(masked, self.patching.n_patches)
        errors = self.tokenizer.squared_errors(wanted, self._standardised(packed), choice)
        if self.loss == "patch_mean":
            errors = errors / errors.new_tensor(self.tokenizer.sizes)
        return errors.sum() / masked.numel()

    def _standardised(self, packed: torch.Tensor) -> torch.Tensor:
        return packed if self.mean is None or self.scale is None else (packed - self.mean) / self.scale


def visible_count(n_patches: int, mask_ratio: float) -> int:
    """How many patches stay visible: int(P (1 - mask_ratio)), at least one."""
    visible = int(n_patches * (1 - mask_ratio)) if 0 <= mask_ratio < 1 else 0
    if visible < 1:
        expected = f"between 0 and 1 with at least one of the {n_patches} patches left visible"
        raise NerveError(f"mask_ratio is {mask_ratio}, expected {expected}.")
    return visible


def other_patches(masked: torch.Tensor, n_patches: int) -> torch.Tensor:
    """The patches that are not among the masked: (participants, K) → (participants, P - K)."""
    hidden = torch.zeros(len(masked), n_patches, device=masked.device).scatter(1, masked, 1.0)
    return hidden.argsort(dim=1, stable=True)[:, : n_patches - masked.shape[1]]


def parameter_counts(patching: Patching, tokenizer: str = "bilinear", **options: Any) -> dict[str, int]:
    """Parameters of the tokenizer, its way back, and the whole model, without allocating them.

    Examples
    --------
    >>> parameter_counts(Patching.from_parcellation("schaefer400-17"))
    {'tokenizer': 102400, 'reconstruction': 25600, 'transformer': 3275712, 'total': 3403712}
    """
    with torch.device("meta"):
        model = MaskedAutoencoder(patching, tokenizer, **options)

    def count(beginning: str) -> int:
        return sum(weights.numel() for name, weights in model.named_parameters() if name.startswith(beginning))

    there, back, total = count("tokenizer.embed"), count("tokenizer.reconstruct"), count("")
    return {"tokenizer": there, "reconstruction": back, "transformer": total - there - back, "total": total}


def parameter_table(patching: Patching, **options: Any) -> list[dict[str, Any]]:
    """One row per tokenizer: its name as ``kind``, and its `parameter_counts`.

    Examples
    --------
    >>> [row["tokenizer"] for row in parameter_table(Patching.grid(12, 4), dim=8, heads=2)]
    [128, 768, 96]
    """
    return [{"kind": name, **parameter_counts(patching, name, **options)} for name in TOKENIZERS]
