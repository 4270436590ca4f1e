"""BrainGNN, trained inside each fold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from nerve.checks import NerveError, problem
from nerve.cohort import Cohort
from nerve.connectivity import partial, partial_from_fc
from nerve.methods.predictor import Predictor
from nerve.methods.settings import Count, Device, NotNegative, Part, Positive, Seed, Share, Width
from nerve.methods.trained import TORCHS_ADAM
from nerve.models.braingnn import BrainGNNModel
from nerve.parcellation import Parcellation
from nerve.training import Source

CACHE_BELOW = 2 * 2**30  # bytes of partial correlations that are kept in memory; above, each batch computes its own
SUBSTITUTE = "partial correlation from the shrunk inverse of FC, for want of time series"


@dataclass(kw_only=True, eq=False, repr=False)
class BrainGNN(Predictor):
    """A graph network whose weights know the region, and which picks the regions that matter.

    The method's own: node features are FC profiles in Fisher z, edges are absolute partial correlations; two
    convolutions whose weights are mixed from 8 community bases by the region's identity; top-k pooling to half the
    nodes after each, with edges of two steps between; readout max‖mean after each pooling; linear layers 32 and 512;
    top-k losses at 0.1 each; Adam 0.01 halved every 20 epochs, weight decay 5e-3, batches of 100, 100 epochs.

    Ours: squared error for a continuous target. The group-consistency loss compares participants of one class:
    two-valued
    targets keep it, a continuous one is cut at the training mean, and ``consistency_weight=0`` drops it. Where paper
    and release differ we follow the paper: ReLU after each convolution, scores standardised, top-k loss over all nodes
    (the release applies the sigmoid twice, and to kept nodes only). Neighbours' weights are scaled to sum to one (the
    release's softmax over a dense graph makes them nearly equal). Weights are never laid out as regions × in × out. A
    region's profile holds 0 for itself.

    FC-only cohorts have no partial correlation: it is computed from (1 - shrinkage)·FC + shrinkage·I, and `adapted_`
    says so. With time series, the inverse of the Ledoit–Wolf covariance is used.

    The NERVE paper does not say: how y was binned, what stood in for partial correlation in its FC-only cohort.

    Parameters
    ----------
    width, n_communities, ratio, hidden, dropout, pooling_weight, consistency_weight
        Of the network and its loss; see `BrainGNNModel`.
    shrinkage : float
        Towards the identity, before FC is inverted.
    epochs, batch_size, lr, decay_epochs, decay_factor, weight_decay
        Of Adam.
    validation_fraction : float
        Share of the training participants on whom the epoch is picked.
    seed : int
    device : str
    """

    title: ClassVar[str] = "BrainGNN"
    paper: ClassVar[str] = (
        "Li et al. (2021) BrainGNN: interpretable brain graph neural network for fMRI analysis. "
        "Med. Image Anal. 74:102233."
    )
    adapted: ClassVar[str] = (
        f"Squared error; the consistency loss groups those above and below the mean; FC-only cohorts: {SUBSTITUTE}."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": {"width": 16, "n_communities": 4, "hidden": (16, 64), "epochs": 50, "batch_size": 32},
    }

    training: ClassVar[dict[str, Any]] = {"optimizer": "adam", "schedule": "step", "clip": None, **TORCHS_ADAM}

    width: Width = 32
    n_communities: Width = 8
    ratio: Part = 0.5
    hidden: Annotated[tuple[Width, Width], Field(strict=False)] = (32, 512)
    dropout: Share = 0.5
    pooling_weight: NotNegative = 0.1
    consistency_weight: NotNegative = 0.1
    shrinkage: Share = 0.1
    epochs: Count = 100
    batch_size: Count = 100
    lr: Positive = 0.01
    decay_epochs: Count = 20
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    weight_decay: NotNegative = 5e-3
    validation_fraction: Share = 0.1
    seed: Seed = 0
    device: Device = "auto"

    def build(self, parcellation: Parcellation) -> BrainGNNModel:
        """The untrained network."""
        first, second = self.hidden
        return BrainGNNModel(
            parcellation.n_regions,
            self.width,
            self.n_communities,
            self.ratio,
            (first, second),
            self.dropout,
            self.pooling_weight,
            self.consistency_weight,
        )

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """FC and absolute partial correlation of the same participants."""
        return GraphSource(cohort, self.shrinkage)

    def prepare(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Note whether the edges are the method's own."""
        super().prepare(module, source, rows)
        if len(rows) < 2 or self.batch_size < 2:
            raise NerveError("BrainGNN normalises over participants, expected at least 2 of them and batches of 2.")
        self.adapted_ = SUBSTITUTE if isinstance(source, GraphSource) and source.cohort.timeseries is None else ""


class GraphSource:
    """Participants' FC and absolute partial correlation, (batch, R, R) each; the latter is computed once if it fits."""

    def __init__(self, cohort: Cohort, shrinkage: float) -> None:
        self.cohort = cohort
        self.shrinkage = shrinkage
        n, regions = len(cohort), cohort.n_regions
        self._known = np.zeros(n, bool)
        self._cache: np.ndarray | None = None
        if 2 * n * regions**2 <= CACHE_BELOW:
            self._cache = np.empty((n, regions, regions), np.float16)

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """FC and edges of these participants."""
        fc = torch.from_numpy(self.cohort.inputs("fc", rows))
        return fc, torch.from_numpy(self.edges(np.asarray(rows)))

    def edges(self, rows: np.ndarray) -> np.ndarray:
        """Absolute partial correlations with an empty diagonal, (rows, R, R) float32."""
        if self._cache is None:
            return self._computed(rows).astype(np.float32)
        new = rows[~self._known[rows]]
        if len(new):
            self._cache[new] = self._computed(new)
            self._known[new] = True
        return self._cache[rows].astype(np.float32)

    def _computed(self, rows: np.ndarray) -> np.ndarray:
        if self.cohort.timeseries is None:
            found = self._from_fc(rows)
        else:
            found = np.stack([partial(series) for series in self.cohort.inputs("timeseries", rows)])
        edges = np.abs(found).astype(np.float16)  # rounded here, so that cached or not makes no difference
        diagonal = np.arange(edges.shape[-1])
        edges[:, diagonal, diagonal] = 0
        bad = np.flatnonzero(~np.isfinite(edges).all(axis=(1, 2)))
        if len(bad):
            person = self.cohort.participants["participant_id"].iloc[int(rows[bad[0]])]
            raise problem(
                f"Participant {person}",
                "there is no partial correlation (FC is not positive definite, or a region is constant)",
                remedy="Leave the participant out, or use more shrinkage.",
            )
        return edges

    def _from_fc(self, rows: np.ndarray) -> np.ndarray:
        matrices = self.cohort.inputs("fc", rows)
        found = np.full(matrices.shape, np.nan)  # what has no inverse stays so, and is refused by name
        for one, fc in zip(found, matrices, strict=True):
            if _is_positive_definite((1 - self.shrinkage) * fc + self.shrinkage * np.eye(len(fc))):
                one[:] = partial_from_fc(fc, self.shrinkage)
        return found


def _is_positive_definite(matrix: np.ndarray) -> bool:
    """Whether there can be data with this covariance; an inverse alone does not tell."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(matrix).all())
