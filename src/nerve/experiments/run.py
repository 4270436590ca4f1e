"""One run: what it computes, and how it is recorded whether it ends well or not."""

from __future__ import annotations

import inspect
import logging
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from nerve.checks import MissingInput, NerveError, NerveWarning, known_columns, naming
from nerve.cohort import Cohort
from nerve.evaluation.features import model_and_source, one_feature_set
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.predict import null_correlations, out_of_fold_predictions
from nerve.evaluation.sources import Rows, Source
from nerve.experiments.plan import Task
from nerve.experiments.select import BestVariant, Variants
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, fingerprint, versions
from nerve.experiments.workspace import Workspace
from nerve.files import claim, write_json, write_npy, write_text, write_tsv
from nerve.interpret.pretraining import describe_run
from nerve.report.privacy import Scrubber
from nerve.store import open_npy

log = logging.getLogger("nerve.experiments")


def run_task(workspace: Workspace, task: Task, *, device: str | None = None) -> str:
    """Do one run unless it is done or another process is at it; returns its status.

    A failure is recorded with its reason and raised no further. A stop (Ctrl-C, SIGTERM) is passed on: what was
    checkpointed is used when the run is started again.
    """
    store = workspace.store
    with store.lock(task.id) as mine:
        if not mine:
            return RUNNING
        status = store.manifest(task.id)
        if status is not None and status["status"] in (DONE, UNAVAILABLE):
            return str(status["status"])
        folder = claim(store.run_folder(task.id))
        write_json(folder / "task.json", {"kind": task.kind, "label": task.label, "key": dict(task.key)})
        record: dict[str, Any] = {"id": task.id, "kind": task.kind, "label": task.label, "seed": task.seed}
        began = time.perf_counter()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", NerveWarning)
            try:
                record["status"], record["result"] = DONE, KINDS[task.kind](workspace, task, folder, device)
            except MissingInput as error:
                record["status"], record["reason"] = UNAVAILABLE, str(error)
            except NerveError as error:
                record["status"], record["reason"] = FAILED, str(error)
            except Exception as error:  # a fault of ours or of the machine: recorded, the others go on
                record["status"], record["reason"] = FAILED, f"{type(error).__name__}: {error}"
                write_text(folder / "error.txt", Scrubber([]).clean(traceback.format_exc()))
        record["seconds"] = round(time.perf_counter() - began, 3)
        record["warnings"] = sorted({str(w.message) for w in shown if issubclass(w.category, NerveWarning)})
        store.write_manifest(task.id, record | {"key": dict(task.key), "versions": versions()})
        return str(record["status"])


def encode(workspace: Workspace, task: Task, folder: Path, device: str | None) -> dict[str, Any]:
    """Train an encoder on the pooled cohorts; it goes on from its last checkpoint."""
    device = device or workspace.config.device
    cohorts = [workspace.cohort(name) for name in task.key["pretrained_on"]]
    if isinstance(task.key["settings"].get("patching"), list):
        return encode_together(task.key, cohorts, folder, device)
    method = make_method(task.key, device)
    cohorts = usable_cohorts(method, cohorts)
    method.fit(cohorts, run_dir=folder, resume=True)
    method.save(folder)
    try:
        describe_run(method, cohorts, folder)
    except NerveError as error:  # the encoder is trained and saved: its description is for the report only
        warnings.warn(f"The reconstruction could not be described: {error}", NerveWarning, stacklevel=2)
    return _described(method)


def encode_together(key: Mapping[str, Any], cohorts: list[Cohort], folder: Path, device: str) -> dict[str, Any]:
    """Train models that differ only in their patching in one go; each is saved as a member of the run."""
    from nerve.methods.together import fit_together

    settings = key["settings"]
    methods = [make_method({**key, "settings": settings | {"patching": one}}, device) for one in settings["patching"]]
    for number, method in enumerate(fit_together(methods, cohorts, run_dir=folder, resume=True)):
        method.save(folder / "members" / str(number))
    return _described(methods[0])


def probe(workspace: Workspace, task: Task, folder: Path, device: str | None) -> dict[str, Any]:
    """Predict all targets of a cohort from features, by kernel ridge."""
    cohort = workspace.cohort(task.key["cohort"])
    people, settings = workspace.people(task.key["cohort"])
    what = task.key["features"]
    ridge = KernelRidge(settings.kernel, settings.lambdas, settings.n_inner_folds, seed=settings.seed)
    covariates: pd.DataFrame | None = people.covariates
    model: Any = ridge
    source: Source
    if "encoder_in_folds" in what:
        source = EncodedInFolds(workspace, what["encoder_in_folds"], cohort, folder, device)
    elif "choose" in what:
        model, source = BestVariant(ridge), Variants([encoded(workspace, i, task, device) for i in what["choose"]])
    elif "encoder" in what:
        features = one_feature_set(encoded(workspace, what["encoder"], task, device, what.get("member")), cohort)
        model, source = model_and_source(features, cohort, people, settings)
    else:
        settings = replace(settings, n_components=what.get("components", settings.n_components))
        model, source = model_and_source(one_feature_set(what["reference"], cohort), cohort, people, settings)
        covariates = None if what["reference"] == "covariates" else covariates
    shared: dict[str, Any] = {"covariates": covariates, "groups": people.inner_groups, "order": people.order}
    with naming(people.ids):
        predictions = out_of_fold_predictions(model, source, people.targets, people.folds[0], **shared)
    _write_predictions(folder, predictions, people.ids)
    if settings.n_permutations and "encoder_in_folds" not in what:
        options: dict[str, Any] = {
            "n_permutations": settings.n_permutations,
            "seed": settings.seed,
            "blocks": people.sites,
        }
        shared["groups"] = people.groups
        with naming(people.ids):
            null = null_correlations(model, source, people.targets, people.folds[0], **shared, **options)
        write_tsv(folder / "null.tsv", pd.DataFrame(null))
    return {"n": len(cohort), "adapted": _adapted(workspace, task, source)}


def train(workspace: Workspace, task: Task, folder: Path, device: str | None) -> dict[str, Any]:
    """Train a supervised network inside each fold, for one target."""
    cohort = workspace.cohort(task.key["cohort"])
    people, _ = workspace.people(task.key["cohort"])
    method = make_method(task.key, workspace.config.device if device is None else device)
    usable_cohorts(method, [cohort])
    model = _Watched(method)
    with naming(people.ids):
        predictions = out_of_fold_predictions(
            model,
            Rows(cohort),
            people.targets[list(task.key["targets"])],
            people.folds[0],
            covariates=people.covariates,
            groups=people.inner_groups,
            order=people.order,
        )
    _write_predictions(folder, predictions, people.ids)
    return {"n": len(cohort), "adapted": next(iter(model.adapted), "")}


KINDS = {"encode": encode, "probe": probe, "train": train}


class EncodedInFolds:
    """Features from an encoder that has never seen the fold's test people (`pretrain_scope: train_folds`)."""

    columns: tuple[str, ...] = ()

    def __init__(
        self, workspace: Workspace, spec: dict[str, Any], cohort: Cohort, folder: Path, device: str | None
    ) -> None:
        self.workspace, self.spec, self.cohort, self.folder, self.device = workspace, spec, cohort, folder, device
        self.adapted = ""

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Train (or load) the encoder of these training people, and embed both sets."""
        method = make_method(self.spec, self.workspace.config.device if self.device is None else self.device)
        cohorts = [
            self.cohort.subset(train) if name == self.cohort.name else self.workspace.cohort(name)
            for name in self.spec["pretrained_on"]
        ]
        folder = self.folder / "encoders" / fingerprint(self.cohort.participants["participant_id"][train].tolist())
        if (folder / "config.json").is_file():
            method = type(method).load(folder, device=method.device)
        else:
            method.fit(usable_cohorts(method, cohorts), run_dir=folder, resume=True).save(folder)
        self.adapted = self.adapted or method.adapted_
        return tuple(_flat(method.transform(self.cohort.subset(rows))) for rows in (train, test))  # type: ignore[return-value]


def make_method(spec: Any, device: str) -> Any:
    """The estimator of a run: its preset, changed by its settings, with its seed."""
    from nerve.methods import method_class

    cls = method_class(spec["method"])
    try:
        return cls.from_preset(spec["preset"], **spec["settings"], seed=spec["seed"], device=device)
    except TypeError:
        known = inspect.signature(cls).parameters
        known_columns(spec["settings"], known, f"settings of {spec['method']}")
        raise


def usable_cohorts(method: Any, cohorts: list[Cohort]) -> list[Cohort]:
    """The cohorts that have what the method reads; none is an error that tables print as "--"."""
    if method.kind != "timeseries":
        return cohorts
    usable = [cohort for cohort in cohorts if cohort.timeseries is not None]
    if not usable:
        cohorts[0].inputs("timeseries", [])  # raises MissingInput with the cohort's name
    return usable


def encoded(
    workspace: Workspace, encoder_id: str, task: Task, device: str | None, member: int | None = None
) -> np.ndarray:
    """Features of the task's cohort, computed once by the encoder and kept beside its weights."""
    from nerve.methods import method_class

    manifest = workspace.store.manifest(encoder_id)
    if manifest is not None and manifest["status"] == UNAVAILABLE:
        raise MissingInput(manifest["reason"])
    if manifest is None or manifest["status"] != DONE:
        reason = "it has not run" if manifest is None else manifest.get("reason", "")
        raise NerveError(f"Its encoder is not trained: {reason}")
    cohort = workspace.cohort(task.key["cohort"])
    folder = workspace.store.run_folder(encoder_id)
    folder = folder if member is None else folder / "members" / str(member)
    kept = folder / "features" / f"{task.key['data']}-{'ts' if cohort.timeseries is not None else 'fc'}.npy"
    if not kept.is_file():
        method = method_class(manifest["key"]["method"]).load(folder, device=device or workspace.config.device)
        usable_cohorts(method, [cohort])
        write_npy(kept, _flat(method.transform(cohort)))
    return np.asarray(open_npy(kept, "Remove it: it is made again."))


def _adapted(workspace: Workspace, task: Task, source: Source) -> str:
    """What an encoder had to substitute, if anything."""
    if isinstance(source, EncodedInFolds):
        return source.adapted
    what = task.key["features"]
    ids = what.get("choose", [what["encoder"]] if "encoder" in what else [])
    manifests = [workspace.store.manifest(i) or {} for i in ids]
    return next((m["result"]["adapted"] for m in manifests if m.get("result", {}).get("adapted")), "")


def _flat(features: np.ndarray) -> np.ndarray:
    return features.reshape(len(features), -1)


def _write_predictions(folder: Path, predictions: pd.DataFrame, ids: np.ndarray) -> None:
    table = predictions.assign(participant=ids[predictions["row"].to_numpy(int)]).drop(columns="row")
    write_tsv(folder / "predictions.tsv", table)


def _described(method: Any) -> dict[str, Any]:
    history = method.history_
    return {
        "adapted": method.adapted_,
        "parameters": int(sum(p.numel() for p in method.module_.parameters() if p.requires_grad)),
        "steps": int(history["step"].iloc[-1]) if len(history) else 0,
    }


class _Watched:
    """A supervised method whose copies, one a fold, tell what they had to substitute."""

    def __init__(self, method: Any, adapted: set[str] | None = None) -> None:
        self.method, self.adapted = method, set() if adapted is None else adapted

    def __deepcopy__(self, memo: Any) -> _Watched:
        return _Watched(clone(self.method), self.adapted)

    def fit(self, X: Any, y: Any, groups: Any = None) -> _Watched:
        self.method.fit(X, y, groups=groups)
        self.adapted |= {self.method.adapted_} - {""}
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.method.predict(X)
