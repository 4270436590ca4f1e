"""Models of nerve in Brainmarks, which finds this file as a plugin: docs/howto/brainmarks.md.

`brainmarks` is a namespace package: it has no ``__init__.py``, neither here nor in Brainmarks.
"""

import os
from typing import Any

from brainmarks.models.registry import register_model

from nerve.methods.brainmarks import (
    RunModel,
    RunTransform,
    TangentModel,
    TangentTransform,
    run_model,
    tangent_model,
)


@register_model
def nerve_run(run: str | None = None, **kwargs: Any) -> tuple[RunTransform, RunModel]:
    """A trained NERVE: model_kwargs.run, or NERVE_RUN in the environment, names its folder."""
    return run_model(run or os.environ.get("NERVE_RUN"))


@register_model
def nerve_tangent(**kwargs: Any) -> tuple[TangentTransform, TangentModel]:
    """Tangent space of FC, whitened by the mean of the training split."""
    return tangent_model(shrunk=False)


@register_model
def nerve_shrunk(**kwargs: Any) -> tuple[TangentTransform, TangentModel]:
    """Shrunk tangent space of FC, with directions and weights of the training split."""
    return tangent_model(shrunk=True)
