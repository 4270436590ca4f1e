"""BIDS file names: `sub-01_ses-2_task-rest_stat-mean_timeseries.tsv` → entities, suffix and extension.

A small parser of our own, because pybids drops entities that it does not know (`stat-`, `meas-`, `reg-`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nerve.readers.base import Scan

SCAN_ENTITIES = ("sub", "ses", "task", "acq", "ce", "rec", "dir", "run", "echo")


@dataclass(frozen=True)
class BidsName:
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
        for key in keys:
            if key in self.entities:
                return self.entities[key]
        return ""

    @property
    def participant(self) -> str:
        """The label of `sub-`."""
        return self.entities["sub"]

    @property
    def scan(self) -> tuple[str, ...]:
        """What identifies the recording, whatever was made of it: subject, session, task, run …"""
        return tuple(self.get(key) for key in SCAN_ENTITIES)

    def as_scan(self, kind: str, **more: Any) -> Scan:
        """The scan that this file is."""
        return Scan(self.participant, self.path, kind, self.get("ses"), self.get("task"), self.get("run"), **more)


def parse_name(path: Path | str) -> BidsName | None:
    """The parts of a BIDS name, or None where the name does not begin with `sub-` or has no suffix.

    A word without a dash belongs to the label before it: ids such as `sub-NDAR_INV01` do occur.

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


def path_of(name: BidsName, companions: Mapping[tuple[str, ...], BidsName]) -> Path | None:
    """The companion (motion, confounds) of a file, if it has one."""
    found = companions.get(name.scan)
    return None if found is None else found.path


def by_scan(names: Iterable[BidsName]) -> dict[tuple[str, ...], BidsName]:
    """The first file of each recording."""
    index: dict[tuple[str, ...], BidsName] = {}
    for name in names:
        index.setdefault(name.scan, name)
    return index
