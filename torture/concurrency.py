"""Several processes on one folder: an experiment, a training run, a cohort, and locks left by kills.

A process stops itself (SIGSTOP) while it holds the lock that the other needs, so that they are
certain to meet.
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
from torture.promise import Promise, with_troubles

PATIENCE = 1200.0  # seconds after which a process counts as hanging


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Four processes on an experiment, then two on each of the others.

    The short form has two processes on the experiment, and does not run it undisturbed.
    """
    cases = {case.name: case for case in make_cases(folder)}
    n_processes = 2 if short else 4
    with ExitStack() as stack:
        warm = [stack.enter_context(Warm()) for _ in range(n_processes)]
        return [
            share_an_experiment(cases["experiment"], folder, warm, compare_with_one=not short),
            take_over_after_kill(cases["experiment"], folder, warm),
            refuse_second(
                cases["pretrain"], folder, warm, "two processes on one training run", "out/.lock"
            ),
            refuse_second(
                cases["ingest"], folder, warm, "two processes on one cohort", ".out.lock"
            ),
        ]


def share_an_experiment(
    case: Case, folder: Path, warm: list[Warm], compare_with_one: bool
) -> Promise:
    """Start all processes at once: each run, cohort and encoder should be made by one of them only.

    With `compare_with_one`, the results must be those of one process that works alone.
    """
    place = folder / "together"
    place.mkdir()
    logs = [place / f"log{number}" for number in range(len(warm))]
    processes = [
        parent.start(case.arguments(place), log, trace=True)
        for parent, log in zip(warm, logs, strict=True)
    ]
    ends = [process.wait() for process in processes]
    n_made: Counter[str] = Counter()
    for log in logs:
        for name in Path(f"{log}.renames").read_text().splitlines():
            path = Path(name)
            is_cohort = path.parent.name == "cohorts"
            if is_cohort or name.endswith(("manifest.json", "model.safetensors")):
                n_made[str(path.relative_to(place / "out"))] += 1
    troubles = [f"{name} was made {count} times" for name, count in n_made.items() if count > 1]
    troubles += [
        f"a process ended with {end.code}: {end.output[-200:]}" for end in ends if end.code
    ]
    troubles += [f"{name}: {reason}" for name, reason in incomplete_files(place / "out")]
    troubles += [f"{name} was left behind" for name in leftover_files(place)]
    if compare_with_one:
        alone = folder / "alone"
        alone.mkdir()
        warm[0].run(case.arguments(alone), alone / "log")
        if comparable_content(alone / "out") != comparable_content(place / "out"):
            troubles.append("the results differ from those of one process")
    n_runs = sum(name.endswith("manifest.json") for name in n_made)
    measured = f"{len(warm)} processes at once: {n_runs} runs, each made once; all ended with 0"
    if compare_with_one:
        measured += ", tables as from one process"
    return Promise(
        "processes on one experiment share its runs, and none is made twice",
        with_troubles(measured, troubles, at_most=3),
        not troubles,
    )


def take_over_after_kill(case: Case, folder: Path, warm: list[Warm]) -> Promise:
    """Stop a process while it holds a run: the other does the rest, waits, and takes over after a kill."""
    place = folder / "relieved"
    place.mkdir()
    # Locks of runs are named by the ids of the runs, unlike those of cohorts and results.
    lock_of_a_run = str(place / "out" / "locks" / ("[0-9a-f]" * 16))
    holder = warm[0].start(case.arguments(place), place / "log0", stop_at_lock=lock_of_a_run)
    holder_stopped = has_stopped(holder)
    other = warm[1].start(case.arguments(place), place / "log1")
    other_waited = still_runs_after(other, 1.5)
    holder.kill()
    holder.wait()
    end = other.wait()
    leftovers = leftover_files(place)
    kept = holder_stopped and other_waited and end.code == 0 and not leftovers
    measured = (
        f"holder stopped, the other waited: {'yes' if other_waited else 'no'}; "
        f"holder killed: the other ended with {end.code}"
    )
    if not kept:
        measured += f"; {end.output[-300:]}; {leftovers}"
    return Promise(
        "a killed process does not block others: another process takes over its run", measured, kept
    )


def refuse_second(case: Case, folder: Path, warm: list[Warm], title: str, lock: str) -> Promise:
    """Start a second process while the first holds the lock: it should be refused, naming the first.

    The first then finishes. A lock that a killed process left behind should not matter.
    """
    place = folder / title.replace(" ", "-")
    place.mkdir()
    first = warm[0].start(case.arguments(place), place / "log0", stop_at_lock=str(place / lock))
    has_stopped(first)
    second_end = warm[1].run(case.arguments(place), place / "log1")
    names_first = f"process {first.pid} on " in second_end.output
    names_first = names_first and "Traceback" not in second_end.output
    os.kill(first.pid, signal.SIGCONT)
    first_end = first.wait()
    is_complete = not list(incomplete_files(place / "out")) and not leftover_files(place)

    other = folder / f"{place.name}-killed"
    other.mkdir()
    killed = warm[0].start(case.arguments(other), other / "log0", stop_at_lock=str(other / lock))
    has_stopped(killed)
    killed.kill()
    killed.wait()
    lock_was_left = (other / lock).exists()
    next_end = warm[1].run(case.arguments(other), other / "log1")
    same_results = comparable_content(other / "out") == comparable_content(place / "out")

    kept = (
        names_first
        and second_end.code == 1
        and first_end.code == 0
        and is_complete
        and next_end.code == 0
        and same_results
    )
    if names_first:
        refusal = " and named the first"
    else:
        last_line = second_end.output.strip().splitlines()[-1:]
        refusal = f": {''.join(last_line)}"
    return Promise(
        f"{title}: the second is refused and told the number of the first, and a lock left by a "
        "kill does not block",
        f"second ended with {second_end.code}{refusal}, first with {first_end.code}; "
        f"lock left by a kill: {'yes' if lock_was_left else 'no'}, "
        f"next one ended with {next_end.code}, {'same' if same_results else 'OTHER'} results",
        kept,
    )


def has_stopped(running: Running) -> bool:
    """Wait until a process has stopped; False if it ends instead."""
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


def still_runs_after(running: Running, seconds: float) -> bool:
    """Whether a process is still there after some seconds.

    On a slow machine it may not have come to the lock yet.
    """
    time.sleep(seconds)
    try:
        os.kill(running.pid, 0)
    except ProcessLookupError:
        return False
    return True
