"""Maps read from encoders alone: regions that each network's embedding relies on, and attention between networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import block_diag

from nerve._utils.errors import problem
from nerve._utils.progress import progress_bar
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.interpret.occlusion import chunks
from nerve.interpret.stability import as_encoders, stability

FEWEST_REGIONS = 4  # a correlation over fewer regions says nothing
CLS = "CLS"
ROLLOUT, HEADS_MEAN = "rollout", "mean"


def network_weights(encoders: Any) -> pd.DataFrame:
    """The weight of every region in the embedding of its network.

    A token is t_lm,k = Σ_ij U_l[i,k] x_ij U_m[j,k]: region i reaches it by its row of U_l. Scales of networks are
    arbitrary (U_l may grow as U_m shrinks), so a weight is relative to the network, and 1 is its average region:

        weight_i = ‖U_l[i]‖ / mean over j in l of ‖U_l[j]‖,      share_i = ‖U_l[i]‖² / Σ over j in l of ‖U_l[j]‖²

    Parameters
    ----------
    encoders : fitted NERVE, or several that differ in the seed
        With the bilinear tokenizer.

    Returns
    -------
    DataFrame
        One row per region, in the order of the parcellation: region, network, hemisphere, x, y, z (MNI, mm), weight
        (mean over seeds), weight_sd (over seeds), share, rank (1 is the network's largest), network_stability (of the
        weights within the network), stability (of the whole map), n_seeds.
    """
    several = as_encoders(encoders)
    patching: Patching = several[0].patching_
    norms = pd.DataFrame([_row_norms(encoder) for encoder in several]).T  # (regions, seeds)
    maps = norms / norms.groupby(patching.group_of).transform("mean")
    shares = norms**2 / (norms**2).groupby(patching.group_of).transform("sum")
    within = [
        stability(maps.T.to_numpy()[:, m]) if len(m) >= FEWEST_REGIONS else np.nan
        for m in patching.members
    ]
    weight = maps.mean(axis=1)
    regions = several[0].parcellation_.to_table().rename(columns={"label": "region"})
    return regions.assign(
        network=np.array(patching.group_names)[patching.group_of],
        weight=weight,
        weight_sd=maps.std(axis=1),
        share=shares.mean(axis=1),
        rank=weight.groupby(patching.group_of).rank(ascending=False, method="first").astype(int),
        network_stability=np.array(within)[patching.group_of],
        stability=stability(maps.T),
        n_seeds=len(several),
    )


def factors_of(encoder: Any) -> Any:
    """U (regions, dim), or None for an encoder without factors of networks."""
    return getattr(getattr(encoder.module_, "tokenizer", None), "embed_factors", None)


def _row_norms(encoder: Any) -> np.ndarray:
    """(regions,) ‖U[i]‖."""
    factors = factors_of(encoder)
    if factors is None:
        where = f"network_weights of {type(encoder).__name__}"
        remedy = "Use patch_importance, which works for every encoder."
        raise problem(
            where,
            "it has no factors of networks",
            expected="NERVE with tokenizer='bilinear'",
            remedy=remedy,
        )
    return np.linalg.norm(factors.detach().cpu().double().numpy(), axis=1)


class Attention(NamedTuple):
    """Mean attention over participants. Tokens are CLS, then the pairs in the order of `patching.pairs`."""

    table: pd.DataFrame
    """seed, layer, head, from, to, attention, ratio, stability, n_seeds; see `attention_summary`."""
    pairs: pd.DataFrame
    """network_a, network_b, attention, ratio, stability, n_seeds: rollout received by each pair's token."""
    maps: np.ndarray
    """(seeds, layers, heads, 1 + P, 1 + P); rows (from) sum to one."""
    rollout: np.ndarray
    """(seeds, 1 + P, 1 + P); rows sum to one."""


def attention_summary(encoders: Any, cohort: Cohort) -> Attention:
    """Attention maps of the encoder on the participants of a cohort, nothing masked, averaged over participants.

    Each token is a pair of networks, and half of it counts for either. With A the attention from token q to token k,
    the attention from network a to network b is

        N_ab = Σ_q Σ_k m_qa A_qk m_kb / Σ_q m_qa,       m_qa = 1 if q is the pair (a, a), ½ if a is one of two, else 0

    with CLS as a "network" of its own, so that rows sum to one. `ratio` divides by what even attention would give
    (for rollout: the rollout of even attention). Rollout (Abnar and Zuidema, 2020) follows attention through all
    layers, participant by participant: R = Ã_L … Ã_1 with Ã = ½ (mean over heads of A + I).

    Parameters
    ----------
    encoders : fitted NERVE, or several that differ in the seed
    cohort : Cohort
        Read a few participants at a time.

    Returns
    -------
    Attention
        Heads have no common order over seeds: the table keeps seeds apart, and `stability` compares rollouts, and for
        each layer the mean over its heads. It compares ratios: the residual path, and tokens that belong to two
        networks, make all attention maps alike in a way that says nothing.
    """
    several = as_encoders(encoders)
    if not all(has_attention(encoder) for encoder in several):
        where = f"attention_summary of {type(several[0]).__name__}"
        raise problem(where, "it has no attention between patches", expected="NERVE, depth ≥ 1")
    parts = []
    for number, encoder in enumerate(several, 1):
        label = f"attention, model {number} of {len(several)}"
        parts.append(_mean_maps(encoder, encoder.align_to_fitted(cohort), label))
    maps, rollout = (np.stack(part) for part in zip(*parts, strict=True))
    patching: Patching = several[0].patching_
    table = _table(maps, rollout, patching, [int(encoder.seed) for encoder in several])
    return Attention(table, _pair_table(rollout, _even_rollout(maps), patching), maps, rollout)


def has_attention(encoder: Any) -> bool:
    """Whether it is a NERVE with layers."""
    return hasattr(encoder.module_, "attention") and len(encoder.module_.encoder) > 0


def between_networks(maps: np.ndarray, patching: Patching) -> np.ndarray:
    """(…, 1 + P, 1 + P) token maps → (…, 1 + G, 1 + G) between CLS and networks; rows sum to one."""
    share = block_diag(
        1.0, np.eye(patching.n_groups)[patching.pairs].mean(axis=1)
    )  # (1 + P, 1 + G)
    return (share / share.sum(axis=0)).T @ maps @ share


def rolled_out(maps: np.ndarray) -> np.ndarray:
    """(participants, layers, heads, tokens, tokens) → (participants, tokens, tokens): Ã_L … Ã_1, rows sum to one."""
    mixed = 0.5 * (
        maps.mean(axis=2) + np.eye(maps.shape[-1], dtype=maps.dtype)
    )  # (subjects, layers, tokens, tokens)
    total = mixed[:, 0]
    for layer in range(1, mixed.shape[1]):
        total = mixed[:, layer] @ total
    return total


def _mean_maps(encoder: Any, cohort: Cohort, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean over participants of the maps (layers, heads, tokens, tokens) and of the rollout (tokens, tokens)."""
    import torch

    module, source = encoder.module_.eval(), encoder.patch_dataset(cohort)
    parts = list(
        chunks(np.arange(len(cohort)), 16)
    )  # maps of all layers and heads are in memory together
    maps, rollout = 0.0, 0.0
    with torch.inference_mode():
        for rows in progress_bar(parts, label=label, unit="batches"):
            packed = source.batch(rows).to(module.positions.device)
            some = (
                module.attention(packed).float().cpu().numpy()
            )  # (subjects, layers, heads, tokens, tokens)
            maps = maps + some.sum(axis=0, dtype=float)
            rollout = rollout + rolled_out(some).sum(axis=0, dtype=float)
    return maps / len(cohort), rollout / len(cohort)  # type: ignore[return-value]


def _table(
    maps: np.ndarray, rollout: np.ndarray, patching: Patching, seeds: list[int]
) -> pd.DataFrame:
    """The rollout first, then layer by layer the mean over heads, then single heads."""
    layers, heads = maps.shape[1:3]
    even = np.full(maps.shape[-2:], 1.0 / maps.shape[-1])
    parts = [_rows(rollout, _even_rollout(maps), patching, seeds, ROLLOUT, HEADS_MEAN)]
    for layer in range(layers):
        parts.append(
            _rows(maps[:, layer].mean(axis=1), even, patching, seeds, str(layer + 1), HEADS_MEAN)
        )
    for layer, head in np.ndindex(layers, heads):
        one = _rows(maps[:, layer, head], even, patching, seeds, str(layer + 1), str(head + 1))
        parts.append(one.assign(stability=parts[1 + layer]["stability"].iloc[0]))
    return pd.concat(parts, ignore_index=True)


def _even_rollout(maps: np.ndarray) -> np.ndarray:
    """(tokens, tokens) rollout of a model that attends evenly: what the residual path alone gives."""
    return rolled_out(np.full((1, maps.shape[1], 1, *maps.shape[-2:]), 1.0 / maps.shape[-1]))[0]


def _rows(
    tokens: np.ndarray,
    even: np.ndarray,
    patching: Patching,
    seeds: list[int],
    layer: str,
    head: str,
) -> pd.DataFrame:
    networks = between_networks(tokens, patching)  # (seeds, 1 + G, 1 + G)
    ratio = networks / between_networks(even, patching)
    names = [CLS, *patching.group_names]
    levels: list[list[Any]] = [seeds, [layer], [head], names, names]
    table = pd.MultiIndex.from_product(
        levels, names=["seed", "layer", "head", "from", "to"]
    ).to_frame(index=False)
    return table.assign(
        attention=networks.ravel(),
        ratio=ratio.ravel(),
        stability=stability(ratio),
        n_seeds=len(seeds),
    )


def _pair_table(rollout: np.ndarray, even: np.ndarray, patching: Patching) -> pd.DataFrame:
    """How much of the mean patch token, the representation that `pooling="mean"` gives, comes from each pair."""
    received = rollout[:, 1:, 1:].mean(axis=1)  # (seeds, P)
    mean = received.mean(axis=0)
    ratio = mean / even[1:, 1:].mean(axis=0)
    pairs = pd.DataFrame(
        np.array(patching.group_names)[patching.pairs], columns=["network_a", "network_b"]
    )
    return pairs.assign(
        attention=mean, ratio=ratio, stability=stability(received), n_seeds=len(rollout)
    )
