"""Who a file belongs to, by its name or its folder's: `sub-` where there is one, a known id, or what differs.

Where two parts of the paths could be the participant, nothing is guessed: `AmbiguousParticipants` shows both, each with the
`--id-pattern` that takes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import Options, ScanFile
from nerve.data.readers.ids import normal_id

_GROUP = re.compile(
    r"(site|group|grp|cent(er|re)|scanner|batch|cohort|study|dx|class|sample|fold|part)",
    re.IGNORECASE,
)
_MARKS = r"_\-. "
# what people write before or after an id when they save a matrix or a series
_WORDS = (
    r"(?:\d*rois?)?(?:fc|fcmat|zfc|zfcmat|conn|connectivity|connectome|corr|corrmat|corr_mat|correlation|correlations|"
    r"matrix|mat|netmat|pearson|ts|tc|timeseries|time_series|series|signals|bold|rsfc|rsfmri|fmri|z|fisherz|upper|lower|"
    r"vec|vector|data)"
)
_AFTER = re.compile(rf"(?:[_\-. ]{_WORDS})+$", re.IGNORECASE)
_BEFORE = re.compile(rf"^(?:{_WORDS}[_\-. ])+", re.IGNORECASE)
_ONLY = re.compile(rf"^{_WORDS}(?:[_\-. ]{_WORDS})*$", re.IGNORECASE)
# what tells scans of one participant apart
_OCCASION = re.compile(
    r"(?:(?:ses|session|visit|wave|run|scan|task|rest|resting|time|timepoint|tp|day|baseline|followup|month|year)-?\w{0,3}"
    r"|lr|rl|ap|pa)",
    re.IGNORECASE,
)
_ENDING = re.compile(r"\.(npy|npz|mat|csv|tsv|txt|1D|h5|hdf5)(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Axis:
    """A way to read the participants from the paths: who each file would be of, and the pattern that says so."""

    values: list[str]
    pattern: str
    words: str = ""
    rest: list[str] = field(
        default_factory=list
    )  # what else tells the files of a participant apart

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
        return all(
            _GROUP.match(value) or not any(letter.isdigit() for letter in value)
            for value in self.values
        )


class AmbiguousParticipants(NerveError):
    """The files can be read in several ways; `table` has a row per file and a column per way."""

    def __init__(self, sentence: str, paths: Sequence[str], axes: Sequence[Axis]) -> None:
        ways = [
            f"{axis.words or 'participants'} with --id-pattern '{axis.pattern}'" for axis in axes
        ]
        super().__init__(
            f"{sentence} Say which: {'; or '.join(ways)}. --dry-run shows what becomes of every file."
        )
        self.axes = list(axes)
        columns = {f"participant ({i + 1})": axis.values for i, axis in enumerate(axes)}
        self.table = pd.DataFrame({"file": list(paths), **columns})


def scans_of_files(paths: Sequence[Path], root: Path, options: Options) -> list[ScanFile]:
    """One scan per file, with the participants that the names of all files together tell.

    A name with `sub-` or with a known id tells its participant by itself. Elsewhere the part of the path that differs
    from file to file is the id; where two parts could be, `AmbiguousParticipants` is raised. Files of one participant must differ
    in something that names an occasion (session, run …): otherwise they are not the same measure twice.
    """
    ids = options.ids or ()
    scans = [scan_of_file(path, root, ids) for path in paths]
    if options.id_pattern is not None or len(scans) < 1:  # the user's pattern says who is who
        return scans
    told = [_told(path_below(path, root), ids) for path in paths]
    scans = [replace(scan, run=scan.run or bare_name(scan.path)[1]) for scan in scans]
    if not all(told):
        scans = _by_what_differs(scans, told, root)
    _refuse_unexplained(scans, root)
    return scans


def _by_what_differs(scans: Sequence[ScanFile], told: Sequence[str], root: Path) -> list[ScanFile]:
    """The scans with the participants that all names together tell; those that some tell by themselves must agree."""
    names = [bare_name(scan.path)[0] for scan in scans]
    try:
        axis = participants_axis([path_below(scan.path, root) for scan in scans], names)
    except AmbiguousParticipants:
        if any(told):  # a table names the others, and these have no row in it
            return list(scans)
        raise
    who = [normal_id(value) for value in axis.values]
    if any(one and one != other for one, other in zip(told, who, strict=True)):
        return list(scans)
    new = zip(scans, who, axis.rest or [""] * len(scans), strict=True)
    return [replace(scan, participant=person, run=scan.run or rest) for scan, person, rest in new]


def scan_of_file(path: Path, root: Path, ids: Sequence[str] = ()) -> ScanFile:
    """A scan with the participant, session, task and run that this path tells by itself.

    Parameters
    ----------
    path : Path
        The file, below `root`.
    root : Path
        The source; only names below it count.
    ids : sequence of str
        Known ids: the longest with which the name begins is taken, where the name has no `sub-`.

    Examples
    --------
    >>> scan = scan_of_file(Path("d/sub-01_ses-2_run-1_fc.npy"), Path("d"))
    >>> scan.participant, scan.session, scan.run
    ('01', '2', '1')
    >>> scan_of_file(Path("d/S7_FC.csv"), Path("d")).participant
    'S7'
    """
    words = path_below(path, root)
    who = _told(words, ids) or bare_name(path)[0] or normal_id(_ENDING.sub("", path.name))
    found = dict(
        reversed(re.findall(r"(?:^|[_/])(ses|task|run)-([A-Za-z0-9]+)", words))
    )  # of several the first
    return ScanFile(who, path, "", *(found.get(key, "") for key in ("ses", "task", "run")))


def scans_in_file(
    path: Path, n_people: int, options: Options, *, task: str = "", **extra: Any
) -> list[ScanFile]:
    """A scan per participant of one file, named by `--ids` or by the rows of the participants table."""
    ids = options.ids
    if ids is None or len(ids) != n_people:
        found = "no ids are known" if ids is None else f"there are {len(ids)} ids"
        remedy = "Give the ids in the order of the file: --ids FILE, one per line, or --participants FILE with as "
        raise problem(
            path, f"it holds {n_people} participants and {found}", remedy=f"{remedy}many rows."
        )
    return [ScanFile(person, path, task=task, key=i, extra=extra) for i, person in enumerate(ids)]


def path_below(path: Path, root: Path) -> str:
    """The path below the source, with slashes."""
    return (path.relative_to(root) if root in path.parents else Path(path.name)).as_posix()


def bare_name(path: Path) -> tuple[str, str]:
    """The name without ending, entities and words for what it holds; and the words that name an occasion.

    Examples
    --------
    >>> bare_name(Path("TC_rsfMRI_REST1_LR.mat")), bare_name(Path("S7_run2_FC.csv")), bare_name(Path("fc_matrix.txt"))
    (('', 'REST1_LR'), ('S7', 'run2'), ('', ''))
    """
    stem = normal_id(_ENDING.sub("", path.name))
    stem = re.sub(r"(?:^|[_\-])(ses|task|run)-[A-Za-z0-9]+", "", stem)
    words = re.split(r"([_\-. ])", stem)
    occasions = [word for word in words[::2] if _OCCASION.fullmatch(word)]
    marked = zip(["", *words[1::2]], words[::2], strict=True)
    kept = "".join(mark + word for mark, word in marked if not _OCCASION.fullmatch(word)).strip(
        "_-. "
    )
    bare = "" if _ONLY.match(kept) else _AFTER.sub("", _BEFORE.sub("", kept))
    return bare, "_".join(occasions)


def _begins_with(name: str, word: str) -> bool:
    """Whether a name begins with the whole of a word: `S1_fc` with `S1`, `S10` not."""
    after = name[len(word) : len(word) + 1]
    return name.startswith(word) and not (after.isascii() and after.isalnum())


def _told(words: str, ids: Sequence[str]) -> str:
    """The participant that a path below the source names beyond doubt, or an empty string."""
    bids = re.search(r"(?:^|[_/])sub-(NDAR_INV[A-Za-z0-9]+|[A-Za-z0-9]+)", words)
    if bids:
        return normal_id(bids[1])
    *folders, name = (normal_id(part) for part in words.split("/"))
    names = (name, _BEFORE.sub("", name))
    by_name = max(
        (one for one in ids if one and any(_begins_with(word, one) for word in names)),
        key=len,
        default="",
    )
    by_folder = max((one for one in ids if one and one in folders), key=len, default="")
    if by_name and by_folder and by_name != by_folder:
        axes = [
            Axis([by_folder], r"(?P<id>[^/]+)/[^/]+$"),
            Axis([by_name], r"(?P<id>[^/]+?)(?:[_.\-][^/]*)?$"),
        ]
        raise AmbiguousParticipants(
            f"{words}: both its name and its folder are ids ({by_name}, {by_folder}).",
            [words],
            axes,
        )
    return by_name or by_folder


def _refuse_unexplained(scans: Sequence[ScanFile], root: Path) -> None:
    """Refuse files of one participant that no session, task or run tells apart: they are not to be averaged."""
    same: dict[tuple[str, ...], list[str]] = {}
    for scan in scans:
        same.setdefault((scan.participant, scan.session, scan.task, scan.run), []).append(
            path_below(scan.path, root)
        )
    (who, *_), paths = max(same.items(), key=lambda item: len(item[1]))
    if len(paths) < 2:
        return
    axes = [
        Axis([who] * len(paths), _only_like(path, who), f"only {path.replace(who, '*')}")
        for path in paths[:3]
    ]
    found = f"{root}: {len(paths)} files are of participant {who} ({listed(paths, most=3)})"
    doubt = "They may be versions of one scan, several scans, or several participants."
    raise AmbiguousParticipants(
        f"{found}, and no session, task or run tells them apart. {doubt}", paths, axes
    )


def _only_like(path: str, who: str) -> str:
    """A pattern that matches only the files that are named as this one is."""
    before, found, after = path.rpartition(who)
    folder = before.rpartition("/")[2]
    return (
        f"(?:^|/){re.escape(folder)}(?P<id>[^/]+){re.escape(after)}$" if found else "(?P<id>[^/]+)$"
    )


def participants_axis(paths: Sequence[str], names: Sequence[str]) -> Axis:
    """The part of the paths that is the participant.

    Parameters
    ----------
    paths : sequence of str
        Below the source, with slashes.
    names : sequence of str
        The names of the files without ending and words for what they hold; empty where nothing is left.
    """
    axes = _folders(paths)
    if all(names):
        before, after = _around(paths, names)
        axes.append(Axis(list(names), f"(?:^|/){before}(?P<id>[^/]+?){after}$", "the file name"))
    differing = [axis for axis in axes if axis.n_participants > 1]
    if not differing:
        return _one_participant(paths, axes)
    finest = max(
        reversed(differing), key=lambda axis: axis.n_participants
    )  # of equals the last, which is the name
    # what tells the same files apart as the finest, and what only groups its participants, is no other reading
    rivals = [
        axis
        for axis in differing
        if not axis.finer(finest) and not (finest.finer(axis) and axis.is_group)
    ]
    owners = [
        axis
        for axis in rivals
        if finest.finer(axis) and all(map(str.startswith, finest.values, axis.values))
    ]
    if owners:  # S001/S001_a.txt: the folder is the participant, the rest of the name the scan
        return Axis(owners[-1].values, owners[-1].pattern, rest=finest.values)
    if not rivals and finest.words == "the file name":
        rivals = _parts_of(paths, finest)
    if rivals:
        axes = [finest, *rivals]
        ways = [
            f"{axis.n_participants} by {axis.words} ({listed(dict.fromkeys(axis.values), 3)})"
            for axis in axes
        ]
        sentence = (
            f"The {len(paths)} files can be read as participants in several ways: {listed(ways)}."
        )
        raise AmbiguousParticipants(sentence, paths, axes)
    return finest


def _folders(paths: Sequence[str]) -> list[Axis]:
    """The folders at each depth that all files have, without those that name sessions or runs."""
    parts = [path.split("/")[:-1] for path in paths]
    axes = []
    for level in range(min(map(len, parts))):
        values = [folders[level] for folders in parts]
        if not all(_OCCASION.fullmatch(value) for value in values):
            above = f"(?:[^/]+/){{{level}}}" if level else ""
            axes.append(
                Axis(
                    values,
                    f"^{above}(?P<id>[^/]+)/",
                    f"folder {level + 1}" if level else "the folder",
                )
            )
    return axes


def _around(paths: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """What stands before and after the bare names, where that is the same in all files; else any ending."""
    stems = [
        path.rpartition("/")[2].partition(name) for path, name in zip(paths, names, strict=True)
    ]
    if len({(before, after) for before, _, after in stems}) == 1 and all(
        found for _, found, _ in stems
    ):
        return re.escape(stems[0][0]), re.escape(stems[0][2])
    return "", r"\.[^/]+"


def _parts_of(paths: Sequence[str], axis: Axis) -> list[Axis]:
    """The two parts of names such as `S001_1`, where both occur in several combinations."""
    cut = [re.fullmatch(rf"(.+)([{_MARKS}])([^{_MARKS}]+)", name) for name in axis.values]
    if not all(cut):
        return []
    first, mark, last = ([found[i] for found in cut if found] for i in (1, 2, 3))
    left, right = Axis(first, ""), Axis(last, "")
    repeated = (
        left.n_participants < axis.n_participants and right.n_participants < axis.n_participants
    )
    if not repeated or left.n_participants == 1 or right.n_participants == 1 or left.is_group:
        return []
    before, after = _around(paths, axis.values)
    sign = re.escape(mark[0])
    return [
        Axis(
            first,
            f"(?:^|/){before}(?P<id>[^/]+){sign}(?P<run>[^/{sign}]+){after}$",
            "the first part of the name",
        ),
        Axis(
            last,
            f"(?:^|/){before}(?P<run>[^/]+){sign}(?P<id>[^/{sign}]+){after}$",
            "the last part of the name",
        ),
    ]


def _one_participant(paths: Sequence[str], axes: Sequence[Axis]) -> Axis:
    """Nothing but sessions and runs differ: all files are of one participant, if something names one."""
    found = [axis.values[0] for axis in reversed(axes)]
    if len(paths) == 1:
        found.append(re.sub(r"\.[A-Za-z0-9.]+$", "", paths[0].rpartition("/")[2]))
    who = next(filter(None, found), "")
    if who:
        return Axis([who] * len(paths), "")
    each = Axis(
        [path.rsplit(".", 1)[0] for path in paths],
        r"^(?P<id>.+)\.[^/.]+$",
        "each file a participant",
    )
    sentence = (
        f"The {len(paths)} files differ only in words for sessions and runs ({listed(paths, 3)})."
    )
    raise AmbiguousParticipants(
        f"{sentence} They may be of one participant or of {len(paths)}.", paths, [each]
    )
