"""Cohorts of several atlases in one: what was resampled, and how alike their means then are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, OtherRegions, listed
from nerve._utils.files import write_tsv
from nerve._utils.privacy import name_in_results
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation, load_parcellation, parcellation_names
from nerve.data.quality.likeness import ALIKE, FEWEST, Signature
from nerve.data.resampling import FARTHEST, Resampling, in_words

_REPORT = "resampling.tsv"  # in the folder of a resampled cohort: a row per region
# regions that most atlases can be carried to, where none of the cohorts' own will do
_COMMON = ("schaefer200-17",)


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
    original = Cohort.load(cohort)
    target = load_parcellation(parcellation)
    options: dict[str, Any] = {"width": width, "farthest": farthest, "images": images}
    resampling = Resampling.between(original.parcellation, target, **options)
    resampled = original.resample(target, **options)
    resampled.save(out, overwrite=overwrite)
    write_tsv(Path(out) / _REPORT, resampling.report())
    words = in_words(resampling.summary())
    signature_before = Signature.of(original)
    signature_after = Signature.of(resampled)
    if signature_before is None or signature_after is None:  # too few participants for a mean
        return ResampledFolder(len(original), words, None, None)
    before = signature_before.matrix()
    after = signature_after.matrix()
    r = resampling.round_trip(before)
    pair = MeanPair(
        (f"before: {original.parcellation.name}", f"after: {target.name}"),
        (before, after),
        (original.parcellation, target),
        f"there and back, r = {r:.3f}",
        resampling,
    )
    return ResampledFolder(len(original), words, r, pair)


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
                names = [name_in_results(first.name), name_in_results(other.name)]
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
    first_signature = Signature.of(first)
    other_signature = Signature.of(other.align(first.parcellation))
    if first_signature is None or other_signature is None:
        return None
    return float(np.corrcoef(first_signature.mean, other_signature.mean)[0, 1])


@contextmanager
def naming_resampling(
    cohorts: Sequence[str | os.PathLike[str]], option: str = ""
) -> Iterator[None]:
    """Say in a refusal of other regions what to type, so that the cohorts are resampled.

    Parameters
    ----------
    cohorts : sequence of path
        The cohort folders of a command.
    option : {"", "--resample", "--parcellation"}
        The option of the command that resamples them; without one, `nerve resample` is named.
    """
    try:
        yield
    except OtherRegions as error:
        sources = {str(folder): Cohort.load(folder).parcellation for folder in cohorts}
        candidates = [error.wanted]
        if error.wanted in sources.values():
            # Cohorts that meet may have any regions: those with networks, and the coarsest of them,
            # which are the most faithful.
            candidates = [*sources.values(), *map(load_parcellation, _COMMON)]
            candidates.sort(key=lambda regions: (regions.n_networks < 2, regions.n_regions))
        try:
            target = reachable_parcellation(list(sources.values()), candidates)
        except NerveError as reason:
            remedy = f"It cannot be resampled either. {reason}"
            raise OtherRegions(error.cause, error.wanted, remedy) from error
        name = _typed_name(target, sources)
        if option == "--resample":
            command = f"Add `{option}` to the command to resample the cohort."
        elif option:
            command = f"Add `{option} {name}` to the command to resample all cohorts."
        else:
            words = []
            for folder, parcellation in sources.items():
                if parcellation != target:
                    out = f"{folder.rstrip('/')}-{target.name}"
                    line = shlex.join(["nerve", "resample", folder, out, "--parcellation", name])
                    words.append(f"`{line}`")
            command = f"Write it in these regions, and use what was written: {listed(words)}."
        remedy = f"Nothing is resampled unasked. {command}"
        raise OtherRegions(error.cause, error.wanted, remedy) from error


def reachable_parcellation(
    sources: Sequence[Parcellation], candidates: Sequence[Parcellation]
) -> Parcellation:
    """Choose the first parcellation to which all others can be carried.

    Parameters
    ----------
    sources : sequence of Parcellation
        Those of the cohorts.
    candidates : sequence of Parcellation
        In the order in which they are tried.

    Returns
    -------
    Parcellation
    """
    refusals = []
    for target in candidates:
        try:
            for source in sources:
                Resampling.between(source, target)
        except NerveError as error:
            refusals.append(error)
        else:
            return target
    raise refusals[0]


def _typed_name(parcellation: Parcellation, cohorts: Mapping[str, Parcellation]) -> str:
    """What stands for a parcellation on the command line: its name, or the table of a cohort."""
    is_known = parcellation.name.removesuffix("+aseg19") in parcellation_names()
    if is_known and load_parcellation(parcellation.name) == parcellation:
        return shlex.quote(parcellation.name)
    for folder, known in cohorts.items():
        if known == parcellation:
            return shlex.quote(str(Path(folder) / "regions.tsv"))
    return "TABLE.tsv"
