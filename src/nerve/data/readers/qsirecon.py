"""QSIRecon and QSIPrep: `sub-X…_connectivity.mat` with matrices of several atlases and measures.

atlas_<A>_region_labels                     the labels of atlas A
atlas_<A>_<measure>_connectivity            its matrices: sift_radius2_count, radius2_meanlength …
"""

from __future__ import annotations

import re
from pathlib import Path

from nerve._utils.errors import did_you_mean, listed, problem
from nerve.data.connectivity import measure_of
from nerve.data.readers.arrays import Shapes, array_shapes, read_array, word_lists
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import of_one_task, parse_names
from nerve.data.readers.opening import files_below

ENDINGS = ("_connectivity.mat", "connectome.mat")
_LABELS = re.compile(r"(?:atlas_)?(?P<atlas>.+)_region_labels")
_MATRIX = re.compile(r"(?:atlas_)?(?P<rest>.+)_connectivity")


class QSIRecon(Reader):
    """Structural connectomes of QSIRecon."""

    describe = "QSIRecon's sub-…_connectivity.mat (several atlases per file)"
    uses = ("atlas", "variable")

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file; what it holds is chosen when it is read."""
        names = parse_names(files_below(source, *ENDINGS))
        return of_one_task([name.as_scan("fc") for name in names], options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix of one atlas and one measure, with its labels."""
        shapes = array_shapes(scan.path)
        words = word_lists(scan.path)
        atlas, key = _choose_atlas(scan.path, words, options)
        measure, name = _choose_measure(scan.path, shapes, atlas, list(_atlases(words)), options)
        return ScanData(
            matrix=read_array(scan.path, name),
            labels=words[key],
            values="other",
            measure=_kind_of(measure),
            notes=(f"matrices of {atlas}: {measure}",),
        )


def _atlases(words: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Atlas → name of its list of labels."""
    atlases = {}
    for name in words:
        match = _LABELS.fullmatch(name)
        if match:
            atlases[match["atlas"]] = name
    return atlases


def _choose_atlas(
    path: Path, words: dict[str, tuple[str, ...]], options: Options
) -> tuple[str, str]:
    """The atlas that the user names, or the only one, and the name of its list of labels."""
    atlases = _atlases(words)
    if not atlases:
        raise problem(path, "it holds no …_region_labels", expected="a file of QSIRecon")
    wanted = options.atlas
    if wanted is None and len(atlases) == 1:
        wanted = next(iter(atlases))
    if wanted not in atlases:
        hint = did_you_mean(str(wanted), list(atlases)) if wanted else ""
        raise problem(
            path,
            f"it holds {len(atlases)} atlases",
            expected=f"one of {listed(atlases, most=40)}",
            remedy=f"Name one with --atlas {next(iter(atlases))}.{hint}",
        )
    return wanted, atlases[wanted]


def _choose_measure(
    path: Path, shapes: Shapes, atlas: str, atlases: list[str], options: Options
) -> tuple[str, str]:
    """The measure (as QSIRecon calls it) and the name of the matrix that is read."""
    names = {}
    for name in shapes:
        match = _MATRIX.fullmatch(name)
        if match is None:
            continue
        # of atlases whose names begin alike, the longest
        owners = [known for known in atlases if match["rest"].startswith(f"{known}_")]
        if max(owners, key=len, default="") == atlas:
            names[match["rest"][len(atlas) + 1 :]] = name
    wanted = options.variable
    if wanted is not None:
        chosen = [measure for measure in names if wanted in (measure, names[measure])]
    elif options.measure is not None:
        chosen = [measure for measure in names if _kind_of(measure) == options.measure]
    else:
        chosen = list(names)
    if len(chosen) == 1:
        return chosen[0], names[chosen[0]]
    candidates = chosen or list(names)
    if not candidates:
        raise problem(path, f"it holds no matrix of {atlas}")
    raise problem(
        path,
        f"it holds {len(names)} matrices of {atlas} ({listed(names, most=12)})",
        expected="one",
        remedy=f"Name it with --variable {candidates[0]}.",
    )


def _kind_of(measure: str) -> str:
    """What a matrix measures: the last word of its name says it."""
    words = re.split(r"[_\W]", measure.lower())
    if any(word in ("count", "ncount", "counts") for word in words):
        return "streamlines"
    return measure_of(words[-1])
