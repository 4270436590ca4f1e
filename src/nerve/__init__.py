"""Self-supervised representations of brain functional connectivity, and an honest test of what they predict."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nerve._utils.cores import share_the_machine

share_the_machine()

# public name -> module that holds it; imported on first use, so that `import nerve` costs nothing
_PUBLIC = {
    "Cohort": "nerve.data.cohort",
    "MissingInput": "nerve._utils.errors",
    "NERVE": "nerve.methods.nerve",
    "NerveError": "nerve._utils.errors",
    "Parcellation": "nerve.data.parcellation",
    "Patching": "nerve.core.patching",
    "Probe": "nerve.methods.probe",
    "Protocol": "nerve.evaluation.protocol",
    "evaluate": "nerve.experiments.evaluate",
    "load_parcellation": "nerve.data.parcellation",
    "read_cohort": "nerve.data.readers",
    "simulate_cohort": "nerve.data.simulate",
    "simulate_cohorts": "nerve.data.simulate",
}
__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        globals()[name] = import_module("importlib.metadata").version("nerve-fc")  # slow: only when it is asked for
        return globals()[name]
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    try:
        return import_module(f"nerve.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"nerve.{name}":
            raise
        raise AttributeError(f"module 'nerve' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
