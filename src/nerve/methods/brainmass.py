"""BrainMass: agreement of two views of a participant, with masked rows told apart and rebuilt (self-supervised)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from nerve.core.training import Dataset, LabelledDataset
from nerve.data.cohort import Cohort
from nerve.methods.data import CohortDataset, as_cohort, pool_of, series_of
from nerve.methods.settings import Count, Epochs, Layers, NotNegative, Pairs, Positive, Share, Width
from nerve.methods.trained import Encoder
from nerve.models.brainmass import BrainMassModel

SUBSTITUTE = "views drawn from a Wishart distribution"


@dataclass(kw_only=True, eq=False, repr=False)
class BrainMass(Encoder):
    """BrainMass: a large transformer over regions that sees two noisy versions of each participant's FC.

    L = BYOL + 0.1 · InfoNCE + 2 · MSE. BYOL: an online network and a predictor must foresee, from one view, what a
    slowly following copy of the network (momentum 0.996) makes of the other. InfoNCE: 10 rows of a view are hidden,
    and each prediction must match its own row best. MSE: 5 hidden rows are rebuilt. The feature is eight numbers per
    region, 8 R.

    *The method's own*: views from two random 80 % of the volumes, and the features from all of
    them, by the Ledoit–Wolf covariance (nilearn's default, which the release takes); 16 post-norm
    transformer layers on R tokens of width R, 10 heads, feed-forward 2,048; AdamW at 3e-4, which
    rises epoch by epoch in the first 10 and then stays, 2,000 epochs of batches of 64; nobody is
    held out.

    *Ours*: the mask vector and the heads of the two masked tasks are trained; the release builds the optimiser from
    the online network and the predictor alone, and they stay as drawn. Rows are padded with zeros where 10 does not
    divide R. The norm of the gradient is clipped, where the release clips each entry. The last weights are kept:
    BYOL's loss is no criterion to choose weights by, since it also falls in collapse.

    *Without time series* the views cannot be formed. In a pool of cohorts only those without them
    are concerned. The substitute, which marks the row as adapted: each view is the correlation
    matrix of ν normal volumes whose covariance is the participant's FC (a Wishart draw), ν being
    the degrees of freedom of the scan: the participants' column `n_volumes` less one, or else
    `degrees_of_freedom`. Two such views differ as two whole scans would, more than two 80 % choices
    of the same volumes do. They are not shrunk, and neither is the FC from which such participants'
    features come.

    *Not said* by the paper whose tables we follow: how views were made for the cohort of which it had FC only.

    Parameters
    ----------
    n_layers, n_heads, feedforward : int
        Of the transformer.
    projection : int
        Width in which views are compared.
    dropout : float
    dropped_volumes : float
        Share of the volumes that a view leaves out.
    momentum : float
        Of the target network.
    n_contrasted, n_rebuilt : int
        Rows hidden for InfoNCE and for MSE.
    weight_contrast, weight_rebuild : float
        Their weights in the loss.
    views : {"auto", "timeseries", "wishart"}
        "auto" takes time series where a cohort has them, in `fit` and in `transform`.
    degrees_of_freedom : int
        Of a scan whose length is not known.
    recompute : bool
        Compute activations a second time rather than keep them: less memory, a third more time.
    epochs, batch_size, lr, warmup_epochs, seed, device
        Of the training loop.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(np.random.default_rng(i).normal(size=(10, 40))) for i in range(12)])
    >>> model = BrainMass.from_preset("small", epochs=1, device="cpu").fit(fc)
    >>> model.transform(fc).shape, model.adapted_
    ((12, 80), 'views drawn from a Wishart distribution')
    """

    model: ClassVar[Any] = BrainMassModel
    batch_size_apply: ClassVar[int] = 32

    n_layers: Layers = 16
    n_heads: Width = 10
    feedforward: Width = 2048
    projection: Width = 1024
    dropout: Share = 0.1
    dropped_volumes: Share = 0.2
    momentum: Share = 0.996
    n_contrasted: Count = 10
    n_rebuilt: Count = 5
    weight_contrast: NotNegative = 0.1
    weight_rebuild: NotNegative = 2.0
    views: Literal["auto", "timeseries", "wishart"] = "auto"
    degrees_of_freedom: Count = 200
    recompute: bool = True
    epochs: Epochs = 2000
    batch_size: Pairs = 64
    lr: Positive = 3e-4
    warmup_epochs: NotNegative = 10

    @property
    def n_features(self) -> int:
        """Eight per region."""
        return 8 * self.n_features_in_

    def begin_fit(self, data: Any) -> Cohort:
        """Keep the cohorts apart as well: pooled, none has time series unless all have them."""
        cohort = super().begin_fit(data)
        self._pool = [as_cohort(one, cohort.parcellation) for one in pool_of(data)] or [cohort]
        return cohort

    def finish(self, module: Any, source: Dataset) -> None:
        """Nothing is kept of the training participants."""
        self.__dict__.pop("_pool", None)

    def source(self, cohort: Cohort) -> Dataset:
        """Time series of the participants who have them, FC and the degrees of freedom of the scan of the others."""
        return SeriesOrFC([self._scans(one) for one in getattr(self, "_pool", [cohort])])

    def _scans(self, cohort: Cohort) -> Dataset:
        if self.views == "timeseries":
            series_of(
                cohort,
                "BrainMass makes its views from",
                "Use views='wishart', and say so in the table.",
            )
        if self.views == "wishart" or cohort.timeseries is None:
            return LabelledDataset(CohortDataset(cohort, "fc"), self.scan_degrees(cohort))
        return CohortDataset(cohort, "timeseries")

    def prepare(self, module: Any, source: Any, rows: np.ndarray) -> None:
        """Note which views were used."""
        drawn = sum(len(part) for part in source.parts if isinstance(part, LabelledDataset))
        some = f" for {drawn} of {len(source)} participants" if drawn < len(source) else ""
        self.adapted_ = SUBSTITUTE + some if drawn else ""

    def scan_degrees(self, cohort: Cohort) -> np.ndarray:
        """Volumes less one of each scan, where the table says; (n,)."""
        if cohort.timeseries is not None:
            return cohort.timeseries.lengths - 1
        if "n_volumes" not in cohort.participants:
            return np.full(len(cohort), self.degrees_of_freedom)
        volumes = cohort.participants["n_volumes"].astype(float) - 1
        return volumes.fillna(self.degrees_of_freedom).to_numpy()

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, 8 R), of the whole scan where there are time series, else of FC; no views are drawn."""
        if self.views == "wishart" or cohort.timeseries is None:
            return self.apply(self.module_.embed, CohortDataset(cohort, "fc"))
        return self.apply(self.module_.embed_series, CohortDataset(cohort, "timeseries"))


class SeriesOrFC:
    """Cohorts one after another; a batch is a list, of each participant (volumes, R), or (FC, degrees of freedom)."""

    def __init__(self, parts: list[Dataset]) -> None:
        self.parts = parts
        self.places = [(part, np.array([row])) for part in parts for row in range(len(part))]

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: np.ndarray) -> list[Any]:
        """The participants at these rows."""
        found = [part.batch(row) for part, row in (self.places[i] for i in rows)]
        return [(one[0][0], one[1][0]) if isinstance(one, tuple) else one[0] for one in found]
