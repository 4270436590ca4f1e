"""Kill -9 at random moments of ingest, pretrain, evaluate and experiment; then the same command again.

Half of the kills fall at a random instant of the undisturbed duration, the other half right before a random one of the
command's file operations, where half-written files would come from. A third of the former hit the process alone, so
that what it started must leave by itself. Some commands are started cold, imports and all.
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
from torture._processes import Ended, Running, Warm, cold, without_figures
from torture._results import comparable_content, incomplete_files, leftover_files
from torture.promise import Promise

TRAINING = ("dim=16", "depth=1", "heads=2", "epochs=4", "batch_size=16", "checkpoint_seconds=0")
PEOPLE, REGIONS = 24, "schaefer100-7"


@dataclass
class Case:
    """A command, what is in its folder before, and what came of it undisturbed."""

    name: str
    arguments: Callable[[Path], list[str]]  # of the folder that it works in
    before: Callable[[Path], None] = lambda folder: None
    seconds: float = 0.0
    events: int = 0
    result: dict[str, object] = field(default_factory=dict)
    old: dict[str, object] = field(default_factory=dict)  # what `before` left


class Kill(NamedTuple):
    """What a kill did and what the command did after it."""

    case: str
    when: str  # "before", "during" or "after" real work
    troubles: list[str]


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """42 kills; the short form 4, all at file operations, without what `concurrency` also does."""
    moments = random.Random(seed)
    cases = [
        case
        for case in make_cases(folder)
        if not short or case.name not in ("evaluate", "experiment")
    ]
    kills: list[Kill] = []
    with Warm() as warm:
        for case in cases:
            measure(case, folder, warm)
        for number in range(4 if short else 42):
            case = cases[number % len(cases)]
            from_cold = (
                number % 12 == 11 - (number // 12) % 4
            )  # one in twelve, another command each time
            at_operation = short or number % 2 == 0
            kills.append(
                kill_once(case, folder / f"kill{number}", warm, moments, at_operation, from_cold)
            )
    return report(kills, cases)


def make_cases(folder: Path) -> list[Case]:
    """The commands, on simulated people."""
    source, cohort, config = folder / "source", folder / "cohort", folder / "experiment.yaml"
    people = simulate.simulate_cohort(PEOPLE, REGIONS, 40, keep_timeseries=False, name="simulated")
    people.save(cohort)
    source.mkdir()
    for person, matrix in zip(
        people.participants["participant_id"], people.connectivity, strict=True
    ):
        np.save(source / f"{person}.npy", matrix)
    people.participants.to_csv(folder / "participants.tsv", sep="\t", index=False)
    config.write_text(yaml.safe_dump(experiment_config()))
    reading = [
        str(source),
        "--parcellation",
        REGIONS,
        "--participants",
        str(folder / "participants.tsv"),
        "--jobs",
        "2",
    ]
    training = [part for setting in TRAINING for part in ("--set", setting)]

    def earlier(place: Path) -> None:
        people.subset(np.arange(PEOPLE // 2)).save(place / "out")

    def evaluate(place: Path, folds: int = 3) -> list[str]:
        return [
            *(
                "evaluate",
                str(cohort),
                "--targets",
                "p_factor,null",
                "--features",
                "raw,pca",
                "--n-folds",
                str(folds),
            ),
            *("--n-bootstrap", "50", "--n-permutations", "5", "--out", str(place / "out")),
        ]

    def evaluated(place: Path) -> None:
        """An older evaluation, with other folds, lies where the new one goes."""
        older = folder / "older"
        if not older.is_dir():
            with without_figures():
                CliRunner().invoke(app, evaluate(older, folds=2), catch_exceptions=False)
        shutil.copytree(older / "out", place / "out")

    return [
        Case("ingest", lambda place: ["ingest", reading[0], str(place / "out"), *reading[1:]]),
        Case(
            "pretrain",
            lambda place: [
                *(
                    "pretrain",
                    str(cohort),
                    "--out",
                    str(place / "out"),
                    "--preset",
                    "small",
                    "--device",
                    "cpu",
                ),
                *("--resume", *training),
            ],
        ),
        Case("evaluate", evaluate),
        Case("evaluate again", evaluate, evaluated),
        Case(
            "experiment",
            lambda place: ["experiment", str(config), "--out", str(place / "out"), "--jobs", "1"],
        ),
        Case(
            "ingest --overwrite",
            lambda place: ["ingest", reading[0], str(place / "out"), *reading[1:], "--overwrite"],
            earlier,
        ),
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


def measure(case: Case, folder: Path, warm: Warm) -> None:
    """Run a command undisturbed, for its results, its time and the number of its file operations."""
    place = prepared(case, folder / f"undisturbed {case.name}")
    if (place / "out").is_dir():
        case.old = comparable_content(place / "out")
    ended = warm.run(case.arguments(place), place / "log", watch=place)
    if ended.code:
        raise RuntimeError(f"{case.name} failed undisturbed: {ended.output}")
    case.seconds, case.events, case.result = (
        ended.seconds,
        ended.events,
        comparable_content(place / "out"),
    )


def prepared(case: Case, place: Path) -> Path:
    """A folder with what the case needs in it."""
    place.mkdir()
    case.before(place)
    return place


def kill_once(
    case: Case, place: Path, warm: Warm, moments: random.Random, at_operation: bool, from_cold: bool
) -> Kill:
    """Start, kill, look at what is there, start again, compare."""
    prepared(case, place)
    log = place.with_suffix(".log")
    arguments = case.arguments(place)
    troubles: list[str] = []
    if from_cold:
        ended, running = killed_in_time(
            cold(arguments, log), moments.uniform(0.5, 3.0 + case.seconds)
        )
    elif at_operation:
        running = warm.start(arguments, log, watch=place, die_at=moments.randint(1, case.events))
        ended = running.end()
        troubles += (
            []
            if ended.code == -9
            else [f"it was to die at a file operation and ended with {ended.code}"]
        )
    else:
        alone = moments.random() < 1 / 3
        running = warm.start(arguments, log)
        ended, running = killed_in_time(running, moments.uniform(0.0, case.seconds), alone)
        if not all_gone(running.pid):
            troubles.append("a process that it had started did not end")
            running.kill()
    when = "after" if ended.code >= 0 else "during" if has_begun(place, case) else "before"
    troubles += half_written(case, place / "out")
    again = cold(arguments, log).end() if from_cold else warm.run(arguments, log)
    troubles += not_the_same(case, place, again, finished=ended.code == 0)
    return Kill(case.name, when, troubles)


def killed_in_time(running: Running, seconds: float, alone: bool = False) -> tuple[Ended, Running]:
    """Kill a command some seconds after its start."""
    time.sleep(seconds)
    running.kill(whole_group=not alone)
    return running.end(), running


def all_gone(group: int, patience: float = 300.0) -> bool:
    """Whether every process of the group has ended."""
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
    found = {
        str(file.relative_to(place / "out"))
        for file in (place / "out").rglob("*")
        if file.is_file()
    }
    return bool(found - set(case.old)) or any(
        entry.name.startswith(".") for entry in place.iterdir()
    )


def half_written(case: Case, out: Path) -> list[str]:
    """What is wrong with the files that a reader would see after the kill."""
    troubles = [f"{name}: {why}" for name, why in incomplete_files(out)]
    if case.name.startswith("ingest"):  # a cohort is there whole, old or new, or not at all
        there = comparable_content(out) if out.is_dir() else {}
        set_aside = any(entry.suffix == ".old" for entry in out.parent.iterdir())
        if (
            there not in ([case.old, case.result] if case.old else [{}, case.result])
            and not set_aside
        ):
            troubles.append(
                f"the folder holds {len(there)} files that are neither the old nor the new cohort"
            )
    return troubles


def not_the_same(case: Case, place: Path, again: Ended, finished: bool) -> list[str]:
    """How the second attempt differs from an undisturbed one."""
    if case.name == "ingest" and finished:
        return (
            []
            if again.code == 1 and "already exists" in again.output
            else ["a finished ingest was not refused"]
        )
    if case.name == "ingest" and again.code == 1 and "already exists" in again.output:
        again = again._replace(code=0)  # it had taken its name: the kill came after its last rename
    if again.code:
        return [
            f"the same command again ended with {again.code}: {again.output.strip().splitlines()[-1:]}"
        ]
    found = comparable_content(place / "out")
    differing = sorted(
        name
        for name in found.keys() | case.result.keys()
        if found.get(name) != case.result.get(name)
    )
    troubles = [f"{name} differs from the undisturbed run" for name in differing]
    if "Traceback" in again.output:
        troubles.append("a traceback was shown")
    return troubles + [f"{name} was left behind" for name in leftover_files(place)]


def report(kills: list[Kill], cases: list[Case]) -> list[Promise]:
    """One row, with where the kills fell."""
    when = Counter(kill.when for kill in kills)
    by_case = Counter(kill.case for kill in kills)
    spread = ", ".join(f"{count} {name}" for name, count in by_case.items())
    troubles = [f"{kill.case}: {trouble}" for kill in kills for trouble in kill.troubles]
    said = "; ".join(troubles[:4]) + (f" and {len(troubles) - 4} more" if len(troubles) > 4 else "")
    files = sum(len(case.result) for case in cases)
    return [
        Promise(
            "killed (-9) at any moment, the same command again ends well, with the results of an undisturbed run, and "
            "nothing half written is seen under its final name in between",
            f"{len(kills)} kills ({spread}): {when['before']} before real work, {when['during']} during and "
            f"{when['after']} after it; {files} result files compared"
            + (f"; {said}" if said else ""),
            not troubles and when["during"] > 0,
        )
    ]
