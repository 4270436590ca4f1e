"""Disks that are full and folders that cannot be written to: a sentence, nothing destroyed, and on it goes with space.

On file systems in memory (tmpfs), filled but for a few kilobytes or mounted read-only, which root may mount. Where that
is not allowed nothing is tried, and the promise does not count as kept.
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
from torture.promise import Promise

SPARE = 24 * 1024  # bytes that a full disk has left: enough to begin, too few to finish
SPARE_FOR = {"embed": 4096}  # its file is a small one


class Trial(NamedTuple):
    """What a command did on a bad disk and after."""

    name: str
    troubles: list[str]


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """The short form leaves out pretrain and experiment."""
    cases = disk_cases(folder)
    if short:
        cases = [case for case in cases if case.name in ("ingest", "embed", "evaluate")]
    with Warm() as warm:
        trained(cases, folder, warm)
        if not can_mount(folder / "try"):
            return [
                Promise(
                    "a full disk or a read-only folder",
                    "not tried: this user may not mount a tmpfs",
                    False,
                )
            ]
        full = [on_a_full_disk(case, folder, warm) for case in cases]
        locked = [on_a_read_only_one(case, folder, warm) for case in cases]
    return [
        said("a full disk", "the command goes on when there is space", full),
        said("a read-only folder", "the command works once it may write", locked),
    ]


def disk_cases(folder: Path) -> list[Case]:
    """The commands of the crash torture and `embed`."""
    cases = [case for case in make_cases(folder) if case.name != "ingest --overwrite"]
    model, cohort = folder / "model", folder / "cohort"
    embed = Case(
        "embed",
        lambda place: ["embed", str(model), str(cohort), str(place / "out" / "embedding.tsv")],
    )
    return [*cases, embed]


def trained(cases: list[Case], folder: Path, warm: Warm) -> None:
    """Run everything once where there is space; the trained model serves `embed`."""
    training = [
        *("--out", str(folder / "model"), "--preset", "small", "--device", "cpu", "--set", "dim=16")
    ]
    training += ["--set", "depth=1", "--set", "heads=2", "--set", "epochs=1"]
    warm.run(["pretrain", str(folder / "cohort"), *training], folder / "log")
    for case in cases:
        place = folder / f"undisturbed {case.name}"
        place.mkdir()
        ended = warm.run(case.arguments(place), place / "log")
        if ended.code:
            raise RuntimeError(f"{case.name} failed undisturbed: {ended.output}")
        case.result = comparable_content(place / "out")


def on_a_full_disk(case: Case, folder: Path, warm: Warm) -> Trial:
    """Fill the disk, try, make space, try again."""
    place = folder / f"full {case.name}"
    with mounted(place, "64m"):
        (place / "precious.txt").write_text("written before\n")
        filler = fill(place, SPARE_FOR.get(case.name, SPARE))
        failed = warm.run(case.arguments(place), folder / "log")
        troubles = not_clear(failed) + harmed(place)
        filler.unlink()
        troubles += not_finished(case, place, warm.run(case.arguments(place), folder / "log"))
    return Trial(case.name, troubles)


def on_a_read_only_one(case: Case, folder: Path, warm: Warm) -> Trial:
    """Forbid writing, try, allow it, try again."""
    place = folder / f"read-only {case.name}"
    with mounted(place, "64m"):
        (place / "precious.txt").write_text("written before\n")
        mount("-o", "remount,ro", str(place))
        failed = warm.run(case.arguments(place), folder / "log")
        troubles = not_clear(failed) + harmed(place)
        mount("-o", "remount,rw", str(place))
        troubles += not_finished(case, place, warm.run(case.arguments(place), folder / "log"))
    return Trial(case.name, troubles)


def not_clear(ended: Ended) -> list[str]:
    """What is wrong with how a command failed: it should end with 1 and one sentence that names a path and a reason."""
    lines = [line for line in ended.output.splitlines() if line.startswith("nerve: ")]
    troubles = (
        [] if ended.code == 1 else [f"it ended with {ended.code}: {ended.output.strip()[-200:]}"]
    )
    if "Traceback" in ended.output:
        troubles.append(f"a traceback was shown: {ended.output.strip().splitlines()[-1]}")
    if ended.code == 1 and not any(
        re.search(r"No space left|Read-only file system", line) for line in lines
    ):
        troubles.append(f"the sentence does not say why: {ended.output.strip()[-200:]!r}")
    return troubles


def harmed(place: Path) -> list[str]:
    """What is wrong with what was there before, or is visible now."""
    troubles = [f"{name} is not whole: {why}" for name, why in incomplete_files(place / "out")]
    if (place / "precious.txt").read_text() != "written before\n":
        troubles.append("a file that was there before has changed")
    return troubles


def not_finished(case: Case, place: Path, again: Ended) -> list[str]:
    """How the second attempt differs from one where there always was space."""
    if again.code:
        return [f"with space it ended with {again.code}: {again.output.strip()[-200:]}"]
    troubles = (
        []
        if comparable_content(place / "out") == case.result
        else ["with space the results differ"]
    )
    return troubles + [f"{name} was left behind" for name in leftover_files(place)]


def fill(place: Path, spare: int) -> Path:
    """A file that leaves only so many bytes of the disk."""
    filler = place / "filler.bin"
    with open(filler, "wb") as stream:
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        stream.write(b"\0" * max(free - spare, 0))
    return filler


@contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    """A small file system in memory, for the time of the block."""
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
    """Call mount."""
    subprocess.run(["mount", *arguments], capture_output=True, check=True)


def said(what: str, then: str, trials: list[Trial]) -> Promise:
    """The row of one kind of disk."""
    troubles = [f"{trial.name}: {trouble}" for trial in trials for trouble in trial.troubles]
    names = ", ".join(trial.name for trial in trials)
    return Promise(
        f"{what} is said in one sentence, nothing that was there is harmed, and {then}",
        f"tmpfs; {names}: exit 1 with the reason, then the results of an undisturbed run"
        + "".join(f"; {trouble}" for trouble in troubles[:4]),
        not troubles,
    )
