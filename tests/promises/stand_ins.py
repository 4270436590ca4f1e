"""Small stand-ins for everything that documented commands read: cohorts, derivatives, tables."""

from functools import lru_cache

import h5py
import numpy as np
import pandas as pd
import pyreadstat
from scipy.io import savemat
from tests.data.readers import write_formats as formats

import nerve
from nerve.data.export import export_cohort
from nerve.methods.pretrained import pack

NAMES = ("first", "second", "third")
LABELS = tuple(nerve.load_parcellation("schaefer400-17").labels)
SCHAEFER = "Schaefer2018_400Parcels_17Networks_order_FSLMNI152_2mm.nii.gz"


SOME = nerve.Parcellation.from_table(
    nerve.load_parcellation("schaefer100-7").to_table().iloc[::3], name="some"
)


def cohorts(folder, names, parcellation=SOME, n=24):
    """Cohort folders of few participants and regions, with every column that a page names."""
    for seed, name in enumerate(names):
        made = nerve.simulate_cohort(
            n, parcellation, timepoints=60, seed=seed, keep_timeseries=False, name=name
        )
        made.participants["diagnosis"] = ["patient", "control"] * (n // 2)
        made.save(folder / name)


@lru_cache(maxsize=16)
def _fc(n_regions, seed):
    """FC of one participant; of Schaefer's parcels with networks, which `nerve check` asks for."""
    if n_regions not in (100, 200, 400):
        return formats.random_fc(n_regions, seed)
    made = nerve.simulate_cohort(1, f"schaefer{n_regions}-17", timepoints=150, seed=seed)
    return np.asarray(made.connectivity[0], float)


def _each(folder, write, names=NAMES, n_regions=400):
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        write(folder, name, _fc(n_regions, seed))


def _table(path, ids, key="participant_id", **more):
    table = pd.DataFrame(
        {
            key: list(ids),
            "age": np.arange(len(ids)) + 9.0,
            "sex": ["F", "M", "F"][: len(ids)],
            **more,
        }
    )
    if path.suffix == ".xlsx":
        table.to_excel(path, index=False)
    else:
        table.to_csv(path, sep="," if path.suffix == ".csv" else "\t", index=False)


def _atlas(path, labels):
    networks = ["A" if i < len(labels) // 2 else "B" for i in range(len(labels))]
    pd.DataFrame({"label": labels, "network": networks}).to_csv(path, sep="\t", index=False)


def _stack(n_regions=400):
    return np.stack([_fc(n_regions, seed) for seed in range(3)])


def _upper(n_regions, vectors=lambda m: m[np.triu_indices(len(m), 1)]):
    return np.stack([vectors(one) for one in _stack(n_regions)])


def _ids(folder, name="ids.txt"):
    (folder / name).write_text("\n".join(NAMES))


def _xcpd(folder, series=False):
    labels = formats.four_s_labels(400)
    # the networks must show in the group mean, or `nerve check` says not usable
    cortex = nerve.simulate_cohort(len(NAMES), "schaefer400-7", timepoints=150, seed=0)
    for seed, name in enumerate(NAMES):
        below = np.random.default_rng(seed).normal(size=(150, len(labels) - 400))
        signals = np.column_stack([cortex.timeseries[seed], below])
        more = {"series": signals} if series else {}
        formats.write_xcpd(
            folder, name, labels, matrix=np.corrcoef(signals.T), atlas="4S456Parcels", **more
        )


def abide(folder):
    place = folder / "Outputs/cpac/filt_global/rois_cc200"
    place.mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        series = formats.random_series(60, 200, seed)
        header = "\t".join(f"#{i + 1}" for i in range(200))
        np.savetxt(
            place / f"{name}_rois_cc200.1D", series, header=header, comments="", delimiter="\t"
        )
    _atlas(folder / "cc200.tsv", [str(i + 1) for i in range(200)])
    _table(folder / "Phenotypic_V1_0b_preprocessed1.csv", NAMES, "FILE_ID")


def bep017(folder):
    people = pd.DataFrame({"participant_id": NAMES})
    export_cohort(nerve.Cohort(_stack(100), people, "schaefer100-17"), folder / "connectivity")


def cbig(folder):
    _each(
        folder / "FC",
        lambda place, name, fc: savemat(place / f"sub-{name}.mat", {"corr_mat": fc}),
        n_regions=419,
    )
    _table(folder / "participants.tsv", NAMES)


def cifti(folder):
    names = ("100307", "100408", "101107")

    def write(place, name, fc):
        formats.write_pconn(place / f"{name}.rfMRI_REST.pconn.nii", fc, list(LABELS))

    _each(folder / "parcellated", write, names)
    _table(folder / "hcp.csv", names, "Subject")


def conn(folder):
    regions = [f"roi{i}" for i in range(12)]
    z = np.moveaxis(np.arctanh(_stack(12) * (1 - np.eye(12))), 0, 2)
    z[np.arange(12), np.arange(12)] = np.nan
    names = np.array(regions, dtype=object)[None]
    savemat(folder / "resultsROI_Condition001.mat", {"Z": z, "names": names, "names2": names})
    place = folder / "conn_project/results/firstlevel/SBC_01"
    place.mkdir(parents=True)
    for i in range(3):
        one = {"Z": z[..., i], "names": names, "names2": names}
        savemat(place / f"resultsROI_Subject00{i + 1}_Condition001.mat", one)
    series = folder / "conn_project/results/preprocessing"
    series.mkdir()
    for i in range(3):
        path = series / f"ROI_Subject00{i + 1}_Condition000.mat"
        formats.write_conn_series(path, regions, formats.random_series(40, 12, i))
    _atlas(folder / "atlas.tsv", regions)
    _ids(folder)


REGIONS = [f"roi{letter}" for letter in "abcdefghijkl"]


def _counts(seed):
    upper = np.triu(np.random.default_rng(seed).integers(0, 900, (12, 12)), 1)
    return (upper + upper.T).astype(float)


def afni(folder):
    _atlas(folder / "atlas.tsv", REGIONS)
    for seed, name in enumerate(NAMES):
        matrices = {"CC": _fc(12, seed), "PC": _fc(12, seed)}
        formats.write_netcc(folder / "netcorr" / f"{name}_000.netcc", REGIONS, matrices)


def micapipe(folder):
    _atlas(folder / "nodes.tsv", REGIONS)
    for seed, name in enumerate(NAMES):
        base = folder / "micapipe" / f"sub-{name}" / f"sub-{name}_atlas-own"
        formats.write_gifti(_gifti_path(base, "_desc-FC"), np.triu(_fc(12, seed)))
        formats.write_gifti(_gifti_path(base, "_full-connectome"), np.triu(_counts(seed)))
        series = formats.random_series(40, 12, seed)
        formats.write_gifti(_gifti_path(base, "_desc-timeseries"), series)


def _gifti_path(base, words):
    return base.with_name(f"{base.name}{words}.shape.gii")


def connectomes(folder):
    _atlas(folder / "atlas.tsv", REGIONS)
    for place in ("tvb", "mrtrix"):
        (folder / place).mkdir()
    for seed, name in enumerate(NAMES):
        counts = _counts(seed)
        path = folder / "dsi_studio" / f"{name}.tt.gz.own.count.end.connectivity.mat"
        formats.write_dsi_studio(path, REGIONS, counts)
        matrices = {"sift_radius2_count": counts, "radius2_meanlength": counts / 9}
        path = folder / "qsirecon" / f"sub-{name}" / f"sub-{name}_connectivity.mat"
        formats.write_qsirecon(path, {"Own": (REGIONS, matrices)})
        (folder / "probtrackx" / name).mkdir(parents=True)
        np.savetxt(folder / "probtrackx" / name / "fdt_network_matrix", counts, "%d", "  ")
        np.savetxt(folder / "probtrackx" / name / "waytotal", np.full(12, 5000), "%d")
        formats.write_tvb(folder / "tvb" / f"{name}.zip", REGIONS, counts)
        np.savetxt(folder / "mrtrix" / f"{name}.csv", np.triu(counts), "%d", ",")


def inside_files(folder):
    _atlas(folder / "atlas.tsv", REGIONS)
    (folder / "structs").mkdir()
    labels = np.array(REGIONS, dtype=object)[None]
    for seed, name in enumerate(NAMES):
        content = {"results": {"rest": _fc(12, seed), "task": np.eye(12)}, "labels": labels}
        savemat(folder / "structs" / f"{name}.mat", content)
    with h5py.File(folder / "all.h5", "w") as file:
        file["fc"] = _stack(12)
        file["subject_ids"] = np.array(NAMES, dtype=h5py.string_dtype())
        file["labels"] = np.array(REGIONS, dtype=h5py.string_dtype())


def series_table(folder):
    _atlas(folder / "atlas.tsv", REGIONS)
    tables = []
    for seed, name in enumerate(NAMES):
        table = pd.DataFrame(formats.random_series(40, 12, seed), columns=REGIONS)
        table.insert(0, "TR", range(40))
        table.insert(0, "subject", name)
        tables.append(table)
    pd.concat(tables).to_csv(folder / "series.csv", index=False)


def measures(folder):
    _atlas(folder / "nodes.tsv", REGIONS)
    for place in ("partial_netmats", "connectomes"):
        (folder / place).mkdir()
    for seed, name in enumerate(NAMES):
        np.savetxt(folder / "partial_netmats" / f"{name}.csv", _fc(12, seed), "%.8f", ",")
        upper = np.triu(np.random.default_rng(seed).integers(0, 900, (68, 68)))
        np.savetxt(folder / "connectomes" / f"{name}.csv", upper, "%d", ",")


def cpac(folder):
    for seed, name in enumerate(NAMES):
        formats.write_cpac(
            folder / "cpac_RBCv0", name, matrix=_fc(400, seed), atlas="Schaefer2018p400n17"
        )
    _table(folder / "study-PNC_desc-participants.tsv", NAMES)


def dpabi(folder):
    def write(place, name, fc):
        series = formats.random_series(60, 12, 0)
        for word, array in {"ROISignals": series, "ROICorrelation": np.corrcoef(series.T)}.items():
            savemat(place / f"{word}_{name}.mat", {word: array})

    _each(folder / "Results/ROISignals_FunImgARCWF", write, ("Sub_001", "Sub_002", "Sub_003"), 12)
    _atlas(folder / "atlas.tsv", [f"roi{i}" for i in range(12)])
    _table(folder / "people.xlsx", ("Sub_001", "Sub_002", "Sub_003"))


def edges(folder):
    rows, columns = np.triu_indices(400, 1)
    ends = {"region_a": np.array(LABELS)[rows], "region_b": np.array(LABELS)[columns]}
    parts = [
        {"participant_id": name, **ends, "r": r}
        for name, r in zip(NAMES[:2], _upper(400), strict=False)
    ]
    pd.concat(map(pd.DataFrame, parts)).to_csv(folder / "fc_edges.csv", index=False)


def matrices(folder, scale=lambda fc: fc):
    _each(
        folder / "matrices",
        lambda place, name, fc: np.savetxt(place / f"{name}.txt", scale(fc), fmt="%.5f"),
    )
    for table in ("people.csv", "people.xlsx"):
        _table(folder / table, NAMES)
    with pd.ExcelWriter(folder / "study.xlsx") as workbook:
        for sheet in ("baseline", "followup"):
            people = pd.DataFrame({"participant_id": NAMES, "age": [9.0, 10.0, 11.0]})
            people.to_excel(workbook, sheet_name=sheet, index=False)
    pyreadstat.write_sav(people, folder / "people.sav")


def fisher_z(folder):
    matrices(
        folder, lambda fc: np.where(np.eye(len(fc)), np.inf, np.arctanh(fc * (1 - np.eye(len(fc)))))
    )


def one_folder_each(folder):
    def write(place, name, fc):
        (place / name).mkdir()
        np.savetxt(place / name / "fc_matrix.txt", fc, fmt="%.5f")

    _each(folder / "matrices", write)


def fmriprep(folder):
    for seed, name in enumerate(NAMES):
        formats.write_fmriprep(
            folder / "derivatives/fmriprep",
            name,
            formats.random_series(220, 400, seed),
            confounds=formats.confounds_table(220, seed),
        )
    formats.write_label_image(folder / SCHAEFER, 400)


def plain(folder):
    matrices(folder)
    series = {name: formats.random_series(60, 400, seed) for seed, name in enumerate(NAMES)}
    np.savez(folder / "timeseries.npz", **series)
    np.save(folder / "fc_upper.npy", _upper(12))
    _atlas(folder / "atlas.tsv", [f"roi{i}" for i in range(12)])
    _table(folder / "participants.tsv", NAMES)


def stacks(folder):
    savemat(folder / "all_fc.mat", {"fc": _stack()})
    np.save(folder / "all_fc.npy", _stack())
    _ids(folder)
    _table(folder / "participants.tsv", NAMES)


def ukb(folder):
    names = ("1000001", "1000002", "1000003")
    formats.write_ukb(folder / "netmats.txt", dict(zip(names, 5 * _stack(21), strict=True)))
    _atlas(folder / "nodes.tsv", [f"IC{i:02}" for i in range(21)])
    _table(folder / "ukb.tsv", names, "eid")


def vectors(folder):
    np.save(folder / "vectors.npy", _upper(400))
    np.savetxt(
        folder / "netmats1.txt",
        np.stack([(5 * one).ravel() for one in _stack(15) * (1 - np.eye(15))]),
    )
    _atlas(folder / "nodes.tsv", [f"IC{i:02}" for i in range(15)])
    _ids(folder)
    _ids(folder, "subjectIDs.txt")


def xcpd(folder):
    _xcpd(folder / "derivatives/xcp_d")
    _table(folder / "participants.tsv", NAMES)


def paper(folder):
    _each(
        folder / "abcd_fc",
        lambda place, name, fc: savemat(place / f"sub-{name}.mat", {"corr_mat": fc}),
    )
    _table(folder / "abcd.tsv", NAMES)
    for study in ("PNC", "CCNP"):
        _xcpd(folder / study.lower() / "derivatives/xcp_d", series=True)
        _table(folder / f"study-{study}_desc-participants.tsv", NAMES)
    np.save(folder / "fc_upper_200.npy", _upper(200))
    _table(folder / "participants.tsv", NAMES)
    _atlas(folder / "regions.tsv", [str(i + 1) for i in range(200)])


def derivatives(folder, n):
    """A simulated cohort in XCP-D's layout: 7-network order, labels without prefix, 56 regions more; and its table."""
    cohort = nerve.simulate_cohort(n, "schaefer400-17", timepoints=60, keep_timeseries=False)
    labels, place = formats.four_s_labels(400), folder / "derivatives/xcp_d"
    for i, fc in enumerate(cohort.align("schaefer400-7").connectivity):
        whole = np.eye(len(labels))
        whole[:400, :400] = fc
        formats.write_xcpd(place, f"{i + 1:02}", labels, matrix=whole, atlas="4S456Parcels")
    table = cohort.participants.assign(participant_id=[f"sub-{i + 1:02}" for i in range(n)])
    for where in (folder, place):
        table.to_csv(where / "participants.tsv", sep="\t", index=False)
    return cohort


def bids_app(folder, n=12):
    """XCP-D derivatives with a table of participants, and a model of their regions."""
    cohort = derivatives(folder, n)
    model = nerve.NERVE.from_preset(
        "small", view="fc", dim=8, epochs=1, n_components=4, device="cpu"
    ).fit(cohort)
    pack(model.save(folder / "model"), folder / "model.zip")
