"""The work of two commands: `nerve pretrain` (cohorts → run folder), `nerve embed` (→ features)."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import nerve
from nerve._utils import files
from nerve._utils.errors import NerveError, NerveWarning, problem
from nerve._utils.locks import only_one
from nerve.core.distributed import joined_processes
from nerve.data.cohort import Cohort
from nerve.data.common_space import bring_together
from nerve.data.quality.likeness import Likeness
from nerve.data.resampling import in_words
from nerve.methods.base import WEIGHTS
from nerve.methods.configuration import CONFIG
from nerve.methods.nerve import NERVE
from nerve.methods.parameters import (
    check_names,
    parameter_descriptions,
    parse_assignments,
    read_settings,
)
from nerve.methods.run_folder import LAST
from nerve.methods.training_logs import curve_writer

_RESOLVED = "config.yaml"
_LOCK = ".lock"


def configured_encoder(
    out: Path, preset: str | None, config: Path | None, assignments: Sequence[str], resume: bool
) -> NERVE:
    """Make the encoder of a run from a preset, changed by a file, changed by assignments.

    Parameters
    ----------
    out : path
        The run folder. A resumed run without any of the other options keeps its own settings.
    preset : str, optional
        By default the one that the file names, or else ``default``.
    config : path, optional
        A YAML file of settings.
    assignments : sequence of str
        Each ``key=value``.
    resume : bool
        Whether the run is resumed.

    Returns
    -------
    NERVE
        Not trained.
    """
    saved = out / _RESOLVED
    has_options = preset is not None or config is not None or bool(assignments)
    if resume and saved.is_file() and not has_options:
        config = saved
    named_preset, settings = (None, {}) if config is None else read_settings(config)
    name = preset or named_preset or "default"
    known = NERVE._get_param_names()

    # assignments alone first, so that a mistake in them is not blamed on the file
    assigned = parse_assignments(assignments)
    check_names(assigned, known, "--set")
    NERVE.from_preset(name, **assigned).check_parameters("--set")

    where = str(config or "--set")
    check_names(settings, known, where)
    encoder = NERVE.from_preset(name, **{**settings, **assigned})
    encoder.check_parameters(where)
    return encoder


def pretrain(
    cohorts: Sequence[Cohort | str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    preset: str | None = None,
    config: str | os.PathLike[str] | None = None,
    assignments: Sequence[str] = (),
    resume: bool = False,
    device: str | None = None,
    seed: int | None = None,
    log: str | None = None,
    parcellation: str | None = None,
) -> NERVE:
    """Train NERVE on pooled cohorts and write a complete run folder.

    Under torchrun several processes share the work. If another process is writing to the run
    folder, the error names that process.

    Parameters
    ----------
    cohorts : sequence of Cohort or path
        Pooled in the region order of the first.
    out : path
        The run: config.yaml, history.tsv, checkpoints, and at the end model.safetensors,
        config.json, README.md.
    preset, config, assignments
        See `configured_encoder`; the preset is ``default`` if none is named.
    resume : bool
        Go on from the last checkpoint in `out`.
    device : str, optional
        Replaces that of the configuration.
    seed : int, optional
        Replaces that of the configuration.
    log : {"tensorboard"}, optional
        Write the training curves for another program too, into `out`.
    parcellation : str, optional
        Cohorts of other regions are resampled to this one. Without it they are refused.

    Returns
    -------
    NERVE
        Fitted.
    """
    folder = Path(out)
    config_path = None if config is None else Path(config)
    encoder = configured_encoder(folder, preset, config_path, assignments, resume)
    if device is not None:
        encoder.set_params(device=device)
    if seed is not None:
        encoder.set_params(seed=seed)
        encoder.check_parameters("--seed")
    callbacks = [] if log is None else [curve_writer(log, folder)]
    with (
        joined_processes() as processes,
        only_one(folder / _LOCK, folder) if processes.first else nullcontext(),
    ):
        opened = [_opened(cohort) for cohort in cohorts]
        if parcellation is not None:
            opened = bring_together(opened, parcellation)
        files.claim(folder)
        if not (folder / LAST).is_file():
            _refuse_trained_model(folder)
            if processes.first:
                files.write_text(folder / _RESOLVED, resolved_yaml(encoder))
        # a folder with a checkpoint is resumed, or refused without `resume`
        encoder.fit(opened, run_dir=folder, resume=resume, callbacks=callbacks)
        encoder.save(folder)
        processes.wait()
    return encoder


def resolved_yaml(encoder: NERVE) -> str:
    """Write every parameter with its description as YAML, which `--config` reads.

    Parameters
    ----------
    encoder : NERVE

    Returns
    -------
    str
    """
    lines = [
        f"# Settings of a NERVE run, resolved by nerve {nerve.__version__}.",
        f"preset: {encoder.preset_name()}",
    ]
    parameters = encoder.check_parameters()
    for name, meaning in parameter_descriptions(NERVE).items():
        lines.append(f"{name}: {json.dumps(parameters[name])}  # {meaning}")  # JSON is YAML
    return "\n".join(lines) + "\n"


def embed_file(
    run: str | os.PathLike[str],
    cohort: Cohort | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    on_difference: Callable[[Likeness, str], None] | None = None,
    resample: bool = False,
) -> np.ndarray:
    """Embed a cohort with a trained model and write the result.

    A `.tsv` holds participant_id, dim0 …; a `.npy` the array alone, with a `.json` of the same name
    that says which participant each row is and, for ``tokens``, which pair of networks each token
    is. There is a warning if the cohort does not look like the training cohort (another
    preprocessing, Fisher z).

    Parameters
    ----------
    run : path or str
        A trained model: a folder, an archive, or a name of `nerve models list`.
    cohort : Cohort or path
    out : path
        The .tsv or .npy to write.
    pooling : {"pca", "mean", "cls", "tokens"}, optional
        That of the model by default.
    device : str
        Where to compute.
    overwrite : bool
        Replace an existing file of embeddings.
    on_difference : callable, optional
        Called with the comparison and the cohort's name if the cohort looks different or was
        resampled.
    resample : bool
        Resample a cohort of other regions to those of the model. Without it, it is refused.

    Returns
    -------
    array
        The embeddings.
    """
    path = Path(out)
    beside = path.with_suffix(".json")
    suffix = path.suffix.lower()
    if suffix not in (".tsv", ".npy"):
        raise problem(path, f"its ending is {suffix!r}", expected=".tsv or .npy")
    if suffix == ".tsv":
        is_ours = files.begins_with("participant_id", "dim0")
        files.check_may_write(path, overwrite=overwrite, is_ours=is_ours)
    else:
        # an array of ours is recognised by the .json beside it
        files.check_may_write(path, overwrite=overwrite, is_ours=lambda _: _is_embedding(beside))
        files.check_may_write(beside, overwrite=overwrite, is_ours=_is_embedding)
    encoder = NERVE.from_pretrained(run, device=device)
    pooling = pooling or encoder.pooling
    if pooling == "tokens" and suffix != ".npy":
        raise problem(
            path, "tokens are a three-dimensional array", remedy="Give the file an ending of .npy."
        )
    opened = _opened(cohort)
    if resample:
        opened = resampled_to(encoder, opened)
    comparison = compared(encoder, opened)
    looks_different = comparison.differences or "resampled" in opened.notes
    if looks_different and on_difference is not None:
        on_difference(comparison, opened.name)
    values = encoder.transform(opened, pooling)
    opened.check_unchanged()
    ids = opened.participants["participant_id"]
    if suffix == ".tsv":
        table = pd.DataFrame(values, columns=[f"dim{k}" for k in range(values.shape[1])])
        table.insert(0, "participant_id", ids.to_numpy())
        files.write_tsv(path, table)
        return values
    about: dict[str, Any] = {
        "pooling": pooling,
        "shape": list(values.shape),
        "participant_id": ids.tolist(),
    }
    if pooling == "tokens":
        names = encoder.patching_.group_names
        about["pairs"] = [[names[a], names[b]] for a, b in encoder.patching_.pairs]
    files.write_json(beside, about)  # first: an array without it is not recognised as ours
    files.write_npy(path, values)
    return values


def resampled_to(model: Any, cohort: Cohort) -> Cohort:
    """Resample a cohort to the regions of a fitted method, and warn of how that went.

    Parameters
    ----------
    model : method
        Fitted.
    cohort : Cohort
        Of any regions. If it has all regions of the model by label, nothing is resampled.

    Returns
    -------
    Cohort
    """
    model.check_fitted()
    resampled = cohort.resample(model.parcellation_)
    if resampled.parcellation != cohort.parcellation and "resampled" in resampled.notes:
        text = f"Cohort {cohort.name!r} was resampled: {in_words(resampled.notes['resampled'])}"
        likeness = model.likeness(resampled).words if hasattr(model, "likeness") else ""
        if likeness:
            text += f" There, {likeness} (this cohort, the training cohort)."
        warnings.warn(text, NerveWarning, stacklevel=3)
    return resampled


def compared(model: Any, cohort: Cohort) -> Likeness:
    """Compare a cohort with the training cohort of a model, and warn of each difference.

    Parameters
    ----------
    model : method
        With `likeness`.
    cohort : Cohort

    Returns
    -------
    Likeness
    """
    likeness: Likeness = model.likeness(cohort)
    for difference in likeness.differences:
        text = (
            f"Cohort {cohort.name!r} does not look like what the model was trained on. {difference}"
        )
        warnings.warn(text, NerveWarning, stacklevel=3)
    return likeness


def _opened(cohort: Cohort | str | os.PathLike[str]) -> Cohort:
    """The cohort, loaded if it is given as a path."""
    return cohort if isinstance(cohort, Cohort) else Cohort.load(cohort)


def _refuse_trained_model(folder: Path) -> None:
    """Refuse to replace a trained model, which has no checkpoint beside it."""
    if (folder / WEIGHTS).is_file() or (folder / CONFIG).is_file():
        raise NerveError(
            f"{folder}: already holds a trained model, which is not replaced. Choose another "
            "folder."
        )


def _is_embedding(path: Path) -> bool:
    """Whether a file is the .json that `embed_file` writes beside an array."""
    try:
        content = files.read_json(path)
    except NerveError:
        return False
    return isinstance(content, dict) and {"pooling", "shape", "participant_id"} <= content.keys()
