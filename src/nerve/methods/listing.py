"""What the methods are, as a table: what each reads, learns from and weighs, where it comes from, what we changed."""

from __future__ import annotations

import pandas as pd
import torch

from nerve.methods import METHODS, method_class
from nerve.methods.base import Method
from nerve.parcellation import Parcellation, load_parcellation

READS = {"fc": "FC", "upper": "FC", "timeseries": "time series", "participants": "covariates"}


def method_table(parcellation: Parcellation | str = "schaefer400-17", preset: str = "paper") -> pd.DataFrame:
    """One row a method.

    Parameters
    ----------
    parcellation : Parcellation or str
        For which parameters are counted.
    preset : str
        Of which parameters are counted.

    Returns
    -------
    DataFrame
        Columns method, needs, supervised, parameters, paper, adapted.

    Examples
    --------
    >>> method_table().set_index("method").loc["brainnettf", "parameters"]
    np.int64(13545257)
    """
    regions = load_parcellation(parcellation)
    rows = []
    for name in METHODS:
        method = method_class(name).from_preset(preset)
        rows.append(
            {
                "method": name,
                "needs": READS[method.kind],
                "supervised": method.supervised,
                "parameters": trainable_parameters(method, regions),
                "paper": method.paper,
                "adapted": method.adapted,
            }
        )
    return pd.DataFrame(rows)


def trainable_parameters(method: Method, parcellation: Parcellation) -> int:
    """How many numbers a method trains, counted without allocating them."""
    with torch.device("meta"):
        module = method.build(parcellation)
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
