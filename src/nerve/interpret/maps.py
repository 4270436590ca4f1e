"""Maps read from encoders alone: weights of regions, and attention between networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import block_diag

from nerve._utils.errors import problem
from nerve._utils.progress import progress_bar
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.interpret.occlusion import row_chunks
from nerve.interpret.stability import as_encoders, stability

_FEWEST_REGIONS = 4  # a correlation over fewer regions says nothing
_CLS = "CLS"
_ROLLOUT = "rollout"
_MEAN_OF_HEADS = "mean"


def network_weights(encoders: Any) -> pd.DataFrame:
    """Weight of every region in the embedding of its network.

    A token is t_lm,k = Σ_ij U_l[i,k] x_ij U_m[j,k]: region i reaches it by its row of U_l. Scales
    of networks are arbitrary (U_l may grow as U_m shrinks), so a weight is relative to the network,
    and 1 is its average region:

        weight_i = ‖U_l[i]‖ / mean over j in l of ‖U_l[j]‖
        share_i = ‖U_l[i]‖² / Σ over j in l of ‖U_l[j]‖²

    Parameters
    ----------
    encoders : fitted NERVE, or several that differ in the seed
        With the bilinear tokenizer.

    Returns
    -------
    DataFrame
        One row per region, in the order of the parcellation: region, network, hemisphere, x, y, z
        (MNI, mm), weight (mean over seeds), weight_sd (over seeds), share, rank (1 is the network's
        largest), network_stability (of the weights within the network), stability (of the map of
        all regions), n_seeds.
    """
    encoders = as_encoders(encoders)
    patching: Patching = encoders[0].patching_
    network_of = patching.group_of
    norms = pd.DataFrame([_row_norms(encoder) for encoder in encoders]).T  # (regions, seeds)
    maps = norms / norms.groupby(network_of).transform("mean")
    shares = norms**2 / (norms**2).groupby(network_of).transform("sum")
    network_stability = np.full(patching.n_groups, np.nan)
    for network, regions in enumerate(patching.members):
        if len(regions) >= _FEWEST_REGIONS:
            network_stability[network] = stability(maps.T.to_numpy()[:, regions])
    weight = maps.mean(axis=1)
    rank = weight.groupby(network_of).rank(ascending=False, method="first")
    table = encoders[0].parcellation_.to_table().rename(columns={"label": "region"})
    return table.assign(
        network=np.array(patching.group_names)[network_of],
        weight=weight,
        weight_sd=maps.std(axis=1),
        share=shares.mean(axis=1),
        rank=rank.astype(int),
        network_stability=network_stability[network_of],
        stability=stability(maps.T),
        n_seeds=len(encoders),
    )


class AttentionSummary(NamedTuple):
    """Mean attention over participants.

    Tokens are CLS, then the pairs in the order of `patching.pairs`.
    """

    table: pd.DataFrame
    """seed, layer, head, from, to, attention, ratio, stability, n_seeds."""
    pairs: pd.DataFrame
    """network_a, network_b, attention, ratio, stability, n_seeds: rollout received by each pair."""
    maps: np.ndarray
    """(seeds, layers, heads, 1 + P, 1 + P); rows (from) sum to one."""
    rollout: np.ndarray
    """(seeds, 1 + P, 1 + P); rows sum to one."""


def attention_summary(encoders: Any, cohort: Cohort) -> AttentionSummary:
    """Attention maps on the participants of a cohort, nothing masked, averaged over participants.

    Each token is a pair of networks, and half of it counts for either. With A the attention from
    token q to token k, the attention from network a to network b is

        N_ab = Σ_q Σ_k m_qa A_qk m_kb / Σ_q m_qa
        m_qa = 1 if q is the pair (a, a), ½ if a is one of two, else 0

    with CLS as a "network" of its own, so that rows sum to one. `ratio` divides by what even
    attention would give (for rollout: the rollout of even attention). Rollout (Abnar and Zuidema,
    2020) follows attention through all layers, participant by participant: R = Ã_L … Ã_1 with
    Ã = ½ (mean over heads of A + I).

    Parameters
    ----------
    encoders : fitted NERVE, or several that differ in the seed
        With at least one layer.
    cohort : Cohort
        Read a few participants at a time.

    Returns
    -------
    AttentionSummary
        Heads have no common order over seeds: the table keeps seeds separate, and `stability`
        compares rollouts, and for each layer the mean over its heads. It compares ratios: the
        residual path, and tokens that belong to two networks, make all attention maps alike in a
        way that says nothing.
    """
    encoders = as_encoders(encoders)
    if not all(has_attention(encoder) for encoder in encoders):
        where = f"attention_summary of {type(encoders[0]).__name__}"
        raise problem(where, "it has no attention between patches", expected="NERVE, depth ≥ 1")
    maps_of_seeds = []
    rollout_of_seeds = []
    for number, encoder in enumerate(encoders, 1):
        label = f"attention, model {number} of {len(encoders)}"
        mean_maps, mean_rollout = _mean_maps(encoder, encoder.align_to_fitted(cohort), label)
        maps_of_seeds.append(mean_maps)
        rollout_of_seeds.append(mean_rollout)
    maps = np.stack(maps_of_seeds)  # (seeds, layers, heads, 1 + P, 1 + P)
    rollout = np.stack(rollout_of_seeds)  # (seeds, 1 + P, 1 + P)
    patching: Patching = encoders[0].patching_
    table = attention_table(maps, rollout, patching, [int(encoder.seed) for encoder in encoders])
    pairs = _pair_table(rollout, _even_rollout(maps), patching)
    return AttentionSummary(table, pairs, maps, rollout)


def has_attention(encoder: Any) -> bool:
    """Whether a fitted encoder attends between patches: a NERVE with layers."""
    return hasattr(encoder.module_, "attention") and len(encoder.module_.encoder) > 0


def network_factors(encoder: Any) -> Any:
    """The factors U (regions, dim) of a fitted encoder, or None where it has none."""
    tokenizer = getattr(encoder.module_, "tokenizer", None)
    return getattr(tokenizer, "embed_factors", None)


def between_networks(maps: np.ndarray, patching: Patching) -> np.ndarray:
    """Turn attention between tokens into attention between networks.

    Parameters
    ----------
    maps : (…, 1 + P, 1 + P) array
        Attention between CLS and the tokens of patches.
    patching : Patching
        Pairs of networks, G networks in all.

    Returns
    -------
    (…, 1 + G, 1 + G) array
        Attention between CLS and networks; rows sum to one.
    """
    pair_shares = np.eye(patching.n_groups)[patching.pairs].mean(axis=1)  # (P, G)
    share = block_diag(1.0, pair_shares)  # (1 + P, 1 + G)
    return (share / share.sum(axis=0)).T @ maps @ share


def roll_out(maps: np.ndarray) -> np.ndarray:
    """Follow attention through all layers: Ã_L … Ã_1, participant by participant.

    Parameters
    ----------
    maps : (participants, layers, heads, tokens, tokens) array
        Attention; rows sum to one.

    Returns
    -------
    (participants, tokens, tokens) array
        Rows sum to one.
    """
    identity = np.eye(maps.shape[-1], dtype=maps.dtype)
    mixed = 0.5 * (maps.mean(axis=2) + identity)  # (subjects, layers, tokens, tokens)
    product = mixed[:, 0]
    for layer in range(1, mixed.shape[1]):
        product = mixed[:, layer] @ product
    return product


def attention_table(
    maps: np.ndarray, rollout: np.ndarray, patching: Patching, seeds: list[int]
) -> pd.DataFrame:
    """The rollout first, then layer by layer the mean over heads, then single heads.

    Parameters
    ----------
    maps : (seeds, layers, heads, 1 + P, 1 + P) array
        Attention of each head.
    rollout : (seeds, 1 + P, 1 + P) array
        Attention through all layers.
    patching : Patching
        The pairs of networks.
    seeds : list of int
        The seeds of the encoders.

    Returns
    -------
    DataFrame
        seed, layer, head, from, to, attention, ratio, stability, n_seeds.
    """
    n_layers, n_heads = maps.shape[1:3]
    n_tokens = maps.shape[-1]
    even = np.full((n_tokens, n_tokens), 1.0 / n_tokens)
    even_rollout = _even_rollout(maps)
    parts = [_network_rows(rollout, even_rollout, patching, seeds, _ROLLOUT, _MEAN_OF_HEADS)]
    stability_of_layer = []
    for layer in range(n_layers):
        mean = maps[:, layer].mean(axis=1)  # (seeds, 1 + P, 1 + P)
        part = _network_rows(mean, even, patching, seeds, str(layer + 1), _MEAN_OF_HEADS)
        stability_of_layer.append(part["stability"].iloc[0])
        parts.append(part)
    for layer, head in np.ndindex(n_layers, n_heads):
        of_head = maps[:, layer, head]
        part = _network_rows(of_head, even, patching, seeds, str(layer + 1), str(head + 1))
        # Head 1 of one seed is not head 1 of another: what can be compared is the layer.
        parts.append(part.assign(stability=stability_of_layer[layer]))
    return pd.concat(parts, ignore_index=True)


def _row_norms(encoder: Any) -> np.ndarray:
    """(regions,) ‖U[i]‖."""
    factors = network_factors(encoder)
    if factors is None:
        raise problem(
            f"network_weights of {type(encoder).__name__}",
            "it has no factors of networks",
            expected="NERVE with tokenizer='bilinear'",
            remedy="Use patch_importance, which works for every encoder.",
        )
    return np.linalg.norm(factors.detach().cpu().double().numpy(), axis=1)


def _mean_maps(encoder: Any, cohort: Cohort, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean over participants of maps (layers, heads, tokens, tokens), rollout (tokens, tokens)."""
    import torch

    module = encoder.module_.eval()
    dataset = encoder.patch_dataset(cohort)
    # Few at a time: the maps of all layers and heads are in memory together.
    batches = list(row_chunks(np.arange(len(cohort)), 16))
    map_sum: Any = 0.0
    rollout_sum: Any = 0.0
    with torch.inference_mode():
        for rows in progress_bar(batches, label=label, unit="batches"):
            packed = dataset.batch(rows).to(module.positions.device)
            attention = module.attention(packed)  # (subjects, layers, heads, tokens, tokens)
            maps = attention.float().cpu().numpy()
            map_sum = map_sum + maps.sum(axis=0, dtype=float)
            rollout_sum = rollout_sum + roll_out(maps).sum(axis=0, dtype=float)
    return map_sum / len(cohort), rollout_sum / len(cohort)


def _even_rollout(maps: np.ndarray) -> np.ndarray:
    """(tokens, tokens) rollout of even attention: what the residual path alone gives."""
    n_layers = maps.shape[1]
    n_tokens = maps.shape[-1]
    even = np.full((1, n_layers, 1, n_tokens, n_tokens), 1.0 / n_tokens)
    return roll_out(even)[0]


def _network_rows(
    maps: np.ndarray,
    even: np.ndarray,
    patching: Patching,
    seeds: list[int],
    layer: str,
    head: str,
) -> pd.DataFrame:
    """The rows of one layer and head, from (seeds, 1 + P, 1 + P)."""
    networks = between_networks(maps, patching)  # (seeds, 1 + G, 1 + G)
    ratio = networks / between_networks(even, patching)
    names = [_CLS, *patching.group_names]
    levels: list[list[Any]] = [seeds, [layer], [head], names, names]
    columns = ["seed", "layer", "head", "from", "to"]
    table = pd.MultiIndex.from_product(levels, names=columns).to_frame(index=False)
    return table.assign(
        attention=networks.ravel(),
        ratio=ratio.ravel(),
        stability=stability(ratio),
        n_seeds=len(seeds),
    )


def _pair_table(rollout: np.ndarray, even: np.ndarray, patching: Patching) -> pd.DataFrame:
    """How much of the mean patch token, which `pooling="mean"` gives, comes from each pair."""
    received = rollout[:, 1:, 1:].mean(axis=1)  # (seeds, P)
    mean = received.mean(axis=0)  # (P,)
    names = np.array(patching.group_names)[patching.pairs]  # (P, 2)
    return pd.DataFrame(names, columns=["network_a", "network_b"]).assign(
        attention=mean,
        ratio=mean / even[1:, 1:].mean(axis=0),
        stability=stability(received),
        n_seeds=len(rollout),
    )
