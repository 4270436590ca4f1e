"""A cohort as BIDS connectivity (BEP017): `nerve export COHORT OUT --format bids`.

    dataset_description.json, participants.tsv
    atlas-A_dseg.tsv, atlas-A_description.json            the regions with their networks
    atlas-A_nodeindices.tsv                               which region each row of a matrix is
    atlas-A_meas-M_relmat.json                            what the matrices measure
    sub-01/func/sub-01_atlas-A_meas-M_relmat.dense.tsv    one matrix per participant

What holds for all participants is written once, at the top, as BIDS inheritance has it. `nerve
ingest` reads it back.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.errors import listed, one_of, problem
from nerve._utils.files import atomic_file, atomic_folder, write_json, write_tsv
from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import bids_description
from nerve.data.connectivity import MEASURES
from nerve.data.readers.derivatives import parse_name
from nerve.data.readers.ids import normal_id

FORMATS = ("bids",)
_DIGITS = "%.9g"  # enough for a float32 to be read back as it was
_SIDECAR = {"Weighted": True, "Directed": False, "ValidDiagonal": True, "StorageFormat": "Dense"}


def export_cohort(cohort: Cohort, out: str | os.PathLike[str], format: str = "bids") -> Path:
    """Write a cohort as a folder in another format, whole or not at all.

    Parameters
    ----------
    cohort : Cohort
        Matrices, participants, regions and measure are written; time series and the list of
        exclusions are not.
    out : path
        The folder to write; one that is not empty is refused.
    format : str
        A name in `FORMATS`.

    Returns
    -------
    Path
        The folder.
    """
    one_of("format", format, FORMATS)
    table = cohort.participants
    with atomic_folder(out) as draft:
        write_tsv(
            draft / "participants.tsv",
            table.assign(participant_id="sub-" + table["participant_id"]),
        )
        write_bids_participants(cohort, draft)
        cohort.check_unchanged()
    return Path(out)


def write_bids_participants(cohort: Cohort, folder: Path) -> dict[str, Path]:
    """Write the matrix of each participant, and what holds for all, into a folder.

    The folder may hold other participants already.

    Parameters
    ----------
    cohort : Cohort
    folder : Path

    Returns
    -------
    dict
        Participant → the file of the matrix.
    """
    from nerve import __version__

    _check_ids(cohort)
    atlas = f"atlas-{_alphanumeric(cohort.parcellation.name)}"
    measured = f"{atlas}_meas-{MEASURES[cohort.measure][1]}_relmat"
    write_json(
        folder / "dataset_description.json",
        bids_description(cohort.name, Description="nerve export --format bids"),
    )
    regions = cohort.parcellation.to_table()
    regions_file = f"{atlas}_dseg.tsv"
    index = np.arange(cohort.n_regions)
    regions.insert(0, "index", index + 1)
    write_tsv(folder / regions_file, regions)
    write_json(folder / f"{atlas}_description.json", {"Name": cohort.parcellation.name})
    nodes = {
        "matrix_index": index,
        "node_file": regions_file,
        "node_index": index + 1,
        "label": cohort.parcellation.labels,
    }
    write_tsv(folder / f"{atlas}_nodeindices.tsv", pd.DataFrame(nodes))
    sidecar = {
        "NodeFiles": [regions_file],
        "RelationshipMeasure": MEASURES[cohort.measure][1],
        **_SIDECAR,
        "Software": f"nerve {__version__}",
    }
    write_json(folder / f"{measured}.json", sidecar)
    written = {}
    ids = progress_bar(cohort.participants["participant_id"], label="writing", unit="participants")
    for row, participant in enumerate(ids):
        matrix = np.asarray(cohort.connectivity[row : row + 1], np.float32)[0]
        scans = folder / f"sub-{participant}" / "func"
        written[participant] = scans / f"sub-{participant}_{measured}.dense.tsv"
        with atomic_file(written[participant], "w") as stream:
            np.savetxt(stream, matrix, fmt=_DIGITS, delimiter="\t")
    return written


def _check_ids(cohort: Cohort) -> None:
    """Refuse ids that a file name could not carry, or that would be read back as others."""
    unusable = [
        participant
        for participant in cohort.participants["participant_id"]
        if not _fits_a_name(participant)
    ]
    if unusable:
        raise problem(
            f"Cohort {cohort.name!r}",
            f"{listed(map(repr, unusable), most=4)} cannot stand in a BIDS file name",
            expected="ids of letters and digits",
            remedy="Rename the participants in participants.tsv and ingest again.",
        )


def _fits_a_name(participant: str) -> bool:
    """Whether an id is read back from a BIDS file name as it was written."""
    if not re.fullmatch(r"[\w.+-]+", participant) or participant.startswith("."):
        return False
    name = parse_name(f"sub-{participant}_atlas-A_relmat.dense.tsv")
    return name is not None and normal_id(name.participant) == participant


def _alphanumeric(name: str) -> str:
    """`schaefer400x17` for `schaefer400-17`: BIDS labels have letters and digits only.

    Examples
    --------
    >>> _alphanumeric("schaefer400-17+aseg19")
    'schaefer400x17xaseg19'
    """
    return re.sub(r"[^A-Za-z0-9]+", "x", name).strip("x") or "custom"
