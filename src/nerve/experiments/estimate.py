"""How long an experiment will take: one training step of each kind of run is timed, and multiplied."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError
from nerve.evaluation.protocol import Protocol
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.experiments.work import Encode, InFolds, Recipe, Task, Train, is_trained, usable_cohorts
from nerve.experiments.workspace import Workspace

_SIDE = 400  # participants in the timed decomposition


def remaining_seconds(workspace: Workspace) -> float:
    """Seconds of computing for the runs that are not done, on one worker of this machine."""
    known, left = defaultdict[tuple[str, ...], list[float]](list), []
    for task in workspace.plan.unique:
        manifest = workspace.store.manifest(task.id) or {}
        if manifest.get("status") == DONE:
            known[_likeness(task)].append(float(manifest["seconds"]))
        elif manifest.get("status") != UNAVAILABLE:
            left.append(task)
    for task in left:
        if not known[_likeness(task)]:
            known[_likeness(task)] = [_timed(workspace, task)]
    return sum(float(np.mean(known[_likeness(task)])) for task in left)


def _likeness(task: Task) -> tuple[str, ...]:
    """Runs that take about as long as one another: null models as long as the model that they test."""
    row = task.row
    return (
        task.kind,
        task.cohort,
        row.method,
        row.preset,
        row.variant,
        row.line.replace("null-", f"{row.method}-"),
    )


def _timed(workspace: Workspace, task: Task) -> float:
    try:
        if isinstance(task, Encode):
            return _training_seconds(workspace, task.recipe, task.on["pretrained_on"])
        protocol = workspace.config.protocol_of(task.cohort)
        if isinstance(task, Train | InFolds):
            pool = task.pool["pretrained_on"] if isinstance(task, InFolds) else ()
            return protocol.n_folds * _training_seconds(
                workspace, task.recipe, list(pool) or [task.cohort]
            )
        return _probe_seconds(len(workspace.cohort(task.cohort)), protocol)
    except NerveError:
        return 0.0  # it will be recorded as not available or failed, at once


def _training_seconds(workspace: Workspace, recipe: Recipe, names: Sequence[str]) -> float:
    """Time of a whole training from that of one step; a reference is fitted and timed as it is."""
    method: Any = recipe.make(workspace.config.device)
    cohorts = usable_cohorts(method, [workspace.cohort(name) for name in names])
    began = time.process_time()
    if not is_trained(method):
        method.fit(cohorts)
        return time.process_time() - began
    step, samples = method.seconds_per_step(cohorts)
    settings = method.training_settings()
    training = samples * (1 - settings.validation_fraction)
    return step * settings.total_steps(math.ceil(training / settings.batch_size))


def _probe_seconds(n: int, protocol: Protocol) -> float:
    """One decomposition for each inner and outer fold; its time grows with the cube of the participants."""
    kernel = np.cov(np.random.default_rng(0).normal(size=(_SIDE, 2 * _SIDE)))
    began = time.perf_counter()
    np.linalg.eigh(kernel)
    one = (time.perf_counter() - began) * (n / _SIDE) ** 3
    return protocol.n_folds * (protocol.n_inner_folds + 1) * one * 1.5
