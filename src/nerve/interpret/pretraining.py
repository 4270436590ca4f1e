"""What an encoder learned in pretraining: how well it fills in masked patches of participants whom it has not seen.

Written beside the weights, for the report, without identifiers:

    reconstruction.json   mean squared error of masked patches: the model's, the group mean's, the patch mean's
    reconstruction.npz    an example: original, masked (NaN where hidden), reconstructed, group_of

A participant can be recognised by their FC, and models and reports are passed on. The example is therefore the mean of
all held-out participants, each masked alike; with fewer than ten there is none. One participant's is written only if
`one_participant` asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nerve.cohort import Cohort
from nerve.files import atomic_file, write_json
from nerve.methods.inputs import as_cohort
from nerve.methods.packing import PackingSource
from nerve.patching import Patching

MOST_PEOPLE = 256  # held-out participants that are reconstructed
FEWEST = 10  # held-out participants whose mean is shown
_GUESSES = ("model", "group_mean", "patch_mean")


def describe_run(
    method: Any, cohorts: Cohort | Sequence[Cohort], out: str | os.PathLike[str], *, one_participant: bool = False
) -> dict[str, Any] | None:
    """`describe_encoder` on the participants whom the fitted method held out of its own training.

    Returns None, and writes nothing, if it does not reconstruct patches or held nobody out.
    """
    if not hasattr(method, "reconstruct") or not hasattr(method, "training_settings"):
        return None
    cohort = as_cohort(cohorts, method.parcellation_)
    training, held_out = method.split(cohort, method.training_settings())
    if not len(held_out):
        return None
    people, others = cohort.subset(held_out), cohort.subset(training)
    return describe_encoder(method, people, out, training=others, one_participant=one_participant)


def describe_encoder(
    method: Any,
    held_out: Cohort,
    out: str | os.PathLike[str],
    training: Cohort | None = None,
    *,
    one_participant: bool = False,
) -> dict[str, Any] | None:
    """Mask patches of held-out participants, reconstruct them, and write errors and an example.

    With M the masked patches of a participant and x̂ a guess, the error is 1/|M| Σ_{p ∈ M} ‖x̂_p - x_p‖² / size_p.
    Guesses:
    the model's; the mean of the training participants; that mean, averaged within each patch. All are matrices of the
    method's view.

    Parameters
    ----------
    method : fitted encoder
        One with `reconstruct` and `patching_`; for others nothing is written.
    held_out : Cohort
        Participants who took no part in training; the first 256 are used.
    out : path
        Folder of the run.
    training : Cohort, optional
        Where the group mean comes from; the mean that the model has kept by default.
    one_participant : bool
        Let the example be one participant, who can then be recognised by it, instead of the mean of them all.

    Returns
    -------
    dict or None
        What reconstruction.json holds.
    """
    if not hasattr(method, "reconstruct") or not hasattr(method, "patching_"):
        return None
    patching: Patching = method.patching_
    people = held_out.align(method.parcellation_).subset(np.arange(min(len(held_out), MOST_PEOPLE)))
    source = _source(method, people)
    mean = _group_mean(method, training)
    masked = _masks(patching, method.module_.n_visible, len(people), seed=method.seed)
    hidden = _hidden_entries(patching, masked)  # (participants, S)
    actual = source.packed(np.arange(len(people)))  # (participants, S)
    predicted = patching.pack(method.reconstruct(people, masked))
    guesses = {"model": predicted, "group_mean": mean, "patch_mean": _patch_means(patching, mean)}
    errors = {name: _errors(patching, guess, actual, masked) for name, guess in guesses.items()}  # (participants,) each
    typical = int(np.argsort(errors["model"])[len(people) // 2])
    group = np.array([typical]) if one_participant else np.arange(len(people))
    report = _report(errors, patching, masked) | {"view": source.viewed.view.name}
    if one_participant or len(group) >= FEWEST:
        alike = np.repeat(masked[[typical]], len(people), axis=0)  # one mask, so that the mean is masked too
        rebuilt = patching.pack(method.reconstruct(people, alike))[group].mean(axis=0)  # (S,)
        original, hides = actual[group].mean(axis=0), hidden[typical]
        report |= {"example_n": len(group), "example_r": _r(original, rebuilt, hides)}
        with atomic_file(Path(out) / "reconstruction.npz") as stream:
            np.savez_compressed(stream, **_pictures(patching, original, rebuilt, hides))
    write_json(Path(out) / "reconstruction.json", report)
    return report


def _report(errors: dict[str, np.ndarray], patching: Patching, masked: np.ndarray) -> dict[str, Any]:
    n_people = len(masked)
    report: dict[str, Any] = {"n_people": n_people, "masked_share": round(masked.shape[1] / patching.n_patches, 3)}
    for name in _GUESSES:
        report[name] = float(errors[name].mean())
        report[f"{name}_se"] = float(errors[name].std(ddof=1) / np.sqrt(n_people)) if n_people > 1 else None
    return report | {"networks": list(patching.group_names)}


def _source(method: Any, cohort: Cohort) -> PackingSource:
    """The matrices of participants as the method reads them."""
    return method.packing(cohort) if hasattr(method, "packing") else PackingSource(cohort, method.patching_)


def _group_mean(method: Any, training: Cohort | None) -> np.ndarray:
    """(S,) mean matrix of the training participants, packed."""
    if training is None:
        kept = getattr(method.module_, "mean", None)
        return np.zeros(method.patching_.n_entries) if kept is None else kept.detach().cpu().numpy().astype(float)
    source = _source(method, training.align(method.parcellation_))
    total = sum((packed.sum(axis=0, dtype=float) for _, packed in source.chunks()), np.zeros(()))
    return total / len(source)


def _masks(patching: Patching, n_visible: int, n_people: int, seed: int) -> np.ndarray:
    """(participants, masked) patches to hide, ascending."""
    noise = np.random.default_rng([seed, 5]).random((n_people, patching.n_patches))
    return np.sort(np.argsort(noise, axis=1)[:, n_visible:], axis=1)


def _hidden_entries(patching: Patching, masked: np.ndarray) -> np.ndarray:
    """(participants, S) whether each entry lies in a masked patch."""
    patches = np.zeros((len(masked), patching.n_patches), bool)
    np.put_along_axis(patches, masked, True, axis=1)
    return patches[:, patching.patch_of]


def _patch_means(patching: Patching, packed: np.ndarray) -> np.ndarray:
    """(S,) every entry replaced by the mean of its patch."""
    return np.repeat(np.add.reduceat(packed, patching.offsets[:-1]) / patching.sizes, patching.sizes)


def _errors(patching: Patching, guess: np.ndarray, actual: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """(participants,) mean over masked patches of the mean squared error within a patch."""
    squared = (np.asarray(guess, float) - actual) ** 2  # (participants, S)
    by_patch = np.add.reduceat(squared, patching.offsets[:-1], axis=1) / patching.sizes  # (participants, patches)
    return np.take_along_axis(by_patch, masked, axis=1).mean(axis=1)


def _r(actual: np.ndarray, predicted: np.ndarray, hidden: np.ndarray) -> float | None:
    """Correlation over hidden entries; None where one of them does not vary."""
    a, b = actual[hidden].astype(float), predicted[hidden].astype(float)
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 2 and a.std() > 0 and b.std() > 0 else None


def _pictures(patching: Patching, actual: np.ndarray, predicted: np.ndarray, hidden: np.ndarray) -> dict[str, Any]:
    parts = {
        "original": actual,
        "masked": np.where(hidden, np.nan, actual),
        "reconstructed": np.where(hidden, predicted, actual),
    }
    pictures: dict[str, Any] = {name: patching.unpack(part.astype(np.float16)) for name, part in parts.items()}
    return pictures | {"group_of": patching.group_of.astype(np.int16)}
