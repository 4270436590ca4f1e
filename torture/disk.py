"""Full disks and read-only folders: one sentence, nothing destroyed, and it works once there is space.

The disks are file systems in memory (tmpfs), filled but for a few kilobytes or mounted read-only,
which root may mount. Where that is not allowed nothing is tried, and the promise does not count as
kept.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from torture._processes import Ended, Warm
from torture._results import comparable_content, incomplete_files, leftover_files
from torture.crash import Case, make_cases
from torture.promise import Promise, with_troubles

SPARE = 24 * 1024  # bytes that a full disk has left: enough to begin, too few to finish
SPARE_FOR = {"embed": 4096}  # it writes a small file


class Trial(NamedTuple):
    """What was wrong when a command ran on a bad disk, and after."""

    name: str
    troubles: list[str]


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run every command on both kinds of disk; the short form has ingest, embed and evaluate."""
    cases = disk_cases(folder)
    if short:
        cases = [case for case in cases if case.name in ("ingest", "embed", "evaluate")]
    with Warm() as warm:
        run_undisturbed(cases, folder, warm)
        if not can_mount(folder / "try"):
            reason = "not tried: this user may not mount a tmpfs"
            return [Promise("a full disk or a read-only folder", reason, False)]
        on_full = [try_full_disk(case, folder, warm) for case in cases]
        on_read_only = [try_read_only_folder(case, folder, warm) for case in cases]
    return [
        make_promise("a full disk", "the command continues when there is space", on_full),
        make_promise("a read-only folder", "the command works once it may write", on_read_only),
    ]


def disk_cases(folder: Path) -> list[Case]:
    """The commands of the crash torture and `embed`."""
    cases = [case for case in make_cases(folder) if case.name != "ingest --overwrite"]
    model = folder / "model"
    cohort = folder / "cohort"

    def embed(place: Path) -> list[str]:
        return ["embed", str(model), str(cohort), str(place / "out" / "embedding.tsv")]

    return [*cases, Case("embed", embed)]


def run_undisturbed(cases: list[Case], folder: Path, warm: Warm) -> None:
    """Run everything once where there is space; `embed` uses the model that is trained first."""
    training = [
        "pretrain", str(folder / "cohort"), "--out", str(folder / "model"), "--preset", "small",
        "--device", "cpu", "--set", "dim=16", "--set", "depth=1", "--set", "heads=2",
        "--set", "epochs=1",
    ]  # fmt: skip
    warm.run(training, folder / "log")
    for case in cases:
        place = folder / f"undisturbed {case.name}"
        place.mkdir()
        end = warm.run(case.arguments(place), place / "log")
        if end.code:
            raise RuntimeError(f"{case.name} failed undisturbed: {end.output}")
        case.result = comparable_content(place / "out")


def try_full_disk(case: Case, folder: Path, warm: Warm) -> Trial:
    """Fill the disk, run the command, make space, run it again."""
    place = folder / f"full {case.name}"
    with mounted(place, "64m"):
        (place / "precious.txt").write_text("written before\n")
        filler = fill(place, SPARE_FOR.get(case.name, SPARE))
        failed = warm.run(case.arguments(place), folder / "log")
        troubles = faults_of_failure(failed) + faults_of_files(place)
        filler.unlink()
        second_end = warm.run(case.arguments(place), folder / "log")
        troubles += faults_of_second_attempt(case, place, second_end)
    return Trial(case.name, troubles)


def try_read_only_folder(case: Case, folder: Path, warm: Warm) -> Trial:
    """Forbid writing, run the command, allow writing, run it again."""
    place = folder / f"read-only {case.name}"
    with mounted(place, "64m"):
        (place / "precious.txt").write_text("written before\n")
        mount("-o", "remount,ro", str(place))
        failed = warm.run(case.arguments(place), folder / "log")
        troubles = faults_of_failure(failed) + faults_of_files(place)
        mount("-o", "remount,rw", str(place))
        second_end = warm.run(case.arguments(place), folder / "log")
        troubles += faults_of_second_attempt(case, place, second_end)
    return Trial(case.name, troubles)


def faults_of_failure(end: Ended) -> list[str]:
    """What is wrong with how a command failed.

    It should end with 1 and one sentence that names a path and a reason.
    """
    troubles = []
    if end.code != 1:
        troubles.append(f"it ended with {end.code}: {end.output.strip()[-200:]}")
    if "Traceback" in end.output:
        troubles.append(f"a traceback was shown: {end.output.strip().splitlines()[-1]}")
    sentences = [line for line in end.output.splitlines() if line.startswith("nerve: ")]
    reasons = r"No space left|Read-only file system"
    if end.code == 1 and not any(re.search(reasons, sentence) for sentence in sentences):
        troubles.append(f"the sentence does not say why: {end.output.strip()[-200:]!r}")
    return troubles


def faults_of_files(place: Path) -> list[str]:
    """What is wrong with the files that were there before, or that are visible now."""
    out = place / "out"
    troubles = [f"{name} is incomplete: {reason}" for name, reason in incomplete_files(out)]
    if (place / "precious.txt").read_text() != "written before\n":
        troubles.append("a file that was there before has changed")
    return troubles


def faults_of_second_attempt(case: Case, place: Path, end: Ended) -> list[str]:
    """How the second attempt differs from one where there always was space."""
    if end.code:
        return [f"with space it ended with {end.code}: {end.output.strip()[-200:]}"]
    troubles = [f"{name} was left behind" for name in leftover_files(place)]
    if comparable_content(place / "out") != case.result:
        troubles.insert(0, "with space the results differ")
    return troubles


def fill(place: Path, spare: int) -> Path:
    """Write a file that leaves only so many bytes of the disk, and return it."""
    filler = place / "filler.bin"
    with open(filler, "wb") as stream:
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        stream.write(b"\0" * max(free - spare, 0))
    return filler


@contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    """Mount a small file system in memory, for the time of the block."""
    place.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "nerve-torture", str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)


def can_mount(place: Path) -> bool:
    """Whether this user may mount a tmpfs."""
    try:
        with mounted(place, "1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def mount(*arguments: str) -> None:
    """Run the command `mount`."""
    subprocess.run(["mount", *arguments], capture_output=True, check=True)


def make_promise(fault: str, remedy: str, trials: list[Trial]) -> Promise:
    """The row of one sort of bad disk."""
    troubles = []
    for trial in trials:
        troubles += [f"{trial.name}: {trouble}" for trouble in trial.troubles]
    names = ", ".join(trial.name for trial in trials)
    measured = f"tmpfs; {names}: exit 1 with the reason, then the results of an undisturbed run"
    return Promise(
        f"{fault} is reported in one sentence, existing files are not harmed, and {remedy}",
        with_troubles(measured, troubles, at_most=4),
        not troubles,
    )
