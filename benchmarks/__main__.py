"""Run every benchmark, or the named ones, and write their tables into docs/decisions.md.

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
BEGIN = "<!-- made by make bench -->\n"
END = "<!-- end of what make bench made -->"
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
    names = arguments.names or NAMES
    if len(names) == 1:
        measure(names[0], write_page=not arguments.no_page)
        return
    # Each in a process of its own: none inherits the memory of another, and one that fails does not
    # end the others.
    command = [sys.executable, "-m", "benchmarks"]
    if arguments.no_page:
        command.append("--no-page")
    failed = [name for name in names if subprocess.run([*command, name]).returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(name: str, write_page: bool) -> None:
    """Run one benchmark, print its table and put it into the page."""
    began = time.perf_counter()
    print(f"{name} …", file=sys.stderr, flush=True)
    benchmark = importlib.import_module(f"benchmarks.{name}")
    table = pd.DataFrame(benchmark.run()).assign(benchmark=name).reindex(columns=COLUMNS)
    with pd.option_context(
        "display.width", 200, "display.max_colwidth", 90, "display.max_rows", None
    ):
        text = table.to_string(index=False, float_format=lambda x: f"{x:.3g}", na_rep="")
    print(text, flush=True)
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if write_page:
        write_rows(name, table)


def write_rows(name: str, table: pd.DataFrame) -> None:
    """Put the rows of one benchmark into the page, in place of what it printed before."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    old_table, after = rest.split(END)
    old_rows = old_table.removeprefix(HEAD).splitlines()
    rows = [line for line in old_rows if not line.startswith(f"| {name} |")]
    for values in table.itertuples(index=False):
        rows.append("| " + " | ".join(map(_cell, values)) + " |")
    rows.sort(key=lambda line: line.split(" | ")[0])  # stable: a benchmark's rows keep their order
    new_table = HEAD + "".join(f"{row}\n" for row in rows)
    PAGE.write_text(before + BEGIN + new_table + END + after, encoding="utf-8")


def _cell(value: object) -> str:
    """A number to three digits, a text as it is, an empty cell for a missing value."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
