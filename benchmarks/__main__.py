"""`make bench`: run every benchmark, or those named, and print one table.

python -m benchmarks [beside evaluation model thousands waiting …] [--out FILE.tsv]
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

import pandas as pd

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help=f"among {', '.join(NAMES)}; all by default")
    parser.add_argument("--out", type=Path, help="also write the rows as TSV")
    arguments = parser.parse_args()
    tables = []
    for name in arguments.names or NAMES:
        began = time.perf_counter()
        print(f"{name} …", file=sys.stderr, flush=True)
        rows = pd.DataFrame(importlib.import_module(f"benchmarks.{name}").run())
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        tables.append(rows.assign(benchmark=name))
    table = pd.concat(tables, ignore_index=True)
    table = table[["benchmark", *[column for column in table.columns if column != "benchmark"]]]
    with pd.option_context("display.width", 200, "display.max_colwidth", 90, "display.max_rows", None):
        print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}", na_rep=""))
    if arguments.out:
        table.to_csv(arguments.out, sep="\t", index=False)


if __name__ == "__main__":
    main()
