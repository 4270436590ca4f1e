"""Every method of the package by name. To add one: a file here, and a line in `METHODS`.

Names are resolved on first use, so that listing methods needs neither torch nor torch-geometric.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nerve.checks import one_of

# name -> "module:Class"
METHODS: dict[str, str] = {
    "nerve": "nerve.methods.nerve:NERVE",
    "brainnetcnn": "nerve.methods.brainnetcnn:BrainNetCNN",
    "braingnn": "nerve.methods.braingnn:BrainGNN",
    "brainnettf": "nerve.methods.brainnettf:BrainNetTF",
    "graphmae": "nerve.methods.graphmae:GraphMAE",
    "gate": "nerve.methods.gate:GATE",
    "braingsls": "nerve.methods.braingsls:BrainGSLs",
    "brainmass": "nerve.methods.brainmass:BrainMass",
    "raw": "nerve.methods.references:RawFC",
    "pca": "nerve.methods.references:PrincipalComponents",
    "ppca": "nerve.methods.ppca:PPCA",
    "tangent": "nerve.methods.tangent:TangentSpace",
    "covariates": "nerve.methods.references:Covariates",
}


def method_class(name: str) -> Any:
    """The estimator class of a method.

    Examples
    --------
    >>> method_class("nerve").__name__
    'NERVE'
    """
    module, _, attribute = METHODS[one_of("method", name, list(METHODS))].partition(":")
    return getattr(import_module(module), attribute)
