"""The masked autoencoder of FC, in the order of the paper's Methods: tokens, CLS and positions, masking, encoder on the
visible tokens, mask tokens, light decoder, patches, loss on the masked ones.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from nerve.checks import NerveError, one_of
from nerve.models.person_factors import PersonFactors
from nerve.models.tokenizers import STARTS, TOKENIZERS, PatchChoice
from nerve.models.transformer import Block, start_linears
from nerve.patching import Patching

LOSSES = ("patch_mean", "sum")
POOLINGS = ("mean", "cls", "tokens", "factors", "pca")


class _Draws(Protocol):
    def uniform(self, *shape: int) -> torch.Tensor: ...


class MaskedAutoencoder(nn.Module):
    """Learns to reconstruct masked patches of FC from visible ones.

    With M the masked patches of a subject, the loss of a subject is

        patch_mean   1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p      (as released: a small patch weighs as much as a large)
        sum          1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖²               (as the paper writes it)

    Parameters
    ----------
    patching : Patching
        Owner of the pair order: token p is the patch `patching.pairs[p]`.
    tokenizer : {"bilinear", "shared", "specific"}
    dim, depth, heads : int
        Width, layers and attention heads of the encoder.
    decoder_dim, decoder_depth, decoder_heads : int
        The same of the decoder.
    mask_ratio : float
        Share of the patches that is masked; P - int(P (1 - mask_ratio)) of them, in every subject.
    loss : {"patch_mean", "sum"}
    init : {"scaled", "released", "signs"}
        Start of the tokenizer: at unit-order variance, N(0, 1) as in the released code, or random signs.
    center : bool
        Take the training people's mean FC away from input and target, and add it back in `reconstruct`.
    scale_tokens : bool
        Divide the tokens by their root mean square over training people and patches.
    tokenizer_bias : bool
        Biases in the `shared` and `specific` tokenizers, as in the released code.
    completion : int
        Rank of the factors of a person by which patches are completed first (see `PersonFactors`). The transformer
        then reads the displacement of the person's factors from the group's and predicts what completion leaves,
        starting at nothing. 0 for the transformer alone, as in the paper.
    """

    def __init__(
        self,
        patching: Patching,
        tokenizer: str = "bilinear",
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
        center: bool = False,
        scale_tokens: bool = False,
        tokenizer_bias: bool = False,
        completion: int = 0,
    ) -> None:
        super().__init__()
        one_of("tokenizer", tokenizer, list(TOKENIZERS))
        self.loss, self.init = one_of("loss", loss, LOSSES), one_of("init", init, STARTS)
        self.patching = patching
        n_patches = patching.n_patches
        self.n_visible = int(n_patches * (1 - mask_ratio))
        if not 0 <= mask_ratio < 1 or self.n_visible < 1:
            raise NerveError(
                f"mask_ratio is {mask_ratio}, expected between 0 and 1 with at least one of the {n_patches} patches "
                "left visible."
            )
        self.tokenizer = TOKENIZERS[tokenizer](patching, dim, decoder_dim, tokenizer_bias)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1 + n_patches, dim))  # the first belongs to CLS
        self.encoder = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.encoder_norm = nn.LayerNorm(dim)
        self.to_decoder = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.decoder_positions = nn.Parameter(torch.zeros(1 + n_patches, decoder_dim))
        self.decoder = nn.ModuleList(Block(decoder_dim, decoder_heads) for _ in range(decoder_depth))
        self.decoder_norm = nn.LayerNorm(decoder_dim)
        self.mean: torch.Tensor | None
        self.token_scale: torch.Tensor | None
        self.register_buffer("mean", torch.zeros(patching.n_entries) if center else None)
        self.register_buffer("token_scale", torch.ones(()) if scale_tokens else None)
        self.completion = PersonFactors(patching, completion, dim) if completion else None
        self._start()

    def _start(self) -> None:
        start_linears(self)
        self.tokenizer.start(self.init)
        for parameter in (self.cls, self.positions, self.mask_token, self.decoder_positions):
            nn.init.normal_(parameter, std=0.02)
        if self.completion is not None:
            nn.init.zeros_(self.decoder_norm.weight)  # training starts at the completion alone

    # ---- the verbs

    def training_loss(self, packed: torch.Tensor, draws: _Draws | None = None) -> torch.Tensor:
        """Mean reconstruction loss of the masked patches of a batch.

        Parameters
        ----------
        packed : (subjects, S) tensor
            FC as `patching.pack` gives it.
        draws : object with ``uniform(*shape)``, optional
            Where masks come from (`nerve.training.Draws`); torch's own generator by default.
        """
        packed = self._centred(packed)
        n_patches = self.patching.n_patches
        noise = torch.rand(len(packed), n_patches, device=packed.device) if draws is None else draws.uniform(n_patches)
        visible, masked = self.split(noise)
        return self.masked_loss(packed, visible, masked)

    def embed(self, packed: torch.Tensor, pooling: str = "mean") -> torch.Tensor:
        """Representation of each subject, nothing masked.

        Parameters
        ----------
        packed : (subjects, S) tensor
        pooling : {"mean", "cls", "tokens", "factors", "pca"}
            Mean of the patch tokens without CLS; the CLS token; all patch tokens in the order of `patching.pairs`.
            With completion these are what sets the person apart: before the last norm, minus those of the group; and
            there are also the factors of the person minus those of the group, and their principal components.

        Returns
        -------
        (subjects, dim), (subjects, P, dim) for ``tokens``, (subjects, R · rank) for ``factors``
        """
        if one_of("pooling", pooling, POOLINGS) in ("factors", "pca"):
            if self.completion is None:
                raise NerveError(f"pooling is {pooling!r}, which needs a model with completion; this one has none.")
            return self.completion.features(packed) if pooling == "factors" else self.completion.summary(packed)
        encoded = self._represent(packed)  # (subjects, 1 + P, dim)
        if pooling == "cls":
            return encoded[:, 0]
        return encoded[:, 1:].mean(1) if pooling == "mean" else encoded[:, 1:]

    def _represent(self, packed: torch.Tensor) -> torch.Tensor:
        """Tokens of each person with nothing masked, CLS first: (subjects, 1 + P, dim)."""
        reading = self.reading(packed)
        if self.completion is None:
            return self.encode(reading, None)
        group = self._stream(torch.zeros_like(reading[:1]), None)  # somebody without displacement
        return self._stream(reading, None) - group

    def reconstruct(self, packed: torch.Tensor, masked: torch.Tensor | None = None) -> torch.Tensor:
        """FC as predicted from its visible patches.

        Parameters
        ----------
        packed : (subjects, S) tensor
        masked : (subjects, K) tensor of int, optional
            Patches to hide, the same number for each subject; none by default.

        Returns
        -------
        (subjects, S) tensor
            Every patch as the decoder gives it, visible ones too.
        """
        visible = None if masked is None else self._others(masked)
        reading, before = self._look(self._centred(packed), visible)
        predicted = self.tokenizer.reconstruct(self.decode(self.encode(reading, visible), visible))
        if before is not None:
            predicted = predicted + before
        return predicted if self.mean is None else predicted + self.mean

    def attention(self, packed: torch.Tensor) -> torch.Tensor:
        """Attention maps of the encoder, nothing masked: (subjects, layers, heads, 1 + P, 1 + P), CLS first."""
        x = self._sequence(self.reading(packed), None)
        maps = []
        for block in self.encoder:
            maps.append(block.attention_maps(x))  # type: ignore[operator]
            x = block(x)
        return torch.stack(maps, 1)

    # ---- the steps, in the paper's order

    def split(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Visible and masked patches of each subject, uniformly at random with an exact count.

        (subjects, P) uniform numbers → (subjects, K) and (subjects, P - K), ascending in each row.
        """
        order = noise.argsort(1)
        return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible :].sort(1).values

    def reading(self, packed: torch.Tensor) -> torch.Tensor:
        """What the encoder reads with nothing masked: (subjects, S) FC → (subjects, S)."""
        return self._look(self._centred(packed), None)[0]

    def _look(self, packed: torch.Tensor, visible: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Centred patches → what the encoder reads, and what is predicted before it has said anything.

        The encoder reads the patches themselves; with completion, of which nothing masked is part, the displacement of
        the person's factors, which it does not steer.
        """
        if self.completion is None:
            return packed, None
        factors = self.completion.person(packed if self.mean is None else packed + self.mean, visible)
        return self.completion.displacement(factors).detach(), self._centred(self.completion.patches(factors))

    def encode(self, reading: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """What is read → contextual tokens: (subjects, 1 + K, dim), CLS first; K = P when all are visible."""
        return self.encoder_norm(self._stream(reading, visible))

    def _stream(self, reading: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """The same before the last norm."""
        x = self._sequence(reading, visible)
        for block in self.encoder:
            x = block(x)
        return x

    def _sequence(self, reading: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """CLS and the tokens of the visible patches, with the positions that say which pair each one is."""
        choice = None if visible is None else PatchChoice(visible, self.patching.n_patches)
        tokens = self.tokenizer.embed(reading, choice)  # (subjects, K, dim)
        if self.token_scale is not None:
            tokens = tokens / self.token_scale
        positions = self.positions[1:]
        tokens = tokens + (positions if visible is None else positions[visible])
        cls = (self.cls + self.positions[0]).expand(len(reading), -1, -1)
        return torch.cat([cls, tokens], 1)  # (subjects, 1 + K, dim)

    def decode(self, encoded: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """Contextual tokens, mask tokens elsewhere → decoded tokens of all patches: (subjects, P, decoder_dim)."""
        x = self.to_decoder(encoded)  # (subjects, 1 + K, decoder_dim)
        if visible is not None:
            everywhere = self.mask_token.to(x.dtype).expand(len(x), self.patching.n_patches, -1)
            index = visible[..., None].expand(-1, -1, x.shape[-1])
            x = torch.cat([x[:, :1], everywhere.scatter(1, index, x[:, 1:])], 1)  # (subjects, 1 + P, decoder_dim)
        x = x + self.decoder_positions
        for block in self.decoder:
            x = block(x)
        return self.decoder_norm(x[:, 1:])

    def masked_loss(self, packed: torch.Tensor, visible: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """The loss of centred patches, given which are visible and which are masked."""
        reading, before = self._look(packed, visible)
        decoded = self.decode(self.encode(reading, visible), visible)  # (subjects, P, decoder_dim)
        target = packed if before is None else packed - before
        wanted = decoded.gather(1, masked[..., None].expand(-1, -1, decoded.shape[-1]))  # (subjects, masked, …)
        errors = self.tokenizer.squared_errors(wanted, target, PatchChoice(masked, self.patching.n_patches))
        if self.loss == "patch_mean":
            errors = [error / size for error, size in zip(errors, self.tokenizer.sizes, strict=True)]
        return torch.stack(errors).sum() / masked.numel()

    def _centred(self, packed: torch.Tensor) -> torch.Tensor:
        return packed if self.mean is None else packed - self.mean

    def _others(self, masked: torch.Tensor) -> torch.Tensor:
        """The patches that are not masked: (subjects, P - K)."""
        hidden = torch.zeros(len(masked), self.patching.n_patches, device=masked.device).scatter(1, masked, 1.0)
        return hidden.argsort(dim=1, stable=True)[:, : self.patching.n_patches - masked.shape[1]]
