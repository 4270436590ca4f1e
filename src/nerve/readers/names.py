"""Who a file belongs to, by its name or its folder's: `sub-` where there is one, a known id, or what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nerve.checks import listed
from nerve.readers.base import Options, Scan
from nerve.readers.ids import normal_id
from nerve.readers.layouts import Axis, TwoReadings, participants_axis

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
OCCASION = re.compile(
    r"(?:(?:ses|session|visit|wave|run|scan|task|rest|resting|time|timepoint|tp|day|baseline|followup|month|year)-?\w{0,3}"
    r"|lr|rl|ap|pa)",
    re.IGNORECASE,
)
_ENDING = re.compile(r"\.(npy|npz|mat|csv|tsv|txt|1D|h5|hdf5)(\.gz)?$", re.IGNORECASE)


def scans_of(paths: Sequence[Path], root: Path, options: Options, kind: str = "") -> list[Scan]:
    """One scan per file, with the participants that the names of all files together tell.

    A name with `sub-` or with a known id tells its participant by itself. Elsewhere the part of the path that differs
    from file to file is the id; where two parts could be, `TwoReadings` is raised. Files of one participant must differ
    in something that names an occasion (session, run …): otherwise they are not the same measure twice.
    """
    ids = options.ids or ()
    scans = [scan_of(path, root, ids, kind) for path in paths]
    if options.id_pattern is not None or len(scans) < 1:  # the user's pattern says who is who
        return scans
    told = [_told(inside(path, root), ids) for path in paths]
    if not all(told):
        scans = _by_what_differs(scans, told, root)
    scans = [replace(scan, run=scan.run or bare_name(scan.path)[1]) for scan in scans]
    _refuse_unexplained(scans, root)
    return scans


def _by_what_differs(scans: Sequence[Scan], told: Sequence[str], root: Path) -> list[Scan]:
    """The scans with the participants that all names together tell; those that some tell by themselves must agree."""
    names = [bare_name(scan.path)[0] for scan in scans]
    try:
        axis = participants_axis([inside(scan.path, root) for scan in scans], names, OCCASION)
    except TwoReadings:
        if any(told):  # a table names the others, and these have no row in it
            return list(scans)
        raise
    who = [normal_id(value) for value in axis.values]
    if any(one and one != other for one, other in zip(told, who, strict=True)):
        return list(scans)
    return [
        replace(scan, participant=person, run=scan.run or bare_name(scan.path)[1] or rest)
        for scan, person, rest in zip(scans, who, axis.rest, strict=True)
    ]


def scan_of(path: Path, root: Path, ids: Sequence[str] = (), kind: str = "") -> Scan:
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
    >>> scan = scan_of(Path("d/sub-01_ses-2_run-1_fc.npy"), Path("d"))
    >>> scan.participant, scan.session, scan.run
    ('01', '2', '1')
    >>> scan_of(Path("d/S7_FC.csv"), Path("d")).participant
    'S7'
    """
    words = inside(path, root)
    return Scan(
        _told(words, ids) or bare_name(path)[0] or normal_id(_ENDING.sub("", path.name)),
        path,
        kind,
        session=_entity(words, "ses"),
        task=_entity(words, "task"),
        run=_entity(words, "run"),
    )


def inside(path: Path, root: Path) -> str:
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
    occasions = [word for word in words[::2] if OCCASION.fullmatch(word)]
    kept = "".join(
        ("" if i == 0 else words[2 * i - 1]) + word for i, word in enumerate(words[::2]) if not OCCASION.fullmatch(word)
    ).strip("_-. ")
    bare = "" if _ONLY.match(kept) else _AFTER.sub("", _BEFORE.sub("", kept))
    return bare, "_".join(occasions)


def _entity(words: str, key: str) -> str:
    found = re.search(rf"(?:^|[_/]){key}-([A-Za-z0-9]+)", words)
    return found[1] if found else ""


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
    by_name = max((one for one in ids if one and _names(name, one)), key=len, default="")
    by_folder = max((one for one in ids if one and one in folders), key=len, default="")
    if by_name and by_folder and by_name != by_folder:
        raise TwoReadings(
            f"{words}: both its name and its folder are ids ({by_name}, {by_folder}).",
            [words],
            [Axis([by_folder], r"(?P<id>[^/]+)/[^/]+$"), Axis([by_name], r"(?P<id>[^/]+?)(?:[_.\-][^/]*)?$")],
        )
    return by_name or by_folder


def _names(name: str, one: str) -> bool:
    return _begins_with(name, one) or _begins_with(_BEFORE.sub("", name), one)


def _refuse_unexplained(scans: Sequence[Scan], root: Path) -> None:
    """Refuse files of one participant that no session, task or run tells apart: they are not to be averaged."""
    occasions = Counter((scan.participant, scan.session, scan.task, scan.run) for scan in scans)
    (who, *what), count = max(occasions.items(), key=lambda item: item[1])
    if count < 2:
        return
    same = [scan for scan in scans if (scan.participant, scan.session, scan.task, scan.run) == (who, *what)]
    paths = [inside(scan.path, root) for scan in same]
    axes = [Axis([who] * len(same), _only_like(path, who), f"only {path.replace(who, '*')}") for path in paths[:3]]
    raise TwoReadings(
        f"{root}: {count} files are of participant {who} ({listed(paths, most=3)}), and no session, task or run tells "
        "them apart. They may be versions of one scan, several scans, or several participants.",
        paths,
        axes,
    )


def _only_like(path: str, who: str) -> str:
    """A pattern that matches only the files that are named as this one is."""
    before, found, after = path.rpartition(who)
    folder = before.rpartition("/")[2]
    return f"(?:^|/){re.escape(folder)}(?P<id>[^/]+){re.escape(after)}$" if found else "(?P<id>[^/]+)$"
