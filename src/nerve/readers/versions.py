"""One version of the data, never a mixture: sources often hold the same scans in several atlases and variants.

XCP-D writes a dozen atlases, and `desc-<N>volumes` variants made from fewer volumes; C-PAC writes several denoising
strategies. A cohort is made from exactly one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nerve.checks import NerveError, did_you_mean, listed
from nerve.readers.base import Options, Scan
from nerve.readers.bids import BidsName


@dataclass(frozen=True, order=True)
class Version:
    """An atlas, and a variant of what was made with it (empty for the usual one)."""

    atlas: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.atlas}_{self.variant}" if self.variant else self.atlas


def version_of(name: BidsName) -> Version:
    """Atlas and variant of a derivative, from the entities of its name."""
    desc = name.get("desc")
    return Version(name.get("seg", "atlas", "parcellation"), f"desc-{desc}" if desc else "")


def choose_version(
    available: Iterable[Version], options: Options, *, preferred: Mapping[str, int] | None = None
) -> Version:
    """The one version to read.

    The user names it with `--atlas` (the atlas, or the atlas with its variant as listed); otherwise the only one, or
    the only one that fits the parcellation. Among variants of one atlas the one without a name is taken, then the one
    that `preferred` ranks first; otherwise the user must say.
    """
    versions, wanted = sorted(set(available)), options.atlas or ""
    chosen = [one for one in versions if wanted.lower() in ("", one.atlas.lower(), str(one).lower())]
    if not chosen:
        names = [str(version) for version in versions]
        found = f"There is no atlas {wanted!r} in the source, which has {listed(names, most=40)}."
        raise NerveError(found + did_you_mean(wanted, names))
    chosen = _of_one_atlas(chosen, options)
    return chosen[0] if len(chosen) == 1 else _usual_variant(chosen, preferred or {})


def chosen_kind(kinds: Mapping[str, Sequence[Any]], options: Options) -> str:
    """Matrices or series, for the whole source: `fc`, `series` or empty if there is neither."""
    wanted = ["series", "fc"] if options.prefers_series else ["fc", "series"]
    if options.data in ("fc", "series"):
        wanted = [options.data]
    return next((kind for kind in wanted if kinds.get(kind)), "")


def of_one_task(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """Only the scans at rest, where a source has other tasks too and the user names none: FC differs between them.

    Raises a `NerveError` when there are several tasks and none is rest.
    """
    tasks = sorted({scan.task for scan in scans if scan.task})
    others = [task for task in tasks if not task.lower().startswith("rest")]
    if options.task is not None or len(tasks) < 2 or not others:
        return list(scans)
    if len(others) == len(tasks):
        raise NerveError(f"The source holds several tasks ({listed(tasks)}). Name one with --task {tasks[0]}.")
    note = f"only scans at rest are read; the source also has {listed(others)} (--task takes another)"
    rest = [scan for scan in scans if scan.task not in others]
    return [replace(scan, notes=(*scan.notes, note)) for scan in rest]


def schaefer_of(atlas: str) -> tuple[int, int]:
    """How many Schaefer parcels an atlas' name stands for, and of how many networks; zeros where it does not say.

    Examples
    --------
    >>> schaefer_of("4S456Parcels"), schaefer_of("Schaefer2018p400n17"), schaefer_of("Schaefer2018100Parcels7Networks")
    ((400, 7), (400, 17), (100, 7))
    >>> schaefer_of("Schaefer417"), schaefer_of("Schaefer107"), schaefer_of("Gordon")
    ((400, 17), (1000, 7), (0, 0))
    """
    four_s = re.fullmatch(r"4S(\d+)56Parcels", atlas)
    if four_s:
        return int(four_s[1]) * 100, 7
    named = re.match(r"[Ss]chaefer(?:2018)?p?(\d{3,4})(?:Parcels)?n?(7|17)(?:Networks)?", atlas)
    short = re.fullmatch(r"[Ss]chaefer(\d|10)(7|17)", atlas)  # XCP-D before 0.5: Schaefer417 = 400 parcels, 17 networks
    if short:
        return int(short[1]) * 100, int(short[2])
    return (int(named[1]), int(named[2])) if named else (0, 0)


def _of_one_atlas(versions: list[Version], options: Options) -> list[Version]:
    atlases = sorted({version.atlas for version in versions})
    fitting = _fitting(atlases, options) if len(atlases) > 1 else atlases
    if len(fitting) > 1:
        raise NerveError(
            f"The source holds several atlases ({listed(atlases, most=40)}). Name one with --atlas, for example "
            f"`--atlas {fitting[0]}`."
        )
    return [version for version in versions if version.atlas == fitting[0]]


def _fitting(atlases: list[str], options: Options) -> list[str]:
    """The atlases with as many parcels as the parcellation wanted, best those in its own order; else all of them."""
    wanted = options.rows
    named = re.match(r"schaefer(\d+)-(\d+)", wanted.name) if wanted else None
    if not named:
        return atlases
    size, networks = int(named[1]), int(named[2])
    same_order = [atlas for atlas in atlases if schaefer_of(atlas) == (size, networks)]
    same_size = [atlas for atlas in atlases if schaefer_of(atlas)[0] == size]
    return same_order or same_size or atlases


def _usual_variant(versions: list[Version], preferred: Mapping[str, int]) -> Version:
    plain = [version for version in versions if not version.variant]
    ranked = sorted((preferred[v.variant], v) for v in versions if v.variant in preferred)
    if plain or ranked:
        return plain[0] if plain else ranked[0][1]
    raise NerveError(
        f"The source holds several variants of {versions[0].atlas} ({listed(versions, most=20)}), which must not be "
        f"mixed. Name one with --atlas, for example `--atlas {versions[0]}`."
    )
