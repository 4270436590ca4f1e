"""BrainGNN, trained inside each fold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from nerve._utils.errors import NerveError, problem
from nerve.core.training import Dataset
from nerve.data.cohort import Cohort
from nerve.data.connectivity import partial, partial_from_fc
from nerve.methods.predictor import Predictor
from nerve.methods.settings import Count, NotNegative, Pairs, Part, Positive, Share, Width
from nerve.models.braingnn import BrainGNNModel

CACHE_BELOW = (
    2 * 2**30
)  # bytes of partial correlations that are kept in memory; above, each batch computes its own
SUBSTITUTE = "partial correlation from the shrunk inverse of FC, for want of time series"


@dataclass(kw_only=True, eq=False, repr=False)
class BrainGNN(Predictor):
    """A graph network whose weights know the region, and which picks the regions that matter.

    The method's own: node features are FC profiles in Fisher z, edges are absolute partial
    correlations; two convolutions whose weights are mixed from 8 community bases by the region's
    identity; top-k pooling to half the nodes after each, with edges of two steps between; readout
    max‖mean after each pooling; linear layers 32 and 512; top-k losses at 0.1 each; the release's
    initial weights; the epoch of least validation loss, pooling losses included; Adam 0.01 halved
    every 20 epochs, weight decay 5e-3, batches of 100, 100 epochs.

    Ours: squared error for a continuous target. The group-consistency loss compares participants of
    one class: two-valued targets keep it, a continuous one is cut at the training mean, and
    ``consistency_weight=0`` drops it. Where paper and release differ we follow the paper: ReLU
    after each convolution, scores standardised, top-k loss over all nodes (the release applies the
    sigmoid twice, and to kept nodes only). Neighbours' weights are scaled to sum to one (the
    release's softmax over a dense graph makes them nearly equal). Weights are never laid out as
    regions × in × out. A region's profile holds 0 for itself.

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
        Share of the training participants on whom the epoch is picked, by the whole loss.
    seed : int
    device : str
    """

    model: ClassVar[Any] = BrainGNNModel

    width: Width = 32
    n_communities: Width = 8
    ratio: Part = 0.5
    hidden: Annotated[tuple[Width, Width], Field(strict=False)] = (32, 512)
    dropout: Share = 0.5
    pooling_weight: NotNegative = 0.1
    consistency_weight: NotNegative = 0.1
    shrinkage: Share = 0.1
    epochs: Count = 100
    batch_size: Pairs = 100
    lr: Positive = 0.01
    decay_epochs: Count = 20
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    weight_decay: NotNegative = 5e-3
    validation_fraction: Share = 0.1

    def source(self, cohort: Cohort) -> Dataset:
        """FC and absolute partial correlation of the same participants."""
        return GraphSource(cohort, self.shrinkage)

    def prepare(self, module: Any, source: Any, rows: np.ndarray) -> None:
        """Note whether the edges are the method's own."""
        super().prepare(module, source, rows)
        if len(rows) < 2:
            raise NerveError("BrainGNN normalises over participants, expected at least 2 of them.")
        self.adapted_ = SUBSTITUTE if source.cohort.timeseries is None else ""


class GraphSource:
    """Participants' FC and absolute partial correlation, (batch, R, R) each; the latter is computed once if it fits."""

    def __init__(self, cohort: Cohort, shrinkage: float) -> None:
        self.cohort, self.shrinkage = cohort, shrinkage
        self._most = CACHE_BELOW // (2 * cohort.n_regions**2)  # participants whose edges are kept
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """FC and edges of these participants."""
        fc = torch.from_numpy(self.cohort.inputs("fc", rows))
        return fc, torch.from_numpy(
            np.stack([self.edges(int(row)) for row in rows]).astype(np.float32)
        )

    def edges(self, row: int) -> np.ndarray:
        """Absolute partial correlations of a participant with an empty diagonal, (R, R) float16, kept or not."""
        if row in self._kept:
            return self._kept[row]
        edges = np.full(self.cohort.shape[1:], np.nan, np.float16)  # what has no inverse stays so
        with suppress(np.linalg.LinAlgError):
            edges[:] = np.abs(self._partial(row))
        np.fill_diagonal(edges, 0)
        if not np.isfinite(edges).all():
            person = f"Participant {self.cohort.participants['participant_id'].iloc[row]}"
            found = "there is no partial correlation (FC is not positive definite, or a region is constant)"
            raise problem(person, found, remedy="Leave the participant out, or use more shrinkage.")
        if len(self._kept) < self._most:
            self._kept[row] = edges
        return edges

    def _partial(self, row: int) -> np.ndarray:
        if self.cohort.timeseries is not None:
            return partial(self.cohort.inputs("timeseries", [row])[0])
        fc = self.cohort.inputs("fc", [row])[0]
        np.linalg.cholesky(
            (1 - self.shrinkage) * fc + self.shrinkage * np.eye(len(fc))
        )  # or it is not positive
        return partial_from_fc(fc, self.shrinkage)
