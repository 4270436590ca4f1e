"""Simulated cohorts with planted structure and a known answer.

The model. Region r of participant i at volume t has the signal

    x_it = J [ (U + W_i) n_it + v_t + √(κ motion_i) A a_t ],     n_it ~ N(0, N^½ exp(M_i) N^½)

U are the loadings of regions on the signals of their network (a level and two contrasts each) and N
is the coupling of these signals in the population: unimodal networks apart from association cortex,
attention against default. v is what neighbours, and mirrored places of the two hemispheres, share;
A are smooth artefacts of motion; J takes out most of the mean signal. W_i is a participant's own
topography, by which participants can be recognised. A participant differs by

    M_i = Σ_k z_ik F_k + age_i F_age + sex_i F_sex + F_site(i) + own_i + session_i

where F_k = N^-½ D_k N^-½ and D_k couples the signals of stated network pairs: to first order, one
standard deviation of factor k changes the coupling of its pairs by `strength`. The exponential
keeps every covariance positive definite. Successive volumes correlate by φ, and FC is the Pearson
correlation of T of them, with the sampling noise of a scan.

Targets follow the factors with a stated correlation (see `Target`); what was planted is in
``cohort.notes["truth"]``.

Everything about participant i is drawn from (seed, i) alone: a larger cohort begins with the
smaller one, however it is cut into chunks. Loadings, coupling, pairs and scanners are drawn from
`structure_seed`: cohorts that share it share them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, problem
from nerve._utils.files import write_json, write_tsv
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import writing_cohort
from nerve.data.parcellation import Parcellation
from nerve.data.simulate.participants import (
    ID_DIGITS,
    Target,
    default_targets,
    draw_participant,
)
from nerve.data.simulate.plan import CHUNK, SimulationPlan
from nerve.data.simulate.population import Pair, patch_means

__all__ = [
    "Target",
    "default_targets",
    "factor_scores",
    "patch_means",
    "simulate_cohort",
    "simulate_cohorts",
    "simulate_to",
]


def simulate_cohort(
    n: int = 300,
    parcellation: Parcellation | str = "schaefer100-17",
    timepoints: int = 200,
    *,
    seed: int = 0,
    structure_seed: int = 0,
    name: str = "simulated",
    sites: int | Sequence[str] = 3,
    targets: Sequence[Target] | None = None,
    pairs: Mapping[str, Sequence[Pair]] | None = None,
    n_factors: int = 8,
    strength: float = 0.09,
    keep_timeseries: bool = True,
    session: int = 1,
    family_size: int = 1,
    ages: tuple[float, float] = (8.0, 22.0),
    autocorrelation: float = 0.7,
    seen_in: Parcellation | str | None = None,
) -> Cohort:
    """Simulate participants, their FC and what is known of them.

    Parameters
    ----------
    n : int
        Participants.
    parcellation : Parcellation or str
        Regions and networks; any will do, the Schaefer networks are coupled as in real data.
    timepoints : int
        Volumes of a scan, T.
    seed : int
        Participants and scans.
    structure_seed : int
        What cohorts have in common: region loadings, network pairs and their effects, scanners.
    name : str
        The cohort's name; also part of participant ids and of site names.
    sites : int or sequence of str
        Scanners, by number or name; the same name in two cohorts of one structure is the same
        scanner.
    targets : sequence of Target, optional
        By default p_factor, internalizing, externalizing (true r of 0.6) and null.
    pairs : mapping, optional
        Factor (``"general"``, ``"internal"``, ``"external"``, ``"factor4"`` …, ``"age"``,
        ``"sex"``) → pairs of network names. Left out, three pairs are chosen for each by
        `structure_seed`.
    n_factors : int
        Factors on which participants differ; the first three are those of the default targets.
    strength : float
        Change of the coupling of a pair's signals by one standard deviation of its factor. About
        half of it is seen in the mean FC of the pair; how much exactly is in the truth, as
        ``fc_change_per_sd``.
    keep_timeseries : bool
        Without time series FC comes from fewer, independent volumes that give the same sampling
        noise, T (1 - φ²) / (1 + φ²) of them: several times faster, but another draw than with time
        series.
    session : int
        The visit. The same call with another session is the same participants scanned again.
    family_size : int
        Siblings per family, who share half the variance of their factors; above 1 there is a column
        family_id.
    ages : pair of float
        Youngest and oldest, in years.
    autocorrelation : float
        Correlation φ of successive volumes.
    seen_in : Parcellation or str, optional
        The atlas in which the scans are read: each simulated region is averaged, with those of its
        neighbours, into the cortical region of this atlas whose centre is nearest. Cohorts that are
        simulated in the same `parcellation` and seen in several atlases share their planted
        effects.

    Returns
    -------
    Cohort
        With the truth in ``notes["truth"]``.

    Examples
    --------
    >>> cohort = simulate_cohort(20, seed=1)
    >>> cohort
    Cohort('simulated': 20 participants, schaefer100-17, time series)
    >>> cohort.notes["truth"]["targets"]["p_factor"]["true_r"]
    0.6
    """
    plan = SimulationPlan(**locals())
    n_regions = plan.regions.n_regions
    fc = np.empty((n, n_regions, n_regions), np.float32)
    series: list[np.ndarray] = []
    for number, (matrices, chunk_series) in enumerate(_scans_with_progress(plan)):
        start = number * CHUNK
        fc[start : start + CHUNK] = matrices
        series += chunk_series or []
    return Cohort(fc, plan.participants(), plan.regions, series or None, name, notes=plan.notes)


def simulate_cohorts(
    names: Sequence[str] = ("alpha", "beta", "gamma"),
    n: int | Sequence[int] = 300,
    *,
    seed: int = 0,
    without_timeseries: Sequence[str] = (),
    **settings: Any,
) -> list[Cohort]:
    """Simulate several cohorts with the same factors on the same network pairs.

    Participants and scanners differ.

    Parameters
    ----------
    names : sequence of str
    n : int or sequence of int
        Participants, in all or each of the cohorts.
    seed : int
        The k-th cohort has seed ``seed + k``.
    without_timeseries : sequence of str
        Cohorts of which only FC is known.
    **settings
        As in `simulate_cohort`.

    Returns
    -------
    list of Cohort

    Examples
    --------
    >>> alpha, beta = simulate_cohorts(["alpha", "beta"], 10, without_timeseries=["beta"])
    >>> beta
    Cohort('beta': 10 participants, schaefer100-17)
    >>> alpha.notes["truth"]["factors"] == beta.notes["truth"]["factors"]
    True
    """
    counts = [n] * len(names) if isinstance(n, int) else list(n)
    if len(counts) != len(names) or len(set(names)) != len(names):
        raise NerveError(
            f"{len(counts)} sizes for cohorts {list(names)}, expected one size and one name per "
            "cohort."
        )
    for unknown in set(without_timeseries) - set(names):
        raise problem(
            "without_timeseries", f"there is no cohort {unknown!r}", expected=f"some of {names}"
        )
    cohorts = []
    for k, (name, count) in enumerate(zip(names, counts, strict=True)):
        chosen = {"keep_timeseries": name not in without_timeseries} | settings
        cohorts.append(simulate_cohort(count, name=name, seed=seed + k, **chosen))
    return cohorts


def simulate_to(
    path: str | os.PathLike[str],
    n: int = 300,
    parcellation: Parcellation | str = "schaefer100-17",
    timepoints: int = 200,
    *,
    dtype: str = "float32",
    scores: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Path:
    """Simulate a cohort straight to a folder, which may be larger than memory.

    The folder holds the cohort that `simulate_cohort` makes of the same arguments, with truth.json
    beside it. For very large ones take ``dtype="float16"`` and ``keep_timeseries=False``.

    Parameters
    ----------
    path : path
        A new folder.
    n, parcellation, timepoints
        As in `simulate_cohort`.
    dtype : {"float32", "float16"}
        Type of the stored FC.
    scores : bool
        Also write every participant's factor scores, to truth_scores.tsv.
    overwrite : bool
        Replace what is there.
    **settings
        As in `simulate_cohort`.

    Returns
    -------
    Path
        The folder.
    """
    plan = SimulationPlan(n, parcellation, timepoints, **settings)
    with writing_cohort(path, plan.regions, dtype=dtype, overwrite=overwrite) as writer:
        for matrices, series in _scans_with_progress(plan):
            writer.append(matrices, series)
        writer.finish(plan.participants(), name=plan.name, notes=plan.notes)
        write_json(writer.folder / "truth.json", plan.notes["truth"])
        if scores:
            write_tsv(writer.folder / "truth_scores.tsv", factor_scores(Cohort.load(writer.folder)))
    return Path(path)


def factor_scores(cohort: Cohort) -> pd.DataFrame:
    """Draw the true factor scores of a simulated cohort again.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    DataFrame
        participant_id, then one column per factor.

    Examples
    --------
    >>> scores = factor_scores(simulate_cohort(5, keep_timeseries=False))
    >>> list(scores.columns[:4])
    ['participant_id', 'general', 'internal', 'external']
    """
    truth = cohort.notes.get("truth")
    if truth is None:
        raise problem(
            f"Cohort {cohort.name!r}",
            "there are no notes of its truth",
            expected="a simulated cohort",
        )
    factors = list(truth["factors"])
    ids = cohort.participants["participant_id"]
    scores = []
    for participant in ids:
        number = int(participant[-ID_DIGITS:]) - 1
        drawn = draw_participant(truth["seed"], number, len(factors), truth["family_size"])
        scores.append(drawn.scores)
    table = pd.DataFrame(scores, columns=factors).round(6)
    table.insert(0, "participant_id", ids)
    return table


def _scans_with_progress(
    plan: SimulationPlan,
) -> Iterator[tuple[np.ndarray, list[np.ndarray] | None]]:
    """The scans of a plan, with progress."""
    n_chunks = -(-plan.n // CHUNK)
    label = f"simulating {plan.n} participants"
    return iter(progress_bar(plan.scans(), label=label, total=n_chunks, unit="chunks"))
