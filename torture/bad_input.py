"""Random bad input: the tests of tests/torture/test_bad_input.py with many more examples.

`python -m torture bad_input --seed 1` draws other examples. A failed example is printed with what was
drawn; the same seed finds it again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from nerve._utils.cores import usable_cores
from torture._sandbox import EXTRA_BYTES
from torture.promise import Promise

ROOT = Path(__file__).parents[1]
TESTS = "tests/torture/test_bad_input.py"
NAMES = {
    "test_a_damaged_source_is_read_right_or_refused": "sources",
    "test_a_damaged_file_of_ours_is_refused": "files written by nerve",
    "test_changed_settings_are_refused": "settings",
    "test_odd_values_of_options_are_refused": "options",
}


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run the tests in another process; the short form is what `make test` runs."""
    command = [sys.executable, "-m", "pytest", TESTS, "-q", f"--hypothesis-seed={seed}"]
    command += ["--hypothesis-show-statistics", f"--basetemp={folder / 'pytest'}"]
    command += ["-n", str(usable_cores()), "-p", "no:cacheprovider"]
    if not short:
        command.append("--hypothesis-profile=torture")
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        print(process.stdout[-20_000:], process.stderr[-2000:], file=sys.stderr, flush=True)
    return [make_promise(process.stdout, process.returncode)]


def make_promise(output: str, exit_code: int) -> Promise:
    """Read the statistics that hypothesis printed, and make a row of the table."""
    examples: Counter[str] = Counter()
    test = ""
    for line in output.splitlines():
        header = re.match(rf"{re.escape(TESTS)}::(\w+).*:$", line)
        if header:
            test = header[1]
        counts = re.search(r"(\d+) passing, (\d+) failing, and \d+ invalid", line)
        if counts:
            examples[NAMES[test]] += int(counts[1]) + int(counts[2])
    failed = re.findall(r"^FAILED \S+::(\S+)", output, re.MULTILINE)
    measured = ", ".join(f"{count:,} of {name}" for name, count in examples.items())
    measured = (
        f"{sum(examples.values()):,} random examples ({measured}): {len(failed)} tests failed"
    )
    if failed:
        measured += f": {', '.join(failed[:10])}"
    return Promise(
        "bad input gives a right result or one sentence: no traceback, nothing that hangs, no memory beyond twice "
        f"the files plus {EXTRA_BYTES // 2**20} MB, no file outside the output folder",
        measured.replace("|", "/"),
        exit_code == 0 and bool(examples),
    )
