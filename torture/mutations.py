"""Ten lines of the package, broken one at a time: the test suite must notice every one.

A mutation is tried on a copy of source and tests in a temporary folder, which is also the folder that the tests run in:
broken code may do anything to the folder it runs in. Only the few tests that are there to notice it are run; before
that, the same tests must pass on an unbroken copy.
"""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torture.promise import Promise

ROOT = Path(__file__).parents[1]
# the process that runs the tests says first which copy it has imported: another one would prove nothing
RUNNER = """
import pathlib, sys
import nerve, pytest
if pathlib.Path(nerve.__file__).parent != pathlib.Path(sys.argv[1]):
    sys.exit(f"imported {nerve.__file__}, expected the copy in {sys.argv[1]}")
sys.exit(pytest.main(sys.argv[2:]))
"""
TESTS_FAILED = 1  # pytest's code for "tests ran and some failed"; a copy that cannot be imported gives another


class Mutation(NamedTuple):
    """One line that is broken, and who must notice."""

    name: str
    file: str  # below src/nerve
    old: str  # the line without indentation and comment; it stands there exactly once
    new: str
    tests: tuple[str, ...]  # files, or single tests where a file takes long


MUTATIONS = (
    Mutation(
        "pair order: patches go down columns instead of along rows",
        "patching.py",
        "return np.stack(np.triu_indices(self.n_groups), axis=1)",
        "return np.stack(np.tril_indices(self.n_groups)[::-1], axis=1)",
        ("tests/test_patching.py",),
    ),
    Mutation(
        "mask complement: one visible patch counts as masked too",
        "models/masked_autoencoder.py",
        "return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible :].sort(1).values",
        "return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible - 1 :].sort(1).values",
        ("tests/models/test_masked_autoencoder.py",),
    ),
    Mutation(
        "covariate fold: coefficients from everyone, test people too",
        "evaluation/predict.py",
        "regression = CovariateRegression().fit(table.iloc[train], raw[train, None])",
        "regression = CovariateRegression().fit(table.iloc[both], raw[both, None])",
        ("tests/evaluation/test_leakage.py",),
    ),
    Mutation(
        "bootstrap index: the last person is never drawn",
        "evaluation/bootstrap.py",
        "drawn = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units))",
        "drawn = np.random.default_rng(seed).integers(0, n_units - 1, (n_resamples, n_units))",
        ("tests/evaluation/test_statistics.py",),
    ),
    Mutation(
        "label alignment: the inverse of the order that is wanted",
        "parcellation.py",
        "return np.array([position.get(key, -1) for key in there], int)",
        "return np.argsort([position.get(key, -1) for key in there])",
        ("tests/test_parcellation.py",),
    ),
    Mutation(
        "λ choice: as good as the worst is good enough",
        "evaluation/kernel_ridge.py",
        "best = self.inner_scores_.max(axis=0)",
        "best = self.inner_scores_.min(axis=0)",
        ("tests/evaluation/test_kernel_ridge.py",),
    ),
    Mutation(
        "resume RNG: a resumed run draws the masks of the step before",
        "training/loop.py",
        "draws = Draws(self.settings.seed, self.step, len(rows), share, self.device)",
        "draws = Draws(self.settings.seed, self.step - (self.seconds_before > 0), len(rows), share, self.device)",
        ("tests/training/test_loop.py::test_resume_after_a_kill_is_bit_for_bit",),
    ),
    Mutation(
        "atomic rename: the final file is written over in place",
        "files.py",
        "os.replace(name, path)",
        "path.write_bytes(Path(name).read_bytes()), os.unlink(name)",
        ("tests/test_files.py",),
    ),
    Mutation(
        "escaping: what users named goes into the page as it is",
        "report/page.py",
        "autoescape=True,",
        "autoescape=False,",
        ("tests/report/test_page.py::test_hostile_text_stays_text",),
    ),
    Mutation(
        "permutation p: the observed order is not counted",
        "evaluation/permutation.py",
        "return float((1 + np.sum(null >= observed)) / (1 + len(null)))",
        "return float(np.sum(null >= observed) / len(null))",
        ("tests/evaluation/test_statistics.py",),
    ),
)
SHORT = (4,)  # its tests are quick


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Break the chosen lines; `seed` has no say here."""
    del seed
    stale = missing_lines()
    if stale:
        return [Promise(_words(MUTATIONS), f"the script is out of date: {'; '.join(stale)}", False)]
    chosen = [MUTATIONS[i] for i in SHORT] if short else list(MUTATIONS)
    began = time.perf_counter()
    tests = sorted({test for mutation in chosen for test in mutation.tests})
    code, said = run_tests(copied_tree(folder / "unbroken"), tests)
    if code != 0:
        return [Promise(_words(chosen), f"the tests fail without any mutation: {_last_line(said)}", False)]
    verdicts = [tried(folder / f"mutant-{i}", mutation) for i, mutation in enumerate(chosen)]
    unnoticed = [verdict for verdict in verdicts if verdict]
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


def tried(folder: Path, mutation: Mutation) -> str:
    """Nothing when the tests notice, otherwise what happened."""
    tree = copied_tree(folder)
    mutate(tree / "src" / "nerve" / mutation.file, mutation)
    code, said = run_tests(tree, mutation.tests)
    shutil.rmtree(folder, ignore_errors=True)
    if code == TESTS_FAILED:
        return ""
    if code == 0:
        return f"NOT NOTICED by {', '.join(mutation.tests)}: {mutation.name}"
    return f"{mutation.name}: the tests could not be run ({_last_line(said)})"


def copied_tree(folder: Path) -> Path:
    """A copy of the package and its tests, to break and to run in."""
    rubbish = shutil.ignore_patterns("__pycache__", ".hypothesis")
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


def run_tests(tree: Path, tests: Sequence[str], seconds: float = 300) -> tuple[int, str]:
    """Run tests in a copied tree; the code of pytest and what it said."""
    # this may itself run inside pytest, whose settings are not for the tests in the copy
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-m", "not slow and not realdata"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(tree / "src" / "nerve"), *options, *tests],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {seconds:.0f} s"
    return done.returncode, done.stdout + done.stderr


def _code(line: str) -> str:
    return line.partition("  #")[0].strip()


def _words(chosen: Sequence[Mutation]) -> str:
    return f"Each of {len(chosen)} chosen lines, broken, is noticed by the tests"


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["nothing was said"])[-1]
