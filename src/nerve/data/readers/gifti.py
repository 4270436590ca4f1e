"""GIFTI matrices: micapipe's `…_desc-FC.shape.gii`, and any other `.shape.gii` of a matrix.

micapipe fills only one triangle. Its files hold no labels: regions are in the order of its own
table (subcortical, cerebellar, cortical, with the medial walls among them), which `--order TSV`
describes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import of_one_task
from nerve.data.readers.names import path_below, scan_of_file, scans_of_files
from nerve.data.readers.nested import refuse_giant
from nerve.data.readers.opening import explained_errors, files_below, require_file

ENDING = (".shape.gii", ".func.gii")
# words of micapipe's names → what the file holds
_CONTENTS = {
    "full-connectome": "streamlines",
    "desc-FC": "pearson",
    "desc-timeseries": "series",
}
# what else micapipe writes with this ending: lengths of edges, values of each vertex
_NOT_READ = re.compile(r"edge-?lengths?|cor-|sub-connectome|_hemi-|hemi-[LR]", re.IGNORECASE)


@dataclass(frozen=True)
class _File:
    path: Path
    content: str  # a value of `_CONTENTS`, or empty where the name does not say
    atlas: str


class GIFTI(Reader):
    """Matrices and series in GIFTI files."""

    describe = "GIFTI matrices (.shape.gii) such as micapipe's"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, of one atlas and one measure."""
        paths = files_below(source, *ENDING)
        files = [_named(path) for path in paths if not _NOT_READ.search(path.name)]
        files = _of_one_atlas(_of_one_content(files, source, options), source, options)
        if not files:
            return []
        chosen = [file.path for file in files]
        if all("sub-" in path_below(path, source) for path in chosen):
            scans = [scan_of_file(path, source) for path in chosen]
        else:
            scans = scans_of_files(chosen, source, options)
        kind = "series" if files[0].content == "series" else "fc"
        extra = {"content": files[0].content}
        return of_one_task(
            [
                ScanFile(s.participant, s.path, kind, s.session, s.task, s.run, extra=extra)
                for s in scans
            ],
            options,
        )

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix or series; these files hold no labels."""
        array = _read_array(scan.path)
        if scan.kind == "series":
            return ScanData(series=array)
        measure = str(scan.extra["content"]) or None
        values = "other" if measure == "streamlines" else None
        return ScanData(matrix=array, values=values, measure=measure)


def _named(path: Path) -> _File:
    stem = path.name.removesuffix(".gii").rpartition(".")[0]
    words = stem.split("_")
    content = next((_CONTENTS[word] for word in words if word in _CONTENTS), "")
    atlas = next((word[6:] for word in words if word.startswith("atlas-")), "")
    return _File(path, content, atlas)


def _of_one_content(files: list[_File], source: Path, options: Options) -> list[_File]:
    """The files of the measure that the user names, of matrices before series."""
    contents = sorted({file.content for file in files})
    if options.prefers_series and "series" in contents:
        wanted = "series"
    elif options.measure in contents:
        wanted = str(options.measure)
    else:
        matrices = [content for content in contents if content != "series"]
        if len(matrices) > 1:
            known = [content or "other" for content in matrices]
            raise NerveError(
                f"{source}: files hold several measures of the same participants "
                f"({listed(known)}), expected one. Name it with --measure {known[0]}."
            )
        wanted = matrices[0] if matrices else "series"
    return [file for file in files if file.content == wanted]


def _of_one_atlas(files: list[_File], source: Path, options: Options) -> list[_File]:
    atlases = sorted({file.atlas for file in files})
    wanted = atlases[0] if len(atlases) == 1 and options.atlas is None else options.atlas
    if files and wanted not in atlases:
        raise NerveError(
            f"{source}: files are of several atlases, or of another ({listed(atlases, most=20)}). "
            f"Name one with --atlas {atlases[0]}."
        )
    return [file for file in files if file.atlas == wanted]


def _read_array(path: Path) -> np.ndarray:
    """The only array of a GIFTI file."""
    import nibabel

    with explained_errors(require_file(path), "a whole GIFTI file"):
        content = path.read_bytes()
        sizes = re.findall(rb'Dim\d="(\d+)"', content)
        refuse_giant(path, [int(size) for size in sizes], 4)
        image = nibabel.gifti.GiftiImage.from_bytes(content)
        arrays = [np.asarray(part.data, np.float64) for part in image.darrays]
    if len(arrays) > 1 and len({array.shape for array in arrays}) == 1 and arrays[0].ndim == 1:
        return np.stack(arrays)  # a row per array
    if len(arrays) != 1 or arrays[0].ndim != 2:
        shapes = [" x ".join(map(str, array.shape)) for array in arrays]
        raise problem(
            path,
            f"it holds arrays of {listed(shapes)}",
            expected="one matrix or time series of regions",
            remedy="Values of vertices must be averaged within regions first.",
        )
    return arrays[0]
