"""Models for Brainmarks, an evaluation suite of the field: time series of a scan → embeddings.

Brainmarks needs two parts of each model. The transform gets one scan at a time, a dict with the
series as ``bold`` (volumes, regions), and may learn from the training split first (`fit`). The
wrapper gets batches of what the transform returned, and returns the embeddings. Both are registered
by the plugin ``brainmarks/models/nerve_wrapper.py``; docs/howto/brainmarks.md says how to use them.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from nerve._utils.errors import NerveError, NerveWarning, problem
from nerve._utils.progress import silent
from nerve.data.cohort import Cohort
from nerve.data.connectivity import connectivity_from_series, constant_regions
from nerve.data.parcellation import load_parcellation
from nerve.methods.nerve import NERVE
from nerve.methods.shrunk import ShrunkTangentSpace
from nerve.methods.tangent import TangentSpace

SPACE = "schaefer400"  # as Brainmarks calls it
# Its regions are the keys 1 … 400 of CBIG's file in the order of the 17 networks
# (brainmarks.nisc.fetch_schaefer), which is the order of this parcellation.
REGIONS = "schaefer400-17"

_INPUT = "nerve_input"
_SERIES = ("bold", "mean", "std")  # not batched: scans may differ in length
_FEWEST_TO_SHRINK = 3

Sample = dict[str, Any]


class Embeddings(NamedTuple):
    """What Brainmarks expects of a wrapper, under its names."""

    cls_embeds: Tensor | None  # (batch, 1, width)
    reg_embeds: Tensor | None  # (batch, registers, width)
    patch_embeds: Tensor | None  # (batch, patches, width)


def connectivity_of(sample: Sample) -> np.ndarray:
    """Pearson correlations between the regions of one scan.

    Parameters
    ----------
    sample : dict
        With ``bold``, a (volumes, 400) tensor.

    Returns
    -------
    (400, 400) array of float32
        A region without signal, which Brainmarks leaves at zero, correlates with no other: 0.
    """
    series = np.asarray(sample["bold"], float)
    n_regions = load_parcellation(REGIONS).n_regions
    if series.ndim != 2 or series.shape[1] != n_regions:
        raise problem(
            "bold", f"it has shape {series.shape}", expected=f"(volumes, {n_regions}) of {SPACE}"
        )
    silent_regions = constant_regions(series)
    fc = connectivity_from_series(series)
    fc[silent_regions, :] = 0.0
    fc[:, silent_regions] = 0.0
    fc[silent_regions, silent_regions] = 1.0
    return fc.astype(np.float32)


def _with_input(sample: Sample, values: np.ndarray) -> Sample:
    """The sample with what the wrapper reads in the place of its series."""
    kept = {name: value for name, value in sample.items() if name not in _SERIES}
    return {**kept, _INPUT: torch.from_numpy(np.ascontiguousarray(values, np.float32))}


# A trained NERVE


class RunTransform:
    """Series → FC in the region order of a run, in its view and packed by patch.

    Parameters
    ----------
    encoder : NERVE
        Trained on regions that `REGIONS` has, in any order.
    """

    def __init__(self, encoder: NERVE) -> None:
        self.order = load_parcellation(REGIONS).reordering_to(encoder.parcellation_)
        self.view = encoder.view_
        self.patching = encoder.patching_

    def __call__(self, sample: Sample) -> Sample:
        """The sample with its packed matrix."""
        fc = connectivity_of(sample)[np.ix_(self.order, self.order)]
        matrix = self.view.apply(fc[None])
        return _with_input(sample, self.patching.pack(matrix)[0])


class RunModel(nn.Module):
    """Packed matrices → the representations of a run.

    ``cls`` is the representation that `NERVE.transform` gives, ``reg`` the CLS token, ``patch``
    the tokens in the order of `patching_.pairs`.

    Parameters
    ----------
    encoder : NERVE
        Trained.
    """

    __space__ = SPACE

    def __init__(self, encoder: NERVE) -> None:
        super().__init__()
        self.module = encoder.module_.eval().requires_grad_(False)
        self.pooling = encoder.pooling
        if self.pooling == "tokens":
            self.pooling = "mean"  # Brainmarks averages tokens, too

    def forward(self, batch: dict[str, Tensor]) -> Embeddings:
        """Embeddings of a batch.

        Parameters
        ----------
        batch : dict
            Samples of `RunTransform`, collated.

        Returns
        -------
        Embeddings
        """
        packed = batch[_INPUT]
        # in half precision, small differences between participants would be lost
        with torch.autocast(packed.device.type, enabled=False):
            representation = self.module.embed(packed, self.pooling)
            cls_token = self.module.embed(packed, "cls")
            tokens = self.module.embed(packed, "tokens")
        return Embeddings(representation[:, None], cls_token[:, None], tokens)


def run_model(run: str | os.PathLike[str] | None) -> tuple[RunTransform, RunModel]:
    """Make a model of a trained NERVE.

    Parameters
    ----------
    run : path or str or None
        A folder of `nerve pretrain`, or an archive of `nerve pack`, trained on Schaefer's 400
        regions.

    Returns
    -------
    transform, model
    """
    if not run:
        raise NerveError(
            "No run is named, expected the folder that `nerve pretrain` wrote. Give it as "
            "model_kwargs.run=FOLDER (--overrides), or in the environment variable NERVE_RUN."
        )
    encoder = NERVE.from_pretrained(run, device="cpu")
    if encoder.recentre is not None:
        raise problem(
            run,
            f"it was trained with recentre={encoder.recentre}",
            expected="a run without recentring: Brainmarks does not say which site a scan is of",
        )
    try:
        transform = RunTransform(encoder)
    except NerveError as error:
        raise problem(
            run,
            f"it does not fit Brainmarks' space {SPACE} ({str(error).split(' (')[0]})",
            expected=f"a run whose regions are those of {REGIONS} or schaefer400-7",
            remedy=f"Train one: `nerve pretrain COHORT --parcellation {REGIONS}`.",
        ) from error
    return transform, RunModel(encoder)


# Tangent space, learned from the training split


class TangentTransform:
    """Series → FC → features of a reference row that is fitted on the training split.

    Parameters
    ----------
    method : TangentSpace or ShrunkTangentSpace
        Not fitted yet.
    """

    def __init__(self, method: TangentSpace) -> None:
        self.method = method

    def fit(self, train_dataset: Sequence[Sample]) -> None:
        """Learn from the scans of the training split; no label is used.

        Parameters
        ----------
        train_dataset : sequence of dict
            Samples as Brainmarks reads them.
        """
        n_scans = len(train_dataset)
        if n_scans < _FEWEST_TO_SHRINK and isinstance(self.method, ShrunkTangentSpace):
            warnings.warn(
                f"There are {n_scans} training scans, expected at least {_FEWEST_TO_SHRINK} to "
                "tell signal from noise: tangent space is not shrunk.",
                NerveWarning,
                stacklevel=2,
            )
            self.method = TangentSpace(self.method.shrinkage)
        n_regions = load_parcellation(REGIONS).n_regions
        table = pd.DataFrame({"participant_id": [f"scan{i + 1}" for i in range(n_scans)]})
        # on disk: FC of all scans of a large data set does not fit into memory
        with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
            fc = np.lib.format.open_memmap(
                Path(folder) / "fc.npy", "w+", np.float32, (n_scans, n_regions, n_regions)
            )
            for row in range(n_scans):
                fc[row] = connectivity_of(train_dataset[row])
            self.method.fit(Cohort(fc, table, REGIONS, name="training split"))

    def __call__(self, sample: Sample) -> Sample:
        """The sample with its features."""
        with silent():
            features = self.method.transform(connectivity_of(sample)[None])
        return _with_input(sample, features[0])


class TangentModel(nn.Module):
    """Features that the transform has computed, as embeddings.

    ``cls`` are the features. ``patch``, where they are the entries of a matrix on and above its
    diagonal, are the rows of that matrix, one per region.
    """

    __space__ = SPACE
    entry_of: Tensor  # (regions, regions): position of each entry in the features

    def __init__(self) -> None:
        super().__init__()
        n_regions = load_parcellation(REGIONS).n_regions
        rows, columns = torch.triu_indices(n_regions, n_regions)
        entry_of = torch.empty(n_regions, n_regions, dtype=torch.long)
        entry_of[rows, columns] = torch.arange(len(rows))
        entry_of[columns, rows] = torch.arange(len(rows))
        self.n_entries = len(rows)
        self.register_buffer("entry_of", entry_of, persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> Embeddings:
        """Embeddings of a batch.

        Parameters
        ----------
        batch : dict
            Samples of `TangentTransform`, collated.

        Returns
        -------
        Embeddings
        """
        features = batch[_INPUT]  # (batch, width)
        patches = None
        if features.shape[1] == self.n_entries:
            patches = features[:, self.entry_of]  # (batch, regions, regions)
        return Embeddings(features[:, None], None, patches)


def tangent_model(shrunk: bool) -> tuple[TangentTransform, TangentModel]:
    """Make a model of tangent space, shrunk towards the group or not.

    Parameters
    ----------
    shrunk : bool

    Returns
    -------
    transform, model
    """
    method = ShrunkTangentSpace() if shrunk else TangentSpace()
    return TangentTransform(method), TangentModel()
