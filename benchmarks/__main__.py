"""`make bench`: run every benchmark, or those named, and write what they print into docs/decisions.md.

python -m benchmarks [beside evaluation model thousands views …] [--no-page]
"""

import argparse
import importlib
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).parents[1] / "docs" / "decisions.md"
BEGIN, END = "<!-- made by make bench -->\n", "<!-- end of what make bench made -->"
HEAD = "| benchmark | what | value | reference | ratio | to reach |\n|---|---|---|---|---|---|\n"
COLUMNS = ["benchmark", "name", "value", "reference", "ratio", "target"]
NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, []], help=f"among {', '.join(NAMES)}; all by default"
    )
    parser.add_argument(
        "--no-page", action="store_true", help="do not rewrite the table in docs/decisions.md"
    )
    arguments = parser.parse_args()
    names, options = arguments.names or NAMES, ["--no-page"] if arguments.no_page else []
    if len(names) == 1:
        measure(names[0], page=not arguments.no_page)
        return
    # a process each: what one has in memory is not there for the next, and one that fails does not end the others
    again = [sys.executable, "-m", "benchmarks", *options]
    if failed := [name for name in names if subprocess.run([*again, name]).returncode]:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(name: str, page: bool) -> None:
    """Run one benchmark, print its table and put it into the page."""
    began = time.perf_counter()
    print(f"{name} …", file=sys.stderr, flush=True)
    table = pd.DataFrame(importlib.import_module(f"benchmarks.{name}").run()).assign(benchmark=name)
    table = table.reindex(columns=COLUMNS)
    with pd.option_context(
        "display.width", 200, "display.max_colwidth", 90, "display.max_rows", None
    ):
        print(
            table.to_string(index=False, float_format=lambda x: f"{x:.3g}", na_rep=""), flush=True
        )
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if page:
        write_rows(name, table)


def write_rows(name: str, table: pd.DataFrame) -> None:
    """Put the rows of one benchmark into the page, in place of what it printed before."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    old, after = rest.split(END)
    rows = [
        line for line in old.removeprefix(HEAD).splitlines() if not line.startswith(f"| {name} |")
    ]
    rows += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.itertuples(index=False)]
    rows.sort(key=lambda line: line.split(" | ")[0])  # stable: a benchmark's rows keep their order
    PAGE.write_text(
        before + BEGIN + HEAD + "".join(f"{row}\n" for row in rows) + END + after, encoding="utf-8"
    )


def _cell(value: object) -> str:
    """A number in three digits, a text as it is, nothing where there is nothing."""
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
