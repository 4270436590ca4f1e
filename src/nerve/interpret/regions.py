"""Which regions an encoder reads: how far its features move when a region is hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import problem
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.interpret.occlusion import Embedding, embedding_of, row_chunks
from nerve.interpret.stability import as_encoders, stability


def region_occlusion(encoders: Any, cohort: Cohort) -> pd.DataFrame:
    """Change of the features when a region is hidden, for every region.

    With x the matrix of the view, z(x) the features and x⁽ⁱ⁾ the matrix whose row and column i are
    those of the mean over participants,

        change_i = mean over participants of ‖z(x) - z(x⁽ⁱ⁾)‖, divided by its mean over regions

    so that 1 is the average region. It needs neither targets nor weights of regions: every NERVE
    model has such a map. It says what the features depend on, not what a prediction uses.

    Parameters
    ----------
    encoders : fitted NERVE, or several that differ in the seed
        Their features are what `transform` gives.
    cohort : Cohort
        The participants; one embedding is made for each of them and each region.

    Returns
    -------
    DataFrame
        One row per region, in the order of the parcellation: region, network, hemisphere, x, y, z
        (MNI, mm), change (mean over seeds), change_sd (over seeds), rank (1 is the largest),
        stability (of the map over seeds), n_seeds.
    """
    encoders = as_encoders(encoders)
    if not can_hide_regions(encoders[0]):
        where = f"region_occlusion of {type(encoders[0]).__name__}"
        raise problem(where, "it does not embed matrices of its view", expected="NERVE")
    maps = []
    for number, encoder in enumerate(encoders, 1):
        aligned = encoder.align_to_fitted(cohort)
        embedding = embedding_of(encoder, aligned, encoder.patching_)
        label = f"regions, model {number} of {len(encoders)}"
        changes = _mean_changes(embedding, len(aligned), label)
        maps.append(changes / changes.mean() if changes.mean() > 0 else changes)
    of_seeds = pd.DataFrame(maps).T  # (regions, seeds)
    change = of_seeds.mean(axis=1)
    table = encoders[0].parcellation_.to_table().rename(columns={"label": "region"})
    return table.assign(
        change=change,
        change_sd=of_seeds.std(axis=1),
        rank=change.rank(ascending=False, method="first").astype(int),
        stability=stability(maps),
        n_seeds=len(encoders),
    )


def can_hide_regions(encoder: Any) -> bool:
    """Whether a fitted encoder embeds matrices of its view: a NERVE does."""
    return hasattr(encoder, "embed_matrices")


def _mean_changes(embedding: Embedding, n_participants: int, label: str) -> np.ndarray:
    """(regions,) distance of the features with a region hidden from the intact ones."""
    n_regions = embedding.patching.n_regions
    total = np.zeros((n_regions, n_regions))
    for rows in row_chunks(np.arange(n_participants)):
        total += embedding.matrices(rows).sum(axis=0, dtype=float)
    mean = total / n_participants
    distances = np.zeros(n_regions)
    with progress_bar(label=label, total=n_participants * n_regions, unit="embeddings") as bar:
        for rows in row_chunks(np.arange(n_participants)):
            matrices = embedding.matrices(rows)  # (k, R, R)
            intact = embedding.embed(matrices).reshape(len(rows), -1)  # (k, d)
            for region in range(n_regions):
                hidden = matrices.copy()
                hidden[:, region, :] = mean[region]
                hidden[:, :, region] = mean[:, region]
                features = embedding.embed(hidden).reshape(len(rows), -1)  # (k, d)
                distances[region] += np.linalg.norm(features - intact, axis=1).sum()
                bar.update(len(rows))
    return distances / n_participants
