"""Torture nerve and write what came of it into docs/reliability.md.

python -m torture [crash disk concurrency bad_input load …] [--short] [--seed 0] [--no-page]
"""

import argparse
import platform
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import torch

import nerve
from nerve._utils.files import write_text
from torture._each import each_by_itself
from torture.promise import Promise

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- made by make torture -->", "<!-- end of what make torture made -->"
HEAD = "| torture (time) | promise | measured | kept |"
NOT_TORTURES = {"promise"}
NAMES = sorted(
    p.stem
    for p in Path(__file__).parent.glob("*.py")
    if p.stem[0] != "_" and p.stem not in NOT_TORTURES
)
LIMIT = 120 * 60  # seconds: ends a torture that hangs


def main() -> int:
    """Run the tortures that are named, or all; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, []], help=f"among {', '.join(NAMES)}; all by default"
    )
    parser.add_argument("--short", action="store_true", help="the few cases that CI has time for")
    parser.add_argument(
        "--seed", type=int, default=0, help="where the random moments and cases come from"
    )
    parser.add_argument(
        "--no-page", action="store_true", help="do not rewrite the table in docs/reliability.md"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(LIMIT)
    kept = True
    with tempfile.TemporaryDirectory(prefix="nerve-torture-") as folder:
        for done in each_by_itself(
            arguments.names or NAMES, Path(folder), arguments.short, arguments.seed
        ):
            kept = said(*done, page=not (arguments.short or arguments.no_page)) and kept
    return 0 if kept else 1


def said(name: str, promises: list[Promise], seconds: float, *, page: bool) -> bool:
    """Say what one torture found, and write it into the page; whether all was kept."""
    print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    for promise in promises:
        print(
            f"  {'kept  ' if promise.kept else 'BROKEN'} {promise.promise}: {promise.measured}",
            flush=True,
        )
    if page:
        write_rows(name, promises, seconds)
    return all(promise.kept for promise in promises)


def _end(*_: object) -> None:
    """End every process that was started; what they wrote is removed on the way out."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    raise SystemExit(
        f"torture: not finished, the {LIMIT // 60} minutes are over. What was finished is in the page."
    )


def write_rows(name: str, promises: list[Promise], seconds: float) -> None:
    """Put what one torture found into the table of the page, in place of what it found before."""
    before, rest = PAGE.read_text().split(BEGIN)
    table, after = rest.split(END)
    title = f"{name} ({seconds:.0f} s)"
    rows = [
        line
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith(f"| {name} (")
    ]
    rows += [
        f"| {title} | {p.promise} | {p.measured} | {'yes' if p.kept else '**no**'} |"
        for p in promises
    ]
    head = [
        f"nerve {nerve.__version__}, torch {torch.__version__}, {platform.system()}.",
        "",
        HEAD,
        "|---|---|---|---|",
    ]
    rows = sorted((row for row in rows if row != HEAD), key=lambda row: row.split(" (")[0])
    write_text(PAGE, before + BEGIN + "\n" + "\n".join([*head, *rows]) + "\n" + END + after)


if __name__ == "__main__":
    raise SystemExit(main())
