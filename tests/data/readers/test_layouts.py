"""Every layout of docs/howto/bring-your-own-cohort that labs have: the right matrices of the right participants, or a

refusal whose remedy works when it is typed. Names are as in the wild, values from the simulator.
"""

import re
import shlex

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import read_cohort
from nerve.data.readers.ids import natural_key
from nerve.data.readers.names import AmbiguousParticipants
from nerve.data.simulate import simulate_cohort

PARCELLATION = load_parcellation("schaefer100-17")
REGIONS, N = 100, 5
OFF = 1 - np.eye(REGIONS)


@pytest.fixture(scope="module")
def truth():
    return simulate_cohort(N, "schaefer100-17", 150, seed=3)


@pytest.fixture(scope="module")
def fc(truth):
    return np.asarray(truth.connectivity, float)


@pytest.fixture(scope="module")
def series(truth):
    return [np.asarray(one, float) for one in truth.timeseries]


def read(source, **settings):
    return read_cohort(source, **({"parcellation": PARCELLATION, "jobs": 1} | settings))


def expect(cohort, ids, matrices, atol=1e-5):
    assert cohort.participants["participant_id"].tolist() == list(ids)
    np.testing.assert_allclose(cohort.connectivity, np.asarray(matrices), atol=atol)


def save_text(path, array, **how):
    np.savetxt(path, array, fmt="%.6f", **how)


def folder_of(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# ---- who is who


def test_one_folder_per_participant_with_the_same_file_name(tmp_path, fc):
    for i in range(N):
        save_text(folder_of(tmp_path / f"S00{i}/fc_matrix.txt"), fc[i])
    expect(read(tmp_path), [f"S00{i}" for i in range(N)], fc)


def test_runs_of_hcp_below_a_folder_per_participant(tmp_path, series):
    ids = ["101309", "102311", "103111"]
    for i, person in enumerate(ids):
        for run, half in (("REST1_LR", series[i][:75]), ("REST1_RL", series[i][75:])):
            savemat(
                folder_of(tmp_path / person / "functional" / f"TC_rsfMRI_{run}.mat"), {"tc": half}
            )
    cohort = read(tmp_path)
    means = [np.tanh((_z(series[i][:75]) + _z(series[i][75:])) / 2) for i in range(3)]
    expect(cohort, ids, [mean + np.eye(REGIONS) for mean in means])
    assert cohort.participants["n_scans"].tolist() == [2, 2, 2]


def _z(series):
    return np.arctanh(np.corrcoef(series.T) * OFF)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "S00{i}/2023010{j}/fc.txt",
        "ses{i}{j}/fc.txt",
        "{j}/S00{i}.txt",
        "S00{i}_{j}_fc.txt",
        "A{j}/P{i}_conn.txt",
        "sub-0{i}_desc-{j}.txt",
    ],
)
def test_two_readings_are_refused_and_each_remedy_works_when_typed(tmp_path, fc, name):
    source, out = tmp_path / "in", tmp_path / "out"
    for i in range(3):
        for j in (1, 2):
            save_text(folder_of(source / name.format(i=i, j=j)), fc[i])
    command = ["ingest", str(source), str(out), "--order", "schaefer100-17", "--jobs", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert isinstance(result.exception, AmbiguousParticipants)
    assert not out.exists()
    assert "participant (1)" in result.output
    sentence = str(result.exception)
    remedies = re.findall(r"--id-pattern '[^']+'", sentence)
    assert remedies
    for remedy, candidate in zip(remedies, result.exception.candidates, strict=True):
        done = CliRunner().invoke(app, [*command, *shlex.split(remedy), "--overwrite"])
        assert done.exit_code == 0, done.output
        if not name.startswith("sub-"):
            found = Cohort.load(out).participants["participant_id"].tolist()
            assert sorted(found) == sorted(set(candidate.values))


def test_words_before_a_number_are_groups_only_if_they_usually_are(tmp_path, fc):
    for place, words in (("groups", ("control", "patient")), ("names", ("anna", "bert"))):
        for i, word in enumerate(words):
            for number in (1, 2):
                save_text(
                    folder_of(tmp_path / place / f"{word}_{number}.txt"), fc[2 * i + number - 1]
                )
    ids = ["control_1", "control_2", "patient_1", "patient_2"]
    expect(read(tmp_path / "groups"), ids, fc[:4])
    with pytest.raises(
        AmbiguousParticipants, match=r"several ways: 4 by the file name .* 2 by the first"
    ):
        read(tmp_path / "names")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("control/C{i}.txt", "C0 C1 C2 C3 C4"),
        ("site1/S{i}_fc.txt", "S0 S1 S2 S3 S4"),
        ("conn.P{i}.txt", "P0 P1 P2 P3 P4"),
        ("group/S{i}/matrix.txt", "S0 S1 S2 S3 S4"),
        ("S{i}/S{i}_rest1.txt", "S0 S1 S2 S3 S4"),
        (
            "CMU_a_005064{i}_fc.txt",
            "CMU_a_0050640 CMU_a_0050641 CMU_a_0050642 CMU_a_0050643 CMU_a_0050644",
        ),
    ],
)
def test_names_with_one_reading(tmp_path, fc, name, ids):
    for i in range(N):
        save_text(folder_of(tmp_path / name.format(i=i)), fc[i])
    expect(read(tmp_path), ids.split(), fc)


def test_a_pattern_says_who_when_and_leaves_out_what_it_does_not_match(tmp_path, fc):
    for i in range(2):
        for visit in "ab":
            np.save(tmp_path / f"x{visit}{i}k.npy", fc[i])
        np.save(tmp_path / f"pilot{i}.npy", fc[4])
    cohort = read(tmp_path, id_pattern=r"^x(?P<session>[ab])(?P<id>\d)k", session="b")
    expect(cohort, ["0", "1"], fc[:2])
    with pytest.raises(
        NerveError, match=r"id_pattern is 'zz\(\?P<id>x\)' and matches none of 6 files"
    ):
        read(tmp_path, id_pattern="zz(?P<id>x)")
    with pytest.raises(NerveError, match="expected a group named id, for example"):
        read(tmp_path, id_pattern="(.*)")
    with pytest.raises(NerveError, match="no regular expression at character 0"):
        read(tmp_path, id_pattern="(")


# ---- r or z


@pytest.mark.parametrize("diagonal", [np.inf, 0.0, np.nan, 18.7])
def test_fisher_z_is_decided_once_for_the_source(tmp_path, fc, diagonal):
    z = np.arctanh(fc * OFF)
    z[1:] *= 0.9  # only one participant has a value beyond 1
    for i in range(N):
        save_text(tmp_path / f"S{i}.txt", np.where(OFF == 1, z[i], diagonal))
    expect(read(tmp_path), [f"S{i}" for i in range(N)], np.where(OFF == 1, np.tanh(z), 1.0))


def test_r_and_z_in_one_source_are_refused_and_the_remedy_works(tmp_path, fc):
    for i in range(N):
        np.save(
            tmp_path / f"S{i}.npy",
            fc[i] if i < 3 else np.where(OFF == 1, np.arctanh(fc[i] * OFF), np.inf),
        )
    with pytest.raises(
        NerveError, match=r'S3\.npy, S4\.npy can only hold Fisher z, and S0\.npy.*values="r"'
    ):
        read(tmp_path)
    expect(read(tmp_path, id_pattern="(?P<id>S[012])"), ["S0", "S1", "S2"], fc[:3])


def test_proof_of_z_that_comes_late_stops_the_ingest(tmp_path, fc):
    small = fc * 0.5 * OFF
    for i in range(40):
        np.save(
            tmp_path / f"S{i:02d}.npy", small[i % N] * (4 if i == 1 else 1)
        )  # not among those looked at first
    with pytest.raises(
        NerveError, match=r'S01.* can only hold Fisher z, and others only r.*values="z"'
    ):
        read(tmp_path)


# ---- one kind of file


def write_dpabi(folder, fc, series, *, ending):
    for i in range(len(fc)):
        z = np.where(OFF == 1, np.arctanh(fc[i] * OFF), 0.0)
        arrays = {"ROISignals": series[i], "ROICorrelation": fc[i], "ROICorrelation_FisherZ": z}
        for name, array in arrays.items():
            path = folder_of(
                folder / "Results/ROISignals_FunImgARCWF" / f"{name}_Sub_00{i + 1}{ending}"
            )
            savemat(path, {name: array}) if ending == ".mat" else save_text(path, array)
        (folder / "Results/ROISignals_FunImgARCWF" / f"ROI_OrderKey_Sub_00{i + 1}.tsv").write_text(
            "Order\tLabel\n1\t1\n"
        )


@pytest.mark.parametrize("ending", [".mat", ".txt"])
@pytest.mark.parametrize("settings", [{}, {"data": "series"}, {"values": "z"}])
def test_dpabi_gives_one_kind_of_file(tmp_path, fc, series, ending, settings):
    write_dpabi(tmp_path, fc[:3], series, ending=ending)
    cohort = read(tmp_path, **settings)
    expect(cohort, ["Sub_001", "Sub_002", "Sub_003"], fc[:3])
    log = " ".join(cohort.notes["log"])
    assert "6 files are left out" in log or log.count("3 files are left out") == 2


def test_of_twenty_participants_one_alone_may_prove_fisher_z(tmp_path, fc):
    weak, strong = np.arctanh(fc[0] * OFF * 0.5), np.arctanh(fc[0] * OFF)
    strong[0, 1] = strong[1, 0] = 1.5
    for i in range(20):
        np.save(tmp_path / f"S{i:02d}.npy", strong if i == 7 else weak)
    cohort = read(tmp_path)
    assert any("hold Fisher z, as 1 of 20 looked at prove" in note for note in cohort.notes["log"])
    np.testing.assert_allclose(cohort.connectivity[0], np.tanh(weak) + np.eye(REGIONS), atol=1e-6)


@pytest.mark.parametrize("diagonal", [0.0, 1.0])
def test_fisher_z_up_to_1_is_proved_by_eigenvalues(tmp_path, diagonal):
    rng = np.random.default_rng(0)
    r = [
        np.corrcoef(rng.normal(size=(REGIONS, 25))) for _ in range(7)
    ]  # fewer volumes than regions
    for i, one in enumerate(r):
        np.save(
            tmp_path / f"S{i}.npy",
            np.where(OFF, np.clip(np.arctanh(one * OFF), -0.999, 0.999), diagonal),
        )
    if diagonal == 1:  # which is that of r
        with pytest.raises(
            NerveError,
            match=r"S0\.npy, S1\.npy .* can only hold Fisher z, and S5\.npy, S6\.npy only r",
        ):
            read(tmp_path)
        expect(read(tmp_path, values="z"), [f"S{i}" for i in range(7)], r, atol=0.02)
    else:
        expect(read(tmp_path), [f"S{i}" for i in range(7)], r, atol=0.02)


def test_matrices_and_fisher_z_beside_each_other_are_not_averaged(tmp_path, fc):
    for i in range(3):
        save_text(folder_of(tmp_path / f"S{i}/FCmat.txt"), fc[i])
        save_text(folder_of(tmp_path / f"S{i}/zFCmat.txt"), np.arctanh(fc[i] * OFF))
    expect(read(tmp_path), ["S0", "S1", "S2"], fc[:3])


# ---- vectors


def vector_forms(fc):
    from nilearn.connectome import sym_matrix_to_vec

    return {
        "nilearn": sym_matrix_to_vec(fc, discard_diagonal=True),
        "nilearn with diagonal": sym_matrix_to_vec(fc),
        "numpy": fc[:, *np.triu_indices(REGIONS, 1)],
        "numpy with diagonal": fc[:, *np.triu_indices(REGIONS)],
        "lower with diagonal": fc[:, *np.tril_indices(REGIONS)],
        "all entries": fc.reshape(N, -1),
    }


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *(
            (form, "each")
            for form in (
                "nilearn",
                "nilearn with diagonal",
                "numpy with diagonal",
                "lower with diagonal",
            )
        ),
        *((form, "one npy") for form in ("nilearn", "numpy", "all entries")),
        *((form, "one text") for form in ("nilearn with diagonal", "numpy")),
    ],
)
def test_vectors_are_unfolded_as_they_were_made(tmp_path, fc, form, kind):
    vectors, ids = vector_forms(fc)[form], [f"S{i}" for i in range(N)]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    if kind == "one npy":
        np.save(tmp_path / "vec.npy", vectors)
    elif kind == "one text":
        save_text(tmp_path / "netmats1.txt", vectors)
    else:
        for person, vector in zip(ids, vectors, strict=True):
            np.save(tmp_path / f"{person}_vec.npy", vector)
    expect(read(tmp_path, **({} if kind == "each" else {"ids": tmp_path / "ids.txt"})), ids, fc)


@pytest.mark.parametrize(
    "ids", [["S0", "S1", "S2", "S3", "S4"], ["100307", "7", "103111", "0", "105014"]]
)
@pytest.mark.parametrize(("mark", "name"), [("\t", "vectors.tsv"), (" ", "netmats1.txt")])
def test_vectors_after_ids_in_one_text(tmp_path, fc, ids, mark, name):
    upper = fc[:, *np.triu_indices(REGIONS, 1)]
    lines = [
        mark.join([who, *(f"{value:.6f}" for value in row)])
        for who, row in zip(ids, upper, strict=True)
    ]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    expect(
        read(tmp_path),
        sorted(ids, key=natural_key),
        fc[[ids.index(who) for who in sorted(ids, key=natural_key)]],
    )


def test_as_many_vectors_after_ids_as_values_are_no_matrix(tmp_path):
    regions = pd.DataFrame({"label": ["a", "b", "c", "d"], "network": ["x", "x", "y", "y"]})
    regions.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    r = [np.corrcoef(np.random.default_rng(seed).normal(size=(4, 50))) for seed in range(6)]
    lines = [
        " ".join([f"S{i}", *(f"{value:.6f}" for value in r[i][np.triu_indices(4, 1)])])
        for i in range(6)
    ]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    options = {"parcellation": tmp_path / "atlas.tsv", "unfolding": "upper"}
    with pytest.raises(NerveError, match='Say which they hold: values="r" or values="z"'):
        read(tmp_path / "vectors.txt", **options)
    cohort = read(tmp_path / "vectors.txt", values="r", **options)
    expect(cohort, [f"S{i}" for i in range(6)], r)


def test_rows_of_vectors_and_of_series_are_told_apart_by_what_is_typed(tmp_path):
    regions = pd.DataFrame({"label": list("abcde"), "network": ["x", "x", "y", "y", "y"]})
    regions.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    r = [np.corrcoef(np.random.default_rng(seed).normal(size=(5, 50))) for seed in range(5)]
    ids = [f"{seed + 1:03d}" for seed in range(5)]
    vectors = pd.DataFrame([matrix[np.triu_indices(5, 1)] for matrix in r], index=ids)
    vectors.to_csv(tmp_path / "rows.csv", header=False)
    options = {"parcellation": tmp_path / "atlas.tsv"}
    with pytest.raises(NerveError, match=r'5 rows of 10 values .*ids=FILE .*data="series"'):
        read(tmp_path / "rows.csv", **options)
    typed = {"ids": ids, "values": "r", "unfolding": "upper"}
    expect(read(tmp_path / "rows.csv", **options, **typed), ids, r)
    vectors.index = regions["label"]
    vectors.to_csv(tmp_path / "rows.csv", header=False)
    expect(read(tmp_path / "rows.csv", **options), ["rows"], [np.corrcoef(vectors)])


def test_ids_before_vectors_keep_their_zeros(tmp_path):
    regions = pd.DataFrame({"label": list("abcd"), "network": ["x", "x", "y", "y"]})
    regions.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    r = [np.corrcoef(np.random.default_rng(seed).normal(size=(4, 50))) for seed in range(3)]
    ids = ["001", "010", "100"]
    vectors = pd.DataFrame([matrix[np.tril_indices(4, -1)] for matrix in r], index=ids)
    vectors.to_csv(tmp_path / "rows.csv", header=False)
    options = {"parcellation": tmp_path / "atlas.tsv", "values": "r", "unfolding": "lower"}
    expect(read(tmp_path / "rows.csv", **options), ids, r)


@pytest.mark.slow
def test_triangles_of_matlab_are_unfolded_by_proof_unless_they_are_cbigs(tmp_path, fc):
    columns = fc[:, *np.tril_indices(REGIONS, -1)].T  # row by row, which is not CBIG's order
    savemat(tmp_path / "all.mat", {"fc": columns})
    ids = [f"P{i}" for i in range(N)]
    expect(read(tmp_path / "all.mat", ids=ids), ids, fc)
    savemat(tmp_path / "all.mat", {"features_rs": fc[:, *np.triu_indices(REGIONS, 1)].T})
    expect(read(tmp_path / "all.mat", ids=ids), ids, fc)


@pytest.mark.slow
def test_vectors_that_prove_nothing_are_refused_and_can_be_said(tmp_path):
    rng = np.random.default_rng(0)
    weak = np.stack([np.corrcoef(rng.normal(size=(REGIONS, 20000))) for _ in range(3)])
    for i in range(3):
        np.save(tmp_path / f"S{i}.npy", weak[i][np.tril_indices(REGIONS, -1)])
    with pytest.raises(
        NerveError, match=r'4,950 values per participant can be .* Say it: unfolding="upper"'
    ):
        read(tmp_path)
    expect(read(tmp_path, unfolding="lower"), ["S0", "S1", "S2"], weak)


# ---- regions that are not known


@pytest.mark.slow
def test_an_atlas_by_size_alone_is_not_confirmed(tmp_path, fc):
    for i in range(2):
        header = "\t".join(f"#{2001 + k}" for k in range(REGIONS))
        save_text(tmp_path / f"S{i}.txt", fc[i], header=header, comments="", delimiter="\t")
    cohort = read_with_warning(tmp_path)
    assert cohort.notes["region_match"] == "size"
    assert "matched by label" not in " ".join(cohort.notes["log"])
    assert read(tmp_path, order="schaefer100-17").notes["region_match"] == "stated"
    for i in range(2):
        table = pd.DataFrame(fc[i], columns=PARCELLATION.labels)
        table.to_csv(tmp_path / f"S{i}.txt", sep="\t", index=False)
    assert read(tmp_path).notes["region_match"] == "label"


def read_with_warning(source):
    with pytest.warns(
        UserWarning,
        match=r"taken for schaefer100-17 only because they have 100 regions: not confirmed",
    ):
        return read(source)


# ---- CONN


@pytest.mark.slow
@pytest.mark.parametrize("one_each", [False, True])
def test_conn(tmp_path, fc, one_each):
    z = np.where(OFF[..., None] == 1, np.arctanh(np.moveaxis(fc, 0, 2) * OFF[..., None]), np.nan)
    extra = np.full((REGIONS, 3, N), 0.1)
    names = np.array(PARCELLATION.labels, dtype=object)[None]
    names2 = np.array([*PARCELLATION.labels[::-1], "QC_1", "QC_2", "QC_3"], dtype=object)[None]
    content = {"Z": np.concatenate([z[:, ::-1], extra], axis=1), "names": names, "names2": names2}
    (tmp_path / "ids.txt").write_text("\n".join(f"P{i}" for i in range(N)))
    if one_each:
        for i in range(N):
            one = content | {"Z": content["Z"][..., i]}
            savemat(tmp_path / f"resultsROI_Subject00{i + 1}_Condition001.mat", one)
        cohort = read(tmp_path)
        expect(cohort, [f"Subject00{i + 1}" for i in range(N)], fc)
    else:
        savemat(tmp_path / "resultsROI_Condition001.mat", content)
        with pytest.raises(
            NerveError, match=r"it holds 5 participants and no ids are known.*ids=FILE"
        ):
            read(tmp_path)
        cohort = read(tmp_path, ids=tmp_path / "ids.txt")
        expect(cohort, [f"P{i}" for i in range(N)], fc)
    assert (cohort.notes["format"], cohort.notes["region_match"]) == ("conn", "label")


# ---- arrays of all participants


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("version", ["v5", "v7.3", "npy"])
def test_stacks_of_matlab_and_numpy_along_either_axis(tmp_path, fc, first, version):
    stack = fc if first else np.moveaxis(fc, 0, 2)
    if version == "v5":
        savemat(tmp_path / "all_fc.mat", {"fc": stack})
    elif version == "npy":
        np.save(tmp_path / "all_fc.npy", stack)
    else:
        with h5py.File(tmp_path / "all_fc.mat", "w", userblock_size=512) as file:
            file["FCs"] = stack.T
        with open(tmp_path / "all_fc.mat", "r+b") as stream:
            stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    (tmp_path / "ids.txt").write_text("\n".join(f"P{i}" for i in range(N)))
    with pytest.raises(NerveError, match=r"it holds 5 participants and no ids are known.*ids=FILE"):
        read(tmp_path)
    expect(read(tmp_path, ids=tmp_path / "ids.txt"), [f"P{i}" for i in range(N)], fc)


@pytest.mark.parametrize("one_file", [True, False])
def test_giga_connectome_h5(tmp_path, fc, series, one_file):
    for i in range(3):
        name = f"atlas-Own_{'' if one_file else f'sub-{i}_'}desc-simple.h5"
        with h5py.File(tmp_path / name, "a") as file:
            scan = f"sub-{i}_ses-a_task-rest_run-1_atlas-Own_desc-100"
            group = file.create_group(f"sub-{i}/ses-a")
            group[f"{scan}_timeseries"], group[f"{scan}_connectome"] = series[i], fc[i]
    expect(read(tmp_path), ["0", "1", "2"], fc[:3])
    expect(read(tmp_path, data="series"), ["0", "1", "2"], fc[:3])


# ---- tables of edges


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["_", "<->"])
def test_a_wide_table_with_named_edges(tmp_path, fc, mark):
    rows, columns = np.triu_indices(REGIONS, 1)
    names = [
        f"{PARCELLATION.labels[a]}{mark}{PARCELLATION.labels[b]}"
        for a, b in zip(rows, columns, strict=True)
    ]
    table = pd.DataFrame(fc[:, rows, columns], columns=names).sample(frac=1, axis=1, random_state=0)
    table.insert(0, "subject", [f"P{i}" for i in range(N)])
    table.insert(1, "age", range(N))
    table.to_csv(tmp_path / "fc_edges.csv", index=False)
    cohort = read(tmp_path)
    expect(cohort, [f"P{i}" for i in range(N)], fc)
    assert (cohort.notes["format"], cohort.notes["region_match"]) == ("edges", "label")


def test_names_of_edges_are_cut_into_labels_of_the_others(tmp_path):
    labels = ["LH_SalVentAttnB_PFCl_1", "LH_ContC_Cingp_1", "RH_VisCent_ExStr_3"]
    pd.DataFrame({"label": labels, "network": ["a", "b", "c"]}).to_csv(
        tmp_path / "atlas.tsv", sep="\t", index=False
    )
    r = np.array([[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, 1]])
    pairs = {
        f"{labels[i]}_{labels[j]}": [r[i, j]] * 2
        for i, j in zip(*np.triu_indices(3, 1), strict=True)
    }
    pd.DataFrame({"participant_id": ["S0", "S1"], **pairs}).to_csv(
        tmp_path / "edges.csv", index=False
    )
    cohort = read(tmp_path / "edges.csv", parcellation=tmp_path / "atlas.tsv", values="r")
    expect(cohort, ["S0", "S1"], [r, r])


def test_sessions_of_a_table_are_words_and_its_first_column_may_be_values(tmp_path):
    pd.DataFrame({"label": ["a", "b", "c"], "network": ["x", "y", "y"]}).to_csv(
        tmp_path / "atlas.tsv", sep="\t"
    )
    lines = [
        "a_b,a_c,b_c,participant_id,Session",
        "0.1,0.2,0.3,S0,01",
        "0.2,0.3,0.4,S0,02",
        "n/a,0.3,0.5,S1,01",
    ]
    (tmp_path / "edges.csv").write_text("\n".join(lines) + "\n")
    cohort = read(
        tmp_path / "edges.csv",
        parcellation=tmp_path / "atlas.tsv",
        values="r",
        session="01",
        allow_exclusions=True,
    )
    expect(cohort, ["S0"], [[[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, 1]]])
    assert "entries of regions that have data are not finite" in cohort.exclusions["reason"].item()


@pytest.mark.slow
def test_a_wide_table_with_counted_edges_is_unfolded_by_proof(tmp_path, fc):
    table = pd.DataFrame(fc[:, *np.tril_indices(REGIONS, -1)]).rename(columns=lambda i: f"V{i + 1}")
    table.insert(0, "ID", [f"P{i}" for i in range(N)])
    table.to_csv(tmp_path / "connectomes.csv", index=False, sep=";", decimal=",")
    expect(read(tmp_path), [f"P{i}" for i in range(N)], fc)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [("participant_id", "region_a", "region_b", "r"), ("ID", "Var1", "Var2", "value")]
)
def test_a_long_table(tmp_path, fc, names):
    rows, columns = np.triu_indices(REGIONS, 1)
    labels = np.array(PARCELLATION.labels)
    parts = [
        pd.DataFrame({0: f"P{i}", 1: labels[rows], 2: labels[columns], 3: fc[i][rows, columns]})
        for i in range(3)
    ]
    table = pd.concat(parts).sample(frac=1, random_state=0)
    table.columns = list(names)
    table.to_csv(tmp_path / "edges.tsv", sep="\t", index=False)
    expect(read(tmp_path), sorted(table.iloc[:, 0].unique()), fc[:3])


# ---- text


def test_series_with_a_tab_before_each_line(tmp_path, series, fc):
    for i in range(3):
        lines = ["\t".join(["", *map(repr, map(float, row))]) for row in series[i]]
        (tmp_path / f"S{i}.1D").write_text("\n".join(lines) + "\n")
    expect(read(tmp_path), ["S0", "S1", "S2"], fc[:3])


@pytest.mark.parametrize("labelled", [True, False])
def test_series_of_regions_by_volumes(tmp_path, series, fc, labelled):
    for i in range(3):
        table = pd.DataFrame(series[i].T, index=list(PARCELLATION.labels))
        table.to_csv(tmp_path / f"S{i}.csv", header=False, index=labelled)
    cohort = read(tmp_path)
    expect(cohort, ["S0", "S1", "S2"], fc[:3])
    assert cohort.notes["region_match"] == ("label" if labelled else "size")


@pytest.mark.parametrize(
    "how",
    [
        {"sep": ";", "decimal": ",", "header": False, "index": False},
        {"sep": "\t", "decimal": ",", "header": False, "index": False},
        {"sep": " ", "decimal": ",", "header": False, "index": False},
        {"sep": ",", "encoding": "utf-16", "header": False, "index": False},
        {},  # pandas' own 0, 1, 2 … above the columns and before the rows
        {"index": False},
    ],
)
def test_matrices_in_any_text(tmp_path, fc, how):
    for i in range(2):
        pd.DataFrame(fc[i]).to_csv(tmp_path / f"S{i}.csv", **how)
    expect(read(tmp_path), ["S0", "S1"], fc[:2])


def test_labels_in_latin_1(tmp_path, fc):
    regions = PARCELLATION.to_table()
    regions["label"] = [f"Région {i}é" for i in range(REGIONS)]
    regions.to_csv(tmp_path / "regions.tsv", sep="\t", index=False, na_rep="n/a")
    pd.DataFrame(fc[0], columns=regions["label"]).to_csv(
        tmp_path / "S0.csv", index=False, encoding="latin-1"
    )
    cohort = read_cohort(tmp_path, parcellation=str(tmp_path / "regions.tsv"), jobs=1)
    assert cohort.notes["region_match"] == "label"
    np.testing.assert_allclose(cohort.connectivity[0], fc[0], atol=1e-5)


# ---- the dry run


def test_a_dry_run_tells_everything_and_writes_nothing(tmp_path, fc):
    source = tmp_path / "in"
    for i in range(3):
        save_text(folder_of(source / f"S{i}/FCmat.txt"), fc[i] if i else fc[i][:, :90])
        save_text(folder_of(source / f"S{i}/zFCmat.txt"), np.arctanh(fc[i] * OFF))
        save_text(folder_of(source / f"S{i}/FCmat_run2.txt"), fc[i])
    (source / "participants.tsv").write_text("participant_id\nS0\nS1\n")
    command = [
        "ingest",
        str(source),
        str(tmp_path / "out"),
        "--order",
        "schaefer100-17",
        "--dry-run",
    ]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 1, result.output  # as ingest would refuse
    assert re.search(r"2 of the 3 participants.*--allow-exclusions", str(result.exception))
    command.append("--allow-exclusions")
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    for words in (
        r"S1/FCmat\.txt +S1 +100 x 100 +r +averaged with 1 other",
        r"S0/FCmat\.txt .*left out: FCmat\.txt: the matrix is 100 x 90",
        r"S1/FCmat_run2\.txt +S1 +run2 +100 x 100 +r",
        r"S2/FCmat\.txt +S2 .*left out: da",
        r"S0/zFCmat\.txt .*left out: it holds Fisher z by its name",
        r"participants\.tsv .*a table or list beside the data",
        "nothing was written",
    ):
        assert re.search(words, result.output), (words, result.output)
