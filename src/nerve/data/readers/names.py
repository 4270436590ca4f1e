"""Whose a file is, by its name or folder: by `sub-`, a known id, or what differs between files.

Where two parts of the paths could be the participant, nothing is guessed: `AmbiguousParticipants`
shows both, each with the `--id-pattern` that takes it.
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
from nerve.data.readers.ids import counted, normal_id

_GROUP = re.compile(
    r"(site|group|grp|cent(er|re)|scanner|batch|cohort|study|dx|class|sample|fold|part)",
    re.IGNORECASE,
)
# words before a number that are no names of participants: `control_1` and `patient_1` are two
_DIAGNOSIS = re.compile(
    r"(controls?|con|ctr?l|hc|nc|td|healthy|patients?|pat|cases?|sub|subj|subject|participant|"
    r"asd|autism|adhd|scz|sz|schz|schizophrenia|bp|bd|bipolar|mdd|depression|ocd|ptsd|ad|mci|pd)",
    re.IGNORECASE,
)
_MARKS = r"_\-. "
# words before or after an id that say what the file holds
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
    r"|(?:ses|task|run)-[A-Za-z0-9]+|lr|rl|ap|pa)",
    re.IGNORECASE,
)
# `sub-NYU_01`: an id with a mark in it, which BIDS does not allow, and no entity such as `ses-1`
_ID_OF_TWO_WORDS = r"(?:^|/)sub-(?P<id>[A-Za-z]+_[0-9]+)(?![A-Za-z0-9-])"
# letters and digits of any script; an accent may be a character of its own after its letter
_LABEL = r"(?:[^\W_][\u0300-\u036f]*)+"
_ENDING = re.compile(
    r"\.(npy|npz|mat|csv|tsv|txt|1D|h5|hdf5|netcc|shape\.gii|func\.gii)(\.gz)?$", re.IGNORECASE
)


@dataclass(frozen=True)
class Candidate:  # numpydoc ignore=PR02
    """A part of the paths that may be the participant.

    Parameters
    ----------
    values : list of str
        The participant of each file.
    pattern : str
        The `--id-pattern` that takes this part.
    words : str
        What errors call this part.
    rest : list of str
        What else tells the files of a participant apart, file by file.
    """

    values: list[str]
    pattern: str
    words: str = ""
    rest: list[str] = field(default_factory=list)

    @property
    def n_participants(self) -> int:
        """How many participants there would be."""
        return len(set(self.values))

    def determines(self, other: Candidate) -> bool:
        """Whether each of its values goes with only one value of the other."""
        combinations = set(zip(self.values, other.values, strict=True))
        return len(combinations) == self.n_participants

    @property
    def is_group(self) -> bool:
        """Whether the values name sites or diagnoses rather than participants."""
        for value in self.values:
            has_digit = any(letter.isdigit() for letter in value)
            if has_digit and not _GROUP.match(value):
                return False
        return True


class AmbiguousParticipants(NerveError):
    """It is not clear whose the files are.

    Parameters
    ----------
    sentence : str
    paths : sequence of str
    candidates : sequence of Candidate

    Attributes
    ----------
    table : DataFrame
        A row per file and a column per candidate.
    """

    def __init__(
        self, sentence: str, paths: Sequence[str], candidates: Sequence[Candidate]
    ) -> None:
        choices = [
            f"{candidate.words or 'participants'} with --id-pattern '{candidate.pattern}'"
            for candidate in candidates
        ]
        super().__init__(
            f"{sentence} Say which: {'; or '.join(choices)}. "
            "`nerve ingest --dry-run` shows what becomes of every file."
        )
        self.candidates = list(candidates)
        columns = {"file": list(paths)}
        for number, candidate in enumerate(candidates, start=1):
            columns[f"participant ({number})"] = candidate.values
        self.table = pd.DataFrame(columns)


def scans_of_files(paths: Sequence[Path], root: Path, options: Options) -> list[ScanFile]:
    """Make one scan per file, with the participants that the names of all files together tell.

    A name with `sub-` or with a known id tells its participant by itself. Elsewhere the part of the
    path that differs from file to file is the id; where two parts could be,
    `AmbiguousParticipants` is raised. Files of one participant must differ in something that names
    an occasion (session, run …): otherwise they are not the same measure twice.

    Parameters
    ----------
    paths : sequence of Path
    root : Path
        The source.
    options : Options

    Returns
    -------
    list of ScanFile
    """
    known_ids = options.ids or ()
    scans = [scan_of_file(path, root, known_ids) for path in paths]
    if options.id_pattern is not None or not scans:  # the user's pattern says who is who
        return scans
    certain = [_certain_participant(path_below(path, root), known_ids) for path in paths]
    for number, scan in enumerate(scans):
        _, occasion = bare_name(scan.path)
        scans[number] = replace(scan, run=scan.run or occasion)
    if not all(certain):
        scans = _name_by_difference(scans, certain, root)
    _refuse_unexplained(scans, root)
    return scans


def scan_of_file(path: Path, root: Path, ids: Sequence[str] = ()) -> ScanFile:
    """Make a scan with the participant, session, task and run that its path tells by itself.

    Parameters
    ----------
    path : Path
        The file, below `root`.
    root : Path
        The source; only names below it count.
    ids : sequence of str
        Known ids: the longest with which the name begins is taken, where the name has no `sub-`.

    Returns
    -------
    ScanFile

    Examples
    --------
    >>> scan = scan_of_file(Path("d/sub-01_ses-2_run-1_fc.npy"), Path("d"))
    >>> scan.participant, scan.session, scan.run
    ('01', '2', '1')
    >>> scan_of_file(Path("d/S7_FC.csv"), Path("d")).participant
    'S7'
    """
    below = path_below(path, root)
    name, _ = bare_name(path)
    participant = _certain_participant(below, ids) or name
    if not participant:
        participant = normal_id(_ENDING.sub("", path.name))
    entities: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|[_/])(ses|task|run)-([A-Za-z0-9]+)", below):
        entities.setdefault(key, value)
    return ScanFile(
        participant,
        path,
        session=entities.get("ses", ""),
        task=entities.get("task", ""),
        run=entities.get("run", ""),
    )


def scans_in_file(
    path: Path, n_participants: int, options: Options, *, task: str = "", **extra: Any
) -> list[ScanFile]:
    """Make a scan per participant of one file, named by `--ids` or by the participants table.

    Parameters
    ----------
    path : Path
    n_participants : int
        How many the file holds.
    options : Options
        With the `ids`.
    task : str
    **extra
        What the reader needs to read them.

    Returns
    -------
    list of ScanFile
    """
    ids = options.ids
    if ids is None or len(ids) != n_participants:
        known = "no ids are known" if ids is None else f"there are {len(ids)} ids"
        raise problem(
            path,
            f"it holds {counted(n_participants, 'participant')} and {known}",
            remedy="Give the ids in the order of the file: --ids FILE, one per line, "
            "or --participants FILE with as many rows.",
        )
    return [
        ScanFile(participant, path, task=task, key=row, extra=extra)
        for row, participant in enumerate(ids)
    ]


def path_below(path: Path, root: Path) -> str:
    """Write the path below the source, with slashes.

    Parameters
    ----------
    path, root : Path

    Returns
    -------
    str
    """
    below = path.relative_to(root) if root in path.parents else Path(path.name)
    return below.as_posix()


def bare_name(path: Path) -> tuple[str, str]:
    """Take ending, entities and words for what it holds from the name of a file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    name : str
        What is left, perhaps nothing.
    occasion : str
        The words of the name that say when it was scanned.

    Examples
    --------
    >>> bare_name(Path("S7_run2_FC.csv")), bare_name(Path("fc_matrix.txt"))
    (('S7', 'run2'), ('', ''))
    >>> bare_name(Path("TC_rsfMRI_REST1_LR.mat"))
    ('', 'REST1_LR')
    """
    stem = normal_id(_ENDING.sub("", path.name))
    stem = re.sub(r"(?:^|[_\-])(ses|task|run)-[A-Za-z0-9]+", "", stem)
    pieces = re.split(r"([_\-. ])", stem)
    words = pieces[::2]
    marks = ["", *pieces[1::2]]  # the mark before each word
    occasions = []
    kept = ""
    for mark, word in zip(marks, words, strict=True):
        if _OCCASION.fullmatch(word):
            occasions.append(word)
        else:
            kept += mark + word
    kept = kept.strip("_-. ")
    name = "" if _ONLY.match(kept) else _AFTER.sub("", _BEFORE.sub("", kept))
    return name, "_".join(occasions)


def _choose_candidate(paths: Sequence[str], names: Sequence[str]) -> Candidate:
    """Choose the part of the paths that is the participant.

    Parameters
    ----------
    paths : sequence of str
        Below the source, with slashes.
    names : sequence of str
        The names of the files without ending and words for what they hold; empty where nothing is
        left.

    Returns
    -------
    Candidate
        `AmbiguousParticipants` is raised where there are several.
    """
    candidates = _folder_candidates(paths)
    if all(names):
        before, after = _around(paths, names)
        pattern = f"(?:^|/){before}(?P<id>[^/]+?){after}$"
        candidates.append(Candidate(list(names), pattern, "the file name"))
    differing = [candidate for candidate in candidates if candidate.n_participants > 1]
    if not differing:
        return _one_participant(paths, candidates)
    # of equals the last, which is the name
    finest = max(reversed(differing), key=lambda candidate: candidate.n_participants)
    rivals = []
    for candidate in differing:
        is_same_partition = candidate.determines(finest)
        is_group_of_participants = finest.determines(candidate) and candidate.is_group
        if not is_same_partition and not is_group_of_participants:
            rivals.append(candidate)
    # S001/S001_a.txt: the folder is the participant, the rest of the name the scan
    for candidate in reversed(rivals):
        begins = all(map(str.startswith, finest.values, candidate.values))
        if begins and finest.determines(candidate):
            return Candidate(candidate.values, candidate.pattern, rest=finest.values)
    if not rivals and finest.words == "the file name":
        rivals = _parts_of_name(paths, finest)
    if not rivals:
        return finest
    choices = []
    for candidate in (finest, *rivals):
        examples = listed(dict.fromkeys(candidate.values), 3)
        choices.append(f"{candidate.n_participants} by {candidate.words} ({examples})")
    raise AmbiguousParticipants(
        f"The {len(paths)} files can be read as participants in several ways: {listed(choices)}.",
        paths,
        [finest, *rivals],
    )


def _name_by_difference(
    scans: Sequence[ScanFile], certain: Sequence[str], root: Path
) -> list[ScanFile]:
    """Name the participants by the part of the paths that differs from file to file.

    Where some names tell their participants by themselves, the others must agree with that.
    """
    paths = [path_below(scan.path, root) for scan in scans]
    names = [bare_name(scan.path)[0] for scan in scans]
    try:
        candidate = _choose_candidate(paths, names)
    except AmbiguousParticipants:
        if any(certain):  # a table names the others, and these have no row in it
            return list(scans)
        raise
    participants = [normal_id(value) for value in candidate.values]
    for known, participant in zip(certain, participants, strict=True):
        if known and known != participant:
            return list(scans)
    runs = candidate.rest or [""] * len(scans)
    return [
        replace(scan, participant=participant, run=scan.run or run)
        for scan, participant, run in zip(scans, participants, runs, strict=True)
    ]


def _begins_with(name: str, participant: str) -> bool:
    """Whether a name begins with an id and not with a longer one: `S1_fc` with `S1`, `S10` not."""
    after = name[len(participant) : len(participant) + 1]
    return name.startswith(participant) and not (after.isascii() and after.isalnum())


def _certain_participant(below: str, ids: Sequence[str]) -> str:
    """The participant that a path below the source names beyond doubt, or an empty string."""
    bids = re.search(rf"(?:^|[_/])sub-(NDAR_INV{_LABEL}|{_LABEL})", below)
    if bids:
        return normal_id(bids[1])
    *folders, name = (normal_id(part) for part in below.split("/"))
    starts = (name, _BEFORE.sub("", name))
    by_name = ""
    by_folder = ""
    for participant in ids:  # the longest id that fits: `S10` rather than `S1`
        begins = any(_begins_with(start, participant) for start in starts)
        if begins and len(participant) > len(by_name):
            by_name = participant
        if participant in folders and len(participant) > len(by_folder):
            by_folder = participant
    if by_name and by_folder and by_name != by_folder:
        candidates = [
            Candidate([by_folder], r"(?P<id>[^/]+)/[^/]+$"),
            Candidate([by_name], r"(?P<id>[^/]+?)(?:[_.\-][^/]*)?$"),
        ]
        sentence = f"{below}: both its name and its folder are ids ({by_name}, {by_folder})."
        raise AmbiguousParticipants(sentence, [below], candidates)
    return by_name or by_folder


def _refuse_unexplained(scans: Sequence[ScanFile], root: Path) -> None:
    """Refuse files of one participant that no session, task or run tells apart.

    They are not to be averaged.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for scan in scans:
        key = (scan.participant, scan.session, scan.task, scan.run)
        groups.setdefault(key, []).append(path_below(scan.path, root))
    (participant, *_), paths = max(groups.items(), key=lambda item: len(item[1]))
    if len(paths) < 2:
        return
    candidates = []
    longer_ids = [re.search(_ID_OF_TWO_WORDS, path) for path in paths]
    if all(longer_ids) and len({match["id"] for match in longer_ids if match}) > 1:
        example = longer_ids[0]["id"] if longer_ids[0] else ""
        values = [match["id"] for match in longer_ids if match]
        candidates.append(Candidate(values, _ID_OF_TWO_WORDS, f"sub-{example} as one id"))
    for path in paths[:3]:
        words = f"only {path.replace(participant, '*')}"
        pattern = _pattern_like(path, participant)
        candidates.append(Candidate([participant] * len(paths), pattern, words))
    raise AmbiguousParticipants(
        f"{root}: {len(paths)} files are of participant {participant} ({listed(paths, most=3)}), "
        "and no session, task or run tells them apart. "
        "They may be versions of one scan, several scans, or several participants.",
        paths,
        candidates,
    )


def _pattern_like(path: str, participant: str) -> str:
    """A pattern that matches only the files that are named as this one is."""
    before, match, after = path.rpartition(participant)
    if not match:
        return "(?P<id>[^/]+)$"
    folder = before.rpartition("/")[2]
    return f"(?:^|/){re.escape(folder)}(?P<id>[^/]+){re.escape(after)}$"


def _folder_candidates(paths: Sequence[str]) -> list[Candidate]:
    """The folders at each depth that all files have, without those that name sessions or runs."""
    folders = [path.split("/")[:-1] for path in paths]
    depth = min(len(parts) for parts in folders)
    candidates = []
    for level in range(depth):
        values = [parts[level] for parts in folders]
        if all(_OCCASION.fullmatch(value) for value in values):
            continue
        above = f"(?:[^/]+/){{{level}}}" if level else ""
        words = f"folder {level + 1}" if level else "the folder"
        candidates.append(Candidate(values, f"^{above}(?P<id>[^/]+)/", words))
    return candidates


def _around(paths: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """Patterns of what stands before and after the bare names."""
    surroundings = set()
    for path, name in zip(paths, names, strict=True):
        before, match, after = path.rpartition("/")[2].partition(name)
        if not match:
            return "", r"\.[^/]+"
        surroundings.add((before, after))
    if len(surroundings) > 1:
        return "", r"\.[^/]+"
    before, after = surroundings.pop()
    return re.escape(before), re.escape(after)


def _parts_of_name(paths: Sequence[str], full_name: Candidate) -> list[Candidate]:
    """The two parts of names such as `S001_1`, where both occur in several combinations."""
    matches = []
    for name in full_name.values:
        match = re.fullmatch(rf"(.+)([{_MARKS}])([^{_MARKS}]+)", name)
        if match is None:
            return []
        matches.append(match)
    first_parts = [match[1] for match in matches]
    last_parts = [match[3] for match in matches]
    first = Candidate(first_parts, "")
    last = Candidate(last_parts, "")
    for part in (first, last):
        if not 1 < part.n_participants < full_name.n_participants:
            return []
    if all(_GROUP.match(word) or _DIAGNOSIS.fullmatch(word) for word in first_parts):
        return []
    before, after = _around(paths, full_name.values)
    mark = re.escape(matches[0][2])
    return [
        Candidate(
            first_parts,
            f"(?:^|/){before}(?P<id>[^/]+){mark}(?P<run>[^/{mark}]+){after}$",
            "the first part of the name",
        ),
        Candidate(
            last_parts,
            f"(?:^|/){before}(?P<run>[^/]+){mark}(?P<id>[^/{mark}]+){after}$",
            "the last part of the name",
        ),
    ]


def _one_participant(paths: Sequence[str], candidates: Sequence[Candidate]) -> Candidate:
    """Only sessions and runs differ: all files are of one participant, if something names one."""
    names = [candidate.values[0] for candidate in reversed(candidates)]
    if len(paths) == 1:
        names.append(re.sub(r"\.[A-Za-z0-9.]+$", "", paths[0].rpartition("/")[2]))
    for name in names:
        if name:
            return Candidate([name] * len(paths), "")
    each_file = Candidate(
        [path.rsplit(".", 1)[0] for path in paths],
        r"^(?P<id>.+)\.[^/.]+$",
        "each file a participant",
    )
    raise AmbiguousParticipants(
        f"The {len(paths)} files differ only in words for sessions and runs ({listed(paths, 3)}). "
        f"They may be of one participant or of {len(paths)}.",
        paths,
        [each_file],
    )
