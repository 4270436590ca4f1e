"""Errors that would give a wrong result, or lose a file, without a message.

A cohort changed after it was used, files of the user in an output folder, a killed reading process, words among
numbers, names that are not UTF-8, impossible settings. Each attack has a folder of its own. Commands run in this
process where nothing can hang, else in another.
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
from nerve.data.simulate import simulate_cohort
from torture._processes import without_figures
from torture._results import comparable_content
from torture.promise import Promise

REGIONS = "schaefer100-7"
N_PARTICIPANTS = 60
PATIENCE = 300.0  # seconds until a command that lost a helper must have ended
TRAINING = ("dim=16", "depth=1", "heads=2", "epochs=1", "batch_size=32")
STRANGE = os.fsdecode(b"caf\xe9")  # not UTF-8


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Every attack; the short form has one changed cohort and one dead helper, and leaves the rest to other tests.

    Those are test_changed_cohort.py, test_doubtful_tables.py, test_parallel.py and test_strange_names.py.
    """
    cohort = simulate_cohort(
        N_PARTICIPANTS, REGIONS, 40, keep_timeseries=False, seed=seed, name="simulated"
    )
    cohort.save(folder / "cohort")
    some = [
        changed_cohorts(folder, ["matrices reversed"] if short else list(CHANGES)),
        files_of_others(folder),
        dead_readers(folder, cohort, 1 if short else 6),
    ]
    if short:
        return some
    return [
        *some,
        doubtful_tables(folder),
        strange_names(folder, cohort),
        impossible_settings(folder),
    ]


def command(*words: object) -> tuple[int, str]:
    """A command in this process: its exit code and what it said."""
    with without_figures():
        done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output + str(done.exception or "")


# ---- a cohort that is changed after it was used


def shuffled_target(cohort: Path) -> None:
    """Another order of one column."""
    table = pd.read_csv(cohort / "participants.tsv", sep="\t")
    table["p_factor"] = table["p_factor"].to_numpy()[::-1]
    table.to_csv(cohort / "participants.tsv", sep="\t", index=False)


def sorted_table(cohort: Path) -> None:
    """The rows of the table in another order: the same cohort."""
    table = pd.read_csv(cohort / "participants.tsv", sep="\t").sort_values("age")
    table.to_csv(cohort / "participants.tsv", sep="\t", index=False)


def reversed_matrices(cohort: Path) -> None:
    """Matrices of other participants, with the time of the file set back."""
    file = cohort / "connectivity.npy"
    before = file.stat()
    np.save(file, np.load(file)[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a target shuffled": (shuffled_target, "p_factor"),
    "the table sorted": (sorted_table, ""),
    "matrices reversed": (reversed_matrices, "connectivity.npy"),
}


def changed_cohorts(folder: Path, names: list[str]) -> Promise:
    """Evaluate, change, evaluate again: as in a fresh folder. Training does not go on. `check` says what changed."""
    troubles = []
    for number, name in enumerate(names):
        change, said = CHANGES[name]
        cohort = Path(shutil.copytree(folder / "cohort", folder / f"changed{number}"))
        results = folder / f"results{number}"
        evaluate(cohort, results / "again")
        change(cohort)
        codes = evaluate(cohort, results / "again"), evaluate(cohort, results / "fresh")
        again, fresh = (
            {k: v for k, v in comparable_content(results / w).items() if not k.startswith("runs/")}
            for w in ("again", "fresh")
        )
        if codes != (0, 0) or again != fresh:
            troubles.append(f"{name}: not what a fresh folder gives")
        if said not in command("check", cohort)[1]:
            troubles.append(f"{name}: check says nothing of it")
    troubles += resumed(
        Path(shutil.copytree(folder / "cohort", folder / "resumed")), folder / "run"
    )
    return Promise(
        "A cohort that was changed is another one: results are made anew, training does not go on, `check` says what",
        f"{len(names)} changes and one before --resume"
        + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )


def evaluate(cohort: Path, out: Path) -> int:
    """One small evaluation."""
    options = (
        "--targets",
        "p_factor",
        "--features",
        "raw",
        "--n-folds",
        "3",
        "--n-bootstrap",
        "50",
    )
    return command("evaluate", cohort, *options, "--out", out)[0]


def resumed(cohort: Path, run: Path) -> list[str]:
    """Train, change the matrices, go on."""
    sets = [word for setting in TRAINING for word in ("--set", setting)]
    words = ("pretrain", cohort, "--out", run, "--preset", "small", "--device", "cpu", *sets)
    first = command(*words)[0]
    reversed_matrices(cohort)
    code, said = command(*words, "--resume")
    return (
        []
        if (first, code) == (0, 1) and "Traceback" not in said
        else [f"--resume ended with {code}"]
    )


# ---- files of the user's


def files_of_others(folder: Path) -> Promise:
    """Every command is asked to write where something of the user's lies."""
    mine = folder / "mine"
    mine.mkdir()
    for name in (
        "README.md",
        "config.yaml",
        "config.json",
        "experiment.yaml",
        "settings.json",
        "x.npy",
        "x.json",
    ):
        (mine / name).write_text("precious\n")
    (mine / "participants.tsv").write_text("participant_id\tage\n")
    cohort = Path(shutil.copytree(folder / "cohort", folder / "annotated"))
    (cohort / "notes.txt").write_text("precious\n")
    before = comparable_content(mine) | comparable_content(cohort)
    attempts = {
        "pretrain": ("pretrain", folder / "cohort", "--out", mine, "--preset", "small"),
        "pretrain --resume": ("pretrain", folder / "cohort", "--out", mine, "--resume"),
        "evaluate": (
            "evaluate",
            folder / "cohort",
            "--targets",
            "p_factor",
            "--out",
            mine,
            "--n-folds",
            "3",
        ),
        "embed .tsv": ("embed", folder / "run", folder / "cohort", mine / "participants.tsv"),
        "embed .npy": ("embed", folder / "run", folder / "cohort", mine / "x.npy"),
        "check": ("check", folder / "cohort", "--out", mine / "participants.tsv"),
        "simulate": ("simulate", mine, "--subjects", "4", "--overwrite"),
        "simulate over a cohort": ("simulate", cohort, "--subjects", "4", "--overwrite"),
    }
    accepted = [name for name, words in attempts.items() if command(*words)[0] != 1]
    harmed = sorted(
        name
        for name, content in (comparable_content(mine) | comparable_content(cohort)).items()
        if before.get(name) != content
    )
    gone = sorted(before.keys() - (comparable_content(mine) | comparable_content(cohort)).keys())
    troubles = [f"{name} was not refused" for name in accepted] + [
        f"{name} was changed" for name in harmed + gone
    ]
    return Promise(
        "Nothing that nerve did not write is replaced or removed",
        f"{len(attempts)} commands over {len(before)} files"
        + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )


# ---- tables that look right


def doubtful_tables(folder: Path) -> Promise:
    """Words among numbers are refused; one participant under two ids is said and kept in one fold."""
    troubles = []
    cohort = Path(shutil.copytree(folder / "cohort", folder / "doubtful"))
    table = pd.read_csv(cohort / "participants.tsv", sep="\t")
    clean = table["age"]
    for cells in (["unknown"], [">89"], clean.round(2).astype(str).str.replace(".", ",").tolist()):
        table["age"] = [*cells, *clean.astype(str)[len(cells) :]]
        table.to_csv(cohort / "participants.tsv", sep="\t", index=False)
        words = (
            "--targets",
            "p_factor",
            "--covariates",
            "age",
            "--n-folds",
            "3",
            "--out",
            folder / "doubtful-results",
        )
        code, said = command("evaluate", cohort, *words)
        if code != 1 or "age" not in said or str(cells[0]) not in said:
            troubles.append(f"{cells[0]!r} among ages was taken")
    matrices = np.load(folder / "cohort" / "connectivity.npy")
    matrices[30:] = matrices[:30]
    twice = Path(shutil.copytree(folder / "cohort", folder / "twice"))
    np.save(twice / "connectivity.npy", matrices)
    evaluate(twice, folder / "twice-results")
    folds = pd.read_csv(folder / "twice-results" / "folds.tsv", sep="\t").set_index("participant")[
        "fold"
    ]
    ids = pd.read_csv(twice / "connectivity.tsv", sep="\t")["participant_id"]
    parted = int((folds[ids[:30]].to_numpy() != folds[ids[30:]].to_numpy()).sum())
    troubles += [f"{parted} participants stood on both sides of a fold"] * bool(parted)
    return Promise(
        "Words in a column of numbers are refused by name, and one participant under two ids is kept in one fold",
        "3 tables, 30 participants twice" + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )


# ---- settings that nothing can have

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("nerve", {"lr": []}), ("nerve", {"unknown": []}), ("nerve", {"dim": 16, "heads": 3}), ("nerve", {"seed": None}),
    ("nerve", {"patching": ["networks", "nothing"]}), ("nerve", {"recentre": "away"}), ("ppca", {"patching": "grid0"}),
    ("gate", {"phenotypes": [["nowhere"]]}), ("brainmass", {"batch_size": 1}), ("braingnn", {"weight_decay": 1e308}),
]  # fmt: skip


def impossible_settings(folder: Path) -> Promise:
    """An experiment whose second row cannot be: --dry-run refuses it, and no row is left out in silence."""
    troubles = []
    for number, (method, settings) in enumerate(SETTINGS):
        rows = [{"method": "raw"}, {"method": method, "settings": settings}]
        cohorts = {"a": {"path": str(folder / "cohort"), "targets": ["p_factor"], "covariates": []}}
        file = folder / f"impossible{number}.yaml"
        file.write_text(
            yaml.safe_dump({"cohorts": cohorts, "methods": rows, "protocol": {"n_folds": 3}})
        )
        code, said = command("experiment", file, "--out", folder / "impossible", "--dry-run")
        if code != 1 or "Traceback" in said:
            troubles.append(f"{method} {settings} was taken")
    return Promise(
        "Settings that a method, its regions or the columns do not allow are refused before anything runs",
        f"{len(SETTINGS)} experiments" + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )


# ---- killed helpers, and names that are not UTF-8


def dead_readers(folder: Path, cohort: object, times: int) -> Promise:
    """Kill one reading process of an ingest."""
    source = folder / "source"
    source.mkdir()
    for number in range(600):
        np.save(source / f"p{number:03}.npy", cohort.connectivity[number % N_PARTICIPANTS])  # type: ignore[attr-defined]
    words = ["ingest", str(source), "{out}", "--parcellation", REGIONS, "--jobs", "2"]
    troubles, slowest = [], 0.0
    for number in range(times):
        out = folder / f"ingested{number}"
        ended, seconds = killed_helper([word.format(out=out) for word in words], 0.05 * number)
        slowest = max(slowest, seconds)
        if ended is None or (ended != 0 and out.exists()):
            troubles.append("it hung" if ended is None else "it left a cohort")
    return Promise(
        "An ingest that loses a reading process ends with a sentence",
        f"{times} kills, at most {slowest:.1f} s until it ended"
        + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )


def killed_helper(words: list[str], after: float) -> tuple[int | None, float]:
    """Kill the first worker that a command has started; its code, None if it hung, and how long it took to end."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-m", "nerve", *words], **silent) as process:  # type: ignore[call-overload]
        helpers: list[psutil.Process] = []
        while process.poll() is None and not helpers:
            helpers = workers_of(process.pid)
            time.sleep(0.005)
        time.sleep(after)
        began = time.monotonic()
        for helper in helpers[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                helper.send_signal(signal.SIGKILL)
        try:
            return process.wait(PATIENCE), time.monotonic() - began
        except subprocess.TimeoutExpired:
            for one in (*psutil.Process(process.pid).children(), process):
                one.kill()
            return None, PATIENCE


def workers_of(number: int) -> list[psutil.Process]:
    """The worker processes of a command; Python's and joblib's trackers of resources are none."""
    workers = []
    for child in psutil.Process(number).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("popen_loky" in word for word in child.cmdline()):
                workers.append(child)
    return workers


def strange_names(folder: Path, cohort: object) -> Promise:
    """Files and folders whose names are not UTF-8, and help on a terminal that knows only ASCII."""
    source = folder / "strange"
    source.mkdir()
    for number in range(9):
        np.save(source / f"{STRANGE}{number}.npy", cohort.connectivity[number])  # type: ignore[attr-defined]
    ascii_only = {
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    attempts: list[tuple[list[str], dict[str, str]]] = [
        (["ingest", str(source), str(folder / STRANGE), "--parcellation", REGIONS], {}),
        (["check", str(folder / STRANGE)], {}),
        (["evaluate", "--help"], ascii_only),
    ]
    troubles = []
    for words, environment in attempts:
        done = subprocess.run(
            [sys.executable, "-m", "nerve", *map(os.fsencode, words)],
            env=os.environ | environment,
            capture_output=True,
        )
        if done.returncode or b"Traceback" in done.stderr:
            troubles.append(f"{words[0]} ended with {done.returncode}")
    return Promise(
        "Names that are not UTF-8, and a terminal that knows only ASCII, end nothing",
        f"{len(attempts)} commands" + "".join(f"; {trouble}" for trouble in troubles),
        not troubles,
    )
