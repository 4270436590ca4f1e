"""Which part of the paths is the participant: the folder, the name, or a part of the name that differs.

Where two parts could be, nothing is guessed: `TwoReadings` shows both, each with the `--id-pattern` that takes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from nerve.checks import NerveError, listed

_GROUP = re.compile(r"(site|group|grp|cent(er|re)|scanner|batch|cohort|study|dx|class|sample|fold|part)", re.IGNORECASE)
_MARKS = r"_\-. "


@dataclass(frozen=True)
class Axis:
    """A way to read the participants from the paths: who each file would be of, and the pattern that says so."""

    values: list[str]
    pattern: str
    words: str = ""
    rest: list[str] = field(default_factory=list)  # what else tells the files of a participant apart

    @property
    def n_participants(self) -> int:
        """How many participants there would be."""
        return len(set(self.values))

    def finer(self, other: Axis) -> bool:
        """Whether each of its values goes with one value of the other only."""
        return len(set(zip(self.values, other.values, strict=True))) == self.n_participants

    @property
    def is_group(self) -> bool:
        """Whether the values name sites or diagnoses rather than participants."""
        return all(_GROUP.match(value) or not any(letter.isdigit() for letter in value) for value in self.values)


class TwoReadings(NerveError):
    """The files can be read in several ways; `table` has a row per file and a column per way."""

    def __init__(self, sentence: str, paths: Sequence[str], axes: Sequence[Axis]) -> None:
        ways = [f"{axis.words or 'participants'} with --id-pattern '{axis.pattern}'" for axis in axes]
        super().__init__(f"{sentence} Say which: {'; or '.join(ways)}. --dry-run shows what becomes of every file.")
        self.axes = list(axes)
        columns = {f"participant ({i + 1})": axis.values for i, axis in enumerate(axes)}
        self.table = pd.DataFrame({"file": list(paths), **columns})


def participants_axis(paths: Sequence[str], names: Sequence[str], occasion: re.Pattern[str]) -> Axis:
    """The part of the paths that is the participant.

    Parameters
    ----------
    paths : sequence of str
        Below the source, with slashes.
    names : sequence of str
        The names of the files without ending and words for what they hold; empty where nothing is left.
    occasion : pattern
        Matches words that name a session or run, which are no participants.
    """
    axes = [*_folders(paths, occasion)]
    if all(names):
        axes.append(_name_axis(paths, names))
    differing = _without_twins([axis for axis in axes if axis.n_participants > 1])
    if not differing:
        return _one_participant(paths, names, axes)
    finest = max(differing, key=lambda axis: axis.n_participants)
    rivals = [axis for axis in differing if axis is not finest and not (finest.finer(axis) and axis.is_group)]
    owners = [axis for axis in rivals if finest.finer(axis) and _owns(axis, finest)]
    if owners:  # S001/S001_a.txt: the folder is the participant, the rest of the name the scan
        return Axis(owners[-1].values, owners[-1].pattern, rest=finest.values)
    if rivals:
        raise _several(paths, [finest, *rivals])
    parts = _parts_of(paths, finest) if finest.words == "the file name" else []
    if parts:
        raise _several(paths, [finest, *parts])
    return Axis(finest.values, finest.pattern, rest=[""] * len(paths))


def _several(paths: Sequence[str], axes: Sequence[Axis]) -> TwoReadings:
    ways = listed([f"{axis.n_participants} by {axis.words} ({listed(dict.fromkeys(axis.values), 3)})" for axis in axes])
    return TwoReadings(f"The {len(paths)} files can be read as participants in several ways: {ways}.", paths, axes)


def _folders(paths: Sequence[str], occasion: re.Pattern[str]) -> list[Axis]:
    """The folders at each depth that all files have, without those that name sessions or runs."""
    parts = [path.split("/")[:-1] for path in paths]
    axes = []
    for level in range(min(map(len, parts))):
        values = [folders[level] for folders in parts]
        if not all(occasion.fullmatch(value) for value in values):
            above = f"(?:[^/]+/){{{level}}}" if level else ""
            axes.append(Axis(values, f"^{above}(?P<id>[^/]+)/", f"folder {level + 1}" if level else "the folder"))
    return axes


def _name_axis(paths: Sequence[str], names: Sequence[str]) -> Axis:
    before, after = _around(paths, names)
    return Axis(list(names), f"(?:^|/){before}(?P<id>[^/]+?){after}$", "the file name")


def _around(paths: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """What stands before and after the bare names, where that is the same in all files; else any ending."""
    stems = [path.rpartition("/")[2].partition(name) for path, name in zip(paths, names, strict=True)]
    if len({(before, after) for before, _, after in stems}) == 1 and all(found for _, found, _ in stems):
        return re.escape(stems[0][0]), re.escape(stems[0][2])
    return "", r"\.[^/]+"


def _without_twins(axes: Sequence[Axis]) -> list[Axis]:
    """One axis of those that tell the same files apart; the last, which is the name if that is one of them."""
    kept: list[Axis] = []
    for axis in reversed(axes):
        if not any(axis.finer(other) and other.finer(axis) for other in kept):
            kept.append(axis)
    return kept[::-1]


def _owns(axis: Axis, finer: Axis) -> bool:
    return all(inner.startswith(outer) for outer, inner in zip(axis.values, finer.values, strict=True))


def _parts_of(paths: Sequence[str], axis: Axis) -> list[Axis]:
    """The two parts of names such as `S001_1`, where both occur in several combinations."""
    cut = [re.fullmatch(rf"(.+)([{_MARKS}])([^{_MARKS}]+)", name) for name in axis.values]
    if not all(cut):
        return []
    first, mark, last = ([found[i] for found in cut if found] for i in (1, 2, 3))
    left, right = Axis(first, ""), Axis(last, "")
    repeated = left.n_participants < axis.n_participants and right.n_participants < axis.n_participants
    if not repeated or left.n_participants == 1 or right.n_participants == 1 or left.is_group:
        return []
    before, after = _around(paths, axis.values)
    sign = re.escape(mark[0])
    return [
        Axis(first, f"(?:^|/){before}(?P<id>[^/]+){sign}(?P<run>[^/{sign}]+){after}$", "the first part of the name"),
        Axis(last, f"(?:^|/){before}(?P<run>[^/]+){sign}(?P<id>[^/{sign}]+){after}$", "the last part of the name"),
    ]


def _one_participant(paths: Sequence[str], names: Sequence[str], axes: Sequence[Axis]) -> Axis:
    """Nothing but sessions and runs differ: all files are of one participant, if something names one."""
    last = paths[0].rpartition("/")[2]
    who = (names[0] if len(set(names)) == 1 else "") or next(
        (axis.values[0] for axis in reversed(axes) if axis.values[0]), ""
    )
    if not who and len(paths) == 1:
        who = re.sub(r"\.[A-Za-z0-9.]+$", "", last)
    if who:
        return Axis([who] * len(paths), "", rest=[""] * len(paths))
    each = Axis([path.rsplit(".", 1)[0] for path in paths], r"^(?P<id>.+)\.[^/.]+$", "each file a participant")
    sentence = f"The {len(paths)} files differ only in words for sessions and runs ({listed(paths, 3)})."
    raise TwoReadings(f"{sentence} They may be of one participant or of {len(paths)}.", paths, [each])
