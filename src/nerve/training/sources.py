"""Where batches come from: a source has a length and gives the batch of some rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from nerve._utils.errors import NerveError, problem
from nerve.data.cohort import Cohort
from nerve.training.settings import TrainingSettings

LARGEST = 1e12  # FC of this size is none, and float32 has no room for its squares and their sums


class Source(Protocol):
    """Samples 0 … len - 1. A batch is a tensor, or a tuple, list or dict of tensors, first axis samples."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Any:
        """The samples at these positions, on the CPU."""


class ArraySource:
    """The rows of an array, in memory or memory-mapped, given in float32.

    Examples
    --------
    >>> ArraySource(np.arange(6.0).reshape(3, 2)).batch(np.array([2, 0])).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """(batch, …) rows at these positions."""
        return torch.from_numpy(np.ascontiguousarray(self.array[rows], np.float32))


class CohortSource:
    """A cohort, read when a batch is asked for; `kind` as in `Cohort.inputs`.

    FC kinds give a (batch, …) tensor; time series, whose lengths differ, a list of (volumes, R) tensors.
    """

    def __init__(self, cohort: Cohort, kind: str = "fc") -> None:
        self.cohort, self.kind = cohort, kind

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> Any:
        """The participants at these positions."""
        values = self.cohort.inputs(self.kind, rows)
        check_numbers(values, self.cohort, rows)
        return [torch.from_numpy(one) for one in values] if self.kind == "timeseries" else torch.from_numpy(values)


def check_numbers(values: Any, cohort: Cohort, rows: np.ndarray) -> None:
    """Refuse inputs (one per participant) that are not finite numbers of use, naming the first such participant."""
    for row, value in zip(rows, values, strict=True):
        largest = float(np.maximum(value.max(initial=0.0), -value.min(initial=0.0)))  # no copy is made
        if not largest < LARGEST:  # nor is NaN
            found = "missing values" if np.isnan(largest) else f"values of {largest:.0e}"
            where = f"Participant {cohort.participants['participant_id'].iloc[int(row)]} of {cohort.name}"
            remedy = "`nerve check` lists such participants and what can be done."
            raise problem(where, f"the input holds {found}", expected=f"numbers below {LARGEST:.0e}", remedy=remedy)


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with every tensor moved to a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    return type(batch)(to_device(part, device) for part in batch)


class PairedSource:
    """Another source's samples, each with a target: batches are (samples, (batch, …) targets)."""

    def __init__(self, source: Source, targets: np.ndarray) -> None:
        if len(source) != len(targets):
            raise NerveError(f"There are {len(targets)} targets for {len(source)} participants, expected one each.")
        self.source = source
        self.targets = np.asarray(targets, np.float32)

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: np.ndarray) -> tuple[Any, torch.Tensor]:
        """(samples, targets) at these positions."""
        return self.source.batch(rows), torch.from_numpy(self.targets[rows])


def split_rows(
    n_samples: int, groups: Sequence[Any] | np.ndarray | None, settings: TrainingSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows; every group gives its share to validation, at least one of two or more.

    Examples
    --------
    >>> training, validation = split_rows(30, ["a"] * 10 + ["b"] * 20, TrainingSettings())
    >>> len(training), (validation < 10).sum(), (validation >= 10).sum()
    (27, np.int64(1), np.int64(2))
    """
    labels = np.zeros(n_samples, int) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    held_out: list[np.ndarray] = []
    for group in np.unique(labels):
        rows = np.flatnonzero(labels == group)
        count = round(settings.validation_fraction * len(rows))
        if settings.validation_fraction > 0 and len(rows) > 1:
            count = max(count, 1)
        generator = np.random.default_rng([settings.seed, 1, int(group)])
        held_out.append(generator.permutation(rows)[:count])
    validation = np.sort(np.concatenate(held_out)) if held_out else np.zeros(0, int)
    return np.setdiff1d(np.arange(n_samples), validation), validation
