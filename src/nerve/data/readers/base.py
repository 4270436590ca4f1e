"""What a reader is: it finds the scans of one kind of source, and reads one scan at a time.

To add a reader:

1. Write one file in this folder. Its name is the name of the reader (`--format`). It holds a
   subclass of `Reader` that sets `describe` (and `uses`, if it reads options such as `--atlas`) and
   has two methods:

   - ``find(source: Path, options: Options) -> list[ScanFile]`` lists the scans below a source,
     sorted, from names rather than contents. It must return an empty list when the layout of the
     source is not its own. When the layout is its own and the user must choose first (one of
     several atlases, say), it raises `NerveError`.
   - ``read(scan: ScanFile, options: Options) -> ScanData`` opens one of these scans. It must return
     the matrix (R, R) or the time series (volumes, R) as it stands in the file, with the region
     labels if the file has any.

   A source that states its own parcellation or options may also override `complete_options`.

2. Import its class in ``nerve/data/readers/registry.py`` and add it to `READERS`, before less
   specific readers. (Those with ``fallback = True`` read files without any convention; they stand
   last, and are asked only when no other reader finds anything.)

Everything else is done for all readers alike: ids, the participants table, region order, r or
Fisher z, checks of the matrix, repeated scans, missing regions, motion, parallel reading, the
cohort. So a reader does *not* check symmetry or the number of regions, does not reorder regions,
and does not print. When it cannot understand a file it raises `NerveError` (best by `problem`):
that participant is then left out, with the sentence as the reason.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from nerve.data.parcellation import Parcellation


@dataclass(frozen=True)
class ScanFile:  # numpydoc ignore=PR02
    """Where a scan of a participant lies: a file, or an entry of a file with many participants.

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
        Which entry of `path`, where the file holds many participants. Such scans are read one after
        another in the main process, in the order of `find`, so that the open file can be cached.
    motion_path : Path, optional
        The file of framewise displacement, if there is one.
    extra : mapping
        Anything else that `read` needs; picklable.
    notes : tuple of str
        Sentences for the user. The same sentence of many scans is shown once, with a count.
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
    notes: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def entry(self) -> tuple[Path, str | int | None]:
        """The file and the entry in it, which together identify the scan."""
        return self.path, self.key

    @property
    def where(self) -> str:
        """File and participant, as errors name the scan."""
        return f"{self.path} (participant {self.participant})"


@dataclass(frozen=True)
class ScanData:  # numpydoc ignore=PR02
    """What stands in the file of a scan, unchanged.

    Parameters
    ----------
    matrix : (R, R) array, optional
        FC. Missing values and whole missing regions are NaN (or zero off the diagonal).
    series : (volumes, R) array, optional
        Time series; exactly one of `matrix` and `series` is given.
    labels : tuple of str, optional
        Region labels in the order of the array, if the file has them.
    stated : bool
        The labels do not stand in the file: its name states the atlas, and they are the atlas'
        labels.
    motion : (volumes,) array, optional
        Framewise displacement in mm.
    mean_fd : float, optional
        Mean framewise displacement in mm, where only that is known; computed from `motion`
        otherwise.
    values : {"r", "z", "other"}, optional
        What the entries are, where the format says so; it outranks the user's `--values`. "other"
        is kept as it is, and its range is not checked.
    measure : str, optional
        What the entries measure (`nerve.data.connectivity`), where the format says so; otherwise
        Pearson correlations, or "other" where `values` is.
    notes : tuple of str
        Further sentences for the user, beside those of the scan.
    header : str
        What stands above the columns and before the rows of the numbers, in words for the plan.
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
    header: str = ""

    @property
    def array(self) -> np.ndarray:
        """The matrix or the time series."""
        return np.asarray(self.matrix if self.series is None else self.series)

    @property
    def values_are_known(self) -> bool:
        """Whether the format says what the entries are (of a time series, they are made here)."""
        return self.series is not None or self.values is not None

    @property
    def mean_motion(self) -> float:
        """Mean framewise displacement in mm, NaN where it is not known."""
        if self.mean_fd is not None:
            return float(self.mean_fd)
        if self.motion is not None and np.isfinite(self.motion).any():
            return float(np.nanmean(self.motion))
        return float("nan")

    @classmethod
    def of(cls, kind: str, array: np.ndarray, **fields: Any) -> ScanData:
        """Make it from an array that is a matrix (`kind` "fc") or a time series.

        Parameters
        ----------
        kind : {"fc", "series"}
        array : (R, R) or (volumes, R) array
        **fields
            The other fields.

        Returns
        -------
        ScanData
        """
        if kind == "fc":
            return cls(matrix=array, **fields)
        return cls(series=array, **fields)


#: How many scans a reader may open in `find` to learn about its source.
N_OPENED_IN_FIND = 5

#: Scans that were read before all others, to learn about their source.
SampledScans = list[tuple[ScanFile, ScanData]]

#: A note that begins so is shown as a warning by `nerve.read_cohort`.
WARNING = "WARNING:"


@dataclass(frozen=True)
class Options:  # numpydoc ignore=PR02
    """How a source becomes a cohort: the options of `nerve ingest`.

    A reader uses what concerns it; the rest is done for all readers alike.

    Parameters
    ----------
    parcellation : Parcellation, optional
        The regions that the cohort shall have (`ingest` takes a built-in name or a table too).
        Files with labels are matched by label; files without are taken to be in this order, or in
        `order`.
    order : Parcellation, optional
        The order of the rows in files without labels, where it is not that of `parcellation`.
    participants : DataFrame or path, optional
        Table joined by id; `participants.tsv` beside the data is used when none is given.
    columns : mapping
        Our column name → the table's (`ingest` takes ``age=AGE_AT_SCAN,site=SITE_ID``, or a YAML
        file of the same, too).
    sheet : str, optional
        Name or number (from 1) of the sheet, where the table is a workbook of Excel; the only one
        with a column of ids by default.
    na_values : mapping
        Column → codes in it that mean missing; those under the empty name count in every column but
        ids, sessions, families and sites (`ingest` takes ``999,-9,sex=9`` too).
    visit : str, optional
        The visit whose row of the table is taken for everyone, whatever the session of the scan.
    sessions : mapping
        Session of the scans → session of the table, where their names differ (`ingest` takes a file
        of two columns too).
    id_map : mapping
        Participant id of the data → that of the table (`ingest` takes a file of two columns too).
    format : str
        "auto" or a name in `READERS`.
    values : {"auto", "r", "z"}
        Whether matrices hold correlations or Fisher z; "auto" decides once for the source, from
        what the matrices show.
    measure : str, optional
        What matrices measure, where the format does not say: a name in
        `nerve.data.connectivity.STATED_MEASURES`. Without it matrices are taken to be correlations.
    unfolding : {"auto", "upper", "lower"}
        How vectors become matrices: the upper triangle row by row (NumPy's triu_indices, CBIG) or
        the lower one (nilearn, MATLAB's triu); "auto" takes the one that gives matrices of
        correlations, and refuses to guess.
    id_pattern : str, optional
        A regular expression with a group named `id` (and perhaps `session`, `task`, `run`) that is
        searched in the path of each file below the source; files that it does not match are left
        out.
    kind : {"pearson", "partial", "ledoit_wolf"}
        FC of time series.
    data : {"auto", "fc", "series"}
        Whether to read matrices or time series where there are both; "auto" takes matrices, and
        time series if these are kept or another FC than Pearson's is asked for (see
        `prefers_series`).
    fd_threshold : float, optional
        Volumes with more framewise displacement than this (mm) are left out, where there is a
        motion file.
    session, task : str, optional
        Read only these.
    repeats : {"average", "first", "last", "refuse"}
        What to do with several scans of a participant.
    missing : {"drop-participant", "drop-region", "impute-group-mean"}
        What to do when regions have no data.
    outside : {"drop", "keep"}
        What to do with regions that the parcellation does not have (subcortical ones).
    header, index : {"auto", "yes", "no"}
        Whether the first line of a text file of numbers names its columns, and the first column its
        rows; "auto" takes what the numbers prove, and refuses where two readings fit.
    atlas : str, optional
        Which atlas, where a source holds several (`4S456Parcels`, `cc200`): a reader raises a
        `NerveError` that lists them (`--atlas`) when there are several and none was named.
    variable : str, optional
        Name of the array in `.mat` or `.npz` files.
    ids : tuple of str, optional
        Participant ids in the order of the rows of one stacked array (`ingest` takes a file with
        one id per line too); those of the participants table by default.
    atlas_image : path, optional
        A label image for sources that hold voxels.
    denoise : str, optional
        Confound strategy for sources that hold voxels.
    timeseries : bool
        Keep time series in the cohort.
    dtype : {"float32", "float16"}
    jobs : int, optional
        Processes; as many as there are cores by default.
    name : str, optional
        Of the cohort; the name of the output folder by default.
    strict : bool
        Stop at the first participant who cannot be read instead of leaving them out.
    allow_exclusions : bool
        Go on although more than a fifth of the scans are left out.
    overwrite : bool
        Replace an existing output folder.
    typed : frozenset of str
        Names of the options that the user gave: each is used, or refused.
    """

    parcellation: Parcellation | None = None
    order: Parcellation | None = None
    participants: pd.DataFrame | str | os.PathLike[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    sheet: str | None = None
    na_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    visit: str | None = None
    sessions: Mapping[str, str] = field(default_factory=dict)
    id_map: Mapping[str, str] = field(default_factory=dict)
    format: str = "auto"
    values: str = "auto"
    measure: str | None = None
    unfolding: str = "auto"
    id_pattern: str | None = None
    kind: str = "pearson"
    data: str = "auto"
    fd_threshold: float | None = None
    session: str | None = None
    task: str | None = None
    repeats: str = "average"
    missing: str = "drop-participant"
    outside: str = "drop"
    header: str = "auto"
    index: str = "auto"
    atlas: str | None = None
    variable: str | None = None
    ids: tuple[str, ...] | None = None
    atlas_image: Path | None = None
    denoise: str | None = None
    timeseries: bool = False
    dtype: str = "float32"
    jobs: int | None = None
    name: str | None = None
    strict: bool = False
    allow_exclusions: bool = False
    overwrite: bool = False
    typed: frozenset[str] = frozenset()

    @property
    def file_regions(self) -> Parcellation | None:
        """The regions of files without labels, in the order of their rows."""
        return self.order or self.parcellation

    @property
    def prefers_series(self) -> bool:
        """Whether time series should be read where a source has both them and matrices."""
        needs_series = self.timeseries or self.kind != "pearson" or self.fd_threshold is not None
        return self.data == "series" or (self.data == "auto" and needs_series)


class Reader(ABC):
    """One kind of source."""

    #: One line for `--help` and the log.
    describe: ClassVar[str]
    #: Those of the options `atlas`, `variable`, `atlas_image`, `denoise`, `unfolding`, `header` and
    #: `index` that it reads; the others are refused.
    uses: ClassVar[tuple[str, ...]] = ()
    #: Whether `--format auto` asks this reader only when no other finds anything.
    fallback: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name in `READERS`, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """List the scans below a source, sorted.

        Must be quick (it reads names, and opens at most `N_OPENED_IN_FIND` scans) and must not
        fail on other sources. For `--format auto` the reader that finds most scans is taken; of
        equals, the one that stands first in `READERS`.

        Parameters
        ----------
        source : Path
            A folder or a file.
        options : Options

        Returns
        -------
        list of ScanFile
            Empty when the layout is not this reader's.
        """

    def complete_options(self, options: Options, scans: list[ScanFile]) -> Options:
        """Add what the source itself says (its parcellation, for example) to the user's options.

        Parameters
        ----------
        options : Options
        scans : list of ScanFile
            What `find` returned.

        Returns
        -------
        Options
            Where the user named an option, that stays.
        """
        return options

    @abstractmethod
    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Read one scan.

        Called in other processes, so a reader has no state except caches.

        Parameters
        ----------
        scan : ScanFile
        options : Options

        Returns
        -------
        ScanData
            What stands in the file, unchanged.
        """
