"""The masked autoencoder of the paper, in the order of its Methods.

Patches, tokens, CLS and positions, masking, encoder on the visible tokens, mask tokens, light
decoder, patches, loss on the masked ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from nerve._utils.errors import NerveError, one_of
from nerve.core.patching import Patching
from nerve.core.tokenizers import INITS, TOKENIZERS, TYPICAL_FC, PatchChoice, Tokenizer
from nerve.core.transformer import TransformerLayer, initialise_linear_layers

LOSSES = ("patch_mean", "sum")
POOLINGS = ("pca", "mean", "cls", "tokens")


class MaskedAutoencoder(nn.Module):
    """Learns to reconstruct masked patches of FC (or another view of it) from visible ones.

    With M the masked patches of a participant, the loss of a participant is

        patch_mean   1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p   (as released: every patch weighs alike)
        sum          1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖²            (as the paper writes it)

    Parameters
    ----------
    patching : Patching
        Owner of the pair order: token p is the patch `patching.pairs[p]`.
    tokenizer : {"bilinear", "shared", "specific"} or a class derived from Tokenizer
        How patches become tokens.
    dim, depth, heads : int
        Width, layers and attention heads of the encoder.
    decoder_dim, decoder_depth, decoder_heads : int
        The same of the decoder.
    mask_ratio : float
        Share of the patches that is masked: P - int(P (1 - mask_ratio)) in every participant.
    loss : {"patch_mean", "sum"}
        The loss above.
    init : {"scaled", "released", "signs"}
        How weights are drawn; see `Tokenizer.initialise`. ``released`` also draws positions as the
        released code does.
    standardise : bool
        Subtract the training participants' mean from the entries and bring them to unit size, all
        together. Losses are then in these units, and reconstructions begin at the mean.
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
        self.loss = one_of("loss", loss, LOSSES)
        self.init = one_of("init", init, INITS)
        self.patching = patching
        n_patches = patching.n_patches
        self.n_visible = _count_visible(n_patches, mask_ratio)

        if isinstance(tokenizer, str):
            tokenizer = TOKENIZERS[one_of("tokenizer", tokenizer, list(TOKENIZERS))]
        self.tokenizer = tokenizer(patching, dim, decoder_dim, tokenizer_bias)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1 + n_patches, dim))  # the first is that of CLS
        encoder_layers = [TransformerLayer(dim, heads) for _ in range(depth)]
        self.encoder = nn.Sequential(*encoder_layers)
        self.encoder_norm = nn.LayerNorm(dim)

        self.to_decoder = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.decoder_positions = nn.Parameter(torch.zeros(1 + n_patches, decoder_dim))
        decoder_layers = [
            TransformerLayer(decoder_dim, decoder_heads) for _ in range(decoder_depth)
        ]
        self.decoder = nn.Sequential(*decoder_layers)
        self.decoder_norm = nn.LayerNorm(decoder_dim)

        self.mean = nn.Buffer(torch.zeros(patching.n_entries)) if standardise else None
        self.scale = nn.Buffer(torch.ones(())) if standardise else None
        # for the pooling "pca": tokens of the mean matrix, and principal directions around them
        n_numbers = n_patches * dim
        self.origin = nn.Buffer(torch.zeros(n_numbers)) if n_components else None
        self.components = nn.Buffer(torch.zeros(n_numbers, n_components)) if n_components else None
        # on the device "meta" a model is only counted, or about to be loaded
        if not self.cls.is_meta:
            self._initialise()

    def _initialise(self) -> None:
        initialise_linear_layers(self)
        entry_size = TYPICAL_FC if self.mean is None else 1.0
        self.tokenizer.initialise(self.init, entry_size)
        for parameter in (self.cls, self.mask_token, self.positions, self.decoder_positions):
            nn.init.normal_(parameter, std=0.02)
        if self.init == "released":
            for positions in (self.positions, self.decoder_positions):
                nn.init.xavier_uniform_(positions.data[None])  # of (1, 1 + P, dim), as there
        if self.mean is not None:
            nn.init.zeros_(self.decoder_norm.weight)  # reconstructions begin at the mean

    # The paper's steps

    def choose_masks(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Visible and masked patches of each participant, drawn uniformly, with an exact count.

        Parameters
        ----------
        noise : (participants, P) tensor
            Uniform random numbers: the patches with the smallest ones stay visible.

        Returns
        -------
        visible : (participants, K) tensor of int, ascending in each row
        masked : (participants, P - K) tensor of int, ascending in each row
        """
        order = noise.argsort(1)
        visible = order[:, : self.n_visible].sort(1).values
        masked = order[:, self.n_visible :].sort(1).values
        return visible, masked

    def token_sequence(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """CLS and the tokens of the visible patches, with positions that say which pair each is.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `Patching.pack` gives them.
        visible : (participants, K) tensor of int, or None
            The patches that are read; all P if None.

        Returns
        -------
        (participants, 1 + K, dim) tensor
        """
        packed = self._standardised(packed)
        patch_positions = self.positions[1:]
        if visible is None:
            tokens = self.tokenizer.embed(packed) + patch_positions  # (participants, P, dim)
        else:
            choice = PatchChoice(visible, self.patching.n_patches)
            tokens = self.tokenizer.embed(packed, choice)  # (participants, K, dim)
            # `embedding` adds up gradients in a fixed order, `patch_positions[visible]` does not
            tokens = tokens + nn.functional.embedding(visible, patch_positions)
        cls = (self.cls + self.positions[0]).expand(len(packed), -1, -1)
        return torch.cat([cls, tokens], 1)  # (participants, 1 + K, dim)

    def encode(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """Visible patches → contextual tokens: (participants, 1 + K, dim), CLS first."""
        return self.encoder_norm(self.encoder(self.token_sequence(packed, visible)))

    def decode(self, encoded: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """Contextual tokens, and mask tokens elsewhere, → decoded tokens of all patches.

        Parameters
        ----------
        encoded : (participants, 1 + K, dim) tensor
            CLS first.
        visible : (participants, K) tensor or None
            The patches that were seen; None if nothing was masked.

        Returns
        -------
        (participants, P, decoder_dim) tensor
        """
        x = self.to_decoder(encoded)  # (participants, 1 + K, decoder_dim)
        if visible is not None:
            mask_tokens = self.mask_token.to(x.dtype).expand(len(x), self.patching.n_patches, -1)
            index = visible[..., None].expand(-1, -1, x.shape[-1])
            patch_tokens = mask_tokens.scatter(1, index, x[:, 1:])  # (participants, P, decoder_dim)
            x = torch.cat([x[:, :1], patch_tokens], 1)
        x = self.decoder(x + self.decoder_positions)  # (participants, 1 + P, decoder_dim)
        return self.decoder_norm(x[:, 1:])

    def masked_loss(
        self, packed: torch.Tensor, visible: torch.Tensor, masked: torch.Tensor
    ) -> torch.Tensor:
        """The loss of a batch, given which patches are visible and which are masked.

        Parameters
        ----------
        packed : (participants, S) tensor
        visible, masked : (participants, K) and (participants, P - K) tensors of int

        Returns
        -------
        scalar tensor
        """
        # (participants, P, decoder_dim)
        decoded = self.decode(self.encode(packed, visible), visible)
        index = masked[..., None].expand(-1, -1, decoded.shape[-1])
        predicted = decoded.gather(1, index)  # (participants, P - K, decoder_dim)
        choice = PatchChoice(masked, self.patching.n_patches)
        truth = self._standardised(packed)
        errors = self.tokenizer.squared_errors(predicted, truth, choice)  # (P,)
        if self.loss == "patch_mean":
            errors = errors / errors.new_tensor(self.tokenizer.sizes)
        return errors.sum() / masked.numel()

    # What is done with them

    def training_loss(self, packed: torch.Tensor, draws: Any | None = None) -> torch.Tensor:
        """Mean loss of a batch with random masks.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `Patching.pack` gives them.
        draws : Draws, optional
            Where masks come from; torch's own generator by default.

        Returns
        -------
        scalar tensor
        """
        n_patches = self.patching.n_patches
        if draws is None:
            noise = torch.rand(len(packed), n_patches, device=packed.device)
        else:
            noise = draws.uniform(n_patches)
        visible, masked = self.choose_masks(noise)
        return self.masked_loss(packed, visible, masked)

    def embed(self, packed: torch.Tensor, pooling: str = "mean") -> torch.Tensor:
        """Representation of each participant, nothing masked.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `Patching.pack` gives them.
        pooling : {"pca", "mean", "cls", "tokens"}
            Principal components of `centred_tokens`; the mean of the patch tokens, without CLS;
            the CLS token; all patch tokens in the order of `patching.pairs`.

        Returns
        -------
        (participants, n_components), (participants, dim), or (participants, P, dim) tensor
        """
        one_of("pooling", pooling, POOLINGS)
        if pooling == "pca":
            tokens = self.centred_tokens(packed)
            return tokens @ self.components  # type: ignore[operator]  # it exists, or the line above raised
        encoded = self.encode(packed, None)  # (participants, 1 + P, dim)
        if pooling == "cls":
            return encoded[:, 0]
        patch_tokens = encoded[:, 1:]
        return patch_tokens.mean(1) if pooling == "mean" else patch_tokens

    def centred_tokens(self, packed: torch.Tensor) -> torch.Tensor:
        """Patch tokens before the last norm, minus those of the mean matrix.

        The norm brings every token to the same length, however little of it is the participant's
        own: its input keeps what distinguishes participants.

        Parameters
        ----------
        packed : (participants, S) tensor
            Packed matrices.

        Returns
        -------
        (participants, P · dim) tensor
        """
        if self.origin is None:
            raise NerveError(
                "pooling is 'pca', and this model was fitted without components of its tokens. "
                "Fit it with pooling='pca', or choose mean, cls or tokens."
            )
        tokens = self.encoder(self.token_sequence(packed, None))[:, 1:]  # (participants, P, dim)
        return tokens.flatten(1) - self.origin

    def reconstruct(self, packed: torch.Tensor, masked: torch.Tensor | None = None) -> torch.Tensor:
        """Matrices as the whole model predicts them from their visible patches.

        Parameters
        ----------
        packed : (participants, S) tensor
            Matrices as `Patching.pack` gives them.
        masked : (participants, M) tensor of int, optional
            Patches to hide, the same number for each participant; none by default.

        Returns
        -------
        (participants, S) tensor
            Every patch as the decoder gives it, visible ones too.
        """
        visible = None if masked is None else _other_patches(masked, self.patching.n_patches)
        predicted = self.tokenizer.reconstruct(self.decode(self.encode(packed, visible), visible))
        if self.mean is None or self.scale is None:
            return predicted
        return predicted * self.scale + self.mean

    def attention(self, packed: torch.Tensor) -> torch.Tensor:
        """Attention maps of the encoder, nothing masked.

        Parameters
        ----------
        packed : (participants, S) tensor
            Packed matrices.

        Returns
        -------
        (participants, layers, heads, 1 + P, 1 + P) tensor
            CLS first.
        """
        x = self.token_sequence(packed, None)
        maps = []
        for layer in self.encoder:
            maps.append(layer.attention.weights(layer.norm1(x)))  # type: ignore[operator, union-attr]
            x = layer(x)
        return torch.stack(maps, 1)

    # What is taken from the training participants before and after training

    @torch.no_grad()
    def fit_standardisation(self, batches: Iterable[torch.Tensor]) -> None:
        """Set mean and size of the entries; does nothing without `standardise`.

        Parameters
        ----------
        batches : iterable of (participants, S) tensors
            Read once.
        """
        if self.mean is None or self.scale is None:
            return
        total = torch.zeros(self.patching.n_entries, dtype=torch.float64)
        squares = torch.zeros(self.patching.n_entries, dtype=torch.float64)
        count = 0
        for batch in batches:
            total += batch.sum(0, dtype=torch.float64)
            squares += batch.double().square().sum(0)
            count += len(batch)
        mean = total / max(count, 1)
        variance = (squares / max(count, 1) - mean.square()).clamp_min(0).mean()
        self.mean.copy_(mean)
        self.scale.copy_(variance.sqrt() if variance > 0 else torch.ones(()))

    @torch.no_grad()
    def fit_origin(self, mean: torch.Tensor) -> None:
        """Keep the tokens of the mean matrix, (S,), from which `centred_tokens` measures."""
        if self.origin is not None:
            x = self.token_sequence(mean[None].to(self.origin.device), None)
            self.origin.copy_(self.encoder(x)[0, 1:].flatten())

    def _standardised(self, packed: torch.Tensor) -> torch.Tensor:
        if self.mean is None or self.scale is None:
            return packed
        return (packed - self.mean) / self.scale


def _count_visible(n_patches: int, mask_ratio: float) -> int:
    """How many patches stay visible: int(P (1 - mask_ratio)), at least one.

    Parameters
    ----------
    n_patches : int
        Number of patches, P.
    mask_ratio : float
        Share that is masked, at least 0 and below 1.

    Returns
    -------
    int

    Examples
    --------
    >>> _count_visible(153, 0.5)
    76
    """
    n_visible = int(n_patches * (1 - mask_ratio)) if 0 <= mask_ratio < 1 else 0
    if n_visible < 1:
        raise NerveError(
            f"mask_ratio is {mask_ratio}, expected between 0 and 1 with at least one of the "
            f"{n_patches} patches left visible."
        )
    return n_visible


def count_parameters(
    patching: Patching, tokenizer: str = "bilinear", **options: Any
) -> dict[str, int]:
    """Parameters of the tokenizer, its way back, and the whole model, without allocating them.

    Parameters
    ----------
    patching : Patching
        The patches.
    tokenizer : str
        A name of `TOKENIZERS`.
    **options
        Other arguments of `MaskedAutoencoder`.

    Returns
    -------
    dict
        Counts under tokenizer, reconstruction, transformer and total.

    Examples
    --------
    >>> import nerve
    >>> parcellation = nerve.load_parcellation("schaefer400-17")
    >>> count_parameters(Patching.from_parcellation(parcellation))
    {'tokenizer': 102400, 'reconstruction': 25600, 'transformer': 3275712, 'total': 3403712}
    """
    with torch.device("meta"):
        model = MaskedAutoencoder(patching, tokenizer, **options)
    counts = {"tokenizer": 0, "reconstruction": 0, "transformer": 0, "total": 0}
    for name, weights in model.named_parameters():
        if name.startswith("tokenizer.embed"):
            counts["tokenizer"] += weights.numel()
        elif name.startswith("tokenizer.reconstruct"):
            counts["reconstruction"] += weights.numel()
        else:
            counts["transformer"] += weights.numel()
        counts["total"] += weights.numel()
    return counts


def _other_patches(masked: torch.Tensor, n_patches: int) -> torch.Tensor:
    """The patches that are not among the masked: (participants, M) → (participants, P - M)."""
    is_masked = torch.zeros(len(masked), n_patches, device=masked.device).scatter(1, masked, 1.0)
    return is_masked.argsort(dim=1, stable=True)[:, : n_patches - masked.shape[1]]
