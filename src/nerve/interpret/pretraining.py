"""What an encoder learned in pretraining: how well it fills in masked patches of participants whom it has not seen.

Written beside the weights, for the report, without identifiers:

    reconstruction.json   mean squared error of masked patches: the model's, the group mean's, the patch mean's
    reconstruction.npz    an example: original, masked (NaN where hidden), reconstructed, group_of

A participant can be recognised by their FC, and models and reports are passed on. The example is therefore the mean of
64 held-out participants, each masked alike; with fewer than ten there is none. One participant's is written only if
`one_participant` asks for it. It is FC whatever the view: patches are hidden in the view, and all is mapped back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.files import atomic_file, write_json
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.methods.inputs import as_cohort, chunks
from nerve.methods.packing import PatchDataset

MOST_PEOPLE = 256  # held-out participants that are reconstructed
MOST_SHOWN = (
    64  # of them whose mean is the example: a view is mapped back one participant at a time
)


def describe_run(
    method: Any,
    cohorts: Cohort | Sequence[Cohort],
    out: str | os.PathLike[str],
    *,
    one_participant: bool = False,
) -> dict[str, Any] | None:
    """Mask patches of held-out participants, reconstruct them, and write errors and an example.

    With M the masked patches of a participant and x̂ a guess, the error is 1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p.
    Guesses: the model's; the mean of the training participants; that mean, averaged within each patch. All are
    matrices of the method's view.

    Parameters
    ----------
    method : fitted encoder
        One that is trained and reconstructs patches; for others nothing is written.
    cohorts : Cohort or several
        What it was fitted on: it held some participants out of its training, of whom the first 256 are used. If it
        held nobody out, nothing is written.
    out : path
        Folder of the run.
    one_participant : bool
        Let the example be one participant, who can then be recognised by it, instead of the mean of them all.

    Returns
    -------
    dict or None
        What reconstruction.json holds.
    """
    if not (hasattr(method, "reconstruct") and hasattr(method, "split")):  # PPCA holds nobody out
        return None
    cohort = as_cohort(cohorts, method.parcellation_)
    training, held_out = method.split(cohort, method.training_settings())
    if not len(held_out):
        return None
    people, patching = cohort.subset(held_out[:MOST_PEOPLE]), method.patching_
    source, n_people = _source(method, people), len(people)
    actual = source.packed(np.arange(n_people))  # (participants, S)
    noise = np.random.default_rng([method.seed, 5]).random((n_people, patching.n_patches))
    masked = np.sort(
        np.argsort(noise, axis=1)[:, method.module_.n_visible :], axis=1
    )  # (participants, masked)
    report: dict[str, Any] = {
        "n_people": n_people,
        "masked_share": round(masked.shape[1] / patching.n_patches, 3),
    }
    seen = _source(method, cohort.subset(training))
    mean = sum(seen.packed(rows).sum(axis=0, dtype=float) for rows in chunks(len(seen))) / len(
        seen
    )  # (S,)
    guesses = {
        "model": patching.pack(method.reconstruct(people, masked)).astype(float),
        "group_mean": mean,
        "patch_mean": np.repeat(_by_patch(patching, mean), patching.sizes),
    }
    errors = {name: _errors(patching, guess, actual, masked) for name, guess in guesses.items()}
    for name, error in errors.items():
        report[name] = float(error.mean())
        report[f"{name}_se"] = (
            float(error.std(ddof=1) / np.sqrt(n_people)) if n_people > 1 else None
        )
    report |= {"networks": list(patching.group_names), "view": source.viewed.view.name}
    typical = int(np.argsort(errors["model"])[n_people // 2])
    shown = np.array([typical]) if one_participant else np.arange(min(n_people, MOST_SHOWN))
    if one_participant or n_people >= FEWEST:
        alike = np.repeat(
            masked[[typical]], len(shown), axis=0
        )  # one mask, so that the mean is masked too
        rebuilt = patching.pack(method.reconstruct(people.subset(shown), alike))
        hidden = np.isin(patching.patch_of, masked[typical])  # (S,)
        to_fc = source.viewed.view.to_fc
        filled_by = {"original": actual[shown], "reconstructed": rebuilt, "group_mean": mean}
        pictures = {}
        for name, filling in filled_by.items():
            viewed = patching.unpack(np.where(hidden, filling, actual[shown]))  # (shown, R, R)
            pictures[name] = to_fc(viewed).mean(axis=0)
        report["example_n"] = len(shown)
        report |= _write_example(Path(out), patching, pictures, patching.unpack(hidden))
    write_json(Path(out) / "reconstruction.json", report)
    return report


def _errors(
    patching: Patching, guess: np.ndarray, actual: np.ndarray, masked: np.ndarray
) -> np.ndarray:
    """(participants,) mean over masked patches of the mean squared error within a patch."""
    return np.take_along_axis(_by_patch(patching, (guess - actual) ** 2), masked, axis=1).mean(
        axis=1
    )


def _write_example(
    out: Path, patching: Patching, pictures: dict[str, np.ndarray], hidden: np.ndarray
) -> dict[str, float | None]:
    """Write original, masked and reconstructed FC; correlations of the hidden entries with the original.

    `pictures` are (R, R) FC: original, reconstructed, and group_mean, where the hidden patches are the training
    participants' mean. `hidden` is (R, R) true where a patch was hidden.
    """
    original = pictures["original"]
    arrays: dict[str, Any] = {
        "original": original,
        "masked": np.where(hidden, np.nan, original),
        "reconstructed": pictures["reconstructed"],
    }
    arrays = {name: array.astype(np.float16) for name, array in arrays.items()}
    with atomic_file(out / "reconstruction.npz") as stream:
        np.savez_compressed(stream, **arrays, group_of=patching.group_of.astype(np.int16))
    compared = np.triu(hidden, 1)
    correlations = {}
    for key, name in (("example_r", "reconstructed"), ("example_r_group_mean", "group_mean")):
        a, b = original[compared], pictures[name][compared]
        known = len(a) > 2 and a.std() > 0 and b.std() > 0
        correlations[key] = float(np.corrcoef(a, b)[0, 1]) if known else None
    return correlations


def _source(method: Any, cohort: Cohort) -> PatchDataset:
    """The matrices of participants as the method reads them."""
    return (
        method.patch_dataset(cohort)
        if hasattr(method, "patch_dataset")
        else PatchDataset(cohort, method.patching_)
    )


def _by_patch(patching: Patching, packed: np.ndarray) -> np.ndarray:
    """(…, S) → (…, P): the mean of each patch."""
    return np.add.reduceat(packed, patching.offsets[:-1], axis=-1) / patching.sizes
