"""Interpret trained encoders and write the tables where the report finds them: OUT/interpretation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, problem
from nerve.cohort import Cohort
from nerve.files import claim, write_json, write_tsv
from nerve.interpret.attention import attention_summary
from nerve.interpret.importance import patch_importance
from nerve.interpret.stability import as_encoders
from nerve.interpret.weights import network_weights
from nerve.methods import load_method

FOLDER = "interpretation"
MOST_PEOPLE = 200  # for attention, which hardly differs between participants
LEAST_SPREAD = 0.005  # of region weights, whose mean is 1, that is worth a map


def interpret_to(
    out: str | os.PathLike[str],
    encoders: Any,
    cohort: Cohort,
    targets: str | Sequence[str] = (),
    covariates: str | Sequence[str] = (),
    *,
    progress: Callable[[str, float], None] | None = None,
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
    if getattr(getattr(several[0].module_, "tokenizer", None), "embed_factors", None) is not None:
        weights = network_weights(several)
        if weights["weight"].std() > LEAST_SPREAD:  # a map on which every region weighs the same shows nothing
            tables["network_weights"] = weights
    if hasattr(several[0].module_, "attention") and len(several[0].module_.encoder):
        attention = attention_summary(several, cohort.subset(np.arange(min(len(cohort), MOST_PEOPLE))))
        tables |= {"attention": attention.table, "attention_pairs": attention.pairs}
    if targets:
        tables["importance"] = patch_importance(several, cohort, targets, covariates, progress=progress, **options)
    if not tables:
        raise NerveError(
            f"A {type(several[0]).__name__} has neither network factors nor attention, expected targets whose "
            "prediction can be explained (--targets)."
        )
    folder = claim(Path(out) / FOLDER)
    for name, table in tables.items():
        write_tsv(folder / f"{name}.tsv", table)
    write_json(folder / "stability.json", _agreement(tables, [int(one.seed) for one in several]))
    return tables


def load_encoder(path: str | os.PathLike[str], device: str = "auto") -> Any:
    """The encoder in the folder of a run, whichever method it is."""
    method = load_method(path, device=device)
    if not hasattr(method, "transform"):
        raise problem(path, f"it holds a {type(method).__name__}", expected="an encoder, trained without a target")
    return method


def _agreement(tables: dict[str, pd.DataFrame], seeds: list[int]) -> dict[str, Any]:
    """Stability of every map; null where there is only one seed."""
    content: dict[str, Any] = {"seeds": seeds, "measure": "mean Pearson correlation of the maps of every two seeds"}
    if "network_weights" in tables:
        table = tables["network_weights"]
        networks = table.drop_duplicates("network").set_index("network")["network_stability"]
        content["network_weights"] = {"all": _number(table["stability"].iloc[0])}
        content["network_weights"] |= {str(name): _number(value) for name, value in networks.items()}
    if "attention" in tables:
        layers = tables["attention"].drop_duplicates("layer").set_index("layer")["stability"]
        content["attention"] = {str(name): _number(value) for name, value in layers.items()}
    if "importance" in tables:
        first = tables["importance"].drop_duplicates("target").set_index("target")
        for name, column in (("occlusion", "stability"), ("pattern", "pattern_stability")):
            content[name] = {str(target): _number(value) for target, value in first[column].items()}
    return content


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)
