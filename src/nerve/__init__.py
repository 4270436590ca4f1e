"""Self-supervised representations of brain functional connectivity, and what they predict.

The names below are the public ones. Each is imported when it is first used (SPEC 1).
"""

from importlib.metadata import version

import lazy_loader

__version__ = version("nerve-fc")

_ROOMS = ["core", "data", "evaluation", "experiments", "interpret", "methods", "report"]

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=_ROOMS,
    submod_attrs={
        "_utils.errors": ["MissingInput", "NerveError"],
        "core.patching": ["Patching"],
        "data.cohort": ["Cohort"],
        "data.parcellation": ["Parcellation", "load_parcellation"],
        "data.readers": ["read_cohort"],
        "data.simulate": ["simulate_cohort", "simulate_cohorts"],
        "evaluation.protocol": ["Protocol"],
        "evaluation.results": ["Results"],
        "experiments.evaluate_in_memory": ["evaluate"],
        "methods.kept_model": ["KeptModel"],
        "methods.nerve": ["NERVE"],
        "report": ["plot"],
    },
)
__all__ = ["__version__", *(name for name in __all__ if name not in _ROOMS)]
