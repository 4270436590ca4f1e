"""BIDS connectivity (BEP017, a proposal), which `nerve export` writes too.

| file | says |
|---|---|
| `…_atlas-A_meas-M_relmat.dense.tsv` | the matrix: numbers without a header |
| `…_relmat.json` | RelationshipMeasure, ValidDiagonal … |
| `…_nodeindices.tsv` | matrix_index, node_file, node_index, label: which region each row is |
| `atlas-A_dseg.tsv` | the regions with their networks |
| `atlas-A_description.json` | the name of the atlas |

The last four may lie beside the matrix or in any folder above, for all that share their entities
(BIDS inheritance).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, known_columns, problem
from nerve._utils.files import read_json, read_tsv
from nerve.data.connectivity import VALUES, measure_of
from nerve.data.parcellation import Parcellation
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import (
    BidsName,
    Version,
    of_one_task,
    one_version,
    parse_names,
    version_of,
)
from nerve.data.readers.opening import files_below, keep_latest
from nerve.data.readers.text import read_numbers

MATRIX = "_relmat.dense.tsv"
_BESIDE = {
    "sidecar": "_relmat.json",
    "nodes": "_nodeindices.tsv",
    "atlas": "_dseg.tsv",
    "about": "_description.json",
}


class BEP017(Reader):
    """A data set of BIDS connectivity matrices."""

    describe = "BIDS connectivity matrices (BEP017: relmat.dense.tsv with JSON and nodeindices)"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per recording, all of one atlas and one measure."""
        names = parse_names(files_below(source, MATRIX))
        chosen = one_version({"fc": names}, options, _version, "meas-PearsonCorrelation")[1]
        top = source if source.is_dir() else source.parent
        return of_one_task([_scan(name, top) for name in chosen], options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix, with labels and measure where the data set names them."""
        sidecar = scan.extra["sidecar"]
        about = {} if sidecar is None else read_json(sidecar)
        if not isinstance(about, dict):
            raise problem(sidecar, "it does not describe a matrix", expected="a JSON object")
        if about.get("Directed") is True:
            raise problem(
                scan.path, "its JSON calls the matrix directed", expected="undirected connectivity"
            )
        measure = measure_of(
            str(about.get("RelationshipMeasure") or scan.extra["measure"] or "pearson")
        )
        matrix = read_numbers(scan.path).values
        if about.get("ValidDiagonal") is False:
            np.fill_diagonal(matrix, 0.0)
        nodes = None if scan.extra["nodes"] is None else _nodes(scan.extra["nodes"])
        if nodes is not None and len(nodes) != len(matrix):
            expected = f"{len(nodes)}, as {scan.extra['nodes'].name} lists"
            raise problem(scan.path, f"the matrix has {len(matrix)} rows", expected=expected)
        labels = None if nodes is None or "label" not in nodes.columns else tuple(nodes["label"])
        return ScanData(matrix, labels=labels, values=VALUES.get(measure, "other"), measure=measure)

    def complete_options(self, options: Options, scans: list[ScanFile]) -> Options:
        """Add the atlas of the data set, if it has networks and the user names none."""
        table = scans[0].extra["atlas"]
        description = scans[0].extra["about"]
        if options.file_regions is not None or table is None:
            return options
        if not {"network", "network_label"} & set(read_tsv(table, nrows=0).columns):
            return options
        about = {} if description is None else read_json(description)
        atlas_name = about.get("Name") if isinstance(about, dict) else None
        parcellation = Parcellation.from_table(table, name=str(atlas_name) if atlas_name else None)
        return replace(options, parcellation=parcellation)


def _scan(name: BidsName, top: Path) -> ScanFile:
    beside = {key: _inherited(name, top, ending) for key, ending in _BESIDE.items()}
    return name.as_scan("fc", extra={"measure": name.get("meas", "stat"), **beside})


def _version(name: BidsName) -> Version:
    atlas = "-".join(filter(None, (name.get("atlas"), name.get("seg"), name.get("scale"))))
    return replace(version_of(name, "meas", "stat", "desc"), atlas=atlas)


def _inherited(name: BidsName, top: Path, ending: str) -> Path | None:
    """The nearest file with this ending, beside the matrix or above it, that fits its name."""
    fitting = []
    for folder in name.path.parents:
        if not folder.is_relative_to(top):
            break
        for path in _with_ending(folder, ending, folder.stat().st_mtime_ns):
            if _entities_of(path, ending) <= name.entities.items():
                fitting.append(path)
    return max(fitting, key=_nearness, default=None)


def _nearness(path: Path) -> tuple[int, int, str]:
    """The deeper folder first, then the name with more entities."""
    return len(path.parts), path.name.count("_"), path.name


@lru_cache(maxsize=256)
def _with_ending(folder: Path, ending: str, changed: int) -> tuple[Path, ...]:
    """Files of a folder.

    `changed`, the time of its last change, makes a changed one listed again.
    """
    return tuple(sorted(folder.glob(f"*{ending}")))


def _entities_of(path: Path, ending: str) -> set[tuple[str, str]]:
    """The entities of a name; a word that is none is an entity that no matrix has."""
    words = [word.partition("-") for word in path.name.removesuffix(ending).split("_")]
    return {(key, label) for key, _, label in words}


@keep_latest
def _nodes(path: Path) -> pd.DataFrame:
    """The table of nodes in the order of the matrix."""
    nodes = read_tsv(path, dtype={"label": str})
    known_columns(["matrix_index"], nodes.columns, path)
    position = pd.to_numeric(nodes["matrix_index"].astype(str), errors="coerce")
    if position.isna().any() or sorted(position - position.min()) != list(range(len(nodes))):
        raise NerveError(
            f"{path}: matrix_index does not count the rows of the matrix, expected 0, 1, 2 …."
        )
    return nodes.iloc[np.argsort(position.to_numpy())]
