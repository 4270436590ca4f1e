"""Preprocessed images of fMRIPrep or DeepPrep → region series: volumes with a label image, or surfaces with a dlabel.

    bold + labels → mean of each region → minus trend, confounds, frequencies outside the band → series

The label image is the user's (`--atlas-image`): nothing is downloaded. Values 1 … R of a volume are the regions in the
order of the parcellation; a `.dlabel.nii` names its regions itself.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.files import read_json
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.cifti import WHOLE, load_image, name_of
from nerve.data.readers.confounds import Denoising, clean_series, read_confounds, regressors
from nerve.data.readers.derivatives import BidsName, by_scan, of_one_task, parse_names
from nerve.data.readers.opening import explained_errors, files_below, keep_latest, require_file
from nerve.data.readers.text import column_of_numbers

VOLUMES, SURFACES, SURFACE_LABELS = (".nii.gz", ".nii"), ".dtseries.nii", ".dlabel.nii"
Extracted = tuple[np.ndarray, tuple[str, ...] | None, float]  # series, labels, seconds per volume
_FD = "framewise_displacement"
_SPACES = ("MNI152NLin6Asym", "MNI152NLin2009cAsym")  # Schaefer's label images are in the first


class NIfTI(Reader):
    """Preprocessed BOLD images with their confounds."""

    describe = "fMRIPrep or DeepPrep images + confounds (needs --atlas-image and the extra `fmri`)"
    uses = ("atlas", "atlas_image", "denoise")

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan a recording, in one space."""
        names = parse_names(
            files_below(source, "_bold.nii.gz", "_bold.nii", SURFACES, "_timeseries.tsv")
        )
        surface = options.atlas_image is not None and options.atlas_image.name.endswith(
            SURFACE_LABELS
        )
        images = [name for name in names if _is_image(name, surface)]
        if surface:  # HCP's names are not those of BIDS
            bids = {name.path for name in names}
            paths = [path for path in files_below(source, SURFACES) if path not in bids]
            images += [name_of(path, source) for path in paths]
        if not images:
            return []
        _check_needs(options)
        images = _of_one_space(images, options)
        confounds = by_scan(
            n for n in names if n.suffix == "timeseries" and n.get("desc") == "confounds"
        )
        chosen = by_scan(images).values()
        return of_one_task(
            [name.as_scan("series", motion_path=name.companion(confounds)) for name in chosen],
            options,
        )

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Region series after denoising, with the framewise displacement of the confounds table."""
        atlas, denoising = _check_needs(options)
        table = pd.DataFrame() if scan.motion_path is None else read_confounds(scan.motion_path)
        if table.empty and denoising.strategy != "none":
            found = "there is no …_desc-confounds_timeseries.tsv for it"
            raise problem(
                scan.path, found, remedy="Put it beside the image, or say --denoise none."
            )
        extract = _surface_series if scan.path.name.endswith(SURFACES) else _volume_series
        series, labels, repetition_time = extract(scan, atlas, options)
        nuisance = regressors(table, denoising.strategy, scan.path)
        motion = column_of_numbers(table, _FD, scan.path) if _FD in table.columns else None
        cleaned = clean_series(series, nuisance, denoising, repetition_time, scan.path)
        notes = (f"Region series {denoising.describe()} (--denoise).",)
        return ScanData(series=cleaned, labels=labels, motion=motion, notes=notes)


def _is_image(name: BidsName, surface: bool) -> bool:
    if surface or name.suffix != "bold":
        return name.suffix == "bold" and name.extension == SURFACES
    return (
        name.extension in VOLUMES
        and name.get("desc") == "preproc"
        and name.get("space").startswith("MNI")
    )


def _of_one_space(images: list[BidsName], options: Options) -> list[BidsName]:
    """The images in the space that `--atlas` names, else in that of Schaefer's label images, else in the first."""
    space_of = {
        name: "_res-".join(filter(None, (name.get("space"), name.get("res")))) for name in images
    }
    spaces = sorted(set(space_of.values()))
    wanted = (options.atlas or "").lower()
    chosen = [
        space for space in spaces if wanted in ("", space.lower(), space.split("_")[0].lower())
    ]
    if not chosen:
        found = (
            f"There are no images in {options.atlas!r}; the source has them in {listed(spaces)}."
        )
        raise NerveError(f"{found} Name one of these with --atlas.")
    ranked = [space for start in _SPACES for space in chosen if space.startswith(start)]
    return [name for name in images if space_of[name] == (ranked or chosen)[0]]


def _check_needs(options: Options) -> tuple[Path, Denoising]:
    """The label image and the denoising, once everything that reading images needs is there."""
    if options.atlas_image is None:
        kinds = "a .nii.gz whose values 1 … R are the regions in the order of --parcellation, or a .dlabel.nii for surfaces"
        raise NerveError(
            f"Images of voxels need a label image of the regions: give --atlas-image FILE ({kinds})."
        )
    if importlib.util.find_spec("nilearn") is None:
        raise NerveError("Reading images of voxels needs nilearn. Install it: pip install nilearn.")
    return require_file(Path(options.atlas_image)), Denoising.parse(options.denoise)


def _volume_series(scan: ScanFile, atlas: Path, options: Options) -> Extracted:
    """The mean of every label over its voxels, (volumes, regions); NaN for a label without voxels in the image."""
    from nilearn.maskers import NiftiLabelsMasker

    image = load_image(scan.path)
    if len(image.shape) != 4:
        raise problem(
            scan.path,
            f"the image has {len(image.shape)} dimensions",
            expected="4 (x, y, z, volumes)",
        )
    with explained_errors(scan.path, WHOLE):
        n_regions = max(options.rows.n_regions if options.rows else 0, _largest_label(atlas))
        masker = NiftiLabelsMasker(
            load_image(atlas), standardize=None, resampling_target="data", reports=False
        )
        found = masker.fit_transform(image)  # (volumes, labels that have voxels)
        present = [
            int(value) for column, value in masker.region_ids_.items() if column != "background"
        ]
    series = np.full((len(found), n_regions), np.nan)
    series[:, np.array(present, int) - 1] = found
    return series, None, _repetition_time(scan, float(image.header.get_zooms()[3]))


@keep_latest
def _largest_label(atlas: Path) -> int:
    data = np.asarray(load_image(atlas).dataobj)
    whole = np.isfinite(data).all() and np.abs(data - np.round(data)).max() <= 1e-3
    if not whole or data.min() < 0 or data.max() > 10_000:
        found, expected = (
            "the label image holds other values",
            "labels 1 … R in the order of the parcellation, and 0",
        )
        raise problem(atlas, found, expected=expected, remedy="Give a label image.")
    return int(np.round(data.max()))


def _surface_series(scan: ScanFile, atlas: Path, options: Options) -> Extracted:
    """The mean of every label over its vertices, with the labels that the dlabel file gives."""
    image, labels = load_image(scan.path), load_image(atlas)
    with explained_errors(scan.path, WHOLE):
        time, vertices = image.header.get_axis(0), image.header.get_axis(1)
        names, label_vertices = labels.header.get_axis(0), labels.header.get_axis(1)
        data = np.asarray(image.dataobj, np.float64)  # (volumes, vertices)
        keys = np.asarray(labels.dataobj).ravel()[: len(label_vertices)].astype(int)
        table: dict[int, Any] = names.label[0]
        step = float(time.step)
        key_of = _keys_at(vertices, label_vertices, keys)
    wanted = [key for key in sorted(table) if key != 0 and table[key][0] != "???"]
    means = pd.DataFrame(data.T).groupby(key_of).mean().reindex(wanted)  # (labels, volumes)
    return (
        means.to_numpy().T,
        tuple(str(table[key][0]) for key in wanted),
        _repetition_time(scan, step),
    )


def _keys_at(vertices: Any, label_vertices: Any, keys: np.ndarray) -> np.ndarray:
    """The label key of every vertex or voxel of one axis, from those of another; 0 where the other has none."""
    axes = (vertices, label_vertices)
    here, there = (
        pd.MultiIndex.from_arrays([axis.name, axis.vertex, *axis.voxel.T]) for axis in axes
    )
    return pd.Series(keys, index=there).reindex(here, fill_value=0).to_numpy()


def _repetition_time(scan: ScanFile, header: float) -> float:
    """Seconds a volume: from the sidecar JSON if it says, else from the image's header."""
    sidecar = scan.path.with_name(scan.path.name.split(".")[0] + ".json")
    if sidecar.is_file():
        said = read_json(sidecar)
        value = said.get("RepetitionTime") if isinstance(said, dict) else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    if not 0.1 <= header <= 20:
        found = f"the repetition time in the header is {header:g} s"
        raise problem(scan.path, found, remedy=f"Write RepetitionTime into {sidecar.name}.")
    return header
