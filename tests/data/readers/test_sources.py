"""Sources with a reader of their own: planted matrices come back, and each remedy works when it is typed."""

import re
import shlex
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from tests.data.readers.write_formats import (
    random_fc,
    random_series,
    write_conn_series,
    write_dlabel,
    write_dsi_studio,
    write_dtseries,
    write_gifti,
    write_netcc,
    write_qsirecon,
    write_tvb,
)
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.readers import preview, read_cohort

N = 12
LABELS = [f"area_{letter}" for letter in "abcdefghijkl"]
IDS = ["S1", "S2", "S3"]
FC = np.stack([random_fc(N, seed) for seed in range(3)])
ORDER = np.random.default_rng(0).permutation(N)  # of the regions in the files
SHUFFLED = FC[:, ORDER][:, :, ORDER]
SHUFFLED_LABELS = [LABELS[i] for i in ORDER]


def counts(seed):
    upper = np.triu(np.random.default_rng(seed).integers(0, 900, (N, N)), 1)
    return (upper + upper.T).astype(float)


COUNTS = np.stack([counts(seed) for seed in range(3)])
SHUFFLED_COUNTS = COUNTS[:, ORDER][:, :, ORDER]
SERIES = [random_series(40, N, seed) for seed in range(3)]
CORRELATIONS = np.stack([np.corrcoef(values.T) for values in SERIES])


@pytest.fixture
def regions(tmp_path):
    path = tmp_path / "atlas.tsv"
    table = pd.DataFrame({"label": LABELS, "network": ["x"] * 6 + ["y"] * 6})
    table.to_csv(path, sep="\t", index=False)
    return path


def ingest(source, out, regions, *words):
    """What a user types; the result, or the sentence of the refusal."""
    command = ["ingest", str(source), str(out), "--parcellation", str(regions), *words]
    result = CliRunner().invoke(app, command)
    if result.exit_code == 0:
        return nerve.Cohort.load(out)
    assert isinstance(result.exception, NerveError), result.output
    return str(result.exception)


def expect(cohort, matrices, ids=IDS, measure="pearson", match="label"):
    assert not isinstance(cohort, str), cohort
    assert cohort.participants["participant_id"].tolist() == list(ids)
    np.testing.assert_allclose(cohort.connectivity, matrices, atol=1e-5, rtol=1e-5)
    assert (cohort.measure, cohort.notes["region_match"]) == (measure, match)


# ---- AFNI


@pytest.mark.parametrize("name", ["{id}_000.netcc", "{id}/corr_000.netcc", "sub-{id}_rest.netcc"])
def test_netcc(tmp_path, regions, name):
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        z = np.arctanh(matrix * (1 - np.eye(N)))
        write_netcc(
            tmp_path / "in" / name.format(id=person), SHUFFLED_LABELS, {"CC": matrix, "FZ": z}
        )
    expect(ingest(tmp_path / "in", tmp_path / "out", regions), FC)


def test_netcc_without_labels_has_codes(tmp_path):
    table = pd.DataFrame({"label": LABELS, "network": "x", "code": range(100, 100 + N)})
    table.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    for person, matrix in zip(IDS, FC, strict=True):
        write_netcc(tmp_path / "in" / f"{person}.netcc", [], {"CC": matrix})
    expect(ingest(tmp_path / "in", tmp_path / "out", tmp_path / "atlas.tsv"), FC)


def test_netcc_partial_correlations_by_measure(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        half = np.where(np.eye(N), 1, matrix / 2)
        write_netcc(
            tmp_path / "in" / f"{person}.netcc", SHUFFLED_LABELS, {"CC": matrix, "PC": half}
        )
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, "--measure", "partial")
    expect(cohort, np.where(np.eye(N), 1, FC / 2), measure="partial")


def test_netcc_of_several_networks_needs_one(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        write_netcc(tmp_path / "in" / f"{person}_000.netcc", SHUFFLED_LABELS, {"CC": matrix})
        write_netcc(tmp_path / "in" / f"{person}_001.netcc", ["p", "q", "r"], {"CC": np.eye(3)})
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "several sets of regions (000, 001)" in refused
    words = shlex.split(re.search(r"--atlas \d+", refused)[0])
    expect(ingest(tmp_path / "in", tmp_path / "out", regions, *words), FC)


def test_a_netcc_that_was_cut_off_is_left_out(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        path = write_netcc(tmp_path / "in" / f"{person}.netcc", SHUFFLED_LABELS, {"CC": matrix})
    path.write_text("\n".join(path.read_text().splitlines()[:9]))
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "expected 12 square" in refused
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, "--allow-exclusions")
    expect(cohort, FC[:2], IDS[:2])


# ---- GIFTI


def micapipe(folder, person, content):
    atlas = "schaefer-100"
    names = {
        "SC": f"dwi/connectomes/sub-{person}_ses-01_space-dwi_atlas-{atlas}_desc-iFOD2-40M-SIFT2_full-connectome.shape.gii",
        "lengths": f"dwi/connectomes/sub-{person}_ses-01_space-dwi_atlas-{atlas}_desc-iFOD2-40M-SIFT2_full-edgeLengths.shape.gii",
        "FC": f"func/sub-{person}_ses-01_surf-fsLR-32k_atlas-{atlas}_desc-FC.shape.gii",
        "series": f"func/sub-{person}_ses-01_surf-fsLR-32k_atlas-{atlas}_desc-timeseries.shape.gii",
    }
    return folder / f"sub-{person}" / "ses-01" / names[content]


def test_micapipe(tmp_path):
    regions = tmp_path / "atlas.tsv"
    table = pd.DataFrame({"label": LABELS, "network": ["x"] * 6 + ["y"] * 6})
    table.to_csv(regions, sep="\t", index=False)
    source = tmp_path / "in"
    for number, person in enumerate(IDS):
        write_gifti(micapipe(source, person, "SC"), np.triu(COUNTS[number]))
        write_gifti(micapipe(source, person, "lengths"), np.triu(COUNTS[number]) / 7)
    cohort = ingest(source, tmp_path / "sc", regions)
    expect(cohort, COUNTS, measure="streamlines", match="stated")
    for number, person in enumerate(IDS):
        write_gifti(micapipe(source, person, "FC"), np.triu(FC[number]))
        write_gifti(micapipe(source, person, "series"), SERIES[number])
    refused = ingest(source, tmp_path / "out", regions)
    assert "several measures of the same participants (pearson, streamlines)" in refused
    words = shlex.split(re.search(r"--measure \w+", refused)[0])
    expect(ingest(source, tmp_path / "fc", regions, *words), FC, match="stated")
    cohort = ingest(source, tmp_path / "sc2", regions, "--measure", "streamlines")
    expect(cohort, COUNTS, measure="streamlines", match="stated")
    cohort = ingest(source, tmp_path / "ts", regions, "--data", "series")
    expect(cohort, CORRELATIONS, match="stated")


def test_any_gifti_matrix_and_values_of_vertices(tmp_path, regions):
    for person, matrix in zip(IDS, FC, strict=True):
        write_gifti(tmp_path / "in" / f"{person}.shape.gii", matrix)
    expect(ingest(tmp_path / "in", tmp_path / "out", regions), FC, match="stated")
    write_gifti(tmp_path / "vertices" / "S1.shape.gii", np.zeros(900))
    refused = ingest(tmp_path / "vertices", tmp_path / "none", regions)
    assert "it holds arrays of 900, expected one matrix or time series of regions" in refused


# ---- CONN


def test_conn_series(tmp_path, regions):
    (tmp_path / "in").mkdir()
    ids = ["Subject001", "Subject002", "Subject003"]
    for person, values in zip(ids, SERIES, strict=True):
        path = tmp_path / "in" / f"ROI_{person}_Condition000.mat"
        write_conn_series(path, SHUFFLED_LABELS, values[:, ORDER])
    expect(ingest(tmp_path / "in", tmp_path / "out", regions), CORRELATIONS, ids)


def test_conn_series_of_a_condition_hold_its_volumes_alone(tmp_path, regions):
    (tmp_path / "in").mkdir()
    weights = np.r_[np.ones(25), np.zeros(15)]
    for number, values in enumerate(SERIES):
        for condition in ("Condition001", "Condition002"):
            path = tmp_path / "in" / f"ROI_Subject{number + 1:03d}_{condition}.mat"
            kept = weights if condition == "Condition001" else 1 - weights
            write_conn_series(path, LABELS, values, kept)
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    words = shlex.split(re.search(r"--task \w+", refused)[0])
    assert words == ["--task", "Condition001"]
    expected = np.stack([np.corrcoef(values[:25].T) for values in SERIES])
    ids = ["Subject001", "Subject002", "Subject003"]
    expect(ingest(tmp_path / "in", tmp_path / "out", regions, *words), expected, ids)


# ---- structural connectomes


@pytest.mark.parametrize("mark", ["\n", " "])
@pytest.mark.parametrize(
    "name",
    [
        "{id}.src.gz.gqi.1.25.fib.gz.own.count.end.connectivity.mat",
        "{id}/tracts.own.count.pass.connectivity.mat",
    ],
)
def test_dsi_studio(tmp_path, regions, name, mark):
    for person, matrix in zip(IDS, SHUFFLED_COUNTS, strict=True):
        path = tmp_path / "in" / name.format(id=person)
        write_dsi_studio(path, SHUFFLED_LABELS, matrix, mark)
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions)
    expect(cohort, COUNTS, measure="streamlines")


def test_dsi_studio_of_several_matrices_needs_one(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED_COUNTS, strict=True):
        for measure, values in (("count", matrix), ("fa", matrix / 900)):
            path = tmp_path / "in" / f"{person}.tt.gz.own.{measure}.end.connectivity.mat"
            write_dsi_studio(path, SHUFFLED_LABELS, values)
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "(own.count.end, own.fa.end), expected one" in refused
    words = shlex.split(re.search(r"--atlas [\w.]+\w", refused)[0])
    expect(
        ingest(tmp_path / "in", tmp_path / "out", regions, *words), COUNTS, measure="streamlines"
    )
    cohort = ingest(tmp_path / "in", tmp_path / "fa", regions, "--measure", "FA")
    expect(cohort, COUNTS / 900, measure="fractional_anisotropy")


def test_a_damaged_file_of_version_4_is_one_sentence(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED_COUNTS, strict=True):
        path = tmp_path / "in" / f"{person}.own.count.end.connectivity.mat"
        write_dsi_studio(path, SHUFFLED_LABELS, matrix)
    path.write_bytes(path.read_bytes()[:300])
    assert "the MATLAB file is damaged" in ingest(tmp_path / "in", tmp_path / "out", regions)


def test_qsirecon(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED_COUNTS, strict=True):
        own = {"sift_radius2_count": matrix, "radius2_meanlength": matrix / 9}
        other = (["a", "b", "c"], {"sift_radius2_count": np.eye(3)})
        path = (
            tmp_path / "in" / f"sub-{person}" / "dwi" / f"sub-{person}_space-ACPC_connectivity.mat"
        )
        write_qsirecon(path, {"Own": (SHUFFLED_LABELS, own), "Own2": other})
    command = [tmp_path / "in", tmp_path / "out", regions]
    refused = ingest(*command)
    assert "it holds 2 atlases, expected one of Own, Own2" in refused
    words = shlex.split(re.search(r"--atlas \w+", refused)[0])
    refused = ingest(*command, *words)
    assert "it holds 2 matrices of Own (sift_radius2_count, radius2_meanlength)" in refused
    more = shlex.split(re.search(r"--variable \w+", refused)[0])
    expect(ingest(*command, *words, *more), COUNTS, measure="streamlines")
    by_measure = ingest(
        tmp_path / "in", tmp_path / "b", regions, *words, "--measure", "streamlines"
    )
    expect(by_measure, COUNTS, measure="streamlines")
    lengths = ingest(
        tmp_path / "in", tmp_path / "c", regions, *words, "--variable", "radius2_meanlength"
    )
    expect(lengths, COUNTS / 9, measure="other")


def test_fsl_divides_by_waytotal_and_takes_the_mean_of_both_directions(tmp_path):
    regions = tmp_path / "atlas.tsv"
    table = pd.DataFrame({"label": LABELS, "network": ["x"] * 6 + ["y"] * 6})
    table.to_csv(regions, sep="\t", index=False)
    expected = []
    for number, person in enumerate(IDS):
        rng = np.random.default_rng(number)
        matrix = rng.integers(0, 500, (N, N))
        totals = rng.integers(500, 5000, N)
        folder = tmp_path / "in" / person
        folder.mkdir(parents=True)
        np.savetxt(folder / "fdt_network_matrix", matrix, "%d", delimiter="  ")
        np.savetxt(folder / "waytotal", totals, "%d")
        mean = np.empty((N, N))
        for i in range(N):
            for j in range(N):
                mean[i, j] = (matrix[i, j] / totals[i] + matrix[j, i] / totals[j]) / 2
        expected.append(mean)
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions)
    expect(cohort, expected, measure="streamlines", match="stated")
    assert "each row was divided by its waytotal" in " ".join(cohort.notes["log"])
    (tmp_path / "in" / "S1" / "waytotal").rename(tmp_path / "waytotal")
    refused = ingest(tmp_path / "in", tmp_path / "none", regions)
    assert "there is no waytotal beside it" in refused
    assert "Copy waytotal of the same run" in refused
    (tmp_path / "waytotal").rename(tmp_path / "in" / "S1" / "waytotal")
    cohort = ingest(tmp_path / "in", tmp_path / "again", regions)
    expect(cohort, expected, measure="streamlines", match="stated")


@pytest.mark.parametrize("packed", [True, False])
def test_tvb(tmp_path, regions, packed):
    (tmp_path / "in").mkdir()
    for person, matrix in zip(IDS, SHUFFLED_COUNTS, strict=True):
        path = write_tvb(tmp_path / "in" / f"{person}.zip", SHUFFLED_LABELS, matrix)
        if not packed:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(tmp_path / "in" / person)
            path.unlink()
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions)
    expect(cohort, COUNTS, measure="streamlines")
    assert cohort.notes["format"] == "tvb"


@pytest.mark.parametrize(
    ("names", "measures"),
    [
        (("{n}_WFA_68.csv", "{n}_rsfMRI_68.csv"), ("fractional_anisotropy", "pearson")),
        (("{n}_SC.csv", "{n}_FC.csv"), ("streamlines", "pearson")),
        (("SC/{n}.csv", "FC/{n}.csv"), ("streamlines", "pearson")),
        (("sub-{n}/dwi/sub-{n}_sc.csv", "sub-{n}/func/sub-{n}_fc.csv"), ("streamlines", "pearson")),
        (("sub-{n}_count.csv", "sub-{n}_fa.csv"), ("streamlines", "fractional_anisotropy")),
    ],
)
def test_two_measures_are_never_two_participants(tmp_path, regions, names, measures):
    planted = {
        "pearson": FC,
        "streamlines": COUNTS,
        "fractional_anisotropy": COUNTS / 900,
    }
    source = tmp_path / "in"
    for name, measure in zip(names, measures, strict=True):
        for number, matrix in enumerate(planted[measure]):
            path = source / name.format(n=32 + number)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savetxt(path, matrix, "%.6f", ",")
    refused = ingest(source, tmp_path / "out", regions)
    assert "differ only in a word for what they hold" in refused
    patterns = re.findall(r"--id-pattern '([^']+)'", refused)
    assert len(patterns) == 2
    ids = ["32", "33", "34"]
    seen = set()
    for number, pattern in enumerate(patterns):
        for measure in measures:
            words = ["--id-pattern", pattern, "--measure", measure]
            cohort = ingest(source, tmp_path / f"{number}{measure}", regions, *words)
            if isinstance(cohort, str):
                continue
            is_planted = np.allclose(cohort.connectivity, planted[measure], atol=1e-5)
            assert cohort.participants["participant_id"].tolist() == ids
            if is_planted:
                seen.add((pattern, measure))
    assert len(seen) == 2
    assert {measure for _, measure in seen} == set(measures)
    both = ingest(source, tmp_path / "both", regions, "--id-pattern", r"(?P<id>\d\d)")
    assert "differ only in a word for what they hold" in both


# ---- tables and archives


@pytest.mark.parametrize("time", ["TR", "time", None])
@pytest.mark.parametrize("mixed", [False, True])
def test_one_table_of_all_series(tmp_path, regions, time, mixed):
    if mixed and time is None:
        pytest.skip("without a column of volumes, their order is that of the rows")
    tables = []
    for person, values in zip(IDS, SERIES, strict=True):
        table = pd.DataFrame(values[:, ORDER], columns=SHUFFLED_LABELS)
        if time:
            table.insert(0, time, range(len(values)))
        table.insert(0, "subject", person)
        tables.append(table)
    table = pd.concat(tables)
    if mixed:
        table = table.sample(frac=1, random_state=0)
    (tmp_path / "in").mkdir()
    table.to_csv(tmp_path / "in" / "timeseries.csv", index=False)
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, "--timeseries")
    expect(cohort, CORRELATIONS)
    np.testing.assert_allclose(cohort.timeseries[1], SERIES[1], atol=1e-5)


def test_a_volume_that_occurs_twice_is_refused_and_the_remedy_works(tmp_path, regions):
    tables = []
    for person, values in zip(IDS, SERIES, strict=True):
        for run in (1, 2):
            table = pd.DataFrame(values[20 * (run - 1) : 20 * run], columns=LABELS)
            table.insert(0, "run", run)
            table.insert(0, "TR", range(20))
            table.insert(0, "subject", person)
            tables.append(table)
    table = pd.concat(tables)
    (tmp_path / "in").mkdir()
    table.drop(columns="run").to_csv(tmp_path / "in" / "timeseries.csv", index=False)
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "column TR has the same value in two rows" in refused
    assert "Name the runs in a column run" in refused
    table.to_csv(tmp_path / "in" / "timeseries.csv", index=False)
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert cohort.participants["n_scans"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("one_archive", [True, False])
@pytest.mark.parametrize("content", ["matrices", "series"])
def test_zip_archives_of_text(tmp_path, regions, one_archive, content):
    (tmp_path / "in").mkdir()
    arrays = SHUFFLED if content == "matrices" else [values[:, ORDER] for values in SERIES]
    for person, array in zip(IDS, arrays, strict=True):
        path = tmp_path / "in" / ("all.zip" if one_archive else f"{person}.zip")
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            text = pd.DataFrame(array, columns=SHUFFLED_LABELS).to_csv(index=False)
            archive.writestr(f"data/{person}.csv", text)
            archive.writestr(f"__MACOSX/data/._{person}.csv", "x")
    expected = FC if content == "matrices" else CORRELATIONS
    expect(ingest(tmp_path / "in", tmp_path / "out", regions), expected)
    if one_archive:
        expect(ingest(tmp_path / "in" / "all.zip", tmp_path / "b", regions), expected)
    assert sorted(path.suffix for path in (tmp_path / "in").iterdir())[0] == ".zip"


def test_a_zip_that_unpacks_to_too_much_is_left_out(tmp_path, regions):
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("S1.csv", "0,0\n" * 50_000_000)
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "bytes unpack to 200,000,000 or more" in refused


@pytest.mark.parametrize("unit", ["r", "z statistics"])
def test_netmats_of_fslnets_by_measure(tmp_path, regions, unit):
    """One text row of R x R values per participant, with an empty diagonal."""
    off = 1 - np.eye(N)
    partial = np.stack([-np.linalg.inv(matrix) for matrix in FC])
    scale = np.sqrt(np.einsum("nii->ni", -partial))
    partial = partial / scale[:, :, None] / scale[:, None] * off
    (tmp_path / "in").mkdir()
    values = partial if unit == "r" else 30 * np.arctanh(partial)
    np.savetxt(tmp_path / "in" / "netmats2.txt", values.reshape(3, -1), "%.8f")
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    words = ["--ids", str(tmp_path / "ids.txt"), "--measure"]
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, *words, "partial")
    if unit == "r":
        expect(cohort, partial + np.eye(N), measure="partial", match="stated")
        return
    assert "--measure NAME" in cohort
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, *words, "other")
    expect(cohort, values, measure="other", match="stated")


# ---- dynamic FC, surfaces


def test_windows_of_gift_are_refused_and_their_mean_is_read(tmp_path, regions):
    (tmp_path / "in").mkdir()
    (tmp_path / "mean").mkdir()
    upper = np.triu_indices(N, 1)
    for number, matrix in enumerate(FC):
        windows = np.tile(matrix[upper], (50, 1))
        name = f"run_dfnc_sub_{number + 1:03d}_sess_001_results.mat"
        savemat(tmp_path / "in" / name, {"FNCdyn": windows, "static": matrix})
        savemat(tmp_path / "mean" / f"S{number + 1}.mat", {"fc": windows.mean(axis=0)[None]})
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "FNCdyn holds 50 windows of one scan (dynamic FC)" in refused
    assert "fc = mean(FNCdyn, 1)" in refused
    cohort = ingest(
        tmp_path / "mean", tmp_path / "out", regions, "--unfolding", "upper", "--values", "r"
    )
    expect(cohort, FC, match="stated")
    assert "name another array of the file with --variable" in refused
    pattern = r"sub_(?P<id>\d+)"
    words = ["--variable", "static", "--id-pattern", pattern]
    cohort = ingest(tmp_path / "in", tmp_path / "static", regions, *words)
    expect(cohort, FC, ["001", "002", "003"], match="stated")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["{id}/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR_Atlas.dtseries.nii"]
)
def test_hcp_surfaces_with_an_atlas_in_cifti(tmp_path, regions, name):
    ids = ["100307", "100408", "101107"]
    for person, values in zip(ids, SERIES, strict=True):
        write_dtseries(tmp_path / "in" / name.format(id=person), values[:, ORDER])
    write_dlabel(tmp_path / "own.dlabel.nii", SHUFFLED_LABELS)
    refused = ingest(tmp_path / "in", tmp_path / "out", regions)
    assert "3 files .dtseries.nii" in refused
    assert "--atlas-image FILE.dlabel.nii" in refused
    words = ["--atlas-image", str(tmp_path / "own.dlabel.nii")]
    refused = ingest(tmp_path / "in", tmp_path / "out", regions, *words)
    assert "say --denoise none" in refused
    cohort = ingest(tmp_path / "in", tmp_path / "out", regions, *words, "--denoise", "none")
    np.testing.assert_allclose(cohort.connectivity, CORRELATIONS, atol=1e-4)
    assert cohort.participants["participant_id"].tolist() == ids


# ---- what was seen


def test_the_plan_names_the_source(tmp_path, regions):
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        write_netcc(tmp_path / "in" / f"{person}.netcc", SHUFFLED_LABELS, {"CC": matrix})
    lines = {line.topic: line for line in preview(tmp_path / "in", parcellation=regions).lines}
    assert "--format afni" in lines["files"].decision
    assert lines["measure and unit"].decision == "Pearson correlations (r)"
    assert lines["measure and unit"].evidence == "the format says so"


REMEDIES = {
    ".tar": "Unpack it first",
    ".rds": "write.csv",
    ".pkl": "numpy.save",
    ".json": r"Save the numbers as \.csv or \.npy",
    ".xlsx": r"Save each sheet as \.csv",
}


@pytest.mark.parametrize("ending", REMEDIES)
def test_what_the_message_advises_makes_the_files_readable(tmp_path, regions, ending):
    (tmp_path / "in").mkdir()
    for person in IDS:
        (tmp_path / "in" / f"{person}{ending}").write_bytes(b"x" * 100)
    with pytest.raises(NerveError, match=f"3 files {re.escape(ending)}.*{REMEDIES[ending]}"):
        read_cohort(tmp_path / "in", order=regions)
    for person, matrix in zip(IDS, FC, strict=True):
        path = tmp_path / "in" / f"{person}.csv"
        if ending == ".pkl":
            np.save(path.with_suffix(".npy"), matrix)
        elif ending == ".rds":  # what write.csv of R writes without names of rows
            header = ",".join(f'"V{number + 1}"' for number in range(N))
            np.savetxt(path, matrix, "%.8f", ",", header=header, comments="")
        else:
            np.savetxt(path, matrix, "%.8f", ",")
    np.testing.assert_allclose(
        read_cohort(tmp_path / "in", order=regions).connectivity, FC, atol=1e-6
    )
