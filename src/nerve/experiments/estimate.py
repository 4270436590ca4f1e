"""How long an experiment will take: a few training steps of each kind of run are timed, and multiplied."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from nerve.checks import NerveError
from nerve.experiments.plan import Plan, Task
from nerve.experiments.run import make_method, usable_cohorts
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.experiments.workspace import Workspace

_STEPS = (1, 4)
_SIDE = 400  # people in the timed decomposition


def remaining_seconds(workspace: Workspace, plan: Plan) -> float:
    """Seconds of computing for the runs that are not done, on one worker of this machine."""
    known: dict[str, list[float]] = {}
    for task in plan.unique:
        manifest = workspace.store.manifest(task.id)
        if manifest is not None and manifest["status"] == DONE:
            known.setdefault(_likeness(task), []).append(float(manifest["seconds"]))
    total, probed = 0.0, {}
    for task in plan.unique:
        if workspace.store.status(task.id) in (DONE, UNAVAILABLE):
            continue
        like = _likeness(task)
        if like in known:
            total += float(np.mean(known[like]))
            continue
        if like not in probed:
            probed[like] = _timed(workspace, task)
        total += probed[like]
    return total


def _likeness(task: Task) -> str:
    """Runs that take about as long as one another."""
    settings = {k: v for k, v in task.key.get("settings", {}).items() if k != "patching"}
    return repr((task.kind, task.cohort, task.key.get("method"), task.key.get("preset"), settings))


def _timed(workspace: Workspace, task: Task) -> float:
    if task.kind == "probe" and "encoder_in_folds" not in task.key["features"]:
        return _probe_seconds(len(workspace.cohort(task.cohort)), workspace.config.protocol)
    folds = 1 if task.kind == "encode" else workspace.config.protocol.folds
    spec = task.key["features"]["encoder_in_folds"] if task.kind == "probe" else task.key
    names = list(spec.get("pretrained_on", [])) or [task.cohort]
    try:
        return folds * _training_seconds(workspace, spec, names)
    except NerveError:
        return 0.0  # it will be recorded as not available or failed, at once


def _training_seconds(workspace: Workspace, spec: Any, names: list[str]) -> float:
    """Time of a whole training from that of a few steps."""
    seconds = []
    full = make_method(spec, workspace.config.device)
    cohorts = usable_cohorts(full, [workspace.cohort(name) for name in names])
    settings = full.training_settings()
    targets = {"y": np.linspace(0, 1, len(cohorts[0]))} if hasattr(full, "predict") else {}
    for steps in _STEPS:
        method = make_method(spec, workspace.config.device)
        few = settings.model_copy(update={"max_steps": steps, "validation_fraction": 0.0, "epochs": steps})
        method.training_settings = lambda few=few: few
        began = time.process_time()
        method.fit(cohorts[0] if targets else cohorts, **targets)
        seconds.append(time.process_time() - began)
    a_step = max(seconds[1] - seconds[0], 0.0) / (_STEPS[1] - _STEPS[0])
    samples = method.data_["n_training"] * (1 - settings.validation_fraction)  # a sample need not be a person
    return seconds[0] + a_step * settings.total_steps(math.ceil(samples / settings.batch_size))


def _probe_seconds(n: int, protocol: Any) -> float:
    """One decomposition for each inner and outer fold; its time grows with the cube of the people."""
    kernel = np.cov(np.random.default_rng(0).normal(size=(_SIDE, 2 * _SIDE)))
    began = time.perf_counter()
    np.linalg.eigh(kernel)
    one = (time.perf_counter() - began) * (n / _SIDE) ** 3
    return protocol.folds * (protocol.inner_folds + 1) * one * 1.5
