"""Cohorts of several atlases in one: what was resampled, how far, and how alike their means are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.files import write_tsv
from nerve._utils.privacy import name_in_results
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.quality.likeness import ALIKE, FEWEST, Signature
from nerve.data.resampling import FARTHEST, Resampling, in_words

REPORT = "resampling.tsv"  # in the folder of a resampled cohort: a row per region


@dataclass(frozen=True)
class MeanPair:  # numpydoc ignore=PR02
    """Two group means that a figure shows side by side.

    Parameters
    ----------
    names : pair of str
        What each is the mean of.
    means : pair of (R, R) arrays
        Of ten participants or more.
    parcellations : pair of Parcellation
        Their regions.
    words : str
        How they compare.
    resampling : Resampling, optional
        Between the two parcellations; its weights are drawn too.
    """

    names: tuple[str, str]
    means: tuple[np.ndarray, np.ndarray]
    parcellations: tuple[Parcellation, Parcellation]
    words: str
    resampling: Resampling | None = None


@dataclass(frozen=True)
class ResampledFolder:  # numpydoc ignore=PR02
    """What `resample_folder` did.

    Parameters
    ----------
    n_participants : int
        How many were written.
    words : str
        What was resampled, and how far.
    round_trip : float, optional
        Correlation of the group mean with itself, carried there and back.
    pair : MeanPair, optional
        Group means before and after, of ten participants or more.
    """

    n_participants: int
    words: str
    round_trip: float | None
    pair: MeanPair | None


def resample_folder(
    cohort: str | os.PathLike[str],
    out: str | os.PathLike[str],
    parcellation: Parcellation | str,
    *,
    width: float | None = None,
    farthest: float = FARTHEST,
    images: tuple[Any, Any] | None = None,
    overwrite: bool = False,
) -> ResampledFolder:
    """Write a cohort folder in other regions, with a table of how each region is made.

    Parameters
    ----------
    cohort, out : path
        The folder to read, and the one to write.
    parcellation : Parcellation or str
        The regions to have.
    width, farthest, images
        As in `Resampling.between`.
    overwrite : bool
        Replace a cohort.

    Returns
    -------
    ResampledFolder
    """
    people = Cohort.load(cohort)
    target = load_parcellation(parcellation)
    options: dict[str, Any] = {"width": width, "farthest": farthest, "images": images}
    resampling = Resampling.between(people.parcellation, target, **options)
    resampled = people.resample(target, **options)
    resampled.save(out, overwrite=overwrite)
    write_tsv(Path(out) / REPORT, resampling.report())
    words = in_words(resampling.summary())
    if len(people) < FEWEST:
        return ResampledFolder(len(people), words, None, None)
    before = _group_mean(people)
    after = _group_mean(resampled)
    r = resampling.round_trip(before)
    pair = MeanPair(
        (f"before: {people.parcellation.name}", f"after: {target.name}"),
        (before, after),
        (people.parcellation, target),
        f"there and back, r = {r:.3f}",
        resampling,
    )
    return ResampledFolder(len(people), words, r, pair)


def _group_mean(cohort: Cohort) -> np.ndarray:
    """(R, R): mean FC of some hundred participants, ten at least."""
    signature = Signature.of(cohort)
    mean = np.eye(cohort.n_regions)
    rows, columns = np.triu_indices(cohort.n_regions, 1)
    mean[rows, columns] = signature.mean  # type: ignore[union-attr]
    mean[columns, rows] = mean[rows, columns]
    return mean


def bring_together(cohorts: Sequence[Cohort], parcellation: Parcellation | str) -> list[Cohort]:
    """Resample every cohort to one parcellation, or reorder it by label where that is enough.

    Parameters
    ----------
    cohorts : sequence of Cohort
        Of any atlases.
    parcellation : Parcellation or str
        The regions that all shall have.

    Returns
    -------
    list of Cohort
    """
    target = load_parcellation(parcellation)
    return [cohort.resample(target) for cohort in cohorts]


def describe_meeting(cohorts: Sequence[Cohort]) -> dict[str, Any]:
    """What reports say of cohorts that were brought into one parcellation.

    Parameters
    ----------
    cohorts : sequence of Cohort
        In the same regions, the one that is trained on first.

    Returns
    -------
    dict
        Plain JSON. ``resampled``: cohort → `Resampling.summary`, of those that were resampled;
        ``correlations``: (first cohort, other, correlation of their group means), of ten
        participants or more.
    """
    resampled = {}
    for cohort in cohorts:
        if "resampled" in cohort.notes:
            resampled[name_in_results(cohort.name)] = cohort.notes["resampled"]
    correlations = []
    for number, first in enumerate(cohorts):
        for other in cohorts[number + 1 :]:
            r = mean_correlation(first, other)
            if r is not None:
                names = [name_in_results(one.name) for one in (first, other)]
                correlations.append([*names, round(r, 4)])
    return {"resampled": resampled, "correlations": correlations}


def meeting_sentences(description: dict[str, Any]) -> list[str]:
    """What `describe_meeting` found, as sentences.

    Parameters
    ----------
    description : dict
        As `describe_meeting` gives it.

    Returns
    -------
    list of str
        Empty where nothing was resampled.
    """
    resampled = description.get("resampled", {})
    if not resampled:
        return []
    sentences = []
    for name, summary in resampled.items():
        sentences.append(f"Cohort {name} was resampled: {in_words(summary)}")
    for first, other, r in description.get("correlations", []):
        if first not in resampled and other not in resampled:
            continue
        sentence = f"There, the group means of {first} and {other} correlate by {r:.2f}"
        if r < ALIKE:
            sentence += f", expected {ALIKE} or more: check regions and preprocessing of both"
        sentences.append(f"{sentence}.")
    return sentences


def mean_correlation(first: Cohort, other: Cohort) -> float | None:
    """Correlation of the group means of two cohorts of the same regions.

    Parameters
    ----------
    first, other : Cohort
        In the same parcellation.

    Returns
    -------
    float or None
        None where one has fewer than ten participants.
    """
    if min(len(first), len(other)) < FEWEST:
        return None
    one = Signature.of(first)
    two = Signature.of(other.align(first.parcellation))
    if one is None or two is None:
        return None
    return float(np.corrcoef(one.mean, two.mean)[0, 1])
