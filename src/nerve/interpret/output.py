"""Interpret trained encoders and write the tables where the report reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, problem
from nerve._utils.files import claim, write_json, write_tsv
from nerve.data.cohort import Cohort
from nerve.interpret.importance import patch_importance
from nerve.interpret.maps import attention_summary, has_attention, network_factors, network_weights
from nerve.interpret.regions import can_hide_regions, region_occlusion
from nerve.interpret.stability import as_encoders
from nerve.methods import load_method

FOLDER = "interpretation"
INPUTS = "inputs.json"  # in an experiment: a hash of what the maps were made from
_FILES = (
    "attention.tsv",
    "attention_pairs.tsv",
    "importance.tsv",
    "network_weights.tsv",
    "region_occlusion.tsv",
    "stability.json",
    INPUTS,
)
_MOST_PARTICIPANTS = 200  # for attention, which hardly differs between participants
_MOST_FOR_REGIONS = 64  # each is embedded once per region
_LEAST_SPREAD = 0.005  # standard deviation of region weights (their mean is 1) that is worth a map


def interpret_to(
    out: str | os.PathLike[str],
    encoders: Any,
    cohort: Cohort,
    targets: str | Sequence[str] = (),
    covariates: str | Sequence[str] = (),
    **options: Any,
) -> dict[str, pd.DataFrame]:
    """Write maps of regions and attention and, with targets, of patch importance.

    Parameters
    ----------
    out : path
        OUT/interpretation gets network_weights.tsv (or region_occlusion.tsv, where weights show
        no difference between regions), attention.tsv, attention_pairs.tsv, importance.tsv and
        stability.json. With the folder of a run, of an experiment or of an evaluation, its report
        shows them.
    encoders : fitted encoder, or several that differ in the seed
        A map of what the encoders do not have (attention, factors of networks) is left out.
    cohort : Cohort
        The participants for regions (the first 64), attention (the first 200) and importance
        (all).
    targets, covariates : str or sequence of str
        Columns of the participants table, as in `patch_importance`.
    **options
        Fields of `nerve.Protocol` and `patching`, as in `patch_importance`.

    Returns
    -------
    dict
        Name → table, as written.
    """
    encoders = as_encoders(encoders)
    tables: dict[str, pd.DataFrame] = {}
    if network_factors(encoders[0]) is not None:
        weights = network_weights(encoders)
        # A map on which every region weighs the same shows nothing.
        if weights["weight"].std() > _LEAST_SPREAD:
            tables["network_weights"] = weights
    if "network_weights" not in tables and can_hide_regions(encoders[0]):
        first_participants = np.arange(min(len(cohort), _MOST_FOR_REGIONS))
        tables["region_occlusion"] = region_occlusion(encoders, cohort.subset(first_participants))
    if has_attention(encoders[0]):
        first_participants = np.arange(min(len(cohort), _MOST_PARTICIPANTS))
        attention = attention_summary(encoders, cohort.subset(first_participants))
        tables["attention"] = attention.table
        tables["attention_pairs"] = attention.pairs
    if targets:
        tables["importance"] = patch_importance(encoders, cohort, targets, covariates, **options)
    if not tables:
        raise NerveError(
            f"A {type(encoders[0]).__name__} has neither network factors nor attention, expected "
            "targets whose prediction can be explained (--targets)."
        )
    cohort.check_unchanged()
    folder = claim(Path(out) / FOLDER)
    for name in _FILES:  # maps of an earlier call, which this encoder may not have
        (folder / name).unlink(missing_ok=True)
    for name, table in tables.items():
        write_tsv(folder / f"{name}.tsv", table)
    seeds = [int(encoder.seed) for encoder in encoders]
    write_json(folder / "stability.json", _agreement(tables, seeds))
    return tables


def load_encoder(path: str | os.PathLike[str], device: str = "auto") -> Any:
    """Load the encoder in the folder of a run, whichever method it is.

    Parameters
    ----------
    path : path
        Folder of a run.
    device : str
        Where its weights go, such as "cpu".

    Returns
    -------
    fitted encoder
        A method with `transform`; models that were trained on a target are refused.
    """
    method = load_method(path, device=device)
    if not hasattr(method, "transform"):
        raise problem(
            path,
            f"it holds a {type(method).__name__}",
            expected="an encoder, trained without a target",
        )
    return method


def _agreement(tables: dict[str, pd.DataFrame], seeds: list[int]) -> dict[str, Any]:
    """Stability of every map; null where there is only one seed."""
    content: dict[str, Any] = {
        "seeds": seeds,
        "measure": "mean Pearson correlation of the maps of every two seeds",
    }
    if "network_weights" in tables:
        weights = tables["network_weights"]
        of_networks = _first_values(weights, "network", "network_stability")
        content["network_weights"] = {"all": _rounded(weights["stability"].iloc[0]), **of_networks}
    if "region_occlusion" in tables:
        content["region_occlusion"] = _rounded(tables["region_occlusion"]["stability"].iloc[0])
    if "attention" in tables:
        content["attention"] = _first_values(tables["attention"], "layer", "stability")
    if "importance" in tables:
        importance = tables["importance"]
        content["occlusion"] = _first_values(importance, "target", "stability")
        content["pattern"] = _first_values(importance, "target", "pattern_stability")
    return content


def _first_values(table: pd.DataFrame, key: str, column: str) -> dict[str, float | None]:
    """For each value of the column `key`, the first value of `column`."""
    first = table.drop_duplicates(key)
    return {
        str(name): _rounded(value) for name, value in zip(first[key], first[column], strict=True)
    }


def _rounded(value: Any) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)
