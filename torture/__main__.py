"""Run the tortures and write the results into docs/reliability.md.

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
from torture._schedule import Finished, run_all
from torture.promise import Promise

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN = "<!-- made by make torture -->"
END = "<!-- end of what make torture made -->"
HEAD = "| torture (time) | promise | measured | kept |"
NOT_TORTURES = {"promise"}
NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith("_") and path.stem not in NOT_TORTURES
)
LIMIT = 120 * 60  # seconds: ends a torture that hangs


def main() -> int:
    """Run the named tortures, or all; returns 1 if a promise was broken."""
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
    write_page = not (arguments.short or arguments.no_page)
    signal.signal(signal.SIGALRM, _stop_after_limit)
    signal.alarm(LIMIT)
    all_kept = True
    with tempfile.TemporaryDirectory(prefix="nerve-torture-") as folder:
        names = arguments.names or NAMES
        for finished in run_all(names, Path(folder), arguments.short, arguments.seed):
            print_result(finished)
            if write_page:
                write_rows(finished)
            all_kept = all_kept and all(promise.kept for promise in finished.promises)
    return 0 if all_kept else 1


def print_result(finished: Finished) -> None:
    """Print what one torture measured, one line per promise."""
    print(f"{finished.name}: {finished.seconds:.0f} s", file=sys.stderr, flush=True)
    for promise in finished.promises:
        verdict = "kept  " if promise.kept else "BROKEN"
        print(f"  {verdict} {promise.promise}: {promise.measured}", flush=True)


def _stop_after_limit(*_: object) -> None:
    """End every process that was started; temporary folders are removed on the way out."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    raise SystemExit(
        f"torture: stopped after {LIMIT // 60} minutes. The page has the tortures that finished."
    )


def write_rows(finished: Finished) -> None:
    """Replace the rows of one torture in the table of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    table, after = rest.split(END)
    old_rows = [line for line in table.splitlines() if line.startswith("| ") and line != HEAD]
    rows = [row for row in old_rows if not row.startswith(f"| {finished.name} (")]
    title = f"{finished.name} ({finished.seconds:.0f} s)"
    rows += [_table_row(title, promise) for promise in finished.promises]
    rows.sort(key=lambda row: row.split(" (")[0])  # by the name of the torture
    head = [
        f"nerve {nerve.__version__}, torch {torch.__version__}, {platform.system()}.",
        "",
        HEAD,
        "|---|---|---|---|",
    ]
    write_text(PAGE, before + BEGIN + "\n" + "\n".join([*head, *rows]) + "\n" + END + after)


def _table_row(title: str, promise: Promise) -> str:
    kept = "yes" if promise.kept else "**no**"
    return f"| {title} | {promise.promise} | {promise.measured} | {kept} |"


if __name__ == "__main__":
    raise SystemExit(main())
