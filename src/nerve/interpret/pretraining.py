"""What an encoder learned in pretraining: how well it fills in masked patches of new participants.

Written beside the weights, for the report, without identifiers:

    reconstruction.json   mean squared error of masked patches: the model's, the group mean's, the
                          patch mean's
    reconstruction.npz    an example: original, masked (NaN where hidden), reconstructed, group_of

A participant can be recognised by their FC, and models and reports are passed on. The example is
therefore the mean of 64 held-out participants, all masked alike; with fewer than ten there is none.
FC of one participant is written only if `one_participant` asks for it. The example is FC whatever
the view: patches are hidden in the matrices of the view, and the result is mapped back to FC.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerve._utils.files import atomic_file, write_json
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.methods.inputs import as_cohort, chunks, cohorts_in
from nerve.methods.packing import PatchDataset

_MOST_PARTICIPANTS = 256  # held-out participants that are reconstructed
# Those of them whose mean is the example. They are fewer, since a view is mapped back to FC one
# participant at a time.
_MOST_IN_EXAMPLE = 64


def describe_run(
    method: Any,
    cohorts: Cohort | Sequence[Cohort],
    out: str | os.PathLike[str],
    *,
    one_participant: bool = False,
) -> dict[str, Any] | None:
    """Mask patches of held-out participants, reconstruct them, and write errors and an example.

    With M the masked patches of a participant and x̂ a guess, the error is

        1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p

    Guesses are the model's, the mean of the training participants, and that mean averaged within
    each patch. All are matrices of the method's view.

    Parameters
    ----------
    method : fitted encoder
        One that is trained and reconstructs patches; for others nothing is written.
    cohorts : Cohort or several
        What it was fitted on. Of the participants that it held out of its training the first 256
        are used. If it held out none, nothing is written.
    out : path
        Folder of the run.
    one_participant : bool
        Let the example be one participant, who can then be recognised by it, instead of a mean.

    Returns
    -------
    dict or None
        What reconstruction.json holds.
    """
    # PPCA reconstructs, but trains on all participants: it has no split.
    if not (hasattr(method, "reconstruct") and hasattr(method, "validation_split")):
        return None
    cohort = as_cohort([part.align(method.parcellation_) for part in cohorts_in(cohorts)])
    training, held_out = method.validation_split(cohort, method.training_settings())
    if not len(held_out):
        return None
    participants = cohort.subset(held_out[:_MOST_PARTICIPANTS])
    n_participants = len(participants)
    patching = method.patching_
    dataset = _patch_dataset(method, participants)
    actual = dataset.packed(np.arange(n_participants))  # (participants, S)
    noise = np.random.default_rng([method.seed, 5]).random((n_participants, patching.n_patches))
    _, masked = method.module_.choose_masks(torch.from_numpy(noise))
    masked = masked.numpy()  # (participants, masked)
    training_mean = _mean_of(_patch_dataset(method, cohort.subset(training)))  # (S,)
    guesses = {
        "model": patching.pack(method.reconstruct(participants, masked)).astype(float),
        "group_mean": training_mean,
        "patch_mean": np.repeat(_patch_means(patching, training_mean), patching.sizes),
    }
    report: dict[str, Any] = {
        "n_people": n_participants,
        "masked_share": round(masked.shape[1] / patching.n_patches, 3),
    }
    errors = {}
    for name, guess in guesses.items():
        error_of_patch = _patch_means(patching, (guess - actual) ** 2)  # (participants, P)
        error = np.take_along_axis(error_of_patch, masked, axis=1).mean(axis=1)  # (participants,)
        errors[name] = error
        report[name] = float(error.mean())
        report[f"{name}_se"] = None
        if n_participants > 1:
            report[f"{name}_se"] = float(error.std(ddof=1) / np.sqrt(n_participants))
    report["networks"] = list(patching.group_names)
    report["view"] = dataset.viewed.view.name

    if one_participant or n_participants >= FEWEST:
        # the participant whose error is the median
        typical = int(np.argsort(errors["model"])[n_participants // 2])
        if one_participant:
            shown = np.array([typical])
        else:
            shown = np.arange(min(n_participants, _MOST_IN_EXAMPLE))
        # One mask for all of them, so that their mean is masked too.
        same_mask = np.repeat(masked[[typical]], len(shown), axis=0)  # (shown, masked)
        rebuilt = patching.pack(method.reconstruct(participants.subset(shown), same_mask))
        hidden = np.isin(patching.patch_of, masked[typical])  # (S,)
        fillings = {
            "original": actual[shown],
            "reconstructed": rebuilt,
            "group_mean": training_mean,
        }
        pictures = {}
        for name, filling in fillings.items():
            viewed = patching.unpack(np.where(hidden, filling, actual[shown]))  # (shown, R, R)
            pictures[name] = dataset.viewed.view.to_fc(viewed).mean(axis=0)
        report["example_n"] = len(shown)
        report |= _write_example(Path(out), patching, pictures, patching.unpack(hidden))
    write_json(Path(out) / "reconstruction.json", report)
    return report


def _write_example(
    out: Path, patching: Patching, pictures: dict[str, np.ndarray], hidden: np.ndarray
) -> dict[str, float | None]:
    """Write original, masked and reconstructed FC; correlate hidden entries with the original.

    `pictures` are (R, R) FC: original, reconstructed, and group_mean, where the hidden patches are
    the training participants' mean. `hidden` is (R, R), true where a patch was hidden.
    """
    original = pictures["original"]
    masked = np.where(hidden, np.nan, original)
    with atomic_file(out / "reconstruction.npz") as stream:
        np.savez_compressed(
            stream,
            original=original.astype(np.float16),
            masked=masked.astype(np.float16),
            reconstructed=pictures["reconstructed"].astype(np.float16),
            group_of=patching.group_of.astype(np.int16),
        )
    compared = np.triu(hidden, 1)
    correlations: dict[str, float | None] = {}
    for key, name in (("example_r", "reconstructed"), ("example_r_group_mean", "group_mean")):
        truth = original[compared]
        guess = pictures[name][compared]
        varies = len(truth) > 2 and truth.std() > 0 and guess.std() > 0
        correlations[key] = float(np.corrcoef(truth, guess)[0, 1]) if varies else None
    return correlations


def _patch_dataset(method: Any, cohort: Cohort) -> PatchDataset:
    """The patches of participants as the method reads them."""
    if hasattr(method, "patch_dataset"):
        return method.patch_dataset(cohort)
    return PatchDataset(cohort, method.patching_)


def _mean_of(dataset: PatchDataset) -> np.ndarray:
    """(S,) mean over participants, read a few at a time."""
    total = sum(dataset.packed(rows).sum(axis=0, dtype=float) for rows in chunks(len(dataset)))
    return np.asarray(total / len(dataset))


def _patch_means(patching: Patching, packed: np.ndarray) -> np.ndarray:
    """(…, S) → (…, P): the mean of each patch."""
    return np.add.reduceat(packed, patching.offsets[:-1], axis=-1) / patching.sizes
