"""What is done for every reader alike: repeats, missing regions, motion, processes, and nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import write_xcpd
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import READERS, get_reader, ingest, preview, read_cohort
from nerve.data.readers.plain import Plain

PARCELLATION = load_parcellation("schaefer100-17")


def fc(seed, regions=100):
    return np.corrcoef(np.random.default_rng(seed).normal(size=(regions, 150)))


def write_people(folder, n=3, **spoiled):
    folder.mkdir(exist_ok=True)
    for i in range(n):
        np.save(folder / f"sub-{i:02d}.npy", fc(i))
    for name, array in spoiled.items():
        np.save(folder / f"sub-{name.removeprefix('p')}.npy", array)
    return folder


def read(source, **settings):
    return read_cohort(source, parcellation=PARCELLATION, **settings)


def test_the_public_name_and_every_reader_say_what_they_are():
    assert nerve.read_cohort is read_cohort
    for name in READERS:
        assert get_reader(name).name == name
        assert get_reader(name).describe


@pytest.mark.parametrize("missing", ["drop-participant", "drop-region", "impute-group-mean"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cohort_in_memory_is_that_of_ingest_and_writes_no_file(
    tmp_path, monkeypatch, missing, dtype
):
    series = np.random.default_rng(0).normal(size=(60, 100)).astype(np.float32)
    for participant in ("01", "02", "03"):
        series = np.roll(series, 7, axis=1)
        if participant == "02":
            series[:, 5] = 0.0
        folder = tmp_path / "in" / f"sub-{participant}"
        folder.mkdir(parents=True)
        np.save(folder / f"sub-{participant}_ts.npy", series)
    table = pd.DataFrame(
        {
            "participant_id": ["01", "02", "03", "04"],
            "age": ["8", "9", None, "7"],
            "site": list("abab"),
        }
    )
    options = {
        "parcellation": PARCELLATION,
        "participants": table,
        "timeseries": True,
        "missing": missing,
        "dtype": dtype,
        "name": "study",
        "allow_exclusions": True,
    }
    ingest(tmp_path / "in", tmp_path / "out", **options)
    written = Cohort.load(tmp_path / "out")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no such folder"))
    cohort = read_cohort(tmp_path / "in", **options)
    assert cohort.fingerprint == written.fingerprint
    assert cohort.notes == written.notes
    assert cohort.measure == written.measure
    assert cohort.parcellation == written.parcellation
    pd.testing.assert_frame_equal(cohort.participants, written.participants)
    pd.testing.assert_frame_equal(cohort.exclusions, written.exclusions)


def test_the_dry_run_prints_the_plan_that_ingest_follows(tmp_path):
    source = write_people(tmp_path / "in", 3, **{"01_run-2": fc(5)})
    (source / "sub-02.npy").write_bytes(b"")
    options = {"parcellation": PARCELLATION, "repeats": "last", "allow_exclusions": True}
    shown = preview(source, **options)
    table = shown.files
    is_read = table["what becomes of it"] == "read"
    report = ingest(source, tmp_path / "out", **options)
    cohort = Cohort.load(tmp_path / "out")
    assert shown.lines == report.plan
    assert cohort.notes["plan"] == [line.as_dict() for line in shown.lines]
    assert shown.n_participants == len(cohort)
    assert read_cohort(source, **options).notes["plan"] == cohort.notes["plan"]
    assert list(table["participant"][is_read]) == list(cohort.participants["participant_id"])
    assert "--repeats last" in table["what becomes of it"][table["file"] == "sub-01.npy"].item()
    assert len(table) == report.n_scans


@pytest.mark.parametrize(
    "step",
    ["nerve.data.readers.plain.Plain.read", "nerve.data.readers.participant_data.clean_matrix"],
)
def test_not_enough_memory_for_one_participant_is_a_reason_at_any_step(tmp_path, monkeypatch, step):
    module, _, name = step.rpartition(".")
    owner = Plain if module.endswith("Plain") else sys.modules[module]
    original = getattr(owner, name)

    def short_of_memory(*given):
        if any("sub-01" in str(one) for one in given):  # the scan, or where it is
            raise MemoryError
        return original(*given)

    monkeypatch.setattr(owner, name, short_of_memory)
    cohort = read(write_people(tmp_path / "in"), jobs=1, allow_exclusions=True)
    assert list(cohort.participants["participant_id"]) == ["00", "02"]
    reason = cohort.exclusions.set_index("participant_id")["reason"]["01"]
    assert reason.endswith("sub-01.npy (participant 01): there is not enough memory to read it.")


def test_the_report_counts_scans_and_participants(tmp_path):
    write_people(tmp_path / "in", 2, **{"01_run-2": fc(5)})
    report = ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION)
    assert (report.format, report.n_scans, report.n_participants) == ("plain", 3, 2)


@pytest.mark.slow
def test_several_scans_are_averaged_in_fisher_z_or_chosen_by_rule(tmp_path):
    for session in (1, 2):
        for person in ("a", "b"):
            np.save(tmp_path / f"sub-{person}_ses-{session}.npy", fc(session * 10 + ord(person)))
    first, second = fc(10 + ord("a")), fc(20 + ord("a"))
    with np.errstate(divide="ignore"):
        average = np.tanh((np.arctanh(first) + np.arctanh(second)) / 2)
    assert np.allclose(read(tmp_path).connectivity[0], average, atol=1e-6)
    assert np.allclose(read(tmp_path, repeats="first").connectivity[0], first, atol=1e-6)
    assert np.allclose(read(tmp_path, repeats="last").connectivity[0], second, atol=1e-6)
    assert np.allclose(read(tmp_path, session="2").connectivity[0], second, atol=1e-6)
    assert "averaged in Fisher z" in " ".join(read(tmp_path).notes["log"])
    assert read(tmp_path).participants["n_scans"].tolist() == [2, 2]
    with pytest.raises(
        NerveError,
        match=r'2 participants have several scans .*repeats="average" \(or first, or last\)',
    ):
        read(tmp_path, repeats="refuse")
    with pytest.raises(NerveError, match="session is '3' and no scan has it, expected one of 1, 2"):
        read(tmp_path, session="3")


def test_a_scan_that_cannot_be_read_does_not_cost_the_person_their_other_scan(tmp_path):
    np.save(tmp_path / "sub-a_run-1.npy", fc(0))
    np.save(tmp_path / "sub-a_run-2.npy", fc(0) * 2)
    cohort = read(tmp_path, allow_exclusions=True)
    np.testing.assert_allclose(cohort.connectivity[0], fc(0), atol=1e-6)
    assert any(
        "scan left out" in note and "sub-a_run-2.npy" in note for note in cohort.notes["log"]
    )


def test_runs_of_series_are_joined_standardised(tmp_path):
    rng = np.random.default_rng(0)
    runs = [rng.normal(size=(40 + run, 100)) * 10**run + run for run in (1, 2)]
    for run, series in enumerate(runs, 1):
        np.save(tmp_path / f"sub-a_run-{run}.npy", series)
    series = read(tmp_path, timeseries=True).timeseries[0]
    assert series.shape == (83, 100)
    np.testing.assert_allclose(series[:41], (runs[0] - runs[0].mean(0)) / runs[0].std(0), atol=1e-5)


def with_missing(seed, *regions):
    matrix = fc(seed)
    for region in regions:
        matrix[region], matrix[:, region] = np.nan, np.nan
    return matrix


def test_missing_regions_cost_the_person_the_region_or_are_filled_in(tmp_path):
    write_people(tmp_path, 3, p01=with_missing(1, 5, 7))
    default = read(tmp_path, allow_exclusions=True)
    assert default.participants["participant_id"].tolist() == ["00", "02"]
    reason = default.exclusions["reason"].item()
    assert "2 of 100 regions have no data" in reason
    assert PARCELLATION.labels[5] in reason
    assert "--missing" in reason
    fewer = read(tmp_path, missing="drop-region")
    kept = np.setdiff1d(np.arange(100), [5, 7])
    assert fewer.parcellation.labels == tuple(PARCELLATION.labels[i] for i in kept)
    np.testing.assert_allclose(fewer.connectivity[1], fc(1)[np.ix_(kept, kept)], atol=1e-6)
    filled = read(tmp_path, missing="impute-group-mean")
    np.testing.assert_allclose(filled.connectivity[1][5], (fc(0) + fc(2))[5] / 2, atol=1e-6)
    np.testing.assert_allclose(
        filled.connectivity[1][np.ix_(kept, kept)], fc(1)[np.ix_(kept, kept)], atol=1e-6
    )
    assert filled.participants["n_missing_regions"].tolist() == [0, 2, 0]
    assert any(
        "filled in with the group mean" in note
        for note in ingest_notes(tmp_path, "impute-group-mean")
    )


def test_two_regions_that_no_run_has_both_of_are_missing(tmp_path):
    write_people(tmp_path, 2)
    for run, region in ((1, 3), (2, 7)):
        np.save(tmp_path / f"sub-09_run-{run}.npy", with_missing(run, region))
    default = read(tmp_path, allow_exclusions=True)
    assert "2 of 100 regions have no data" in default.exclusions["reason"].item()
    filled = read(tmp_path, missing="impute-group-mean").connectivity[2]
    np.testing.assert_allclose(filled[3], (fc(0) + fc(1))[3] / 2, atol=1e-6)


@pytest.mark.parametrize("layout", ["plain", "xcpd"])
@pytest.mark.parametrize("n", [1, 3])
def test_no_scan_is_read_twice(tmp_path, monkeypatch, layout, n):
    labels = list(PARCELLATION.labels)
    for i in range(n):
        if layout == "xcpd":
            write_xcpd(tmp_path / "in", f"{i}", labels, matrix=fc(i))
        else:
            pd.DataFrame(fc(i)).to_csv(
                folder_of(tmp_path / f"in/P{i}.csv"), header=False, index=False
            )
    opened, read_bytes = Counter(), Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: opened.update([path.name]) or read_bytes(path)
    )
    assert ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION).format == layout
    assert len(opened) == n
    assert set(opened.values()) == {1}


def folder_of(path):
    path.parent.mkdir(exist_ok=True)
    return path


def ingest_notes(source, missing):
    return ingest(
        source, source / f"out-{missing}", parcellation=PARCELLATION, missing=missing
    ).notes


def test_whoever_lacks_most_regions_is_left_out_under_any_policy(tmp_path):
    write_people(tmp_path, 3, p01=with_missing(1, *range(60)))
    for policy in ("drop-region", "impute-group-mean"):
        cohort = read(tmp_path, missing=policy, allow_exclusions=True)
        assert cohort.connectivity.shape == (2, 100, 100)


def test_a_region_that_nobody_has_cannot_be_filled_in(tmp_path):
    write_people(tmp_path, 0, p00=with_missing(0, 3), p01=with_missing(1, 3))
    with pytest.raises(
        NerveError, match=r'No participant has data in 1 region .*missing="drop-region"'
    ):
        read(tmp_path, missing="impute-group-mean")
    with pytest.raises(
        NerveError,
        match=r"All 2 participants were left out, nothing was written\. The first: .*: 1 of 100",
    ):
        read(tmp_path)
    assert read(tmp_path, missing="drop-region").connectivity.shape == (2, 99, 99)


def test_fisher_z_with_a_blank_diagonal_is_known_by_its_size_and_can_be_said(tmp_path):
    for i in range(2):
        with np.errstate(divide="ignore"):
            np.save(
                tmp_path / f"sub-{i}.npy",
                np.arctanh(np.clip(3 * fc(i), -0.99, 0.99)) * (1 - np.eye(100)),
            )
    with pytest.raises(NerveError, match='say values="z"'):
        read(tmp_path, values="r")
    for values in ("auto", "z"):
        cohort = read(tmp_path, values=values)
        np.testing.assert_allclose(
            cohort.connectivity[0][0, 1:], np.clip(3 * fc(0), -0.99, 0.99)[0, 1:], atol=1e-6
        )


def test_strict_stops_where_the_default_leaves_out(tmp_path):
    write_people(tmp_path / "in", 3, p01=fc(1)[:, :90])
    assert len(read(tmp_path / "in", allow_exclusions=True)) == 2
    with pytest.raises(NerveError, match=r"Participant 01: .*sub-01\.npy"):
        ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION, strict=True)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.slow
def test_processes_give_the_same_cohort_as_none(tmp_path):
    write_people(tmp_path / "in", 40, p07=fc(1)[:, :90])
    one, two = (
        Cohort.load(
            ingest(
                tmp_path / "in", tmp_path / f"out{jobs}", parcellation=PARCELLATION, jobs=jobs
            ).path
        )
        for jobs in (1, 3)
    )
    assert one.fingerprint == two.fingerprint
    assert one.exclusions.equals(two.exclusions)
    assert len(one) == 39


def test_float16_and_time_series_are_kept_when_asked(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(2):
        np.save(tmp_path / f"sub-{i}.npy", rng.normal(size=(50, 100)))
    small = Cohort.load(
        ingest(
            tmp_path, tmp_path / "o", parcellation=PARCELLATION, dtype="float16", timeseries=True
        ).path
    )
    assert small.connectivity.dtype == np.float16
    assert small.timeseries.lengths.tolist() == [50, 50]
    partial = read(tmp_path, kind="partial").connectivity
    assert np.abs(partial - small.connectivity).max() > 0.01
    assert read(tmp_path).timeseries is None


def test_matrices_have_no_time_series_to_keep_and_that_is_said(tmp_path):
    write_people(tmp_path, 2)
    with pytest.raises(NerveError, match=r"timeseries keeps time series, and the files hold mat"):
        read(tmp_path, timeseries=True)
    assert read(tmp_path).timeseries is None


def test_the_cohort_tells_how_it_was_made(tmp_path):
    write_people(tmp_path / "in")
    ingest(
        tmp_path / "in",
        tmp_path / "out",
        parcellation="schaefer100-17",
        repeats="first",
        name="mine",
    )
    about = json.loads((tmp_path / "out/cohort.json").read_text())
    assert about["name"] == "mine"
    assert about["notes"]["format"] == "plain"
    assert about["notes"]["settings"] == {
        "parcellation": "schaefer100-17",
        "repeats": "first",
        "name": "mine",
    }


def test_an_existing_cohort_is_replaced_only_when_asked(tmp_path):
    write_people(tmp_path / "in")
    ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION)
    with pytest.raises(
        NerveError, match=r"already exists\. Choose another folder, or say --overwrite"
    ):
        ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION)
    write_people(tmp_path / "in", 5)
    ingest(tmp_path / "in", tmp_path / "out", parcellation=PARCELLATION, overwrite=True)
    assert len(Cohort.load(tmp_path / "out")) == 5


def test_a_misspelt_setting_is_named():
    with pytest.raises(NerveError, match=r"no setting 'parcelation'.*Did you mean 'parcellation'"):
        read_cohort("x", parcelation="schaefer100-17")
    with pytest.raises(NerveError, match="missing is 'drop', expected one of 'drop-participant'"):
        read_cohort("x", missing="drop")


# `nerve ingest` that says when it comes to one of the participants, and then waits for ever
ENDLESS = """
import time
from nerve.cli import main
from nerve.data.readers import participant_data

def read_participant(plan, scans):
    if scans[0].participant == "11":
        scans[0].path.with_suffix(".reached").touch()
        while True:
            time.sleep(60)
    return original(plan, scans)

original = participant_data.read_participant
participant_data.read_participant = read_participant

main()
"""


@pytest.mark.parametrize(
    ("how", "missing"), [(signal.SIGINT, "drop-participant"), (signal.SIGTERM, "drop-region")]
)
@pytest.mark.slow
def test_an_interrupted_ingest_leaves_nothing(tmp_path, how, missing):
    source = write_people(tmp_path / "in", 30)
    command = [sys.executable, "-c", ENDLESS, "ingest", str(source), str(tmp_path / "out")]
    command += ["--parcellation", "schaefer100-17", "--jobs", "1", "--missing", missing]
    heard = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # tests in the background of a shell ignore Ctrl-C
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    ) as process:
        try:
            while process.poll() is None and not (source / "sub-11.reached").exists():
                time.sleep(0.01)
            process.send_signal(how)
            errors = process.communicate(timeout=600)[1]
        finally:
            process.kill()
    assert (source / "sub-11.reached").exists(), errors
    assert process.returncode != 0
    assert os.listdir(tmp_path) == ["in"]
    assert "Traceback" not in errors


def test_the_command_says_what_it_did(tmp_path):
    source = write_people(tmp_path / "in", 12, p03=fc(3)[:, :90])
    pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(14)], "age": range(14)}).to_csv(
        tmp_path / "people.tsv", sep="\t", index=False
    )
    result = CliRunner().invoke(
        app,
        ["ingest", str(source), str(tmp_path / "out"), "--parcellation", "schaefer100-17"]
        + ["--participants", str(tmp_path / "people.tsv")],
    )
    assert result.exit_code == 0, result.output
    assert "11 participants written, 3 left out" in result.output
    assert "format plain" in result.output
    exclusions = pd.read_csv(tmp_path / "out/exclusions.tsv", sep="\t", dtype=str).set_index(
        "participant_id"
    )["reason"]
    assert sorted(exclusions.index) == ["03", "12", "13"]
    assert "the matrix is 100 x 90" in exclusions["03"]
    assert exclusions["12"] == "in the participants table, but no data were found"


@pytest.mark.realdata
def test_stages_agrees_with_ucla_only_once_aligned(shared_data):
    ucla = read_cohort(shared_data / "ucla_cnp/fc_upper_419.npy", parcellation="schaefer400-17")
    series = shared_data / "stages/timeseries_ses-1.npz"
    aligned = read_cohort(series, parcellation="schaefer400-17", order="schaefer400-7")
    some = pd.DataFrame({"participant_id": [f"{i:03d}" for i in range(1, 16)]})
    with pytest.warns(UserWarning, match="the region order looks wrong: read as schaefer400-7"):
        wrong = read_cohort(
            series, parcellation="schaefer400-17", participants=some, allow_exclusions=True
        )
    upper = [cohort.inputs("upper").mean(axis=0) for cohort in (ucla, aligned, wrong)]
    assert np.corrcoef(upper[0], upper[1])[0, 1] >= 0.92
    assert np.corrcoef(upper[0], upper[2])[0, 1] <= 0.45


def test_a_lock_left_by_a_kill_after_the_last_step_is_removed_by_the_next_attempt(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cohort.json").write_text("{}")
    (tmp_path / ".out.lock").write_text("process 1 on 0123abcd\n")
    with pytest.raises(NerveError, match="already exists"):
        ingest(tmp_path, tmp_path / "out", parcellation=PARCELLATION)
    assert not (tmp_path / ".out.lock").exists()
