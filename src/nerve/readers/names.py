"""Who a file belongs to, by its name or its folder's: `sub-` where there is one, a known id, or the name itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nerve.readers.base import Scan
from nerve.readers.ids import normal_id

# what people append to an id when they save a matrix or a series
_SUFFIXES = re.compile(
    r"([_\-. ](\d*rois?)?(fc|conn|connectivity|connectome|corr|corrmat|corr_mat|correlation|"
    r"correlations|matrix|mat|netmat|pearson|ts|tc|timeseries|time_series|series|bold|rest|rsfc|z|fisherz))+$",
    re.IGNORECASE,
)


def scan_of(path: Path, root: Path, ids: Sequence[str] = (), kind: str = "") -> Scan:
    """A scan with the participant, session, task and run that the path tells.

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
    inside = path.relative_to(root) if root in path.parents else Path(path.name)
    words = "/".join(inside.parts)
    return Scan(
        _participant(path, words, ids),
        path,
        kind,
        session=_entity(words, "ses"),
        task=_entity(words, "task"),
        run=_entity(words, "run"),
    )


def _entity(words: str, key: str) -> str:
    found = re.search(rf"(?:^|[_/]){key}-([A-Za-z0-9]+)", words)
    return found[1] if found else ""


def _begins_with(name: str, word: str) -> bool:
    """Whether a name begins with the whole of a word: `S1_fc` with `S1`, `S10` not."""
    after = name[len(word) : len(word) + 1]
    return name.startswith(word) and not (after.isascii() and after.isalnum())


def _participant(path: Path, words: str, ids: Sequence[str]) -> str:
    bids = re.search(r"(?:^|[_/])sub-(NDAR_INV[A-Za-z0-9]+|[A-Za-z0-9]+)", words)
    if bids:
        return normal_id(bids[1])
    stem = path.name.split(".")[0] or path.stem
    folded = normal_id(stem)
    known = [one for one in ids if one and _begins_with(folded, one)]
    if known:
        return max(known, key=len)
    bare = re.sub(r"[_\-](ses|task|run)-[A-Za-z0-9]+", "", folded)
    return _SUFFIXES.sub("", bare) or bare or folded
