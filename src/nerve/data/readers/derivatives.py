"""Derivatives: the parts of their BIDS names, and the one version that is read, never a mixture.

    sub-01_ses-2_task-rest_stat-mean_timeseries.tsv → entities, suffix and extension

A small parser of our own, because pybids drops entities that it does not know (`stat-`, `meas-`,
`reg-`). Sources often hold the same scans in several atlases and variants: XCP-D writes a dozen
atlases, and `desc-<N>volumes` variants made from fewer volumes; C-PAC writes several denoising
strategies. A cohort is made from exactly one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nerve._utils.errors import NerveError, did_you_mean, listed
from nerve.data.readers.base import Options, ScanFile

Named = TypeVar("Named")
_SCAN_ENTITIES = ("sub", "ses", "task", "acq", "ce", "rec", "dir", "run", "echo")


@dataclass(frozen=True)
class BidsName:  # numpydoc ignore=PR02
    """One file, by the parts of its name.

    Parameters
    ----------
    path : Path
    entities : dict
        ``{"sub": "01", "task": "rest", …}`` in the order of the name.
    suffix : str
        The last word: ``"bold"``, ``"timeseries"``, ``"relmat"`` …
    extension : str
        With its dots: ``".tsv"``, ``".pconn.nii"``.
    """

    path: Path
    entities: dict[str, str] = field(hash=False)
    suffix: str
    extension: str

    def get(self, *keys: str) -> str:
        """The value of the first of these entities that the name has, or an empty string."""
        return next((self.entities[key] for key in keys if key in self.entities), "")

    @property
    def participant(self) -> str:
        """The label of `sub-`."""
        return self.entities["sub"]

    @property
    def scan(self) -> tuple[str, ...]:
        """What identifies the recording: participant, session, task, run and the like."""
        return tuple(self.get(key) for key in _SCAN_ENTITIES)

    def companion(self, others: Mapping[tuple[str, ...], BidsName]) -> Path | None:
        """The file (of motion, of confounds) that belongs to it, if there is one."""
        return others[self.scan].path if self.scan in others else None

    def as_scan(self, kind: str, **more: Any) -> ScanFile:
        """The scan that this file is."""
        return ScanFile(
            self.participant,
            self.path,
            kind,
            self.get("ses"),
            self.get("task"),
            self.get("run"),
            **more,
        )


def parse_name(path: Path | str) -> BidsName | None:
    """The parts of a BIDS name, or None where the name does not begin with `sub-` or has no suffix.

    A word without a dash belongs to the label before it: ids such as `sub-NDAR_INV01` do occur.

    Parameters
    ----------
    path : path

    Returns
    -------
    BidsName or None

    Examples
    --------
    >>> name = parse_name("sub-NDAR_INV01_task-rest_atlas-A_stat-mean_timeseries.ptseries.nii")
    >>> name.participant, name.get("seg", "atlas"), name.suffix, name.extension
    ('NDAR_INV01', 'A', 'timeseries', '.ptseries.nii')
    """
    path = Path(path)
    stem, _, last = path.name.rpartition("_")
    suffix, dot, extension = last.partition(".")
    if not stem.startswith("sub-") or not suffix or not dot or "-" in suffix:
        return None
    entities: dict[str, str] = {}
    latest = ""
    for word in stem.split("_"):
        key, dash, label = word.partition("-")
        if dash and key.isalnum() and label:
            latest = key
            entities.setdefault(key, label)
        elif latest:
            entities[latest] += f"_{word}"
    return BidsName(path, entities, suffix, f".{extension}") if entities.get("sub") else None


def parse_names(paths: Iterable[Path]) -> list[BidsName]:
    """The files with BIDS names, in the order given."""
    return [name for name in map(parse_name, paths) if name is not None]


def by_scan(names: Iterable[BidsName]) -> dict[tuple[str, ...], BidsName]:
    """The first file of each recording."""
    return {name.scan: name for name in reversed(list(names))}


@dataclass(frozen=True, order=True)
class Version:
    """An atlas, and a variant of what was made with it (empty for the usual one)."""

    atlas: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.atlas}_{self.variant}" if self.variant else self.atlas or "unnamed"


def version_of(name: BidsName, *variants: str) -> Version:
    """Atlas and variant of a derivative, from entities of its name (`desc` by default)."""
    variant = [f"{key}-{name.get(key)}" for key in variants or ("desc",) if name.get(key)]
    return Version(name.get("seg", "atlas", "parcellation"), "_".join(variant))


def one_version(
    kinds: Mapping[str, Sequence[Named]],
    options: Options,
    version: Callable[[Named], Version],
    preferred: str = "",
) -> tuple[str, list[Named], Version]:
    """Choose between matrices and time series, and then the files of one atlas and variant.

    Parameters
    ----------
    kinds : mapping
        ``fc`` and ``series`` → names of files. A layout may have one of them only.
    options : Options
    version : callable
        Name → its version.
    preferred : str
        See `_choose_version`.

    Returns
    -------
    kind : {"fc", "series", ""}
        What is read; empty if there is neither.
    names : list
        The files of that kind and version.
    version : Version
    """
    by_preference = ["series", "fc"] if options.prefers_series else ["fc", "series"]
    if options.data in kinds:
        by_preference = [options.data]
    kind = next((kind for kind in by_preference if kinds.get(kind)), "")
    if not kind:
        return "", [], Version("")
    chosen = _choose_version(map(version, kinds[kind]), options, preferred)
    return kind, [name for name in kinds[kind] if version(name) == chosen], chosen


def _choose_version(available: Iterable[Version], options: Options, preferred: str = "") -> Version:
    """The one version to read.

    The user names it with `--atlas` (the atlas, or the atlas with its variant as listed); otherwise
    the only one, or the only one that fits the parcellation. Among variants of one atlas the one
    without a name is taken, then the only one that matches the pattern `preferred`; otherwise the
    user must say.

    Parameters
    ----------
    available : iterable of Version
    options : Options
    preferred : str
        Regular expression.

    Returns
    -------
    Version
    """
    versions = sorted(set(available))
    wanted = options.atlas or ""
    named = [version for version in versions if _is_named(version, wanted)]
    if not named:
        names = [str(version) for version in versions]
        raise NerveError(
            f"There is no atlas {wanted!r} in the source, which has {listed(names, most=40)}."
            f"{did_you_mean(wanted, names)}"
        )
    variants = _of_one_atlas(named, options)  # sorted: the one without a variant comes first
    usual = [
        version
        for version in variants
        if not version.variant or re.fullmatch(preferred, version.variant)
    ]
    if usual and (len(usual) == 1 or not usual[0].variant):
        return usual[0]
    if len(variants) == 1:
        return variants[0]
    raise NerveError(
        f"The source holds several variants of {variants[0].atlas} ({listed(variants, most=20)}), "
        f"which must not be mixed. Name one with --atlas, for example `--atlas {variants[0]}`."
    )


def of_one_task(scans: Sequence[ScanFile], options: Options) -> list[ScanFile]:
    """Keep the scans at rest, where a source has other tasks too and the user names none.

    FC differs between tasks.

    Raises a `NerveError` when there are several tasks and none is rest.

    Parameters
    ----------
    scans : sequence of ScanFile
    options : Options

    Returns
    -------
    list of ScanFile
    """
    tasks = sorted({scan.task for scan in scans if scan.task})
    others = [task for task in tasks if not task.lower().startswith("rest")]
    if options.task is not None or len(tasks) < 2 or not others:
        return list(scans)
    if len(others) == len(tasks):
        raise NerveError(
            f"The source holds several tasks ({listed(tasks)}). Name one with --task {tasks[0]}."
        )
    note = (
        f"only scans at rest are read; the source also has {listed(others)} (--task takes another)"
    )
    return [replace(scan, notes=(*scan.notes, note)) for scan in scans if scan.task not in others]


def schaefer_of(atlas: str) -> tuple[int, int]:
    """How many Schaefer parcels an atlas' name stands for, and of how many networks.

    Zeros where it does not say.

    Parameters
    ----------
    atlas : str
        Name as the derivative has it.

    Returns
    -------
    size : int
    n_networks : int

    Examples
    --------
    >>> names = ("4S456Parcels", "Schaefer2018p400n17", "Schaefer2018100Parcels7Networks")
    >>> [schaefer_of(name) for name in names]
    [(400, 7), (400, 17), (100, 7)]
    >>> schaefer_of("Schaefer417"), schaefer_of("Schaefer107"), schaefer_of("Gordon")
    ((400, 17), (1000, 7), (0, 0))
    """
    # 4S456Parcels holds Schaefer's 400; XCP-D before 0.5 wrote Schaefer417
    hundreds = re.fullmatch(r"4S(\d+)56Parcels|[Ss]chaefer(\d|10)(7|17)", atlas)
    if hundreds:
        return int(hundreds[1] or hundreds[2]) * 100, int(hundreds[3] or 7)
    named = re.match(r"[Ss]chaefer(?:2018)?p?(\d{3,4})(?:Parcels)?n?(7|17)(?:Networks)?", atlas)
    return (int(named[1]), int(named[2])) if named else (0, 0)


def _is_named(version: Version, wanted: str) -> bool:
    """Whether a version is meant by `--atlas`: its atlas, its atlas and variant, or empty."""
    return wanted.lower() in ("", version.atlas.lower(), str(version).lower())


def _of_one_atlas(versions: list[Version], options: Options) -> list[Version]:
    """Those of the only atlas, or of the one with the parcels (and order) of the parcellation."""
    atlases = sorted({version.atlas for version in versions})
    fitting = atlases
    wanted = (
        re.match(r"schaefer(\d+)-(\d+)", options.file_regions.name)
        if options.file_regions
        else None
    )
    if wanted:
        n_parcels = int(wanted[1])
        n_networks = int(wanted[2])
        same_order = [atlas for atlas in atlases if schaefer_of(atlas) == (n_parcels, n_networks)]
        same_parcels = [atlas for atlas in atlases if schaefer_of(atlas)[0] == n_parcels]
        fitting = same_order or same_parcels or atlases
    if len(fitting) > 1:
        raise NerveError(
            f"The source holds several atlases ({listed(atlases, most=40)}). Name one with "
            f"--atlas, for example `--atlas {fitting[0]}`."
        )
    return [version for version in versions if version.atlas == fitting[0]]
