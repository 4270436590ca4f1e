"""Small synthetic files in the layouts that people have, faithful to what each tool writes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pandas as pd
import scipy.io
from nibabel import cifti2

from nerve.data.parcellation import load_parcellation

# The 56 regions that the 4S atlas appends to Schaefer's parcels (nuclei and thalamus on both sides, cerebellum).
_NUCLEI = [
    *(
        "Pu",
        "Ca",
        "NAC",
        "EXA",
        "GPe",
        "GPi",
        "SNc_PBP_VTA",
        "RN",
        "SNr",
        "VeP",
        "HN",
        "HTH",
        "MN",
        "STH",
    ),
    *(
        "Pulvinar",
        "Anterior",
        "Medio_Dorsal",
        "Ventral_Latero_Dorsal",
        "Ventral_Anterior",
        "Ventral_Latero_Ventral",
    ),
    *("Central_Lateral-Lateral_Posterior-Medial_Pulvinar", "Hippocampus", "Amygdala"),
]
FOUR_S_OUTSIDE = [f"{side}-{nucleus}" for side in ("LH", "RH") for nucleus in _NUCLEI] + [
    f"Cerebellar_Region{i}" for i in range(1, 11)
]

XCPD_GENERATIONS = ("0.6", "0.10", "26.0")


def four_s_labels(n_parcels: int = 100) -> list[str]:
    """The labels of 4S<n + 56>Parcels: Schaefer in 7-network order without the prefix, then 56 others."""
    cortex = load_parcellation(f"schaefer{n_parcels}-7").labels
    return [label.removeprefix("7Networks_") for label in cortex] + FOUR_S_OUTSIDE


def random_fc(n_regions: int, seed: int) -> np.ndarray:
    """A proper correlation matrix, different for every seed."""
    return np.corrcoef(random_series(3 * n_regions, n_regions, seed).T)


def random_series(n_volumes: int, n_regions: int, seed: int) -> np.ndarray:
    """Series with a common signal, so that correlations are not all near 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_volumes, n_regions)) + rng.normal(size=(n_volumes, 1)) * rng.uniform(
        0, 2, n_regions
    )


def stem(
    participant: str, session: str | None = None, task: str = "rest", run: str | None = None
) -> str:
    """`sub-X[_ses-Y]_task-rest[_run-Z]`."""
    words = [
        f"sub-{participant}",
        session and f"ses-{session}",
        f"task-{task}",
        run and f"run-{run}",
    ]
    return "_".join(word for word in words if word)


def func_folder(folder: Path, participant: str, session: str | None = None) -> Path:
    """`sub-X[/ses-Y]/func`, made."""
    path = folder / f"sub-{participant}" / (f"ses-{session}" if session else "") / "func"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _xcpd_names(generation: str, atlas: str, space: str, volumes: int | None) -> dict[str, str]:
    if generation == "0.6":
        base = f"space-{space}_atlas-{atlas}"
        return {
            "matrix": f"{base}_measure-pearsoncorrelation_conmat.tsv",
            "series": f"{base}_timeseries.tsv",
            "pconn": f"{base}_den-91k_measure-pearsoncorrelation_conmat.pconn.nii",
            "ptseries": f"{base}_den-91k_timeseries.ptseries.nii",
        }
    base = f"space-{space}_{'seg' if generation == '0.10' else 'atlas'}-{atlas}"
    some = f"_desc-{volumes}volumes" if volumes else ""
    return {
        "matrix": f"{base}_stat-pearsoncorrelation{some}_relmat.tsv",
        "series": f"{base}_stat-mean_timeseries.tsv",
        "pconn": f"{base}_den-91k_stat-pearsoncorrelation{some}_boldmap.pconn.nii",
        "ptseries": f"{base}_den-91k_stat-mean_timeseries.ptseries.nii",
    }


def write_numbers(
    path: Path,
    array: np.ndarray,
    labels: list[str] | None = None,
    rows: tuple[str, list[str]] | None = None,
) -> None:
    """A table of numbers between tabs, several times quicker than pandas; `rows` is a first column, NaN is `n/a`."""
    one = "\t".join(["%.8f"] * array.shape[1])
    lines = [(one % tuple(row)).replace("nan", "n/a") for row in array.tolist()]
    lines = ["\t".join(labels), *lines] if labels else lines
    if rows is not None:
        lines = [f"{name}\t{line}" for name, line in zip([rows[0], *rows[1]], lines, strict=True)]
    path.write_text("\n".join([*lines, ""]))


def write_xcpd(
    folder: Path,
    participant: str,
    labels: list[str],
    *,
    matrix: np.ndarray | None = None,
    series: np.ndarray | None = None,
    motion: np.ndarray | None = None,
    generation: str = "0.10",
    atlas: str = "4S156Parcels",
    session: str | None = None,
    task: str = "rest",
    run: str | None = None,
    volumes: int | None = None,
    cifti: bool = False,
) -> None:
    """One scan as XCP-D writes it; `volumes` makes the `desc-<N>volumes` variant; NaN is written `n/a`."""
    func = func_folder(folder, participant, session)
    scan = stem(participant, session, task, run)
    names = _xcpd_names(generation, atlas, "fsLR" if cifti else "MNI152NLin6Asym", volumes)
    if matrix is not None and cifti:
        write_pconn(func / f"{scan}_{names['pconn']}", matrix, labels)
    elif matrix is not None:
        write_numbers(func / f"{scan}_{names['matrix']}", matrix, labels, rows=("Node", labels))
    if series is not None and cifti:
        write_ptseries(func / f"{scan}_{names['ptseries']}", series, labels)
    elif series is not None:
        write_numbers(func / f"{scan}_{names['series']}", series, labels)
    if motion is not None:
        columns = {"framewise_displacement": motion, "trans_x": 0.0, "rot_z": 0.0}
        pd.DataFrame(columns).to_csv(
            func / f"{scan}_motion.tsv", sep="\t", index=False, na_rep="n/a"
        )
        quality = {"sub": [participant], "task": [task], "mean_fd": [np.nanmean(motion)]}
        pd.DataFrame(quality).to_csv(
            func / f"{scan}_space-MNI152NLin6Asym_desc-linc_qc.tsv", sep="\t", index=False
        )


def write_xcpd_outliers(
    folder: Path, participant: str, censored: np.ndarray, *, task: str = "rest"
) -> None:
    """Which volumes XCP-D removed: 1 = removed."""
    func = func_folder(folder, participant)
    table = pd.DataFrame({"framewise_displacement": np.asarray(censored, int)})
    table.to_csv(func / f"{stem(participant, task=task)}_outliers.tsv", sep="\t", index=False)


def write_four_s_table(folder: Path, n_parcels: int = 100) -> Path:
    """The atlas' `dseg.tsv`, with the columns that XCP-D's 4S atlas has."""
    seven, name = load_parcellation(f"schaefer{n_parcels}-7"), f"4S{n_parcels + 56}Parcels"
    seventeen = load_parcellation(f"schaefer{n_parcels}-17")
    position = seventeen.reordering_to(seven)
    none = [None] * 56
    table = pd.DataFrame(
        {
            "index": range(1, n_parcels + 57),
            "label": four_s_labels(n_parcels),
            "network_label": [*seven.networks, *none],
            "label_7network": [*seven.labels, *none],
            "index_17network": [*(position + 1), *none],
            "label_17network": [*(seventeen.labels[i] for i in position), *none],
            "network_label_17network": [*(seventeen.networks[i] for i in position), *none],
            "atlas_name": ["Schaefer2018"] * n_parcels + ["CIT168Subcortical"] * 56,
        }
    )
    path = folder / "atlases" / f"atlas-{name}" / f"atlas-{name}_dseg.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    return path


def write_giga(
    folder: Path,
    participant: str,
    *,
    labels: list[str] | None = None,
    matrix: np.ndarray | None = None,
    series: np.ndarray | None = None,
    atlas: str = "Schaefer2018100Parcels7Networks",
    measure: str = "PearsonCorrelation",
) -> None:
    """One scan as giga_connectome writes it: a header and no index; without labels, the header counts from 0."""
    func = func_folder(folder, participant)
    base = f"{stem(participant)}_seg-{atlas}"
    if matrix is not None:
        table = pd.DataFrame(matrix, columns=labels)
        table.to_csv(
            func / f"{base}_meas-{measure}_desc-denoiseSimple_relmat.tsv",
            float_format="%.8f",
            sep="\t",
            index=False,
        )
    if series is not None:
        table = pd.DataFrame(series, columns=labels)
        table.to_csv(
            func / f"{base}_desc-denoiseSimple_timeseries.tsv",
            float_format="%.8f",
            sep="\t",
            index=False,
        )


def write_cpac(
    folder: Path,
    participant: str,
    *,
    matrix: np.ndarray | None = None,
    series: np.ndarray | None = None,
    motion: np.ndarray | None = None,
    session: str = "PNC1",
    run: str | None = None,
    atlas: str = "Schaefer2018p100n17",
    strategy: str = "36Parameter",
    estimate: str = "PearsonNilearn",
) -> None:
    """One scan of the RBC release made with C-PAC: no header, no index."""
    func = func_folder(folder / "cpac_RBCv0", participant, session)
    scan = stem(participant, session, run=run)
    base = f"{scan}_atlas-{atlas}_space-MNI152NLin6ASym_reg-{strategy}"
    if matrix is not None:
        np.savetxt(
            func / f"{base}_desc-{estimate}_correlations.tsv", matrix, fmt="%.8f", delimiter="\t"
        )
    if series is not None:
        header = "\t".join(f"#{i}" for i in range(1, series.shape[1] + 1))
        np.savetxt(
            func / f"{base}_desc-Mean_timeseries.1D",
            series,
            delimiter="\t",
            header=header,
            comments="",
        )
    if motion is not None:
        np.savetxt(func / f"{scan}_desc-FDJenkinson_motion.1D", motion)


def parcels_axis(labels: list[str]) -> cifti2.ParcelsAxis:
    """Parcels of one vertex each on the left cortex."""
    left = "CIFTI_STRUCTURE_CORTEX_LEFT"
    none = np.zeros((0, 3), int)
    models = [(label, none, {left: np.array([i])}) for i, label in enumerate(labels)]
    names, voxels, vertices = zip(*models, strict=True)
    holders = [np.empty(len(labels), object) for _ in range(2)]
    for holder, values in zip(holders, (voxels, vertices), strict=True):
        for i, value in enumerate(values):
            holder[i] = value
    return cifti2.ParcelsAxis(np.array(names), *holders, nvertices={left: 32492})


def write_pconn(path: Path, matrix: np.ndarray, labels: list[str]) -> None:
    """A parcel-by-parcel CIFTI file."""
    axis = parcels_axis(labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    cifti2.Cifti2Image(matrix.astype(np.float32), (axis, axis)).to_filename(path)


def write_ptseries(
    path: Path, series: np.ndarray, labels: list[str], repetition_time: float = 0.72
) -> None:
    """A volumes-by-parcels CIFTI file."""
    axes = (cifti2.SeriesAxis(0, repetition_time, len(series)), parcels_axis(labels))
    path.parent.mkdir(parents=True, exist_ok=True)
    cifti2.Cifti2Image(series.astype(np.float32), axes).to_filename(path)


def _surface_axis(n_vertices: int) -> cifti2.BrainModelAxis:
    mask = np.zeros(32492, bool)
    mask[:n_vertices] = True
    return cifti2.BrainModelAxis.from_mask(mask, name="CIFTI_STRUCTURE_CORTEX_LEFT")


def write_dtseries(
    path: Path, series: np.ndarray, vertices_each: int = 3, repetition_time: float = 2.0
) -> None:
    """A volumes-by-vertices CIFTI file: the vertices of region i, one after another, scatter around its series."""
    spread = np.linspace(-0.5, 0.5, vertices_each)  # cancels in the mean of a region
    data = (series[:, :, None] + spread).reshape(len(series), -1)
    axes = (cifti2.SeriesAxis(0, repetition_time, len(series)), _surface_axis(data.shape[1]))
    path.parent.mkdir(parents=True, exist_ok=True)
    cifti2.Cifti2Image(data.astype(np.float32), axes).to_filename(path)


def write_dlabel(path: Path, labels: list[str], vertices_each: int = 3) -> None:
    """The label of each vertex of `write_dtseries`; key 0 is the medial wall."""
    keys = np.repeat(np.arange(1, len(labels) + 1), vertices_each)
    table = {0: ("???", (0, 0, 0, 0))} | {
        i + 1: (label, (1, 0, 0, 1)) for i, label in enumerate(labels)
    }
    axes = (cifti2.LabelAxis(["parcels"], [table]), _surface_axis(len(keys)))
    path.parent.mkdir(parents=True, exist_ok=True)
    cifti2.Cifti2Image(keys[None].astype(np.float32), axes).to_filename(path)


AFFINE = np.diag([4.0, 4.0, 4.0, 1.0])


def label_volume(n_regions: int) -> np.ndarray:
    """Regions 1 … n of eight voxels each, background 0."""
    volume = np.zeros((2 * n_regions + 2, 4, 4), np.int16)
    for region in range(n_regions):
        volume[1 + 2 * region : 3 + 2 * region, 1:3, 1:3] = region + 1
    return volume


def write_label_image(path: Path, n_regions: int) -> Path:
    """The atlas image that belongs to `write_fmriprep`."""
    nibabel.Nifti1Image(label_volume(n_regions), AFFINE).to_filename(path)
    return path


def confounds_table(n_volumes: int, seed: int, *, deepprep: bool = False) -> pd.DataFrame:
    """Confounds with fMRIPrep's columns, or only the base columns that DeepPrep has."""
    rng = np.random.default_rng(seed)
    base = [
        "trans_x",
        "trans_y",
        "trans_z",
        "rot_x",
        "rot_y",
        "rot_z",
        "csf",
        "white_matter",
        "global_signal",
    ]
    table = pd.DataFrame({name: rng.normal(size=n_volumes).cumsum() for name in base})
    if not deepprep:
        for name in base:
            table[f"{name}_derivative1"] = table[name].diff()
            table[f"{name}_power2"] = table[name] ** 2
            table[f"{name}_derivative1_power2"] = table[f"{name}_derivative1"] ** 2
        for i in range(2):
            table[f"cosine{i:02d}"] = np.cos(
                np.pi * (i + 1) * (np.arange(n_volumes) + 0.5) / n_volumes
            )
    table["framewise_displacement"] = np.r_[np.nan, rng.uniform(0, 0.4, n_volumes - 1)]
    return table


def write_fmriprep(
    folder: Path,
    participant: str,
    series: np.ndarray,
    *,
    confounds: pd.DataFrame | None = None,
    deepprep: bool = False,
    repetition_time: float = 2.0,
    surface: bool = False,
) -> None:
    """One scan as fMRIPrep (or DeepPrep, under `BOLD/`) writes it: every voxel of region i follows series i."""
    func = func_folder(folder / ("BOLD" if deepprep else ""), participant)
    space = "space-MNI152NLin6Asym_res-02" if deepprep else "space-MNI152NLin2009cAsym"
    labels = label_volume(series.shape[1])
    bold = np.zeros((*labels.shape, len(series)), np.float32)
    for region in range(series.shape[1]):
        bold[labels == region + 1] = 100 + series[:, region]
    image = nibabel.Nifti1Image(bold, AFFINE)
    image.header.set_zooms((4.0, 4.0, 4.0, repetition_time))
    scan = stem(participant)
    image.to_filename(func / f"{scan}_{space}_desc-preproc_bold.nii.gz")
    mask = nibabel.Nifti1Image(np.ones(labels.shape, np.uint8), AFFINE)
    mask.to_filename(func / f"{scan}_{space}_desc-brain_mask.nii.gz")
    if surface:
        write_dtseries(
            func / f"{scan}_space-fsLR_den-91k_bold.dtseries.nii",
            series,
            repetition_time=repetition_time,
        )
    if confounds is not None:
        confounds.to_csv(
            func / f"{scan}_desc-confounds_timeseries.tsv", sep="\t", index=False, na_rep="n/a"
        )


def netmat_row(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle, column by column, as MATLAB's `matrix(triu(ones(D), 1) == 1)'` gives it."""
    return np.array([matrix[i, j] for j in range(len(matrix)) for i in range(j)])


def write_ukb(path: Path, matrices: dict[str, np.ndarray], *, ids: bool = True) -> Path:
    """Netmats of many people, one a row, with the id in the first column or without."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        [person] * ids + [f"{value:.8g}" for value in netmat_row(matrix)]
        for person, matrix in matrices.items()
    ]
    path.write_text("".join(" ".join(row) + "\n" for row in rows))
    return path


def write_ukb_bulk(
    folder: Path, person: str, matrix: np.ndarray, field: int = 25750, instance: int = 2
) -> Path:
    """One person's netmat, as the bulk field is downloaded: `<eid>_<field>_<instance>_<array>.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{person}_{field}_{instance}_0.txt"
    path.write_text("  ".join(f"{value:.8g}" for value in netmat_row(matrix)) + "\n")
    return path


def write_matlab73(path: Path, contents: dict) -> Path:
    """A file of MATLAB's version 7.3: transposed arrays, structs as groups, cells and words by references.

    Names with dots are fields of structs; a list is a cell array of words or of arrays.
    """
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, content in contents.items():
            key = name.replace(".", "/")
            if not isinstance(content, list):
                file[key] = np.asarray(content, float).T
                file[key].attrs["MATLAB_class"] = np.bytes_("double")
                continue
            references = []
            for number, item in enumerate(content):
                is_word = isinstance(item, str)
                data = np.array([[ord(c)] for c in item], np.uint16) if is_word else item.T
                cell = file.create_dataset(f"#refs#/{name}_{number}", data=data)
                cell.attrs["MATLAB_class"] = np.bytes_("char" if is_word else "double")
                references.append([cell.ref])
            file[key] = np.array(references, dtype=h5py.ref_dtype)
            file[key].attrs["MATLAB_class"] = np.bytes_("cell")
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def write_netcc(path: Path, labels: list[str], matrices: dict[str, np.ndarray]) -> Path:
    """Matrices of 3dNetCorr: counts, labels, codes, then a remark above each matrix; without labels, codes alone."""
    n_regions = len(next(iter(matrices.values())))
    lines = [
        f"# {n_regions}  # Number of network ROIs",
        f"# {len(matrices)}  # Number of netcc matrices",
    ]
    if labels:
        lines += ["# WITH_ROI_LABELS", "\t".join(f" {label:>10} " for label in labels)]
    lines.append("\t".join(f" {100 + number:10d} " for number in range(n_regions)))
    for name, matrix in matrices.items():
        lines.append(f"# {name}")
        lines += ["\t".join(f"{value:12.6f}" for value in row) for row in matrix]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_gifti(path: Path, array: np.ndarray) -> Path:
    """One array in a GIFTI file, as micapipe writes its matrices."""
    part = nibabel.gifti.GiftiDataArray(np.asarray(array, np.float32))
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.gifti.GiftiImage(darrays=[part]).to_filename(path)
    return path


def write_conn_series(
    path: Path, names: list[str], series: np.ndarray, weights: np.ndarray | None = None
) -> Path:
    """Time series of CONN: white matter has several columns, each region one."""
    holder = np.empty((1, series.shape[1] + 1), object)
    holder[0, 0] = np.random.default_rng(0).normal(size=(len(series), 5))
    for number in range(series.shape[1]):
        holder[0, number + 1] = series[:, [number]]
    content = {"data": holder, "names": np.array(["White Matter", *names], dtype=object)[None]}
    if weights is not None:
        weight_cells = np.empty((1, 1), object)
        weight_cells[0, 0] = weights[:, None]
        content["conditionweights"] = weight_cells
    scipy.io.savemat(path, content)
    return path


def write_dsi_studio(path: Path, labels: list[str], matrix: np.ndarray, mark: str = "\n") -> Path:
    """DSI Studio's `.connectivity.mat`: version 4, with the labels as one text of bytes."""
    text = np.frombuffer((mark.join(labels) + mark).encode(), np.uint8)[None]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"connectivity": matrix.astype(np.float32), "name": text}
    scipy.io.savemat(path, content, format="4")
    return path


def write_qsirecon(path: Path, atlases: dict[str, tuple[list[str], dict[str, np.ndarray]]]) -> Path:
    """QSIRecon's `_connectivity.mat`: the labels and matrices of several atlases."""
    content = {"command": "recon"}
    for atlas, (labels, matrices) in atlases.items():
        content[f"atlas_{atlas}_region_ids"] = np.arange(1, len(labels) + 1)
        content[f"atlas_{atlas}_region_labels"] = np.array(labels)
        for measure, matrix in matrices.items():
            content[f"atlas_{atlas}_{measure}_connectivity"] = matrix
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, content, long_field_names=True)
    return path


def write_tvb(path: Path, labels: list[str], matrix: np.ndarray) -> Path:
    """A zip archive of The Virtual Brain."""
    centres = [f"{label} {number} 2.5 -3.0" for number, label in enumerate(labels)]
    with zipfile.ZipFile(path, "w") as archive:
        rows = [" ".join(f"{value:.6f}" for value in row) for row in matrix]
        archive.writestr("weights.txt", "\n".join(rows) + "\n")
        archive.writestr("centres.txt", "\n".join(centres) + "\n")
        archive.writestr("tract_lengths.txt", "\n".join(rows) + "\n")
    return path
