"""Every method of the package by name. To add one: a file here, and a line in `METHODS`.

Modules are imported on first use, so that listing names needs no torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pandas as pd

from nerve._utils.errors import one_of
from nerve.data.connectivity import MEASURES, in_words
from nerve.data.parcellation import Parcellation, load_parcellation

# name -> "module:Class"
METHODS: dict[str, str] = {
    "nerve": "nerve.methods.nerve:NERVE",
    "finetune": "nerve.methods.finetuned:FineTunedNERVE",
    "brainnetcnn": "nerve.methods.brainnetcnn:BrainNetCNN",
    "braingnn": "nerve.methods.braingnn:BrainGNN",
    "brainnettf": "nerve.methods.brainnettf:BrainNetTF",
    "graphmae": "nerve.methods.graphmae:GraphMAE",
    "gate": "nerve.methods.gate:GATE",
    "braingsls": "nerve.methods.braingsls:BrainGSLs",
    "brainmass": "nerve.methods.brainmass:BrainMass",
    "raw": "nerve.methods.raw:RawFC",
    "pca": "nerve.methods.pca:PrincipalComponents",
    "ppca": "nerve.methods.ppca:PPCA",
    "tangent": "nerve.methods.tangent:TangentSpace",
    "shrunk": "nerve.methods.shrunk:ShrunkTangentSpace",
    "covariates": "nerve.methods.covariates:Covariates",
}
# the setting that names a trained model, of methods that begin with one
PRETRAINED = "pretrained"
# name of a class, as in config.json -> name of the method
NAME_OF_CLASS = {target.partition(":")[2]: name for name, target in METHODS.items()}
_INPUTS_IN_WORDS = {
    "fc": "FC",
    "upper": "FC",
    "timeseries": "time series",
    "participants": "covariates",
}


def method_class(name: str) -> Any:
    """The estimator class of a method.

    Parameters
    ----------
    name : str
        One of `METHODS`.

    Returns
    -------
    type

    Examples
    --------
    >>> method_class("nerve").__name__
    'NERVE'
    """
    module, _, attribute = METHODS[one_of("method", name, list(METHODS))].partition(":")
    return getattr(import_module(module), attribute)


def make_method(
    name: str,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    parcellation: Any = None,
) -> Any:
    """Make a method by name and check all its parameters, before anything runs.

    Parameters
    ----------
    name : str
        One of `METHODS`.
    preset : str
        One of the method's presets.
    settings : mapping, optional
        Parameters that differ from the preset.
    seed, device
        Of the methods that have them: references do not.
    parcellation : Parcellation or str, optional
        Also check that a model of these regions can be built, without allocating it.

    Returns
    -------
    method

    Examples
    --------
    >>> make_method("brainnetcnn", "small", {"epochs": 3}).epochs
    3
    >>> make_method("nerve", "small").view
    'shrunk'
    """
    cls = method_class(name)
    changes: dict[str, Any] = {}
    if "seed" in cls._get_param_names():
        changes = {"seed": seed, "device": device}
    method = cls.from_preset(preset, **{**changes, **(settings or {})})
    method.check_parameters()
    if parcellation is not None:
        method.parameter_count(load_parcellation(parcellation))
    return method


def load_method(path: str | os.PathLike[str], *, device: str = "auto") -> Any:
    """Read a fitted method of any class.

    Parameters
    ----------
    path : path or str
        A folder that `save` wrote, an archive of it, or the name of a packaged model.
    device : str
        Where it computes.

    Returns
    -------
    method
    """
    from nerve.methods.configuration import read_configuration
    from nerve.methods.pretrained import located

    with located(path) as folder:
        made_by = str(read_configuration(folder).get("method"))
        name = NAME_OF_CLASS[one_of(f"The method of {path}", made_by, list(NAME_OF_CLASS))]
        return method_class(name).load(folder, device=device)


def _measures_in_words(measures: tuple[str, ...]) -> str:
    """The measures that a method accepts: `any measure`, or their names."""
    if set(measures) == set(MEASURES):
        return "any measure"
    return " or ".join(in_words(measure) for measure in measures)


def method_table(
    parcellation: Parcellation | str = "schaefer400-17", preset: str | None = None
) -> pd.DataFrame:
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
        Columns method, title, role, needs, measures, view, preset, parameters, citation, adapted.

    Examples
    --------
    >>> method_table(preset="paper").set_index("method").loc["brainnettf", "parameters"]
    np.int64(13545257)
    """
    regions = load_parcellation(parcellation)
    classes = {name: method_class(name) for name in METHODS}
    if preset is not None:
        known: dict[str, None] = {}
        for cls in classes.values():
            known |= dict.fromkeys(cls.presets)
        one_of("preset", preset, list(known))
    rows = []
    for name, cls in classes.items():
        for preset_name in cls.presets:
            if preset not in (None, preset_name):
                continue
            method = cls.from_preset(preset_name)
            rows.append(
                {
                    "method": name,
                    "title": cls.title,
                    "role": cls.role,
                    "needs": _INPUTS_IN_WORDS[cls.inputs],
                    "measures": _measures_in_words(cls.measures),
                    "view": method.view,
                    "preset": preset_name,
                    "parameters": method.parameter_count(regions),
                    "citation": cls.citation,
                    "adapted": cls.adapted,
                }
            )
    table = pd.DataFrame(rows)
    same = [column for column in table if column != "preset"]
    merged = table.groupby(same, sort=False, dropna=False)["preset"].agg(", ".join)
    return merged.reset_index()[list(table)]
