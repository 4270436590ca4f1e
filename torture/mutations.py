"""Forty lines of the package, broken one at a time: the test suite must notice every one.

A mutation is tried on a copy of source and tests in a temporary folder, which is also the folder that the tests run in:
broken code may do anything to the folder it runs in. Only the few tests that are there to notice it are run, all of
which `make test` runs too; before that, the same tests must pass on an unbroken copy. Each copy is tested by a process
forked from one that has imported what nerve imports, but not nerve.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nerve.cores import usable_cores
from torture._lines import MUTATIONS, Mutation
from torture.promise import Promise

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's code for "tests ran and some failed"; a copy that cannot be imported gives another
SECONDS = 300  # for the tests of one copy
SHORT = (3,)  # of a quick test
# what most tests import: it pays to have it once where there are many copies
HEAVY = ("matplotlib.figure", "scipy.optimize", "scipy.stats", "sklearn.pipeline", "torch")
MANY = 4
# The process that runs the tests says first which copy it has imported: another one would prove nothing.
RUNNER = """
import importlib, json, os, pathlib, signal, sys, time
import hypothesis, pandas, pytest, typer.testing

def test(tree, tests):
    os.chdir(tree)
    os.environ["PYTHONPATH"] = f"{tree}/src"
    sys.path[:0] = [f"{tree}/src"]
    said = os.open(f"{tree}/said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1), os.dup2(said, 2)
    signal.alarm(SECONDS)
    import nerve
    if pathlib.Path(nerve.__file__).parent != pathlib.Path(tree, "src", "nerve"):
        print(f"imported {nerve.__file__}, expected the copy in {tree}", flush=True)
        return 9
    options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-m", "not realdata"]
    return pytest.main([*options, *tests])

def begin(tree, tests):
    began, process = time.monotonic(), os.fork()
    if process == 0:
        code = 9
        try:
            code = test(tree, tests)
        finally:
            sys.stdout.flush()
            os._exit(code)
    running[process] = tree, began

jobs, at_once = json.loads(sys.argv[1]), int(sys.argv[2])
SECONDS, running = int(sys.argv[3]), {}
for name in sys.argv[4:]:
    importlib.import_module(name)
while jobs or running:
    while jobs and len(running) < at_once:
        begin(*jobs.pop(0))
    process, status = os.wait()
    tree, began = running.pop(process)
    print(json.dumps([tree, os.waitstatus_to_exitcode(status), time.monotonic() - began]), flush=True)
"""


class Tested(NamedTuple):
    """What came of the tests of one copy."""

    code: int  # of pytest; negative for a process that was ended
    said: str
    seconds: float


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Break the chosen lines; `seed` has no say here."""
    del seed
    stale = missing_lines()
    if stale:
        return [Promise(_words(MUTATIONS), f"the script is out of date: {'; '.join(stale)}", False)]
    chosen = [MUTATIONS[i] for i in SHORT] if short else list(MUTATIONS)
    began = time.perf_counter()
    unbroken, *found = tested(folder, [None, *chosen])
    if unbroken.code != 0:
        return [Promise(_words(chosen), f"the tests fail without any mutation: {_last_line(unbroken.said)}", False)]
    unnoticed = [said for mutation, one in zip(chosen, found, strict=True) if (said := verdict(mutation, one))]
    measured = f"{len(chosen) - len(unnoticed)} of {len(chosen)} noticed in {time.perf_counter() - began:.0f} s"
    return [Promise(_words(chosen), "; ".join([measured, *unnoticed]), not unnoticed)]


def missing_lines() -> list[str]:
    """What is wrong with the list itself: a line that is no longer there, or there twice."""
    wrong = []
    for mutation in MUTATIONS:
        lines = (ROOT / "src" / "nerve" / mutation.file).read_text("utf-8").splitlines()
        found = sum(_code(line) == mutation.old for line in lines)
        if found != 1:
            wrong.append(f"{mutation.file} has the line {mutation.old!r} {found} times, expected once")
        wrong += [f"{test} is not there" for test in mutation.tests if not (ROOT / test.partition("::")[0]).is_file()]
    return wrong


def tested(folder: Path, chosen: Sequence[Mutation | None]) -> list[Tested]:
    """Test a copy with each mutation; None is the copy without any, on which the tests of all of them run."""
    everything = sorted({test for mutation in chosen if mutation for test in mutation.tests})
    jobs = []
    for number, mutation in enumerate(chosen):
        tree = copied_tree(folder / str(number))
        if mutation is not None:
            mutate(tree / "src" / "nerve" / mutation.file, mutation)
        jobs.append((tree, everything if mutation is None else list(mutation.tests)))
    return run_tests(jobs)


def verdict(mutation: Mutation, found: Tested) -> str:
    """Nothing when the tests notice, otherwise what happened."""
    if found.code == TESTS_FAILED:
        return ""
    if found.code == 0:
        return f"NOT NOTICED by {', '.join(mutation.tests)}: {mutation.name}"
    return f"{mutation.name}: the tests could not be run ({found.code}: {_last_line(found.said)})"


def copied_tree(folder: Path) -> Path:
    """A copy of the package and its tests, to break and to run in; compiled files save time and know their source."""
    rubbish = shutil.ignore_patterns("*.pyc.*", ".hypothesis")
    shutil.copytree(ROOT / "src" / "nerve", folder / "src" / "nerve", ignore=rubbish)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=rubbish)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def mutate(path: Path, mutation: Mutation) -> None:
    """Break the one line, keeping its indentation, and see that Python still reads the file."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    (place,) = (i for i, line in enumerate(lines) if _code(line) == mutation.old)
    lines[place] = lines[place].replace(mutation.old, mutation.new)
    text = "".join(lines)
    ast.parse(text)
    path.write_text(text, "utf-8")


def run_tests(jobs: Sequence[tuple[Path, Sequence[str]]]) -> list[Tested]:
    """Run tests in copied trees, as many at a time as there are cores, longest lists first."""
    # this may itself run inside pytest, whose settings are not for the tests in the copy
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    given = json.dumps([(str(tree), list(tests)) for tree, tests in sorted(jobs, key=lambda job: -len(job[1]))])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, given, str(usable_cores()), str(SECONDS), *(HEAVY if len(jobs) > MANY else ())],
        cwd=jobs[0][0], env=environment, capture_output=True, text=True,
    )  # fmt: skip
    ended = {tree: (code, seconds) for tree, code, seconds in map(json.loads, done.stdout.splitlines())}
    return [Tested(*_ended(tree, ended, done.stderr)) for tree, _ in jobs]


def _ended(tree: Path, ended: dict[str, tuple[int, float]], errors: str) -> tuple[int, str, float]:
    code, seconds = ended.get(str(tree), (-1, 0.0))
    said = tree / "said"
    return code, said.read_text(errors="replace") if said.is_file() else errors, seconds


def _code(line: str) -> str:
    return line.partition("  #")[0].strip()


def _words(chosen: Sequence[Mutation]) -> str:
    return f"Each of {len(chosen)} chosen lines, broken, is noticed by the tests"


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["nothing was said"])[-1]


if __name__ == "__main__":  # the table, or a part of it: python -m torture.mutations [evaluation/folds.py …]
    import tempfile

    wanted = [one for one in MUTATIONS if one.file in sys.argv[1:] or not sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="nerve-mutations-") as scratch:
        for one, found in zip(wanted, tested(Path(scratch), wanted), strict=True):
            noticed = verdict(one, found) or "noticed"
            print(f"| {one.file} | {one.name} | {found.seconds:.1f} s | {noticed.partition(':')[0]} |", flush=True)
