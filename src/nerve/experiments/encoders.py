"""Encoders: trained in folds or on all participants, and saved with what a report shows of them.

An encoder is trained in the folder where it will be saved, so that its checkpoints are there. If
the training is killed, the next attempt in the same folder resumes from the last checkpoint.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, NerveWarning
from nerve._utils.files import atomic_file, claim, write_json
from nerve.data.cohort import Cohort
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import NULL, Row, line_label
from nerve.interpret.pretraining import describe_run
from nerve.methods.pretrained import located

# files of a trained model that a report reads: all but the weights
_DESCRIPTION = (
    "config.json",
    "history.tsv",
    "README.md",
    "reconstruction.json",
    "reconstruction.npz",
)


def learns_in_folds(protocol: Protocol, recentre: str | None) -> bool:
    """Whether an encoder is trained in every fold, on its training participants alone.

    Otherwise it is trained once, on all participants without their labels, and serves all folds.
    What recentres is always learned in folds. It subtracts the mean of each site: were that the
    mean of all participants of the site, their matrices would sum to zero, and a tested participant
    could be computed from the others.

    Parameters
    ----------
    protocol : Protocol
        With the `pretrain_scope`.
    recentre : str, optional
        The parameter of that name of the method.

    Returns
    -------
    bool
    """
    return protocol.pretrain_scope == "train_folds" or bool(recentre)


def fit_and_describe(method: Any, cohorts: list[Cohort], folder: Path | None, row: Row) -> Any:
    """Train an encoder and, where there is a folder, save it with what a report shows of it.

    Parameters
    ----------
    method : estimator
        Not fitted. It resumes from the last checkpoint in the folder, if there is one.
    cohorts : list of Cohort
        Pooled, except those that lack what the method reads.
    folder : Path, optional
        Where to save it.
    row : Row
        The row, for its label in warnings.

    Returns
    -------
    estimator
        The method, fitted.
    """
    if folder is None:
        return method.fit(usable_cohorts(method, cohorts))
    method = fit_and_save(method, cohorts, folder)
    try:
        errors = describe_run(method, cohorts, folder)
        if errors:
            ratio = errors["model"] / errors["group_mean"]
            doubt = method.save_masked_error(folder, ratio)
            if doubt and row.kind != NULL:  # not one warning per null model
                warnings.warn(f"{line_label(row, most=3)}: {doubt}", NerveWarning, stacklevel=2)
    except NerveError as error:  # no reason to fail: the description is for the report only
        text = f"The reconstruction could not be described: {error}"
        warnings.warn(text, NerveWarning, stacklevel=2)
    return method


def fit_and_save(method: Any, cohorts: list[Cohort], folder: Path) -> Any:
    """Train a method and save it, with checkpoints in the same folder meanwhile.

    Parameters
    ----------
    method : estimator
        Not fitted. It resumes from the last checkpoint in the folder, if there is one.
    cohorts : list of Cohort
        Pooled, except those that lack what the method reads.
    folder : Path
        Where to save it.

    Returns
    -------
    estimator
        The method, fitted.
    """
    usable = usable_cohorts(method, cohorts)
    if is_trained(method):
        method.fit(usable, run_dir=folder, resume=True)
    else:
        method.fit(usable)
    method.save(folder)
    return method


def keep_description(path: str, model: Any, folder: Path) -> None:
    """Copy what a report shows of a trained model; the weights stay where they are.

    Parameters
    ----------
    path : str
        The model: folder or archive.
    model : estimator
        The same model, loaded.
    folder : Path
        Where to write the copy.
    """
    claim(folder)
    with located(path) as model_folder:
        for name in _DESCRIPTION:
            if (model_folder / name).is_file():
                with atomic_file(folder / name) as stream:
                    stream.write((model_folder / name).read_bytes())
    parameters = model.parameter_count(model.parcellation_)
    write_json(folder / "manifest.json", {"result": {"parameters": parameters}})


def training_counts(model: Any) -> dict[str, int]:
    """The cohorts that a model was fitted on, with their numbers of participants."""
    counts = model.data_.get("cohorts", {})
    return {str(name): int(count) for name, count in counts.items()}


def scope_of_seen(is_seen: np.ndarray) -> str:
    """The scope of an encoder (`rows.SCOPES`), from whether it has seen each tested participant."""
    if is_seen.all():
        return "all"
    return "some" if is_seen.any() else "other_people"


def pretrained_encoder_of(method: Any) -> Any:
    """The encoder that a fine-tuned method begins with; None for all others."""
    if not hasattr(method, "pretrained_encoder"):
        return None
    return method.pretrained_encoder()


def is_trained(method: Any) -> bool:
    """Whether a method is trained by gradient, with checkpoints; references are fitted at once."""
    return hasattr(method, "training_settings")


def usable_cohorts(method: Any, cohorts: list[Cohort]) -> list[Cohort]:
    """The cohorts that have what the method reads; if none has, all: `fit` says what is missing."""
    return [cohort for cohort in cohorts if can_read(method, cohort)] or cohorts


def can_read(method: Any, cohort: Cohort) -> bool:
    """Whether a cohort has what a method reads."""
    return method.inputs != "timeseries" or cohort.timeseries is not None
