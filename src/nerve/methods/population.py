"""What GATE reads: FC of windows of a scan, projected to principal components, for a whole population at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from nerve.checks import MissingInput, NerveError, known_columns
from nerve.cohort import Cohort
from nerve.components import principal_components
from nerve.models.gate import GATEModel, nearest_people
from nerve.models.pseudo_views import correlation

log = logging.getLogger("nerve.methods")
_PCA_WINDOWS = 2048  # windows that the projection is fitted on: at R = 400 they take 0.6 GiB
_AGE_TOLERANCE = 2.0  # two numbers count as alike when they differ by less (years, in the original)


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


class Windows:
    """Windows of one length, and others of several lengths about the same centres."""

    def __init__(self, length: int, other_lengths: Sequence[int], n_windows: int, stride: int) -> None:
        self.length, self.other_lengths = length, tuple(other_lengths)
        self.n_windows, self.stride = n_windows, stride

    def fc(self, series: torch.Tensor, length: int) -> torch.Tensor:
        """Entries above the diagonal of the FC of every window of a (volumes, R) scan: (windows, R (R - 1) / 2)."""
        n_volumes = len(series)
        length = min(length, n_volumes)
        centres = window_starts(n_volumes, self.length, self.n_windows, self.stride) + self.length / 2
        starts = np.clip((centres - length / 2).astype(int), 0, n_volumes - length)
        cut = torch.stack([series[start : start + length] for start in starts])  # (windows, length, regions)
        rows, columns = torch.triu_indices(series.shape[1], series.shape[1], 1, device=series.device)
        return correlation(cut)[:, rows, columns]

    def check(self, cohort: Cohort) -> None:
        """Refuse a cohort without time series, or with a scan shorter than a window."""
        if cohort.timeseries is None:
            raise MissingInput(
                f"GATE reads windows of time series, and cohort {cohort.name!r} has only FC matrices. It cannot be "
                "run on this cohort."
            )
        short = np.flatnonzero(cohort.timeseries.lengths < self.length)
        if len(short):
            person = cohort.participants["participant_id"].iloc[short[0]]
            raise NerveError(
                f"{person}: the scan has {cohort.timeseries.lengths[short[0]]} volumes, expected at least "
                f"{self.length}, the length of GATE's windows. Leave the participant out or use a smaller window."
            )


def fit_projection(module: GATEModel, cohort: Cohort, windows: Windows, seed: int) -> None:
    """Put mean and principal components of the windows' FC into the module, from a random choice of windows."""
    generator = np.random.default_rng([seed, 3])
    total = len(cohort) * windows.n_windows
    chosen = np.sort(generator.permutation(total)[:_PCA_WINDOWS])
    sample = np.empty((len(chosen), module.mean.shape[0]), np.float32)
    filled = 0
    for person in np.unique(chosen // windows.n_windows):
        own = chosen[chosen // windows.n_windows == person] % windows.n_windows
        (series,) = cohort.inputs("timeseries", [person])
        sample[filled : filled + len(own)] = windows.fc(torch.tensor(series), windows.length)[own].numpy()
        filled += len(own)
    mean, components, _ = principal_components(sample, module.components.shape[0])
    module.mean.copy_(torch.from_numpy(mean))
    module.components.zero_()  # fewer windows than components leave the last ones empty
    module.components[: components.shape[1]] = torch.from_numpy(components.T)


@torch.no_grad()
def projected_windows(module: GATEModel, cohort: Cohort, windows: Windows, lengths: Sequence[int]) -> torch.Tensor:
    """Features of everyone in windows of each length: (lengths, windows, participants, components)."""
    n_components, device = module.components.shape[0], module.mean.device
    features = torch.empty(len(lengths), windows.n_windows, len(cohort), n_components)
    for person in range(len(cohort)):
        (series,) = cohort.inputs("timeseries", [person])
        for i, length in enumerate(lengths):
            fc = windows.fc(torch.tensor(series, device=device), length)
            features[i, :, person] = module.project(fc).cpu()
        if person % 500 == 499:
            log.info("GATE: windows of %d of %d participants", person + 1, len(cohort))
    return features


def phenotype_codes(cohort: Cohort, columns: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Columns as numbers with the difference below which two participants are alike; None without columns."""
    names = known_columns(columns, cohort.participants.columns, f"Cohort {cohort.name!r}")
    if not names:
        return None
    codes, tolerances = [], []
    for name in names:
        column = cohort.participants[name]
        numeric = pd.api.types.is_numeric_dtype(column) and column.nunique() > 10
        values = column.astype(float) if numeric else pd.Series(column.astype("category").cat.codes, dtype=float)
        codes.append(values.to_numpy(np.float32))
        tolerances.append(_AGE_TOLERANCE if numeric else 0.5)
    return torch.from_numpy(np.stack(codes, -1)), torch.tensor(tolerances)


class Population:
    """A source with one sample, the whole population: everyone's windows, and a graph of participants in each.

    They are computed when first asked for, with the projection that the module then has.
    """

    def __init__(
        self, cohort: Cohort, windows: Windows, n_neighbours: int, phenotypes: Sequence[str], module: GATEModel
    ) -> None:
        windows.check(cohort)
        self.cohort, self.windows, self.n_neighbours, self.module = cohort, windows, n_neighbours, module
        self.phenotypes = phenotype_codes(cohort, phenotypes) or (None, None)
        self.tensors: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return 1

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """What `GATEModel.training_loss` reads, on the device of the module."""
        if not self.tensors:
            lengths = [self.windows.length, *self.windows.other_lengths]
            features = projected_windows(self.module, self.cohort, self.windows, lengths)
            graphs = [[nearest_people(people, self.n_neighbours, *self.phenotypes) for people in w] for w in features]
            self.tensors = {
                "features": features,
                "neighbours": torch.stack([torch.stack([graph[0] for graph in w]) for w in graphs]),
                "weights": torch.stack([torch.stack([graph[1] for graph in w]) for w in graphs]),
            }
            self.tensors = {name: tensor.to(self.module.mean.device) for name, tensor in self.tensors.items()}
        return self.tensors
