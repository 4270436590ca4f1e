"""Several processes at one folder: four on an experiment, two on a training run or a cohort, and locks of the dead.

A process stops itself (SIGSTOP) while it holds what the other wants, so that every meeting takes place.
"""

import os
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil

from torture._processes import Running, Warm
from torture._results import comparable_content, incomplete_files, leftover_files
from torture.crash import Case, make_cases
from torture.promise import Promise

PATIENCE = 1200.0  # seconds after which a process counts as hanging


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """The short form leaves out the undisturbed run of the experiment and has two processes on it instead of four."""
    cases = {case.name: case for case in make_cases(folder)}
    n_together = 2 if short else 4
    with ExitStack() as stack:
        warm = [stack.enter_context(Warm()) for _ in range(n_together)]
        return [
            many_on_an_experiment(cases["experiment"], folder, warm, alone=not short),
            the_dead_are_relieved(cases["experiment"], folder, warm),
            second_is_refused(cases["pretrain"], folder, warm, "two on one training run", ".lock"),
            second_is_refused(cases["ingest"], folder, warm, "two on one cohort", None),
        ]


def many_on_an_experiment(case: Case, folder: Path, warm: list[Warm], alone: bool) -> Promise:
    """All start at once; each run, cohort and encoder is made once, and the tables are those of one process."""
    place = folder / "together"
    place.mkdir()
    logs = [place / f"log{number}" for number in range(len(warm))]
    running = [
        one.start(case.arguments(place), log, trace=True)
        for one, log in zip(warm, logs, strict=True)
    ]
    ended = [one.end() for one in running]
    made = Counter(
        str(Path(name).relative_to(place / "out"))
        for log in logs
        for name in Path(f"{log}.renames").read_text().splitlines()
        if name.endswith(("manifest.json", "model.safetensors"))
        or Path(name).parent.name == "cohorts"
    )
    troubles = [f"{name} was made {count} times" for name, count in made.items() if count > 1]
    troubles += [
        f"a process ended with {one.code}: {one.output[-200:]}" for one in ended if one.code
    ]
    troubles += [f"{name}: {why}" for name, why in incomplete_files(place / "out")]
    troubles += [f"{name} was left behind" for name in leftover_files(place)]
    if alone:
        single = folder / "alone"
        single.mkdir()
        warm[0].run(case.arguments(single), single / "log")
        if comparable_content(single / "out") != comparable_content(place / "out"):
            troubles.append("the results differ from those of one process")
    runs = sum(name.endswith("manifest.json") for name in made)
    return Promise(
        "processes on one experiment share its runs, and none is made twice",
        f"{len(warm)} processes at once: {runs} runs, each made once; all ended with 0"
        + (", tables as from one process" if alone else "")
        + "".join(f"; {trouble}" for trouble in troubles[:3]),
        not troubles,
    )


def the_dead_are_relieved(case: Case, folder: Path, warm: list[Warm]) -> Promise:
    """One process is stopped while it holds a run; the other does the rest, waits, and takes over after the kill."""
    place = folder / "relieved"
    place.mkdir()
    # locks of runs are called by their ids: those of cohorts and results are not meant
    a_run = str(place / "out" / "locks" / ("[0-9a-f]" * 16))
    first = warm[0].start(case.arguments(place), place / "log0", stop_at_lock=a_run)
    held = has_stopped(first)
    second = warm[1].start(case.arguments(place), place / "log1")
    waited = waits(second, 1.5)
    first.kill()
    first.end()
    ended = second.end()
    kept = bool(held) and waited and ended.code == 0 and not leftover_files(place)
    return Promise(
        "a killed process blocks no other: its run is taken over",
        f"holder stopped, the other waited: {'yes' if waited else 'no'}; holder killed: the other ended with "
        f"{ended.code}" + ("" if kept else f"; {ended.output[-300:]}; {leftover_files(place)}"),
        kept,
    )


def second_is_refused(
    case: Case, folder: Path, warm: list[Warm], what: str, lock: str | None
) -> Promise:
    """The second is refused by the name of the first, which then finishes; a lock of a killed one is no obstacle."""
    place = folder / what.replace(" ", "-")
    place.mkdir()
    file = place / ".out.lock" if lock is None else place / "out" / lock
    first = warm[0].start(case.arguments(place), place / "log0", stop_at_lock=str(file))
    has_stopped(first)
    second = warm[1].run(case.arguments(place), place / "log1")
    named = f"process {first.pid} on " in second.output and "Traceback" not in second.output
    os.kill(first.pid, signal.SIGCONT)
    finished = first.end()
    whole = not list(incomplete_files(place / "out")) and not leftover_files(place)
    other = folder / f"{place.name}-killed"
    other.mkdir()
    file = other / ".out.lock" if lock is None else other / "out" / lock
    dead = warm[0].start(case.arguments(other), other / "log0", stop_at_lock=str(file))
    has_stopped(dead)
    dead.kill()
    dead.end()
    stale = file.exists()
    after = warm[1].run(case.arguments(other), other / "log1")
    same = comparable_content(other / "out") == comparable_content(place / "out")
    kept = named and second.code == 1 and finished.code == 0 and whole and after.code == 0 and same
    said = second.output.strip().splitlines()[-1] if second.output.strip() else ""
    return Promise(
        f"{what}: the second is refused by the name of the first, and a lock left by a kill is no obstacle",
        f"second ended with {second.code}{' and named the first' if named else f': {said}'}, first with "
        f"{finished.code}; lock left by a kill: {'yes' if stale else 'no'}, next one ended with {after.code}"
        + (", same results" if same else ", OTHER results"),
        kept,
    )


def has_stopped(running: Running) -> bool:
    """Whether a process has stopped, waiting for it; False when it ends instead."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            status = psutil.Process(running.pid).status()
        except psutil.NoSuchProcess:
            return False
        if status in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            return bool(status == psutil.STATUS_STOPPED)
        time.sleep(0.005)
    return False


def waits(running: Running, seconds: float) -> bool:
    """Whether a process is still there after some seconds; on a slow machine it may not have come to the lock yet."""
    time.sleep(seconds)
    try:
        os.kill(running.pid, 0)
    except ProcessLookupError:
        return False
    return True
