"""What a reader is: it finds the scans of one kind of source, and reads one scan at a time.

To add a reader:

1. Write one file here with a subclass of `Reader` that sets `name` and `describe` and has two methods. `find` lists
   the scans below a source and returns an empty list when the layout is not its own. `read` gives one scan's matrix or
   time series as it stands in the file, with the region labels if the file has any.
2. Add its line to `READERS` in ``nerve/readers/__init__.py``.

Everything else is done for all readers alike: ids, the participants table, region order, r or z, checks of the
matrix, repeated scans, missing regions, motion, parallel reading, the cohort on disk. So a reader does *not* check
symmetry or the number of regions, does not reorder regions, and does not print. It raises `NerveError` (best by
`problem`) when a file cannot be understood: that participant is then left out, with the sentence as the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nerve.checks import problem
from nerve.parcellation import Parcellation


@dataclass(frozen=True)
class Scan:
    """One scan of one participant: a file, or one entry of a file that holds many participants.

    Parameters
    ----------
    participant : str
        The id as the source writes it; the framework normalises it.
    path : Path
        The file to read.
    kind : {"fc", "series", ""}
        A matrix, a time series, or not known before reading.
    session, task, run : str
        Entities without their prefix (`1`, `rest`, `01`), empty where the source has none.
    key : str or int, optional
        Which entry of `path`, where the file holds many participants. Such scans are read one after another in the main
        process, in the order of `find`, so that the open file can be cached.
    motion_path : Path, optional
        The file of framewise displacement, if there is one.
    extra : mapping
        Anything else that `read` needs; picklable.
    left_out : str
        Why the file is not read, where it is listed only so that the user knows of it.
    """

    participant: str
    path: Path
    kind: str = ""
    session: str = ""
    task: str = ""
    run: str = ""
    key: str | int | None = None
    motion_path: Path | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""


@dataclass(frozen=True)
class Reading:
    """What stood in the file, unchanged.

    Parameters
    ----------
    matrix : (R, R) array, optional
        FC. Missing values and whole missing regions are NaN (or zero off the diagonal).
    series : (volumes, R) array, optional
        Time series; exactly one of `matrix` and `series` is given.
    labels : tuple of str, optional
        Region labels in the order of the array, if the file has them.
    stated : bool
        The labels do not stand in the file: the name of the file states the atlas, and they are that atlas' labels.
    motion : (volumes,) array, optional
        Framewise displacement in mm.
    mean_fd : float, optional
        Mean framewise displacement in mm, where only that is known; computed from `motion` otherwise.
    values : {"r", "z", "other"}, optional
        What the entries are, where the format says so; it outranks the user's `--values`. "other" is kept as it is
        and its range is not checked.
    measure : str, optional
        What the entries measure (`nerve.measures`), where the format says so; otherwise Pearson correlations, or
        "other" where `values` is.
    notes : tuple of str
        Sentences for the user. The same sentence of many scans is shown once, with a count.
    """

    matrix: np.ndarray | None = None
    series: np.ndarray | None = None
    labels: tuple[str, ...] | None = None
    motion: np.ndarray | None = None
    mean_fd: float | None = None
    values: str | None = None
    measure: str | None = None
    notes: tuple[str, ...] = ()
    stated: bool = False


@dataclass(frozen=True)
class Options:
    """What the user said about the source. A reader uses what concerns it.

    Parameters
    ----------
    parcellation : Parcellation, optional
        The regions that the cohort shall have, in order.
    order : Parcellation, optional
        The order of the rows in files without labels; `parcellation` if not given.
    atlas : str, optional
        Which atlas, where a source holds several (`4S456Parcels`, `cc200`): a reader raises a `NerveError` that lists
        them (`--atlas`) when there are several and none was named.
    session, task : str, optional
        Only these scans. The framework filters by `Scan.session` and `Scan.task`; a reader need not.
    values : {"auto", "r", "z"}
        What the entries of matrices are, where the format does not say; "auto" decides once for the whole source.
    unfolding : {"auto", "upper", "lower"}
        How vectors become matrices: the upper triangle row by row, or the lower one; "auto" proves it.
    id_pattern : str, optional
        The user's pattern of ids; the framework applies it, so that a reader need not tell participants apart.
    data : {"auto", "fc", "series"}
        Prefer matrices or time series where a source has both; "auto" takes matrices, and time series if the user wants
        those kept or asks for another FC than Pearson's (see `prefers_series`).
    variable : str, optional
        Name of the array in `.mat` or `.npz` files.
    ids : tuple of str, optional
        Participant ids in the order of the rows of one stacked array (from `--ids`, else from the participants table).
    atlas_image : Path, optional
        A label image for sources that hold voxels.
    denoise : str, optional
        Confound strategy for sources that hold voxels.
    kind, fd_threshold, timeseries
        FC estimator, censoring threshold in mm and whether time series are kept; applied by the framework.
    """

    parcellation: Parcellation | None = None
    order: Parcellation | None = None
    atlas: str | None = None
    session: str | None = None
    task: str | None = None
    values: str = "auto"
    unfolding: str = "auto"
    id_pattern: str | None = None
    data: str = "auto"
    variable: str | None = None
    ids: tuple[str, ...] | None = None
    atlas_image: Path | None = None
    denoise: str | None = None
    kind: str = "pearson"
    fd_threshold: float | None = None
    timeseries: bool = False

    @property
    def prefers_series(self) -> bool:
        """Whether time series should be read where a source has both them and matrices."""
        needs_series = self.timeseries or self.kind != "pearson" or self.fd_threshold is not None
        return self.data == "series" or (self.data == "auto" and needs_series)


class Reader(ABC):
    """One kind of source."""

    name: ClassVar[str]
    describe: ClassVar[str]  # one line for `--help` and the log
    fallback: ClassVar[bool] = False  # asked by `--format auto` only when no other reader finds anything

    @abstractmethod
    def find(self, source: Path, options: Options) -> list[Scan]:
        """The scans below `source` (a folder or a file), sorted; empty when the layout is not this reader's.

        Must be quick (names, not contents) and must not fail on other sources. For `--format auto` the reader that
        finds most scans is taken; of equals, the one that stands first in `READERS`.
        """

    def completed(self, options: Options, scans: list[Scan]) -> Options:
        """The options with what the source itself says (its parcellation, say), where the user said nothing."""
        return options

    @abstractmethod
    def read(self, scan: Scan, options: Options) -> Reading:
        """What stands in the file of one scan. Called in other processes: no state, except caches."""


def require_file(path: Path, participant: str = "") -> Path:
    """The path, if it holds content; otherwise one sentence about what it is instead."""
    where = f"{path} (participant {participant})" if participant else str(path)
    if path.is_symlink() and not path.exists():
        target = str(path.readlink())
        annexed = "annex" in target
        raise problem(
            where,
            "the link points to a git-annex file that was never fetched"
            if annexed
            else f"the link to {target} is broken",
            remedy="Fetch it with `datalad get`." if annexed else "Mend the link or leave the file out.",
        )
    if not path.is_file():
        raise problem(where, "there is no such file")
    if path.stat().st_size == 0:
        raise problem(where, "the file is empty", remedy="Fetch or write it again, or leave the participant out.")
    with open(path, "rb") as stream:
        start = stream.read(64)
    if b"annex/objects" in start or start.startswith(b"version https://git-lfs"):
        raise problem(where, "the file is a placeholder whose content was never fetched", remedy="Use `datalad get`.")
    return path
