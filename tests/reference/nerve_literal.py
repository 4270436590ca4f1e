"""The paper's equations written out, slowly: loops over network pairs, and the gather-and-pad model of the benchmark.

Both read the weights of a `MaskedAutoencoder` and share its transformer blocks; everything about patches, tokens, masks
and loss is written anew, from (R, R) matrices and region labels, without the packed layout.
"""

from __future__ import annotations

import torch


def pairs_of(group_of):
    """(l, m) with l ≤ m, and the regions of both, from one label a region."""
    groups = [
        [i for i, g in enumerate(group_of) if g == wanted] for wanted in range(max(group_of) + 1)
    ]
    return [(groups[a], groups[b]) for a in range(len(groups)) for b in range(a, len(groups))]


def khatri_rao(u, v):
    """[W]_(i,j),k = U_ik V_jk, one entry at a time."""
    return torch.stack([u[i] * v[j] for i in range(len(u)) for j in range(len(v))])


def weights_of(tokenizer, rows, cols, way, start):
    """W_p of one patch, for any of the three tokenizers."""
    name = type(tokenizer).__name__
    if name == "BilinearTokenizer":
        factors = getattr(tokenizer, f"{way}_factors")
        return khatri_rao(factors[rows], factors[cols])
    matrix = getattr(tokenizer, f"{way}_matrix")
    size = len(rows) * len(cols)
    return matrix[start : start + size] if name == "SpecificTokenizer" else matrix[:size]


def patches_and_weights(model, fc, group_of, way):
    """For each pair: vec(x_lm) of one person, and W_lm."""
    start, out = 0, []
    for rows, cols in pairs_of(group_of):
        patch = torch.stack([fc[i, j] for i in rows for j in cols])
        out.append((patch, weights_of(model.tokenizer, rows, cols, way, start)))
        start += len(rows) * len(cols)
    return out


def tokens(model, fc, group_of):
    """t_lm = W_lmᵀ vec(x_lm) of one person: (P, dim)."""
    return torch.stack([w.T @ x for x, w in patches_and_weights(model, fc, group_of, "embed")])


def encode(model, fc, group_of, visible):
    """CLS and visible tokens of one person through the encoder: (1 + K, dim)."""
    sequence = [model.cls[0, 0] + model.positions[0]]
    every = tokens(model, fc, group_of)
    for p in visible:
        sequence.append(every[p] + model.positions[1 + p])
    x = torch.stack(sequence)[None]
    for block in model.encoder:
        x = block(x)
    return model.encoder_norm(x)[0]


def loss(model, fc, group_of, visible, masked, kind):
    """L = 1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² of one person, divided by the patch's size for `patch_mean`."""
    encoded = model.to_decoder(encode(model, fc, group_of, visible)[None])[0]
    n_patches = len(pairs_of(group_of))
    sequence = [encoded[0] + model.decoder_positions[0]]
    for p in range(n_patches):
        token = encoded[1 + visible.index(p)] if p in visible else model.mask_token[0, 0]
        sequence.append(token + model.decoder_positions[1 + p])
    x = torch.stack(sequence)[None]
    for block in model.decoder:
        x = block(x)
    decoded = model.decoder_norm(x)[0, 1:]
    total = 0.0
    for p, (patch, weights) in enumerate(patches_and_weights(model, fc, group_of, "reconstruct")):
        if p in masked:
            error = ((weights @ decoded[p] - patch) ** 2).sum()
            total = total + (error / len(patch) if kind == "patch_mean" else error)
    return total / len(masked)


class GatherAndPad:
    """The same model as the paper's description suggests it: every patch gathered and padded to the largest.

    Parameters
    ----------
    model : MaskedAutoencoder
        Bilinear; its weights are used.
    """

    def __init__(self, model):
        patching, self.model = model.patching, model
        largest, n_patches = int(patching.sizes.max()), patching.n_patches
        self.rows = torch.zeros(n_patches, largest, dtype=torch.long)
        self.cols = torch.zeros(n_patches, largest, dtype=torch.long)
        self.real = torch.zeros(n_patches, largest)
        for p, (rows, cols) in enumerate(pairs_of(patching.group_of.tolist())):
            size = len(rows) * len(cols)
            self.rows[p, :size] = torch.tensor(rows).repeat_interleave(len(cols))
            self.cols[p, :size] = torch.tensor(cols).repeat(len(rows))
            self.real[p, :size] = 1

    def training_loss(self, fc, noise):
        """fc (B, R, R), noise (B, P) → the `patch_mean` loss."""
        model = self.model
        x = fc[:, self.rows, self.cols] * self.real  # (B, P, S_max)
        u, d = model.tokenizer.embed_factors, model.tokenizer.reconstruct_factors
        weights = u[self.rows] * u[self.cols] * self.real[..., None]  # (P, S_max, dim)
        every = torch.einsum("bps,psd->bpd", x, weights) + model.positions[1:]
        order = noise.argsort(1)
        visible, masked = order[:, : model.n_visible], order[:, model.n_visible :]
        seen = every.gather(1, visible[..., None].expand(-1, -1, every.shape[-1]))
        cls = (model.cls + model.positions[0]).expand(len(fc), -1, -1)
        z = torch.cat([cls, seen], 1)
        for block in model.encoder:
            z = block(z)
        z = model.to_decoder(model.encoder_norm(z))
        hidden = model.mask_token.expand(len(fc), masked.shape[1], -1)
        unshuffled = torch.cat([z[:, 1:], hidden], 1).gather(
            1, order.argsort(1)[..., None].expand(-1, -1, z.shape[-1])
        )
        z = torch.cat([z[:, :1], unshuffled], 1) + model.decoder_positions
        for block in model.decoder:
            z = block(z)
        z = model.decoder_norm(z)[:, 1:]
        back = d[self.rows] * d[self.cols] * self.real[..., None]
        error = (torch.einsum("bpk,psk->bps", z, back) - x) ** 2 * self.real
        per_patch = error.sum(-1) / self.real.sum(-1)
        weight = torch.zeros_like(noise).scatter(1, masked, 1.0)
        return (per_patch * weight).sum() / weight.sum()
