"""GATE: agreement of two windows of a scan on a graph of participants (self-supervised, needs time series)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from nerve.cohort import Cohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.population import Population, Windows, fit_projection, phenotype_codes, projected_windows
from nerve.methods.settings import Count, Device, Epochs, Names, NotNegative, Positive, Seed, Share, Width
from nerve.methods.trained import TORCHS_ADAM, Encoder
from nerve.models.gate import GATEModel, nearest_people
from nerve.parcellation import Parcellation
from nerve.training import Source, TrainingSettings, choose_device


@dataclass(kw_only=True, eq=False, repr=False)
class GATE(Encoder):
    """GATE: participants are nodes of a graph, and what their scan shows in one window must agree with the next.

    With A and B the embeddings of two views of all participants, columns standardised:
    L = 1 - mean_i cos(A_i, sg(B_i)) + 0.2 [D(A) + D(B)], D(Z) being the mean squared entry of ZᵀZ/N - I.
    The feature is the mean embedding over the windows.

    *The method's own*: 15 windows of 30 volumes, 15 apart, and windows of 10 to 50 volumes about the same centres;
    edges by a Gaussian of the correlation distance, to the nearest participant in one view and the nearest five in the
    other; feature and edge drop of 0.3; one graph convolution to 256, ELU, linear; AdamW at 1e-3, weight decay 1e-5,
    400 steps on the whole population.

    *Ours*: FC entries (79,800 at R = 400) are first projected to 512 principal components, fitted on at most 2,048
    windows of the training participants; the release fits such a projection and trains on the entries. The release
    takes
    windows of the other lengths at random, and chooses graph and features of the second view apart; ours go together
    and about the same centre. Edge weights are used, where the release drops them on the way to its library. Affinity
    of phenotype is off by default, because it would put age, sex and site, which are removed later, into the features;
    `phenotypes` names columns to multiply it in. In scans too short for all windows they are spread evenly.

    *Transductive*: an embedding depends on the other participants in its cohort, through the graph. `transform`
    builds the
    graph of the cohort it is given; a participant's features differ between cohorts, and between a cohort and a part
    of it.

    *Not said* by the paper whose tables we follow: windows and scan lengths used, projection, phenotypes.

    Parameters
    ----------
    n_components, width : int
        Principal components read; width of the embedding.
    n_windows, window, stride : int
        Windows a scan, their volumes, volumes between two starts.
    other_windows : tuple of int
        Lengths of the second family.
    n_neighbours : int
        Neighbours a participant in the second view; the first has one.
    feature_drop, edge_drop, dropout, decorrelation : float
        See `GATEModel`.
    phenotypes : tuple of str
        Columns of the participants table that multiply the edges.
    epochs, lr, weight_decay, seed, device
        Of the training loop; an epoch is one step.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(12, "schaefer100-7", timepoints=60)
    >>> GATE(n_components=8, width=8, epochs=4, device="cpu").fit(cohort).transform(cohort).shape
    (12, 8)
    """

    kind: ClassVar[str] = "timeseries"
    title: ClassVar[str] = "GATE"
    paper: ClassVar[str] = (
        "Peng et al. (2023) GATE: graph CCA for temporal self-supervised learning for label-efficient fMRI analysis. "
        "IEEE Trans. Med. Imaging 42:391-402."
    )
    adapted: ClassVar[str] = "Reads 512 principal components of FC; no phenotypes in the graph."
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": {"n_components": 128, "width": 128, "epochs": 600, "lr": 3e-3},
    }

    training: ClassVar[dict[str, Any]] = {  # a batch is everyone, so nobody is held out
        "batch_size": 1, "validation_fraction": 0.0, "keep": "last", "precision": "float32",
        "schedule": "constant", "clip": None, **TORCHS_ADAM,
    }  # fmt: skip

    n_components: Width = 512
    width: Width = 256
    n_windows: Annotated[int, Field(ge=2, le=10000)] = 15
    window: Annotated[int, Field(ge=2)] = 30
    stride: Count = 15
    other_windows: Annotated[tuple[int, ...], Field(strict=False)] = (10, 20, 40, 50)
    n_neighbours: Count = 5
    feature_drop: Share = 0.3
    edge_drop: Share = 0.3
    dropout: Share = 0.2
    decorrelation: NotNegative = 0.2
    phenotypes: Names = ()
    epochs: Epochs = 400
    lr: Positive = 1e-3
    weight_decay: NotNegative = 1e-5
    seed: Seed = 0
    device: Device = "auto"

    def windows(self) -> Windows:
        """The windows that scans are cut into."""
        return Windows(self.window, self.other_windows, self.n_windows, self.stride)

    def build(self, parcellation: Parcellation) -> GATEModel:
        """The untrained module."""
        n_features = parcellation.n_regions * (parcellation.n_regions - 1) // 2
        return GATEModel(
            n_features,
            min(self.n_components, n_features),
            self.width,
            feature_drop=self.feature_drop,
            edge_drop=self.edge_drop,
            dropout=self.dropout,
            decorrelation=self.decorrelation,
        )

    @property
    def n_features(self) -> int:
        """The width of the embedding."""
        return self.width

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """The population, as one sample."""
        return Population(cohort, self.windows(), self.n_neighbours, self.phenotypes, self.module_)  # type: ignore[arg-type]

    def prepare(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Fit the projection."""
        if isinstance(module, GATEModel) and isinstance(source, Population):
            fit_projection(module, source.cohort, source.windows, self.seed)

    def split(self, cohort: Cohort, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
        """The population is one sample, and trained on."""
        return np.arange(1), np.zeros(0, int)

    def fit(self, X: Any, y: Any = None, **options: Any) -> GATE:
        """Train on a cohort with time series; see `Encoder.fit` for the options."""
        super().fit(X, y, **options)
        self.data_["n_training"] = sum(self.data_["cohorts"].values())  # participants, of whom a sample holds all
        return self

    @torch.inference_mode()
    def transform(self, X: Any) -> np.ndarray:
        """(n, width) features, from a graph of the participants given here."""
        cohort, windows = self.fitted_cohort(X), self.windows()
        windows.check(cohort)
        module: Any = self.module_.to(choose_device(self.device)).eval()
        features = projected_windows(module, cohort, windows, [self.window])[0]
        phenotypes = phenotype_codes(cohort, self.phenotypes) or (None, None)
        total = torch.zeros(len(cohort), self.width)
        for people in features:
            graph = nearest_people(people, 1, *phenotypes)
            total += module.embed(*(part.to(module.mean.device) for part in (people, *graph))).cpu()
        return checked_embeddings((total / len(features)).numpy(), cohort)
