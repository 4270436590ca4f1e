"""How long an experiment will take: one training step of each kind of run is timed, and multiplied."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from nerve.checks import NerveError
from nerve.experiments.plan import Plan, Task
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.experiments.work import Encode, InFolds, Probe, Recipe, Train, is_trained, usable_cohorts
from nerve.experiments.workspace import Workspace
from nerve.protocol import Protocol

_SIDE = 400  # participants in the timed decomposition


def remaining_seconds(workspace: Workspace, plan: Plan) -> float:
    """Seconds of computing for the runs that are not done, on one worker of this machine."""
    known: dict[str, list[float]] = {}
    for task in plan.unique:
        manifest = workspace.store.manifest(task.id)
        if manifest is not None and manifest["status"] == DONE:
            known.setdefault(_likeness(task), []).append(float(manifest["seconds"]))
    total, timed = 0.0, {}
    for task in plan.unique:
        if workspace.store.status(task.id) in (DONE, UNAVAILABLE):
            continue
        like = _likeness(task)
        if like not in known and like not in timed:
            timed[like] = _timed(workspace, task)
        total += float(np.mean(known[like])) if like in known else timed[like]
    return total


def _likeness(task: Task) -> str:
    """Runs that take about as long as one another: null models as long as the model that they test."""
    row = task.row
    return repr((task.work.kind, task.cohort, row.method, row.preset, row.variant, row.line.removeprefix("null-")))


def _timed(workspace: Workspace, task: Task) -> float:
    work = task.work
    try:
        if isinstance(work, Encode):
            return _training_seconds(workspace, work.recipe, list(work.pretrained_on))
        protocol = workspace.config.protocol_of(task.cohort)
        if isinstance(work, Train):
            return protocol.n_folds * _training_seconds(workspace, work.recipe, [task.cohort])
        if isinstance(work, Probe) and isinstance(work.features, InFolds):
            encode = work.features.encode
            pooled = list(encode.pretrained_on) or [task.cohort]
            return protocol.n_folds * _training_seconds(workspace, encode.recipe, pooled)
        return _probe_seconds(len(workspace.cohort(task.cohort)), protocol)
    except NerveError:
        return 0.0  # it will be recorded as not available or failed, at once


def _training_seconds(workspace: Workspace, recipe: Recipe, names: list[str]) -> float:
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
