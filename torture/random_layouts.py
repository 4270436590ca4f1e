"""Random layouts of a known cohort: each must be read right or refused with one sentence.

The tests of tests/data/readers/test_random_layouts.py with many more examples. A layout that is read
wrong is printed; the same seed finds it again.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from nerve._utils.cores import usable_cores
from torture.promise import Promise

ROOT = Path(__file__).parents[1]
TESTS = "tests/data/readers/test_random_layouts.py"
RIGHT = "right"
RIGHT_AFTER_ADVICE = "right once the advice is typed"


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run the tests in another process; the short form is what `make test` runs."""
    record = folder / "outcomes.xml"
    command = [sys.executable, "-m", "pytest", TESTS, f"--hypothesis-seed={seed}"]
    command += [f"--junitxml={record}", f"--basetemp={folder / 'pytest'}"]
    command += ["-n", str(usable_cores()), "--dist", "load", "-p", "no:cacheprovider"]
    if not short:
        command.append("--hypothesis-profile=torture")
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        print(process.stdout[-20_000:], process.stderr[-2000:], file=sys.stderr, flush=True)
    return [make_promise(read_outcomes(record), process.returncode)]


def read_outcomes(record: Path) -> Counter[str]:
    """How many layouts were right, or refused for which reason, from the record of the tests."""
    outcomes: Counter[str] = Counter()
    for recorded in ElementTree.parse(record).iter("property"):
        outcomes[recorded.attrib["name"]] += int(recorded.attrib["value"])
    return outcomes


def make_promise(outcomes: Counter[str], exit_code: int) -> Promise:
    """Make a row of the table."""
    n_right = outcomes[RIGHT] + outcomes[RIGHT_AFTER_ADVICE]
    refusals = Counter(
        {words: count for words, count in outcomes.items() if words.startswith("refused")}
    )
    measured = (
        f"{outcomes.total():,} layouts: {n_right:,} right ({outcomes[RIGHT_AFTER_ADVICE]:,} of them "
        f"once what the message says was typed), {refusals.total():,} refused"
    )
    if refusals:
        [(words, count)] = refusals.most_common(1)
        measured += f", most often ({count}) because {words.removeprefix('refused: ')}"
    return Promise(
        "a random layout of a cohort (header, index, labels, ids, visits, codes, separators, r or z, one file each or one "
        "of all) is read right or refused",
        measured.replace("|", "/"),
        exit_code == 0 and outcomes.total() > 0,
    )
