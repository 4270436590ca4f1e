"""AFNI's 3dNetCorr: `.netcc` text files with labels, codes, and one or several matrices.

# 100  # Number of network ROIs
# 2  # Number of netcc matrices
# WITH_ROI_LABELS
    label_1      label_2 …
          1            2 …
# CC
(the matrix of correlations; then `# FZ` with Fisher z, `# PC` with partial correlations …)
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.names import scans_of_files
from nerve.data.readers.opening import MENDING, explained_errors, files_below, require_file
from nerve.data.readers.text import read_lines

ENDING = ".netcc"
# names of matrices in the file → what they measure
_MEASURES = {"CC": "pearson", "PC": "partial"}
_NETWORK = re.compile(r"_(\d{3})\.netcc$")


class AFNI(Reader):
    """Matrices of correlations of 3dNetCorr."""

    describe = "AFNI's .netcc files of 3dNetCorr"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, of one network of regions (`_000`, `_001` …)."""
        paths = files_below(source, ENDING)
        numbers = {path: _network_of(path) for path in paths}
        networks = sorted(set(numbers.values()))
        wanted = networks[0] if len(networks) == 1 else options.atlas
        if len(networks) > 1 and wanted not in networks:
            raise NerveError(
                f"{source}: 3dNetCorr wrote several sets of regions ({listed(networks)}). "
                f"Name one with --atlas {networks[0]}."
            )
        chosen = [path for path in paths if numbers[path] == wanted]
        plain = [path.with_name(_NETWORK.sub(ENDING, path.name)) for path in chosen]
        scans = scans_of_files(plain, source, options)
        return [
            ScanFile(scan.participant, path, "fc", scan.session, scan.task, scan.run)
            for scan, path in zip(scans, chosen, strict=True)
        ]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix of correlations (`CC`), or of partial ones (`--measure partial`)."""
        labels, matrices = _read_netcc(scan.path)
        name = "PC" if options.measure == "partial" else "CC"
        if name not in matrices:
            raise problem(
                scan.path,
                f"it holds {listed(matrices)}",
                expected=f"a matrix {name}",
                remedy="Run 3dNetCorr with -part_corr." if name == "PC" else MENDING,
            )
        words = "no header: labels stand above the matrices"
        return ScanData(
            matrices[name], labels=labels, values="r", measure=_MEASURES[name], header=words
        )


def _read_netcc(path: Path) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The labels and the matrices of a `.netcc` file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    labels : tuple of str
        Names of the regions, or their codes where the file has no names.
    matrices : dict
        Name (`CC`, `FZ`, `PC` …) → (R, R) array.
    """
    lines = read_lines(require_file(path))
    first = re.match(r"#\s*(\d+)\s*#\s*Number of network ROI", lines[0] if lines else "")
    if first is None:
        raise problem(path, "its first line does not count the ROIs", expected="a .netcc file")
    n_regions = int(first[1])
    with_labels = any(line.replace(" ", "") == "#WITH_ROI_LABELS" for line in lines[:4])
    names: list[list[str]] = []
    blocks: dict[str, list[list[str]]] = {}
    rows = names
    for line in lines[1:]:
        if line.startswith("#"):
            title = line.lstrip("# ").strip()
            if "Number of" not in title and title != "WITH_ROI_LABELS":
                rows = blocks.setdefault(title, [])
        else:
            rows.append(line.split())
    is_complete = len(names) == 1 + with_labels and len(names[0]) == n_regions
    if not is_complete or not blocks:
        raise problem(path, "its labels or matrices are not whole", remedy=MENDING)
    matrices = {}
    for title, words in blocks.items():
        with explained_errors(path, f"{n_regions} rows of as many numbers below # {title}"):
            matrix = np.array(words, np.float64)
        if matrix.shape != (n_regions, n_regions):
            shape = " x ".join(map(str, matrix.shape))
            raise problem(path, f"{title} is {shape}", expected=f"{n_regions} square")
        matrices[title] = matrix
    return tuple(names[0]), matrices


def _network_of(path: Path) -> str:
    match = _NETWORK.search(path.name)
    return match[1] if match else ""
