"""Interpret trained encoders and write the tables where the report finds them: OUT/interpretation."""

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
from nerve.interpret.maps import attention_summary, factors_of, has_attention, network_weights
from nerve.interpret.stability import as_encoders
from nerve.methods import load_method

FOLDER = "interpretation"
INPUTS = "inputs.json"  # in an experiment: a hash of what the maps were made from
_FILES = (
    "attention.tsv", "attention_pairs.tsv", "importance.tsv", "network_weights.tsv", "stability.json", INPUTS,
)  # fmt: skip
MOST_PEOPLE = 200  # for attention, which hardly differs between participants
LEAST_SPREAD = 0.005  # of region weights, whose mean is 1, that is worth a map
_STABILITIES = (  # name in stability.json, table, column that names a map, column of its stability
    ("network_weights", "network_weights", "network", "network_stability"),
    ("attention", "attention", "layer", "stability"),
    ("occlusion", "importance", "target", "stability"),
    ("pattern", "importance", "target", "pattern_stability"),
)


def interpret_to(
    out: str | os.PathLike[str],
    encoders: Any,
    cohort: Cohort,
    targets: str | Sequence[str] = (),
    covariates: str | Sequence[str] = (),
    **options: Any,
) -> dict[str, pd.DataFrame]:
    """Write network weights, attention and (with targets) patch importance of one encoder, or of several seeds.

    Parameters
    ----------
    out : path
        OUT/interpretation gets network_weights.tsv, attention.tsv, attention_pairs.tsv, importance.tsv and
        stability.json; give the folder of the run, of an experiment or of an evaluation, and its report shows them.
    encoders : fitted encoder, or several that differ in the seed
        What an encoder does not have (attention, factors of networks) is left out.
    cohort : Cohort
        The participants for attention (the first 200) and importance (all).
    targets, covariates, **options
        As in `patch_importance`.

    Returns
    -------
    dict
        Name → table, as written.
    """
    several = as_encoders(encoders)
    tables: dict[str, pd.DataFrame] = {}
    if factors_of(several[0]) is not None:
        weights = network_weights(several)
        if (
            weights["weight"].std() > LEAST_SPREAD
        ):  # a map on which every region weighs the same shows nothing
            tables["network_weights"] = weights
    if has_attention(several[0]):
        some = cohort.subset(np.arange(min(len(cohort), MOST_PEOPLE)))
        attention = attention_summary(several, some)
        tables |= {"attention": attention.table, "attention_pairs": attention.pairs}
    if targets:
        tables["importance"] = patch_importance(several, cohort, targets, covariates, **options)
    if not tables:
        raise NerveError(
            f"A {type(several[0]).__name__} has neither network factors nor attention, expected targets whose "
            "prediction can be explained (--targets)."
        )
    cohort.check_unchanged()
    folder = claim(Path(out) / FOLDER)
    for name in _FILES:  # maps of before, some of which this encoder may not have
        (folder / name).unlink(missing_ok=True)
    for name, table in tables.items():
        write_tsv(folder / f"{name}.tsv", table)
    write_json(folder / "stability.json", _agreement(tables, [int(one.seed) for one in several]))
    return tables


def load_encoder(path: str | os.PathLike[str], device: str = "auto") -> Any:
    """The encoder in the folder of a run, whichever method it is."""
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
    for name, table, of, column in _STABILITIES:
        if table in tables:
            first = tables[table].drop_duplicates(of)
            content[name] = {
                str(k): _number(v) for k, v in zip(first[of], first[column], strict=True)
            }
    if "network_weights" in tables:
        everywhere = {"all": _number(tables["network_weights"]["stability"].iloc[0])}
        content["network_weights"] = everywhere | content["network_weights"]
    return content


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)
