"""Errors that would give a wrong result, or lose a file, without a message.

A cohort changed after it was used, files of the user in an output folder, a killed reading process,
words among numbers, names that are not UTF-8, impossible settings. Each attack has a folder of its
own. Commands run in this process where nothing can hang, otherwise in another.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import yaml
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.simulate import simulate_cohort
from torture._processes import without_figures
from torture._results import comparable_content
from torture.promise import Promise, with_troubles

REGIONS = "schaefer100-7"
N_PARTICIPANTS = 60
PATIENCE = 300.0  # seconds until a command that lost a helper must have ended
TRAINING = ("dim=16", "depth=1", "heads=2", "epochs=1", "batch_size=32")
NOT_UTF8 = os.fsdecode(b"caf\xe9")


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run every attack; the short form has one changed cohort and one killed process.

    The others are then covered by test_changed_cohort.py, test_doubtful_tables.py, test_parallel.py
    and test_strange_names.py.
    """
    cohort = simulate_cohort(
        N_PARTICIPANTS, REGIONS, 40, keep_timeseries=False, seed=seed, name="simulated"
    )
    cohort.save(folder / "cohort")
    promises = [
        change_cohorts(folder, ["matrices reversed"] if short else list(CHANGES)),
        write_over_user_files(folder),
        kill_readers(folder, cohort, 1 if short else 6),
    ]
    if not short:
        promises += [
            evaluate_doubtful_tables(folder),
            use_strange_names(folder, cohort),
            try_impossible_settings(folder),
        ]
    return promises


def run_command(*words: object) -> tuple[int, str]:
    """Run a command in this process; its exit code and output."""
    with without_figures():
        result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output + str(result.exception or "")


# ---- a cohort that is changed after it was used


def reverse_target(cohort: Path) -> None:
    """Reverse one column."""
    table = pd.read_csv(cohort / "participants.tsv", sep="\t")
    table["p_factor"] = table["p_factor"].to_numpy()[::-1]
    table.to_csv(cohort / "participants.tsv", sep="\t", index=False)


def sort_table(cohort: Path) -> None:
    """Put the rows of the table in another order, which leaves the cohort the same."""
    table = pd.read_csv(cohort / "participants.tsv", sep="\t").sort_values("age")
    table.to_csv(cohort / "participants.tsv", sep="\t", index=False)


def reverse_matrices(cohort: Path) -> None:
    """Give participants the matrices of others, and set the time of the file back."""
    file = cohort / "connectivity.npy"
    before = file.stat()
    np.save(file, np.load(file)[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


# Name of a change → function, and what `nerve check` must say of it.
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a target shuffled": (reverse_target, "p_factor"),
    "the table sorted": (sort_table, ""),
    "matrices reversed": (reverse_matrices, "connectivity.npy"),
}


def change_cohorts(folder: Path, names: list[str]) -> Promise:
    """Evaluate, change the cohort, evaluate again: the results must be those of a fresh folder.

    Training must not be resumed, and `check` must say what has changed.
    """
    troubles = []
    for number, name in enumerate(names):
        change, expected_words = CHANGES[name]
        cohort = Path(shutil.copytree(folder / "cohort", folder / f"changed{number}"))
        results = folder / f"results{number}"
        evaluate(cohort, results / "again")
        change(cohort)
        code_again = evaluate(cohort, results / "again")
        code_fresh = evaluate(cohort, results / "fresh")
        have_failed = code_again != 0 or code_fresh != 0
        if have_failed or tables_of(results / "again") != tables_of(results / "fresh"):
            troubles.append(f"{name}: not what a fresh folder gives")
        if expected_words not in run_command("check", cohort)[1]:
            troubles.append(f"{name}: check does not mention it")
    cohort = Path(shutil.copytree(folder / "cohort", folder / "resumed"))
    troubles += faults_of_resuming(cohort, folder / "run")
    return Promise(
        "After a cohort is changed, results are computed again, training is not resumed, and "
        "`check` says what has changed",
        with_troubles(f"{len(names)} changes and one before --resume", troubles),
        not troubles,
    )


def evaluate(cohort: Path, out: Path) -> int:
    """Run one small evaluation; its exit code."""
    words = ["evaluate", cohort, "--targets", "p_factor", "--features", "raw"]
    words += ["--n-folds", "3", "--n-bootstrap", "50", "--out", out]
    return run_command(*words)[0]


def tables_of(results: Path) -> dict[str, object]:
    """The files of an evaluation, without those of its runs."""
    content = comparable_content(results)
    return {name: value for name, value in content.items() if not name.startswith("runs/")}


def faults_of_resuming(cohort: Path, run: Path) -> list[str]:
    """Train, change the matrices and resume, which must be refused."""
    words = ["pretrain", cohort, "--out", run, "--preset", "small", "--device", "cpu"]
    for setting in TRAINING:
        words += ["--set", setting]
    first_code, _ = run_command(*words)
    reverse_matrices(cohort)
    code, output = run_command(*words, "--resume")
    if first_code == 0 and code == 1 and "Traceback" not in output:
        return []
    return [f"--resume ended with {code}"]


# ---- files of the user


def write_over_user_files(folder: Path) -> Promise:
    """Ask every command to write where a file of the user lies."""
    user_folder = folder / "mine"
    user_folder.mkdir()
    for name in (
        "README.md",
        "config.yaml",
        "config.json",
        "experiment.yaml",
        "settings.json",
        "x.npy",
        "x.json",
    ):
        (user_folder / name).write_text("precious\n")
    (user_folder / "participants.tsv").write_text("participant_id\tage\n")
    annotated = Path(shutil.copytree(folder / "cohort", folder / "annotated"))
    (annotated / "notes.txt").write_text("precious\n")
    cohort = folder / "cohort"
    model = folder / "run"
    before = comparable_content(user_folder) | comparable_content(annotated)
    attempts = {
        "pretrain": ("pretrain", cohort, "--out", user_folder, "--preset", "small"),
        "pretrain --resume": ("pretrain", cohort, "--out", user_folder, "--resume"),
        "evaluate": (
            "evaluate", cohort, "--targets", "p_factor", "--out", user_folder, "--n-folds", "3",
        ),
        "embed .tsv": ("embed", model, cohort, user_folder / "participants.tsv"),
        "embed .npy": ("embed", model, cohort, user_folder / "x.npy"),
        "check": ("check", cohort, "--out", user_folder / "participants.tsv"),
        "simulate": ("simulate", user_folder, "--subjects", "4", "--overwrite"),
        "simulate over a cohort": ("simulate", annotated, "--subjects", "4", "--overwrite"),
    }  # fmt: skip
    accepted = [name for name, words in attempts.items() if run_command(*words)[0] != 1]
    after = comparable_content(user_folder) | comparable_content(annotated)
    changed = sorted(name for name, content in after.items() if before.get(name) != content)
    removed = sorted(before.keys() - after.keys())
    troubles = [f"{name} was not refused" for name in accepted]
    troubles += [f"{name} was changed" for name in changed + removed]
    return Promise(
        "Nothing that nerve did not write is replaced or removed",
        with_troubles(f"{len(attempts)} commands over {len(before)} files", troubles),
        not troubles,
    )


# ---- tables that look right


def evaluate_doubtful_tables(folder: Path) -> Promise:
    """Evaluate words among numbers, which must be refused, and participants under two ids.

    The latter must be kept in one fold.
    """
    troubles = []
    cohort = Path(shutil.copytree(folder / "cohort", folder / "doubtful"))
    table = pd.read_csv(cohort / "participants.tsv", sep="\t")
    ages = table["age"]
    with_commas = ages.round(2).astype(str).str.replace(".", ",").tolist()
    for cells in (["unknown"], [">89"], with_commas):
        table["age"] = [*cells, *ages.astype(str)[len(cells) :]]
        table.to_csv(cohort / "participants.tsv", sep="\t", index=False)
        words = ["evaluate", cohort, "--targets", "p_factor", "--covariates", "age"]
        words += ["--n-folds", "3", "--out", folder / "doubtful-results"]
        code, output = run_command(*words)
        if code != 1 or "age" not in output or str(cells[0]) not in output:
            troubles.append(f"{cells[0]!r} among ages was accepted")
    matrices = np.load(folder / "cohort" / "connectivity.npy")
    matrices[30:] = matrices[:30]
    twice = Path(shutil.copytree(folder / "cohort", folder / "twice"))
    np.save(twice / "connectivity.npy", matrices)
    evaluate(twice, folder / "twice-results")
    table_of_folds = pd.read_csv(folder / "twice-results" / "folds.tsv", sep="\t")
    folds = table_of_folds.set_index("participant")["fold"]
    ids = pd.read_csv(twice / "connectivity.tsv", sep="\t")["participant_id"]
    n_separated = int((folds[ids[:30]].to_numpy() != folds[ids[30:]].to_numpy()).sum())
    if n_separated:
        troubles.append(f"{n_separated} participants stood on both sides of a fold")
    return Promise(
        "Words in a column of numbers are refused by name, and one participant under two ids is kept in one fold",
        with_troubles("3 tables, 30 participants twice", troubles),
        not troubles,
    )


# ---- impossible settings

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("nerve", {"lr": []}), ("nerve", {"unknown": []}), ("nerve", {"dim": 16, "heads": 3}), ("nerve", {"seed": None}),
    ("nerve", {"patching": ["networks", "nothing"]}), ("nerve", {"recentre": "away"}), ("ppca", {"patching": "grid0"}),
    ("gate", {"phenotypes": [["nowhere"]]}), ("brainmass", {"batch_size": 1}), ("braingnn", {"weight_decay": 1e308}),
]  # fmt: skip


def try_impossible_settings(folder: Path) -> Promise:
    """Prepare experiments whose second row is impossible: --dry-run must refuse them."""
    troubles = []
    for number, (method, settings) in enumerate(SETTINGS):
        rows = [{"method": "raw"}, {"method": method, "settings": settings}]
        cohorts = {"a": {"path": str(folder / "cohort"), "targets": ["p_factor"], "covariates": []}}
        file = folder / f"impossible{number}.yaml"
        file.write_text(
            yaml.safe_dump({"cohorts": cohorts, "methods": rows, "protocol": {"n_folds": 3}})
        )
        code, output = run_command("experiment", file, "--out", folder / "impossible", "--dry-run")
        if code != 1 or "Traceback" in output:
            troubles.append(f"{method} {settings} was accepted")
    return Promise(
        "Settings that a method, its regions or the columns do not allow are refused before anything runs",
        with_troubles(f"{len(SETTINGS)} experiments", troubles),
        not troubles,
    )


# ---- killed reading processes, and names that are not UTF-8


def kill_readers(folder: Path, cohort: Cohort, times: int) -> Promise:
    """Kill one reading process of an ingest, several times."""
    source = folder / "source"
    source.mkdir()
    for number in range(600):
        np.save(source / f"p{number:03}.npy", cohort.connectivity[number % N_PARTICIPANTS])
    troubles = []
    slowest = 0.0
    for number in range(times):
        out = folder / f"ingested{number}"
        words = ["ingest", str(source), str(out), "--parcellation", REGIONS, "--jobs", "2"]
        code, seconds = kill_first_worker(words, 0.05 * number)
        slowest = max(slowest, seconds)
        if code is None:
            troubles.append("it hung")
        elif code != 0 and out.exists():
            troubles.append("it left a cohort")
    return Promise(
        "An ingest that loses a reading process ends with a sentence",
        with_troubles(f"{times} kills, at most {slowest:.1f} s until it ended", troubles),
        not troubles,
    )


def kill_first_worker(words: list[str], after: float) -> tuple[int | None, float]:
    """Kill the first worker that a command starts, some seconds after it appears.

    Returns the exit code of the command, None if it hung, and how long it took to end.
    """
    command = [sys.executable, "-m", "nerve", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        workers: list[psutil.Process] = []
        while process.poll() is None and not workers:
            workers = workers_of(process.pid)
            time.sleep(0.005)
        time.sleep(after)
        began = time.monotonic()
        for worker in workers[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGKILL)
        try:
            return process.wait(PATIENCE), time.monotonic() - began
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
            return None, PATIENCE


def workers_of(pid: int) -> list[psutil.Process]:
    """The worker processes of a command, without the resource trackers of Python and joblib."""
    workers = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("popen_loky" in word for word in child.cmdline()):
                workers.append(child)
    return workers


def use_strange_names(folder: Path, cohort: Cohort) -> Promise:
    """Use names that are not UTF-8, and print help on a terminal that knows only ASCII."""
    source = folder / "strange"
    source.mkdir()
    for number in range(9):
        np.save(source / f"{NOT_UTF8}{number}.npy", cohort.connectivity[number])
    ascii_only = {
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    attempts: list[tuple[list[str], dict[str, str]]] = [
        (["ingest", str(source), str(folder / NOT_UTF8), "--parcellation", REGIONS], {}),
        (["check", str(folder / NOT_UTF8)], {}),
        (["evaluate", "--help"], ascii_only),
    ]
    troubles = []
    for words, environment in attempts:
        process = subprocess.run(
            [sys.executable, "-m", "nerve", *map(os.fsencode, words)],
            env=os.environ | environment,
            capture_output=True,
        )
        if process.returncode or b"Traceback" in process.stderr:
            troubles.append(f"{words[0]} ended with {process.returncode}")
    return Promise(
        "Commands work with names that are not UTF-8, and on a terminal that knows only ASCII",
        with_troubles(f"{len(attempts)} commands", troubles),
        not troubles,
    )
