"""Participants whose ids, dates and files carry a mark, through every command: where does it come out?

Tables of participants hold ids by design (`OF_PARTICIPANTS`). Everything else that a command writes
or prints may be shared.
"""

import multiprocessing
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from safetensors.numpy import load_file

from nerve.cli import main
from nerve.data.cohort import Cohort
from torture.promise import Promise, with_troubles

N = 40  # participants
R = 12  # regions
MARK = "ZQX"  # ids and folders begin with it
DATE = "1987-06-05"  # everyone was scanned on this day
NUMBER = 914270000  # every second id is a number from here on
# What holds ids by design: the cohort itself, tables with one row per participant, and the record
# of a failed run, which names whose data were at fault. The report of such a run names nobody.
OF_PARTICIPANTS = (
    "cohort/*",
    "broken/*",
    "embeddings.tsv",
    "*/predictions.tsv",
    "*/folds.tsv",
    "*/parts/*",
    "failed/runs.tsv",
    "failed/runs/*/manifest.json",
)
# Records of where the cohorts are, so that work can continue and reports find them. They hold
# folders, but no id or date.
OF_PATHS = (
    "evaluated/inputs.json",
    "evaluated/experiment.yaml",
    "experiment/experiment.yaml",
    "failed/experiment.yaml",
)
METHOD = {"epochs": 1, "dim": 16, "depth": 1, "batch_size": 16}


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run every command at its defaults, then search all that was written and printed."""
    began = time.perf_counter()
    home = folder / f"{MARK}home of mine"  # with blanks, as many folders have them
    source = home / f"{MARK}study two"
    work = home / f"{MARK}work"
    work.mkdir(parents=True)
    write_source(source, seed)
    output = run_commands(commands(source, work, short), work)
    # Its output may name participants: it says whose data are at fault.
    output_of_failing = run_commands(failing_commands(work), work)
    marks_by_file = {}
    for file in written_files(work):
        name = str(file.relative_to(work))
        marks = find_marks(searchable_text(file), home, folders=name not in OF_PATHS)
        marks_by_file[name] = list(marks)
    leaks = []
    n_shared = 0
    n_with_ids = 0
    for name, marks in marks_by_file.items():
        if is_of_participants(name):
            n_with_ids += bool(marks)
            continue
        n_shared += 1
        if marks:
            leaks.append(f"{name} holds {marks[0]!r}")
    marks_in_output = sorted(set(find_marks(output, home, folders=False)))
    failures = [line for line in output.splitlines() if line.startswith("ended with")]
    n_lines = len(output.splitlines())
    measured = (
        f"{n_shared} files searched in {time.perf_counter() - began:.0f} s; "
        f"{n_with_ids} tables of participants do hold ids, as they should"
    )
    has_failed = "ended with 1" in output_of_failing
    return [
        Promise(
            "Reports, tables of results, figures, models and records name no participant, date or folder",
            with_troubles(measured, [*leaks[:10], *failures]),
            not leaks and not failures and n_with_ids > 3 and has_failed,
        ),
        Promise(
            "The output of commands that succeed names no participant or date",
            with_troubles(f"{n_lines} lines", [f"says {word!r}" for word in marks_in_output[:5]]),
            not marks_in_output and n_lines > 10,
        ),
        recognition_promise(work),
    ]


def recognition_promise(work: Path) -> Promise:
    """Look for each participant's FC in every array of every model, and in differences of arrays."""
    cohort = Cohort.load(work / "cohort")
    rows, columns = np.triu_indices(cohort.n_regions, 1)
    n_pairs = len(rows)
    fc = np.stack([np.asarray(matrix)[rows, columns] for matrix in cohort.connectivity])
    troubles = []
    n_arrays = 0
    for model in (path.parent for path in sorted(work.rglob("model.safetensors"))):
        vectors = {}  # what is as long as the FC of a participant
        for name, array in arrays(model):
            n_arrays += 1
            if len(cohort) in array.shape:
                troubles.append(f"{name} has a row per participant")
            is_matrix = array.shape[-2:] == (cohort.n_regions, cohort.n_regions)
            values = array[..., rows, columns] if is_matrix else array
            if values.shape[-1:] == (n_pairs,):
                for i, vector in enumerate(values.reshape(-1, n_pairs)):
                    vectors[f"{name} {i}"] = vector
        differences = {
            f"{first} less {second}": vectors[first] - vectors[second]
            for first, second in combinations(sorted(vectors), 2)
        }
        for name, vector in (vectors | differences).items():
            if vector.std() > 0 and np.corrcoef(vector, fc)[0, 1:].max() > 0.9:
                troubles.append(f"a participant is recognised by {name}")
    return Promise(
        "No participant's FC is in a model folder, nor left when one of its means is subtracted from another",
        with_troubles(f"{n_arrays} arrays, {len(fc)} participants", troubles, at_most=5),
        not troubles and n_arrays > 20,
    )


def arrays(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every array of numbers in a folder and below."""
    for file in sorted(folder.rglob("*")):
        content: Any = {}
        if file.suffix == ".safetensors":
            content = load_file(file)
        elif file.suffix in (".npz", ".npy"):
            loaded = np.load(file)
            content = loaded if file.suffix == ".npz" else {"": loaded}
        for name in content:
            array = np.nan_to_num(np.asarray(content[name], float))
            yield f"{file.parent.name}/{file.name}:{name}", array


def write_source(source: Path, seed: int) -> None:
    """Write one matrix per participant, with marks in names, and a table with a date for everyone."""
    rng = np.random.default_rng(seed)
    source.mkdir(parents=True)
    ids = [f"{MARK}person{i:03}" if i % 2 else str(NUMBER + i) for i in range(N)]
    for participant in ids:
        file = source / f"{participant}_{DATE}.csv"
        if participant == ids[5]:  # cannot be read: left out, with a sentence
            file.write_text("1,2\n3\n")
            continue
        np.savetxt(file, np.corrcoef(rng.normal(size=(R, 60))), delimiter=",")
    regions = pd.DataFrame(
        {"label": [f"r{i}" for i in range(R)], "network": list("ABC") * (R // 3)}
    )
    regions.to_csv(source.parent / "regions.tsv", sep="\t", index=False)
    table = pd.DataFrame({"participant_id": ids, "age": rng.uniform(8, 20, N), "acq_time": DATE})
    table["sex"] = rng.choice(["F", "M"], N)
    table["score"] = rng.normal(size=N)
    table["mean_fd"] = rng.gamma(2, 0.1, N)
    table.loc[3, "score"] = np.nan
    table.to_csv(source.parent / "participants.tsv", sep="\t", index=False)


def commands(source: Path, work: Path, short: bool) -> list[list[str]]:
    """The commands from raw files to reports; writes the files of the experiments."""
    settings = []
    for name, value in METHOD.items():
        settings += ["--set", f"{name}={value}"]
    experiment = {
        "name": "marked", "parcellation": "../regions.tsv", "preset": "small", "device": "cpu", "interpret": not short,
        "cohorts": {"marked": {"path": str(work / "cohort"), "targets": ["score", "sex"], "covariates": ["age"]}},
        "methods": [{"method": "raw"}, {"method": "nerve", "settings": METHOD}],
        "protocol": {"n_folds": 3, "n_bootstrap": 50},
    }  # fmt: skip
    (work / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    cohorts = {
        name: {"path": str(work / name), "targets": ["score"]} for name in ("cohort", "broken")
    }
    changes = {"interpret": False, "cohorts": cohorts, "methods": [{"method": "raw"}]}
    (work / "failing.yaml").write_text(yaml.safe_dump(experiment | changes))
    table = str(source.parent / "participants.tsv")
    regions = str(source.parent / "regions.tsv")
    short_list = [
        ["ingest", str(source), "cohort", "--participants", table, "--parcellation", regions, "--name", "marked"],
        ["check", "cohort", "--out", "check.tsv"],
        ["pretrain", "cohort", "--out", "model", "--preset", "small", "--device", "cpu", *settings],
        ["embed", "model", "cohort", "embeddings.tsv", "--device", "cpu"],
        ["evaluate", "cohort", "--targets", "score,sex", "--covariates", "age", "--features", "raw,model", "--out",
         "evaluated", "--n-folds", "3", "--n-bootstrap", "50"],
        ["report", "model"],
        ["experiment", "experiment.yaml", "--out", "experiment", "--jobs", "1"],
    ]  # fmt: skip
    if short:
        return short_list
    return [
        *short_list,
        ["report", "evaluated"],
        ["interpret", "model", "cohort", "--targets", "score", "--n-folds", "3"],
    ]


def failing_commands(work: Path) -> list[list[str]]:
    """An experiment on a cohort with a matrix that cannot be used; makes that cohort."""
    shutil.copytree(work / "cohort", work / "broken")
    matrices = np.load(work / "broken" / "connectivity.npy")
    matrices[7, 2, 3] = np.nan
    np.save(work / "broken" / "connectivity.npy", matrices)
    return [["experiment", "failing.yaml", "--out", "failed", "--jobs", "1"]]


def run_commands(command_lines: list[list[str]], work: Path) -> str:
    """Run commands one after another in a forked process; returns what they print on both streams."""
    log = work.parent / "log"
    context: Any = multiprocessing.get_context("fork")
    process = context.Process(target=_run_in_fork, args=(command_lines, work, log))
    process.start()
    process.join(300)
    if process.exitcode is None:
        process.kill()
    output = log.read_text()
    if process.exitcode != 0:
        output += f"\nended with {process.exitcode}"
    return output


def _run_in_fork(command_lines: list[list[str]], work: Path, log: Path) -> None:
    """Run the commands in a folder, with both streams in a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # pytest has put other streams in the place of these.
    sys.stdout = open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w")  # noqa: SIM115
    os.environ["COLUMNS"] = "200"
    os.chdir(work)
    for words in command_lines:
        sys.argv = ["nerve", *words]
        print("$ nerve", words[0], flush=True)
        try:
            main()
        except SystemExit as end:
            if end.code:
                print(f"ended with {end.code}", flush=True)


def written_files(work: Path) -> Iterator[Path]:
    """All files that the commands wrote, hidden ones too."""
    inputs = (work / "experiment.yaml", work / "failing.yaml")
    for path in sorted(work.rglob("*")):
        if path.is_file() and path not in inputs:
            yield path


def searchable_text(file: Path) -> str:
    """Name and content of a file as text, with the compressed texts of a PNG unpacked."""
    content = file.read_bytes()
    parts = [file.name.encode(), content]
    for chunk in re.finditer(b"(?:zTXt|iTXt)", content):
        # The compressed text begins after a keyword of up to 79 bytes and a few flags.
        for begin in range(chunk.end(), min(chunk.end() + 90, len(content))):
            try:
                parts.append(zlib.decompressobj().decompress(content[begin:]))
                break
            except zlib.error:
                continue
    return b"\n".join(parts).decode("utf-8", "replace")


def find_marks(text: str, home: Path, folders: bool = True) -> Iterator[str]:
    """Ids and dates of participants in a text, and their folders if asked for."""
    yield from re.findall(rf"{MARK}person\d+", text, re.IGNORECASE)
    yield from re.findall(rf"\b{str(NUMBER)[:6]}\d{{3}}\b", text)
    words = [DATE, DATE.replace("-", "")]
    if folders:
        words += [f"{MARK}study", f"{MARK}home", str(home.parent)]
    for word in words:
        if word in text:
            yield word


def is_of_participants(name: str) -> bool:
    """Whether a file holds ids by design."""
    return any(Path(name).match(pattern) for pattern in OF_PARTICIPANTS)
