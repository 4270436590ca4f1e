"""Kill -9 at random moments of ingest, pretrain, evaluate and experiment; then the same command again.

Half of the kills fall at a random instant of the undisturbed duration, the other half right before
a random file operation of the command, where half-written files would come from. A third of the
former hit the process alone, so that its child processes must end by themselves. Some commands are
started cold, imports and all.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data import simulate
from torture._processes import Ended, Running, Warm, start_cold, without_figures
from torture._results import comparable_content, incomplete_files, leftover_files
from torture.promise import Promise, with_troubles

TRAINING = ("dim=16", "depth=1", "heads=2", "epochs=4", "batch_size=16", "checkpoint_seconds=0")
N_PARTICIPANTS = 24
REGIONS = "schaefer100-7"


@dataclass
class Case:
    """A command, what is in its folder before it starts, and its results when it is undisturbed."""

    name: str
    arguments: Callable[[Path], list[str]]  # of the folder that it works in
    before: Callable[[Path], None] = lambda folder: None
    seconds: float = 0.0
    events: int = 0  # file operations
    result: dict[str, object] = field(default_factory=dict)
    old: dict[str, object] = field(default_factory=dict)  # what `before` made


class Kill(NamedTuple):
    """When a command was killed, and what was wrong after it."""

    case: str
    when: str  # "before", "during" or "after" real work
    troubles: list[str]


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """42 kills; the short form has 4, all at file operations, of commands not in `concurrency`."""
    moments = random.Random(seed)
    cases = make_cases(folder)
    if short:
        cases = [case for case in cases if case.name not in ("evaluate", "experiment")]
    kills: list[Kill] = []
    with Warm() as warm:
        for case in cases:
            measure_undisturbed(case, folder, warm)
        for number in range(4 if short else 42):
            case = cases[number % len(cases)]
            # One in twelve is started cold, another command each time.
            from_cold = number % 12 == 11 - (number // 12) % 4
            at_operation = short or number % 2 == 0
            place = folder / f"kill{number}"
            kills.append(kill_once(case, place, warm, moments, at_operation, from_cold))
    return make_promises(kills, cases)


def make_cases(folder: Path) -> list[Case]:
    """The commands, on simulated participants."""
    source = folder / "source"
    cohort_folder = folder / "cohort"
    config = folder / "experiment.yaml"
    table = folder / "participants.tsv"
    cohort = simulate.simulate_cohort(
        N_PARTICIPANTS, REGIONS, 40, keep_timeseries=False, name="simulated"
    )
    cohort.save(cohort_folder)
    source.mkdir()
    ids = cohort.participants["participant_id"]
    for participant, matrix in zip(ids, cohort.connectivity, strict=True):
        np.save(source / f"{participant}.npy", matrix)
    cohort.participants.to_csv(table, sep="\t", index=False)
    config.write_text(yaml.safe_dump(experiment_config()))

    def ingest(place: Path) -> list[str]:
        return [
            "ingest", str(source), str(place / "out"), "--parcellation", REGIONS,
            "--participants", str(table), "--jobs", "2",
        ]  # fmt: skip

    def pretrain(place: Path) -> list[str]:
        words = [
            "pretrain", str(cohort_folder), "--out", str(place / "out"), "--preset", "small",
            "--device", "cpu", "--resume",
        ]  # fmt: skip
        for setting in TRAINING:
            words += ["--set", setting]
        return words

    def evaluate(place: Path, n_folds: int = 3) -> list[str]:
        return [
            "evaluate", str(cohort_folder), "--targets", "p_factor,null", "--features", "raw,pca",
            "--n-folds", str(n_folds), "--n-bootstrap", "50", "--n-permutations", "5",
            "--out", str(place / "out"),
        ]  # fmt: skip

    def experiment(place: Path) -> list[str]:
        return ["experiment", str(config), "--out", str(place / "out"), "--jobs", "1"]

    def put_older_cohort(place: Path) -> None:
        """Put a cohort of half of the participants where the new one goes."""
        cohort.subset(np.arange(N_PARTICIPANTS // 2)).save(place / "out")

    def put_older_evaluation(place: Path) -> None:
        """Put an evaluation with other folds where the new one goes."""
        older = folder / "older"
        if not older.is_dir():
            with without_figures():
                CliRunner().invoke(app, evaluate(older, n_folds=2), catch_exceptions=False)
        shutil.copytree(older / "out", place / "out")

    def ingest_over(place: Path) -> list[str]:
        return [*ingest(place), "--overwrite"]

    return [
        Case("ingest", ingest),
        Case("pretrain", pretrain),
        Case("evaluate", evaluate),
        Case("evaluate again", evaluate, put_older_evaluation),
        Case("experiment", experiment),
        Case("ingest --overwrite", ingest_over, put_older_cohort),
    ]


def experiment_config() -> dict[str, object]:
    """One cohort, two reference rows and a NERVE that trains in a second."""
    settings = {"epochs": 3, "dim": 16, "depth": 1, "batch_size": 32, "heads": 2}
    scan = {"n": 30, "timepoints": 40, "seed": 1, "keep_timeseries": False}
    return {
        "name": "tiny",
        "parcellation": REGIONS,
        "preset": "small",
        "device": "cpu",
        "cohorts": {"alpha": {"simulate": scan, "targets": ["p_factor"]}},
        "methods": [
            {"method": "raw"},
            {"method": "pca"},
            {"method": "nerve", "settings": settings},
        ],
        "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 50},
    }


def measure_undisturbed(case: Case, folder: Path, warm: Warm) -> None:
    """Run a command undisturbed, for its results, its time and the number of its file operations."""
    place = make_place(case, folder / f"undisturbed {case.name}")
    if (place / "out").is_dir():
        case.old = comparable_content(place / "out")
    end = warm.run(case.arguments(place), place / "log", watch=place)
    if end.code:
        raise RuntimeError(f"{case.name} failed undisturbed: {end.output}")
    case.seconds = end.seconds
    case.events = end.events
    case.result = comparable_content(place / "out")


def make_place(case: Case, place: Path) -> Path:
    """Make a folder with what the case needs in it."""
    place.mkdir()
    case.before(place)
    return place


def kill_once(
    case: Case, place: Path, warm: Warm, moments: random.Random, at_operation: bool, from_cold: bool
) -> Kill:
    """Start a command, kill it, check what is there, start it again, and compare the results."""
    make_place(case, place)
    log = place.with_suffix(".log")
    arguments = case.arguments(place)
    troubles: list[str] = []
    if from_cold:
        seconds = moments.uniform(0.5, 3.0 + case.seconds)
        end = kill_after(start_cold(arguments, log), seconds)
    elif at_operation:
        die_at = moments.randint(1, case.events)
        end = warm.start(arguments, log, watch=place, die_at=die_at).wait()
        if end.code != -9:
            troubles.append(f"it was to die at a file operation and ended with {end.code}")
    else:
        alone = moments.random() < 1 / 3
        running = warm.start(arguments, log)
        end = kill_after(running, moments.uniform(0.0, case.seconds), alone)
        if not group_has_ended(running.pid):
            troubles.append("a process that it had started did not end")
            running.kill()
    if end.code >= 0:
        when = "after"
    elif has_begun(place, case):
        when = "during"
    else:
        when = "before"
    troubles += faults_after_kill(case, place / "out")
    second_end = start_cold(arguments, log).wait() if from_cold else warm.run(arguments, log)
    troubles += faults_of_second_attempt(case, place, second_end, had_finished=end.code == 0)
    return Kill(case.name, when, troubles)


def kill_after(running: Running, seconds: float, alone: bool = False) -> Ended:
    """Kill a command some seconds after its start, with all that it started or alone."""
    time.sleep(seconds)
    running.kill(whole_group=not alone)
    return running.wait()


def group_has_ended(group: int, patience: float = 300.0) -> bool:
    """Wait until every process of the group has ended; False if that takes too long."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def has_begun(place: Path, case: Case) -> bool:
    """Whether the command has left a trace: a file, a draft or a lock that was not there before."""
    out = place / "out"
    files = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    has_new_files = bool(files - set(case.old))
    return has_new_files or any(entry.name.startswith(".") for entry in place.iterdir())


def faults_after_kill(case: Case, out: Path) -> list[str]:
    """What is wrong with the files that a reader would see after the kill."""
    troubles = [f"{name}: {reason}" for name, reason in incomplete_files(out)]
    if not case.name.startswith("ingest"):
        return troubles
    # A cohort is there completely, old or new, or not at all.
    content = comparable_content(out) if out.is_dir() else {}
    allowed = [case.old, case.result] if case.old else [{}, case.result]
    is_set_aside = any(entry.suffix == ".old" for entry in out.parent.iterdir())
    if content not in allowed and not is_set_aside:
        troubles.append(
            f"the folder holds {len(content)} files that are neither the old nor the new cohort"
        )
    return troubles


def faults_of_second_attempt(case: Case, place: Path, end: Ended, had_finished: bool) -> list[str]:
    """How the second attempt differs from an undisturbed one."""
    is_refused = end.code == 1 and "already exists" in end.output
    if case.name == "ingest" and had_finished:
        return [] if is_refused else ["a finished ingest was not refused"]
    # If an ingest is refused here, the kill came after its last rename: the cohort is there.
    if end.code and not (case.name == "ingest" and is_refused):
        last_line = end.output.strip().splitlines()[-1:]
        return [f"the same command again ended with {end.code}: {last_line}"]
    content = comparable_content(place / "out")
    names = sorted(content.keys() | case.result.keys())
    differing = [name for name in names if content.get(name) != case.result.get(name)]
    troubles = [f"{name} differs from the undisturbed run" for name in differing]
    if "Traceback" in end.output:
        troubles.append("a traceback was shown")
    return troubles + [f"{name} was left behind" for name in leftover_files(place)]


def make_promises(kills: list[Kill], cases: list[Case]) -> list[Promise]:
    """One row: how many kills there were, when they fell, and what was wrong."""
    n_when = Counter(kill.when for kill in kills)
    n_by_case = Counter(kill.case for kill in kills)
    spread = ", ".join(f"{count} {name}" for name, count in n_by_case.items())
    n_files = sum(len(case.result) for case in cases)
    measured = (
        f"{len(kills)} kills ({spread}): {n_when['before']} before real work, "
        f"{n_when['during']} during and {n_when['after']} after it; {n_files} result files compared"
    )
    troubles = []
    for kill in kills:
        troubles += [f"{kill.case}: {trouble}" for trouble in kill.troubles]
    measured = with_troubles(measured, troubles, at_most=4)
    if len(troubles) > 4:
        measured += f" and {len(troubles) - 4} more"
    return [
        Promise(
            "after a kill (-9) at any moment, the same command run again ends well, with the results "
            "of an undisturbed run; in between, no half-written file has its final name",
            measured,
            not troubles and n_when["during"] > 0,
        )
    ]
