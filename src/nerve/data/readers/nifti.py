"""Preprocessed images of fMRIPrep or DeepPrep → region series, with a label image.

    bold + labels → mean of each region → minus trend, confounds, other frequencies → series

The label image is the user's (`--atlas-image`): nothing is downloaded. Values 1 … R of a volume are
the regions in the order of the parcellation; a `.dlabel.nii` names its regions itself.
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

VOLUMES = (".nii.gz", ".nii")
_SURFACES = ".dtseries.nii"
_SURFACE_LABELS = ".dlabel.nii"
Extracted = tuple[np.ndarray, tuple[str, ...] | None, float]  # series, labels, seconds per volume
_FD = "framewise_displacement"
_SPACES = ("MNI152NLin6Asym", "MNI152NLin2009cAsym")  # Schaefer's label images are in the first


class NIfTI(Reader):
    """Preprocessed BOLD images with their confounds."""

    describe = "fMRIPrep or DeepPrep images + confounds (needs --atlas-image and the extra `fmri`)"
    uses = ("atlas", "atlas_image", "denoise")

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per recording, in one space."""
        names = parse_names(
            files_below(source, "_bold.nii.gz", "_bold.nii", _SURFACES, "_timeseries.tsv")
        )
        surface = options.atlas_image is not None and options.atlas_image.name.endswith(
            _SURFACE_LABELS
        )
        images = [name for name in names if _is_image(name, surface)]
        if surface:  # HCP's names are not those of BIDS
            bids = {name.path for name in names}
            paths = [path for path in files_below(source, _SURFACES) if path not in bids]
            images += [name_of(path, source) for path in paths]
        if not images:
            return []
        _check_needs(options)
        images = _of_one_space(images, options)
        confounds = by_scan(
            name
            for name in names
            if name.suffix == "timeseries" and name.get("desc") == "confounds"
        )
        scans = []
        for name in by_scan(images).values():
            scans.append(name.as_scan("series", motion_path=name.companion(confounds)))
        return of_one_task(scans, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Region series after denoising, with the framewise displacement of the confounds table."""
        atlas, denoising = _check_needs(options)
        table = pd.DataFrame() if scan.motion_path is None else read_confounds(scan.motion_path)
        if table.empty and denoising.strategy != "none":
            raise problem(
                scan.path,
                "there is no …_desc-confounds_timeseries.tsv for it",
                remedy="Put it beside the image, or say --denoise none.",
            )
        extract = _surface_series if scan.path.name.endswith(_SURFACES) else _volume_series
        series, labels, repetition_time = extract(scan, atlas, options)
        nuisance = regressors(table, denoising.strategy, scan.path)
        motion = column_of_numbers(table, _FD, scan.path) if _FD in table.columns else None
        cleaned = clean_series(series, nuisance, denoising, repetition_time, scan.path)
        notes = (f"Region series {denoising.describe()} (--denoise).",)
        return ScanData(series=cleaned, labels=labels, motion=motion, notes=notes)


def _is_image(name: BidsName, surface: bool) -> bool:
    if name.suffix != "bold":
        return False
    if surface:
        return name.extension == _SURFACES
    return (
        name.extension in VOLUMES
        and name.get("desc") == "preproc"
        and name.get("space").startswith("MNI")
    )


def _of_one_space(images: list[BidsName], options: Options) -> list[BidsName]:
    """The images in the space that `--atlas` names, or in the first that label images are in."""
    spaces = sorted({_space_of(name) for name in images})
    wanted = (options.atlas or "").lower()
    candidates = [
        space for space in spaces if wanted in ("", space.lower(), space.split("_")[0].lower())
    ]
    if not candidates:
        raise NerveError(
            f"There are no images in {options.atlas!r}; the source has them in {listed(spaces)}. "
            "Name one of these with --atlas."
        )
    best = min(candidates, key=_rank_of_space)
    return [name for name in images if _space_of(name) == best]


def _space_of(name: BidsName) -> str:
    """The space of an image, with its resolution where the name tells it."""
    return "_res-".join(filter(None, (name.get("space"), name.get("res"))))


def _rank_of_space(space: str) -> int:
    """0 for the space of Schaefer's label images, 1 for the other known one, 2 for all others."""
    for rank, known_space in enumerate(_SPACES):
        if space.startswith(known_space):
            return rank
    return len(_SPACES)


def _check_needs(options: Options) -> tuple[Path, Denoising]:
    """The label image and the denoising, once everything that reading images needs is there."""
    if options.atlas_image is None:
        raise NerveError(
            "Images of voxels need a label image of the regions: give --atlas-image FILE (a "
            ".nii.gz whose values 1 … R are the regions in the order of --parcellation, or a "
            ".dlabel.nii for surfaces)."
        )
    if importlib.util.find_spec("nilearn") is None:
        raise NerveError("Reading images of voxels needs nilearn. Install it: pip install nilearn.")
    return require_file(Path(options.atlas_image)), Denoising.parse(options.denoise)


def _volume_series(scan: ScanFile, atlas: Path, options: Options) -> Extracted:
    """The mean of every label over its voxels, (volumes, regions).

    NaN for a label without voxels in the image.
    """
    from nilearn.maskers import NiftiLabelsMasker

    image = load_image(scan.path)
    if len(image.shape) != 4:
        raise problem(
            scan.path,
            f"the image has {len(image.shape)} dimensions",
            expected="4 (x, y, z, volumes)",
        )
    with explained_errors(scan.path, WHOLE):
        n_regions = max(
            options.file_regions.n_regions if options.file_regions else 0, _largest_label(atlas)
        )
        masker = NiftiLabelsMasker(
            load_image(atlas), standardize=None, resampling_target="data", reports=False
        )
        means = masker.fit_transform(image)  # (volumes, labels that have voxels)
        label_values = [
            int(value) for column, value in masker.region_ids_.items() if column != "background"
        ]
    series = np.full((len(means), n_regions), np.nan)
    series[:, np.array(label_values, int) - 1] = means
    return series, None, _repetition_time(scan, float(image.header.get_zooms()[3]))


@keep_latest
def _largest_label(atlas: Path) -> int:
    """The number of regions of a label image; an image of other values is refused."""
    data = np.asarray(load_image(atlas).dataobj)
    are_integers = np.isfinite(data).all() and np.abs(data - np.round(data)).max() <= 1e-3
    if not are_integers or data.min() < 0 or data.max() > 10_000:
        raise problem(
            atlas,
            "the label image holds other values",
            expected="labels 1 … R in the order of the parcellation, and 0",
            remedy="Give a label image.",
        )
    return int(np.round(data.max()))


def _surface_series(scan: ScanFile, atlas: Path, options: Options) -> Extracted:
    """The mean of every label over its vertices, with the labels that the dlabel file gives."""
    image = load_image(scan.path)
    label_image = load_image(atlas)
    with explained_errors(scan.path, WHOLE):
        seconds_per_volume = float(image.header.get_axis(0).step)
        vertices = image.header.get_axis(1)
        data = np.asarray(image.dataobj, np.float64)  # (volumes, vertices)
        label_vertices = label_image.header.get_axis(1)
        keys = np.asarray(label_image.dataobj).ravel()[: len(label_vertices)].astype(int)
        # label key → (name, colour)
        label_table: dict[int, Any] = label_image.header.get_axis(0).label[0]
        key_of_vertex = _keys_at(vertices, label_vertices, keys)
    region_keys = [key for key in sorted(label_table) if key != 0 and label_table[key][0] != "???"]
    means = pd.DataFrame(data.T).groupby(key_of_vertex).mean()
    means = means.reindex(region_keys)  # (labels, volumes)
    names = tuple(str(label_table[key][0]) for key in region_keys)
    return means.to_numpy().T, names, _repetition_time(scan, seconds_per_volume)


def _keys_at(vertices: Any, label_vertices: Any, keys: np.ndarray) -> np.ndarray:
    """The label key of every vertex or voxel of one axis, from those of another.

    0 where the other has none.
    """
    key_of_place = pd.Series(keys, index=_places(label_vertices))
    return key_of_place.reindex(_places(vertices), fill_value=0).to_numpy()


def _places(axis: Any) -> pd.MultiIndex:
    """Structure, vertex and voxel of each entry of an axis."""
    return pd.MultiIndex.from_arrays([axis.name, axis.vertex, *axis.voxel.T])


def _repetition_time(scan: ScanFile, header: float) -> float:
    """Seconds per volume: from the sidecar JSON if it says, else from the image's header."""
    sidecar = scan.path.with_name(scan.path.name.split(".")[0] + ".json")
    if sidecar.is_file():
        content = read_json(sidecar)
        value = content.get("RepetitionTime") if isinstance(content, dict) else None
        if isinstance(value, int | float) and value > 0:
            return float(value)
    if not 0.1 <= header <= 20:
        raise problem(
            scan.path,
            f"the repetition time in the header is {header:g} s",
            remedy=f"Write RepetitionTime into {sidecar.name}.",
        )
    return header
