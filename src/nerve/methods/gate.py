"""GATE: agreement of two windows of a scan on a graph of participants (self-supervised, needs time series).

Its input is FC of windows of a scan, projected to principal components, for a whole population at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from nerve._utils.errors import known_columns, problem
from nerve._utils.linalg import principal_components
from nerve.core.training import Dataset, TrainingSettings, choose_device
from nerve.data.cohort import Cohort
from nerve.methods.data import series_of
from nerve.methods.settings import Count, Epochs, Names, NotNegative, Positive, Share, Width
from nerve.methods.trained import Encoder
from nerve.models.brainmass import shrunk_correlation
from nerve.models.gate import GATEModel, nearest_people

_PCA_WINDOWS = 2048  # windows that the projection is fitted on: at R = 400 they take 0.6 GiB
_AGE_TOLERANCE = 2.0  # two numbers count as alike when they differ by less (years, in the original)


@dataclass(kw_only=True, eq=False, repr=False)
class GATE(Encoder):
    """GATE: participants are nodes of a graph, and what their scan shows in one window must agree with the next.

    With A and B the embeddings of two views of all participants, columns standardised:
    L = 1 - mean_i cos(A_i, sg(B_i)) + 0.2 [D(A) + D(B)], D(Z) being the mean squared entry of ZᵀZ/N - I.
    The feature is the mean embedding over the windows.

    *The method's own*: 15 windows of 30 volumes, 15 apart, and windows of 10 to 50 volumes about
    the same centres; FC of a window by the Ledoit–Wolf covariance (nilearn's default, which the
    release takes); edges by a Gaussian of the correlation distance of 512 principal component
    scores, to the nearest participant in one view and the nearest five in the other; feature and
    edge drop of 0.3; one graph convolution to 256, ELU, linear; AdamW at 1e-3, weight decay 1e-5,
    400 steps on the whole population.

    *Ours*: FC entries (79,800 at R = 400) are first projected to 512 principal components, fitted
    on at most 2,048 windows of the training participants; the release fits such a projection and
    trains on the entries. The release takes windows of the other lengths at random, and chooses
    graph and features of the second view apart; ours go together and about the same centre. Edge
    weights are used, where the release drops them on the way to its library. Affinity of phenotype
    is off by default, because it would put age, sex and site, which are removed later, into the
    features; `phenotypes` names columns to multiply it in. In scans too short for all windows they
    are spread evenly.

    *Transductive*: an embedding depends on the other participants in its cohort, through the graph.
    `transform` builds the graph of the cohort it is given; a participant's features differ between
    cohorts, and between a cohort and a part of it.

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

    model: ClassVar[Any] = GATEModel
    kind: ClassVar[str] = "timeseries"

    n_components: Width = 512
    width: Width = 256
    n_windows: Annotated[int, Field(ge=2, le=10000)] = 15
    window: Annotated[int, Field(ge=2, le=10**9)] = 30
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

    def source(self, cohort: Cohort) -> Dataset:
        """The population, as one sample."""
        return Population(cohort, self)

    def prepare(self, module: Any, source: Any, rows: np.ndarray) -> None:
        """Put mean and principal components of the windows' FC into the module, from a random choice of windows."""
        cohort, total = source.cohort, len(source.cohort) * self.n_windows
        chosen = np.sort(np.random.default_rng([self.seed, 3]).permutation(total)[:_PCA_WINDOWS])
        person, window = np.divmod(chosen, self.n_windows)
        sample = np.empty((len(chosen), module.mean.shape[0]), np.float32)
        for one in np.unique(person):
            (series,) = cohort.inputs("timeseries", [one])
            sample[person == one] = self.windows(torch.tensor(series), self.window)[
                window[person == one]
            ].numpy()
        mean, components, _ = principal_components(sample, module.components.shape[0])
        module.mean.copy_(torch.from_numpy(mean))
        module.components.zero_()  # fewer windows than components leave the last ones empty
        module.components[: components.shape[1]] = torch.from_numpy(components.T)

    def split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The population is one sample, and trained on."""
        return np.arange(1), np.zeros(0, int)

    def finish(self, module: Any, source: Any) -> None:
        """Count participants, of whom a sample holds all."""
        self.data_["n_training"] = len(source.cohort)

    @torch.inference_mode()
    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, width), from a graph of the participants given here."""
        module = self.module_.to(choose_device(self.device)).eval()
        graphs = Population(cohort, self).graphs([self.window], 1)
        total: Any = sum(
            module.embed(*window) for window in zip(*(part[0] for part in graphs), strict=True)
        )
        return (total / self.n_windows).cpu().numpy()

    def windows(self, series: torch.Tensor, length: int) -> torch.Tensor:
        """FC above the diagonal of every window of a (volumes, R) scan, of a length, about the centres of the first
        family, by the Ledoit–Wolf covariance: (windows, R (R - 1) / 2).
        """
        n_volumes = len(series)
        length = min(length, n_volumes)
        centres = (
            window_starts(n_volumes, self.window, self.n_windows, self.stride) + self.window / 2
        )
        starts = np.clip((centres - length / 2).astype(int), 0, n_volumes - length)
        cut = torch.stack(
            [series[start : start + length] for start in starts]
        )  # (windows, length, regions)
        rows, columns = torch.triu_indices(
            series.shape[1], series.shape[1], 1, device=series.device
        )
        return shrunk_correlation(cut)[:, rows, columns]


def window_starts(n_volumes: int, length: int, n_windows: int, stride: int) -> np.ndarray:
    """First volumes of the windows, `stride` apart; in a scan too short for that, evenly spread over it.

    Examples
    --------
    >>> window_starts(100, 30, 4, 15).tolist(), window_starts(60, 30, 4, 15).tolist()
    ([0, 15, 30, 45], [0, 10, 20, 30])
    """
    if (n_windows - 1) * stride + length <= n_volumes:
        return np.arange(n_windows) * stride
    return np.linspace(0, n_volumes - length, n_windows).round().astype(int)


def phenotype_codes(
    cohort: Cohort, columns: Sequence[str]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Columns as numbers with the difference below which two participants are alike; None of both without columns."""
    names = known_columns(columns, cohort.participants.columns, f"Cohort {cohort.name!r}")
    if not names:
        return None, None
    codes, tolerances = [], []
    for name in names:
        column = cohort.participants[name]
        numeric = pd.api.types.is_numeric_dtype(column) and column.nunique() > 10
        values = (
            column.astype(float)
            if numeric
            else pd.Series(column.astype("category").cat.codes, dtype=float)
        )
        codes.append(values.to_numpy(np.float32))
        tolerances.append(_AGE_TOLERANCE if numeric else 0.5)
    return torch.from_numpy(np.stack(codes, -1)), torch.tensor(tolerances)


class Population:
    """A source with one sample, the whole population: everyone's windows, and a graph of participants in each.

    They are computed when first asked for, with the projection that the module then has.
    """

    def __init__(self, cohort: Cohort, method: GATE) -> None:
        lengths = series_of(
            cohort, "GATE reads windows of", "It cannot be run on this cohort."
        ).lengths
        for short in np.flatnonzero(lengths < method.window):
            person, found = (
                cohort.participants["participant_id"].iloc[short],
                f"the scan has {lengths[short]} volumes",
            )
            expected = f"at least {method.window}, the length of GATE's windows"
            raise problem(
                person,
                found,
                expected=expected,
                remedy="Leave the participant out or use a smaller window.",
            )
        self.cohort, self.method = cohort, method
        self.phenotypes = phenotype_codes(cohort, method.phenotypes)
        self.tensors: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return 1

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """What `GATEModel.training_loss` reads, on the device of the module."""
        if not self.tensors:
            graphs = self.graphs(
                [self.method.window, *self.method.other_windows], self.method.n_neighbours
            )
            self.tensors = dict(zip(("features", "neighbours", "weights"), graphs, strict=True))
        return self.tensors

    @torch.no_grad()
    def graphs(self, lengths: Sequence[int], k: int) -> list[torch.Tensor]:
        """Features of everyone in windows of each length, (lengths, windows, participants, components); and the k
        nearest participants with the weights of the edges to them, (lengths, windows, participants, k) each.
        """
        method, module = self.method, self.method.module_
        device = module.mean.device
        features = torch.empty(
            len(lengths), method.n_windows, len(self.cohort), module.components.shape[0]
        )
        for person in range(len(self.cohort)):
            series = torch.tensor(self.cohort.inputs("timeseries", [person])[0], device=device)
            for i, length in enumerate(lengths):
                features[i, :, person] = module.project(method.windows(series, length)).cpu()
        nearest = [nearest_people(people, k, *self.phenotypes) for people in features.flatten(0, 1)]
        edges = (
            torch.stack(part).unflatten(0, features.shape[:2])
            for part in zip(*nearest, strict=True)
        )
        return [part.to(device) for part in (features, *edges)]
