"""Preprocessed images of fMRIPrep or DeepPrep → region series: volumes with a label image, or surfaces with a dlabel.

    bold + labels → mean of each region → minus trend, confounds, frequencies outside the band → series

The label image is the user's (`--atlas-image`): nothing is downloaded. Values 1 … R of a volume are the regions in the
order of the parcellation; a `.dlabel.nii` names its regions itself.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.files import read_json
from nerve.readers.base import Options, Reader, Reading, Scan, require_file
from nerve.readers.bids import BidsName, by_scan, parse_names
from nerve.readers.browse import files_below, place
from nerve.readers.cifti import load_image, unreadable
from nerve.readers.confounds import Denoising, clean_series, read_confounds, regressors
from nerve.readers.text import column_of_numbers
from nerve.readers.versions import of_one_task

VOLUMES, SURFACES, SURFACE_LABELS = (".nii.gz", ".nii"), ".dtseries.nii", ".dlabel.nii"
_SPACES = ("MNI152NLin6Asym", "MNI152NLin2009cAsym")  # Schaefer's label images are in the first


class NIfTI(Reader):
    """Preprocessed BOLD images with their confounds."""

    name = "nifti"
    describe = "fMRIPrep or DeepPrep images + confounds (needs --atlas-image and the extra `fmri`)"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan a recording, in one space."""
        names = parse_names(files_below(source, "_bold.nii.gz", "_bold.nii", SURFACES, "_timeseries.tsv"))
        surface = options.atlas_image is not None and options.atlas_image.name.endswith(SURFACE_LABELS)
        images = [name for name in names if _is_image(name, surface)]
        if not images:
            return []
        _check_needs(options)
        images = _of_one_space(images, options)
        confounds = by_scan(n for n in names if n.suffix == "timeseries" and n.get("desc") == "confounds")
        scans = [
            Scan(
                name.participant,
                name.path,
                "series",
                name.get("ses"),
                name.get("task"),
                name.get("run"),
                motion_path=confounds[name.scan].path if name.scan in confounds else None,
            )
            for name in by_scan(images).values()
        ]
        return of_one_task(scans, options)

    def read(self, scan: Scan, options: Options) -> Reading:
        """Region series after denoising, with the framewise displacement of the confounds table."""
        atlas, denoising = _check_needs(options)
        table = None
        if scan.motion_path is not None:
            table = read_confounds(scan.motion_path, scan.participant)
        if table is None and denoising.strategy != "none":
            raise problem(
                place(scan),
                "there is no …_desc-confounds_timeseries.tsv for it",
                remedy="Put it beside the image, or say --denoise none.",
            )
        labels: tuple[str, ...] | None = None
        if scan.path.name.endswith(SURFACES):
            series, labels, repetition_time = _surface_series(scan, atlas)
        else:
            series, repetition_time = _volume_series(scan, atlas, options)
        nuisance = None if table is None else regressors(table, denoising.strategy, place(scan))
        cleaned = clean_series(series, nuisance, denoising, repetition_time, place(scan))
        motion = None
        if table is not None and "framewise_displacement" in table.columns:
            motion = column_of_numbers(table, "framewise_displacement", place(scan))
        notes = (f"Region series {denoising.describe()} (--denoise).", *scan.extra.get("notes", ()))
        return Reading(series=cleaned, labels=labels, motion=motion, notes=notes)


def _is_image(name: BidsName, surface: bool) -> bool:
    if surface:
        return name.suffix == "bold" and name.extension == SURFACES
    is_volume = name.suffix == "bold" and name.extension in VOLUMES and name.get("desc") == "preproc"
    return is_volume and name.get("space").startswith("MNI")


def _of_one_space(images: list[BidsName], options: Options) -> list[BidsName]:
    spaces = sorted({_space(name) for name in images})
    if options.atlas:
        wanted = [space for space in spaces if options.atlas.lower() in (space.lower(), space.split("_")[0].lower())]
        if not wanted:
            raise NerveError(
                f"There are no images in {options.atlas!r}; the source has them in {listed(spaces)}. Name one of these "
                "with --atlas."
            )
        spaces = wanted
    if len(spaces) > 1:
        ranked = [space for start in _SPACES for space in spaces if space.startswith(start)]
        spaces = ranked or spaces
    return [name for name in images if _space(name) == spaces[0]]


def _space(name: BidsName) -> str:
    resolution = name.get("res")
    return name.get("space") + (f"_res-{resolution}" if resolution else "")


def _check_needs(options: Options) -> tuple[Path, Denoising]:
    """The label image and the denoising, once everything that reading images needs is there."""
    if options.atlas_image is None:
        raise NerveError(
            "Images of voxels need a label image of the regions: give --atlas-image FILE (a .nii.gz whose values 1 … R "
            "are the regions in the order of --parcellation, or a .dlabel.nii for surfaces)."
        )
    if importlib.util.find_spec("nilearn") is None:
        raise NerveError(
            "Reading images of voxels needs nilearn, which is not installed. Install it: pip install nilearn."
        )
    return require_file(Path(options.atlas_image)), Denoising.parse(options.denoise)


def _volume_series(scan: Scan, atlas: Path, options: Options) -> tuple[np.ndarray, float]:
    """The mean of every label over its voxels, (volumes, regions); NaN for a label without voxels in the image."""
    from nilearn.maskers import NiftiLabelsMasker

    image = load_image(scan.path, scan.participant)
    if len(image.shape) != 4:
        raise problem(place(scan), f"the image has {len(image.shape)} dimensions", expected="4 (x, y, z, volumes)")
    labels = load_image(atlas)
    order = options.order or options.parcellation
    try:
        values = _label_values(str(atlas), atlas.stat().st_mtime_ns)
        n_regions = max(order.n_regions if order else 0, max(values, default=0))
        masker = NiftiLabelsMasker(labels, standardize=None, resampling_target="data", reports=False)
        found = masker.fit_transform(image)  # (volumes, labels that have voxels)
        present = [int(value) for column, value in masker.region_ids_.items() if column != "background"]
    except NerveError:
        raise
    except Exception as error:  # damaged images fail in many ways inside nibabel and nilearn
        raise unreadable(scan.path, scan.participant) from error
    series = np.full((len(found), n_regions), np.nan)
    series[:, np.array(present, int) - 1] = found
    return series, _repetition_time(scan, float(image.header.get_zooms()[3]))


@lru_cache(maxsize=4)
def _label_values(atlas: str, _changed: int) -> tuple[int, ...]:
    data = np.asarray(load_image(Path(atlas)).dataobj)
    values = np.unique(np.round(data).astype(np.int64))
    if values.min() < 0 or np.abs(data - np.round(data)).max() > 1e-3:
        raise problem(
            atlas, "the label image holds values that are not whole numbers from 0", remedy="Give a label image."
        )
    if values.max() > 10_000:
        raise problem(
            atlas, f"the largest label is {values.max()}", expected="labels 1 … R in the order of the parcellation"
        )
    return tuple(int(value) for value in values if value > 0)


def _surface_series(scan: Scan, atlas: Path) -> tuple[np.ndarray, tuple[str, ...], float]:
    """The mean of every label over its vertices, with the labels that the dlabel file gives."""
    image, labels = load_image(scan.path, scan.participant), load_image(atlas)
    try:
        time, vertices = image.header.get_axis(0), image.header.get_axis(1)
        names, label_vertices = labels.header.get_axis(0), labels.header.get_axis(1)
        data = np.asarray(image.dataobj, np.float64)  # (volumes, vertices)
        keys = np.asarray(labels.dataobj).ravel()[: len(label_vertices)].astype(int)
        table: dict[int, Any] = names.label[0]
        step = float(time.step)
        key_of = _keys_at(vertices, label_vertices, keys)
    except Exception as error:  # as above
        raise unreadable(scan.path, scan.participant) from error
    wanted = [key for key in sorted(table) if key != 0 and table[key][0] != "???"]
    series = np.full((len(data), len(wanted)), np.nan)
    for region, key in enumerate(wanted):
        if (key_of == key).any():
            series[:, region] = data[:, key_of == key].mean(axis=1)
    return series, tuple(str(table[key][0]) for key in wanted), _repetition_time(scan, step)


def _keys_at(vertices: Any, label_vertices: Any, keys: np.ndarray) -> np.ndarray:
    """The label key of every vertex or voxel of one axis, from those of another; 0 where the other has none."""
    found = np.zeros(len(vertices), int)
    labelled = {name: (part, keys[where]) for name, where, part in label_vertices.iter_structures()}
    for name, where, part in vertices.iter_structures():
        if name in labelled:
            known, its_keys = labelled[name]
            found[where] = pd.Series(its_keys, index=_codes(known)).reindex(_codes(part), fill_value=0)
    return found


def _codes(part: Any) -> np.ndarray:
    """One integer a vertex, or a voxel, of one structure."""
    return part.vertex if part.surface_mask.all() else part.voxel @ np.array([1, 1 << 12, 1 << 24])


def _repetition_time(scan: Scan, header: float) -> float:
    """Seconds a volume: from the sidecar JSON if it says, else from the image's header."""
    sidecar = scan.path.with_name(scan.path.name.split(".")[0] + ".json")
    if sidecar.is_file():
        said = read_json(sidecar)
        value = said.get("RepetitionTime") if isinstance(said, dict) else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    if not 0.1 <= header <= 20:
        raise problem(
            place(scan),
            f"the repetition time in the header is {header:g} s",
            remedy=f"Write RepetitionTime into {sidecar.name}.",
        )
    return header
