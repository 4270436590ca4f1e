"""Random layouts of a cohort that is known: each is read right or refused with one sentence, never anything else.

The tests of tests/data/readers/test_random_layouts.py with many more examples. A layout that is read wrong is printed;
it is found again with the same seed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from nerve._utils.cores import usable_cores
from torture.promise import Promise

ROOT = Path(__file__).parents[1]
TESTS = "tests/data/readers/test_random_layouts.py"
RIGHT = ("right", "right once the advice is typed")


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run the tests in another process; the short form is what `make test` runs."""
    command = [sys.executable, "-m", "pytest", TESTS, "-q", f"--hypothesis-seed={seed}"]
    command += ["--hypothesis-show-statistics", f"--basetemp={folder / 'pytest'}"]
    command += ["-n", str(usable_cores()), "--dist", "load", "-p", "no:cacheprovider"]
    command += [] if short else ["--hypothesis-profile=torture"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-2000:], file=sys.stderr, flush=True)
    return [promise(done.stdout, done.returncode)]


def promise(output: str, exit_code: int) -> Promise:
    """What the statistics of hypothesis say, as a row of the table."""
    outcomes: Counter[str] = Counter()
    n_layouts = 0
    n_of_test = 0
    for line in output.splitlines():
        counts = re.search(r"(\d+) passing, (\d+) failing, and \d+ invalid", line)
        if counts:
            n_of_test = int(counts[1]) + int(counts[2])
            n_layouts += n_of_test
        outcome = re.match(r"\s+\* ([\d.]+)%, (.+)$", line)
        if outcome:
            outcomes[outcome[2]] += round(float(outcome[1]) / 100 * n_of_test)
    n_right = sum(outcomes[words] for words in RIGHT)
    refused = [(words, n) for words, n in outcomes.most_common() if words.startswith("refused")]
    measured = (
        f"{n_layouts:,} layouts: {n_right:,} right ({outcomes[RIGHT[1]]:,} of them once what the "
        f"message says was typed), {sum(n for _, n in refused):,} refused"
    )
    if refused:
        words, n = refused[0]
        measured += f", most often ({n}) because {words.removeprefix('refused: ')}"
    return Promise(
        "a random layout of a cohort (header, index, labels, ids, visits, codes, separators, r or z, one file each or one "
        "of all) is read right or refused",
        measured.replace("|", "/"),
        exit_code == 0 and n_layouts > 0,
    )
