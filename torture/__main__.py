"""Torture nerve and write what came of it into docs/reliability.md.

python -m torture [crash disk concurrency fuzz load …] [--short] [--seed 0] [--no-page]
"""

import argparse
import importlib
import platform
import sys
import tempfile
import time
from pathlib import Path

import torch

import nerve
from nerve.files import write_text
from torture.promise import Promise

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- made by make torture -->", "<!-- end of what make torture made -->"
NOT_TORTURES = {"promise"}
NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem[0] != "_" and p.stem not in NOT_TORTURES)


def main() -> int:
    """Run the tortures that are named, or all; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help=f"among {', '.join(NAMES)}; all by default")
    parser.add_argument("--short", action="store_true", help="the few cases that CI has time for")
    parser.add_argument("--seed", type=int, default=0, help="where the random moments and cases come from")
    parser.add_argument("--no-page", action="store_true", help="do not rewrite the table in docs/reliability.md")
    arguments = parser.parse_args()
    found: dict[str, list[Promise]] = {}
    for name in arguments.names or NAMES:
        began = time.perf_counter()
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=f"nerve-{name}-") as folder:
            module = importlib.import_module(f"torture.{name}")
            found[name] = module.run(Path(folder), short=arguments.short, seed=arguments.seed)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for promise in found[name]:
            print(f"  {'kept  ' if promise.kept else 'BROKEN'} {promise.promise}: {promise.measured}", flush=True)
    whole = set(found) == set(NAMES) and not arguments.short
    if whole and not arguments.no_page:
        write_page(found)
    return 0 if all(promise.kept for promises in found.values() for promise in promises) else 1


def write_page(found: dict[str, list[Promise]]) -> None:
    """Put the table between the two marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    machine = (
        f"nerve {nerve.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.system()}"
    )
    lines = [f"{machine}.", "", "| | promise | measured | kept |", "|---|---|---|---|"]
    for name, promises in found.items():
        lines += [f"| {name} | {p.promise} | {p.measured} | {'yes' if p.kept else '**no**'} |" for p in promises]
    write_text(PAGE, before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


if __name__ == "__main__":
    raise SystemExit(main())
