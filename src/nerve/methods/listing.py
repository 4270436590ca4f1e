"""What the methods are, as a table: what each reads, learns from and weighs, where it comes from, what we changed."""

from __future__ import annotations

import pandas as pd

from nerve.checks import one_of
from nerve.methods import METHODS, method_class
from nerve.parcellation import Parcellation, load_parcellation

READS = {"fc": "FC", "upper": "FC", "timeseries": "time series", "participants": "covariates"}


def method_table(parcellation: Parcellation | str = "schaefer400-17", preset: str | None = None) -> pd.DataFrame:
    """One row per method and preset.

    Parameters
    ----------
    parcellation : Parcellation or str
        For which parameters are counted.
    preset : str, optional
        Only this preset; all by default. Presets of a method with the same count share a row.

    Returns
    -------
    DataFrame
        Columns method, title, role, needs, view, preset, parameters, paper, adapted.

    Examples
    --------
    >>> method_table(preset="paper").set_index("method").loc["brainnettf", "parameters"]
    np.int64(13545257)
    """
    regions = load_parcellation(parcellation)
    every = {name: method_class(name) for name in METHODS}
    known = list(dict.fromkeys(name for cls in every.values() for name in cls.presets))
    if preset is not None:
        one_of("preset", preset, known)
    rows = []
    for name, cls in every.items():
        for one in cls.presets if preset is None else {preset} & cls.presets.keys():
            method = cls.from_preset(one)
            said = {"method": name, "title": cls.title, "role": cls.role, "needs": READS[cls.kind], "view": method.view}
            said |= {"preset": one, "parameters": method.parameter_count(regions)}
            rows.append({**said, "paper": cls.paper, "adapted": cls.adapted})
    table = pd.DataFrame(rows)
    same = [column for column in table if column != "preset"]
    return table.groupby(same, sort=False, dropna=False)["preset"].agg(", ".join).reset_index()[list(table)]
