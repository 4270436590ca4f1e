"""CIFTI parcels of HCP's tools and XCP-D: matrices (`.pconn.nii`), time series (`.ptseries.nii`).

Labels come from the parcels axis and the repetition time from the series axis. An atlas may lack
parcels on the surface (Schaefer-1000 lacks 2 on fsLR): the labels say which are there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.errors import problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import (
    BidsName,
    of_one_task,
    one_version,
    parse_name,
    version_of,
)
from nerve.data.readers.names import path_below
from nerve.data.readers.nested import refuse_giant
from nerve.data.readers.opening import explained_errors, files_below, require_file

MATRIX = ".pconn.nii"
SERIES = ".ptseries.nii"
WHOLE = "a whole image of the kind that its name says"
# HCP: 100307.rfMRI_REST1_LR…, 100307_rfMRI_REST1_LR…, or a folder
# 100307/MNINonLinear/Results/rfMRI_REST1_LR/…
_HCP_PARTICIPANT = re.compile(r"(HC[AD]\d{7}|\d{5,8})(?=$|[._]|_V\d)")
_HCP_RUN = re.compile(r"[rt]fMRI_([A-Za-z]+?)(\d*(?:_(?:LR|RL|AP|PA))?)(?=[_./]|$)")


class CIFTI(Reader):
    """Parcellated CIFTI files."""

    describe = "CIFTI parcels (.pconn.nii, .ptseries.nii) of HCP's tools"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, of one atlas where names tell the atlas."""
        files = {"fc": files_below(source, MATRIX), "series": files_below(source, SERIES)}
        kinds = {kind: [name_of(path, source) for path in paths] for kind, paths in files.items()}
        kind, chosen, _ = one_version(kinds, options, version_of)
        return of_one_task([name.as_scan(kind) for name in chosen], options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix or series, with the labels of the parcels axis."""
        return read_parcels(scan.path)


def read_parcels(path: Path) -> ScanData:
    """A `.pconn.nii` or `.ptseries.nii` file."""
    image = load_image(path)
    with explained_errors(path, WHOLE):
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        data = np.asarray(image.dataobj, np.float64)
    from nibabel.cifti2 import ParcelsAxis, SeriesAxis

    kinds = [type(axis) for axis in axes]
    if kinds == [ParcelsAxis, SeriesAxis]:
        axes.reverse()
        kinds.reverse()
        data = data.T
    if kinds in ([ParcelsAxis, ParcelsAxis], [SeriesAxis, ParcelsAxis]):
        labels = tuple(str(label).strip() for label in axes[1].name)
        return ScanData.of("fc" if kinds[0] is ParcelsAxis else "series", data, labels=labels)
    raise problem(
        path,
        f"the CIFTI axes are {' × '.join(kind.__name__ for kind in kinds)}",
        expected="parcels × parcels or series × parcels",
        remedy="Parcellate it first (`wb_command -cifti-parcellate`), or give --atlas-image with a "
        ".dlabel.nii.",
    )


def load_image(path: Path) -> Any:
    """Open an image with nibabel; whatever fails becomes one sentence."""
    import nibabel

    with explained_errors(require_file(path), WHOLE):
        image: Any = nibabel.load(path)
        refuse_giant(path, image.shape, image.get_data_dtype().itemsize)
        return image


def name_of(path: Path, source: Path) -> BidsName:
    """The parts of a BIDS name, or what a name of HCP's says.

    Parameters
    ----------
    path : Path
    source : Path
        Only names below it count.

    Returns
    -------
    BidsName
    """
    name = parse_name(path)
    if name is not None:
        return name
    participant = re.split(r"\.|_(?=Atlas|rfMRI|task)", path.name)[0]
    for part in (path.name, *path_below(path, source).split("/")):
        match = _HCP_PARTICIPANT.match(part)
        if match:
            participant = match[1]
            break
    entities = {"sub": participant}
    run = _HCP_RUN.search(path.as_posix())
    if run:
        entities["task"] = run[1].lower()
        entities["run"] = run[2]
    return BidsName(path, entities, "", "")
