"""Which regions each network's embedding relies on: the rows of the learned factors U_l of the bilinear tokenizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import problem
from nerve.interpret.stability import as_encoders, stability
from nerve.patching import Patching

FEWEST_REGIONS = 4  # a correlation over fewer regions says nothing


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
    within = [stability(maps.T.to_numpy()[:, m]) if len(m) >= FEWEST_REGIONS else np.nan for m in patching.members]
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
        where, remedy = type(encoder).__name__, "Use patch_importance, which works for every encoder."
        expected = "NERVE with tokenizer='bilinear'"
        raise problem(
            f"network_weights of {where}", "it has no factor for each network", expected=expected, remedy=remedy
        )
    return np.linalg.norm(factors.detach().cpu().double().numpy(), axis=1)
