"""What GATE reads: FC of windows of a scan, projected to principal components, as views of a whole population."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA

from nerve.checks import MissingInput, NerveError, known_columns
from nerve.cohort import Cohort
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
                f"{self.length}, the length of GATE's windows. Leave the person out or use a smaller window."
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
        sample[filled : filled + len(own)] = windows.fc(torch.from_numpy(series), windows.length)[own].numpy()
        filled += len(own)
    n_components = min(module.components.shape[0], *sample.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=seed).fit(sample)
    module.mean.copy_(torch.from_numpy(pca.mean_))
    module.components.zero_()  # fewer windows than components leave the last ones empty
    module.components[:n_components] = torch.from_numpy(pca.components_)


@torch.no_grad()
def projected_windows(
    module: GATEModel, cohort: Cohort, windows: Windows, lengths: Sequence[int]
) -> dict[int, torch.Tensor]:
    """Features of all people in windows of each length: length → (windows, people, components)."""
    n_components, device = module.components.shape[0], module.mean.device
    features = {length: torch.empty(windows.n_windows, len(cohort), n_components) for length in lengths}
    for person in range(len(cohort)):
        (series,) = cohort.inputs("timeseries", [person])
        for length in lengths:
            fc = windows.fc(torch.from_numpy(series).to(device), length)
            features[length][:, person] = module.project(fc).cpu()
        if person % 500 == 499:
            log.info("GATE: windows of %d of %d people", person + 1, len(cohort))
    return features


def phenotype_codes(cohort: Cohort, columns: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Columns as numbers with the difference below which two people are alike; None without columns."""
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


class PopulationViews:
    """A source whose samples are pairs of views of the whole population.

    View a is window i with a graph of the nearest neighbour; view b is window i + 1 with a graph of the nearest
    `n_neighbours`, half of the time of the usual length and otherwise of one of the other lengths in turn.
    """

    def __init__(self, cohort: Cohort, windows: Windows, n_neighbours: int, phenotypes: Sequence[str]) -> None:
        windows.check(cohort)
        self.cohort, self.windows, self.n_neighbours = cohort, windows, n_neighbours
        self.phenotypes = phenotype_codes(cohort, phenotypes) or (None, None)
        others = windows.other_lengths or (windows.length,)
        self.pairs = [
            (i, length) for i in range(windows.n_windows - 1) for length in (*[windows.length] * len(others), *others)
        ]
        self.features: dict[int, torch.Tensor] = {}
        self.graphs: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def prepare(self, module: GATEModel) -> None:
        """Project every window and join each person to the most similar others in it."""
        lengths = {self.windows.length, *self.windows.other_lengths}
        self.features = projected_windows(module, self.cohort, self.windows, sorted(lengths))
        for length, windows in self.features.items():
            for i, people in enumerate(windows):
                self.graphs[length, i] = nearest_people(people, self.n_neighbours, *self.phenotypes)

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """One pair of views; `rows` holds one position."""
        i, length = self.pairs[int(rows[0])]
        near, near_weights = self.graphs[self.windows.length, i]
        wide, wide_weights = self.graphs[length, i + 1]
        return {
            "features_a": self.features[self.windows.length][i],
            "neighbours_a": near[:, :1],
            "weights_a": near_weights[:, :1],
            "features_b": self.features[length][i + 1],
            "neighbours_b": wide,
            "weights_b": wide_weights,
        }
