"""Make the tables of docs/howto/fine-tuning.md: fine-tuning against frozen features, random weights and references.

`python -m studies.finetuning abide ucla --cohorts cohorts --out out/finetuning --page` with the cohort folders of
`python -m studies.real_cohorts`. NERVE `small` is pretrained on each cohort without labels; every row predicts age and sex
in the same five folds. A row that is in OUT already is not computed again. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import re
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import nerve
from nerve._utils.files import read_tsv, write_text, write_tsv
from nerve.evaluation import compare, score_table
from nerve.methods.finetuned import FineTunedNERVE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "howto" / "fine-tuning.md"
TARGETS = {"age": "r", "sex": "auc"}
PROTOCOL = {"n_folds": 5, "motion": "none", "pretrain_scope": "all", "n_bootstrap": 0}
# passes through the training participants, at most; on ABIDE four times as many steps are in each
EPOCHS = {"abide": 8, "ucla": 30}
EPOCHS_OF_HEAD = 30
FROZEN = "NERVE `small`, frozen, kernel ridge"
ROWS = (
    "raw FC, kernel ridge",
    "shrunk tangent space, kernel ridge",
    FROZEN,
    "head only, on the pretrained encoder",
    "fine-tuned, all layers",
    "all layers, from random weights",
    "head only, on random weights",
)


def features_of(row: str, run: Path, name: str) -> Any:
    """What `nerve.evaluate` takes for a row.

    Parameters
    ----------
    row : str
        One of `ROWS`.
    run : Path
        The pretrained run of the cohort.
    name : str
        The cohort.

    Returns
    -------
    str or estimator
    """
    named = {"raw FC, kernel ridge": "raw", "shrunk tangent space, kernel ridge": "shrunk"}
    if row in named:
        return named[row]
    if row == FROZEN:
        return str(run)
    pretrained = None if "random weights" in row else str(run)
    layers: Any = 0 if row.startswith("head only") else "all"
    epochs = EPOCHS_OF_HEAD if layers == 0 else EPOCHS[name]
    return FineTunedNERVE(
        pretrained, network="small", layers=layers, epochs=epochs, seed=0, device="cpu"
    )


def pretrained_run(cohort: nerve.Cohort, folder: Path) -> Path:
    """The run of a cohort, trained if it is not there, with the CPU seconds beside it."""
    run = folder / "run"
    if not (run / "config.json").is_file():
        began = time.process_time()
        nerve.NERVE.from_preset("small", seed=0, device="cpu").fit(cohort).save(run)
        seconds = pd.DataFrame({"seconds": [round(time.process_time() - began)]})
        write_tsv(folder / "pretraining.tsv", seconds)
    return run


def predict_row(cohort: nerve.Cohort, row: str, run: Path, folder: Path, name: str) -> None:
    """Predictions of a row, out of fold, and its CPU seconds; kept in the folder."""
    path = folder / f"{re.sub('[^a-z]+', '-', row.lower())}.tsv"
    if path.is_file():
        return
    features = {row: features_of(row, run, name)}
    results = nerve.evaluate(features, cohort, list(TARGETS), **PROTOCOL)
    seconds = float(results.rows["seconds"].iloc[0])
    write_tsv(path, results.predictions.assign(seconds=round(seconds)))
    scores = results.scores[["target", "r", "auc"]].round(3)
    print(name, row, scores.to_dict("records"), f"{seconds:.0f} s", flush=True)


def table_of(folder: Path) -> str:
    """Markdown: one row per set of predictions; bold is best, = is not told from it (p ≥ .05)."""
    parts = [read_tsv(path, dtype={"participant": str}) for path in sorted(folder.glob("*-*.tsv"))]
    predictions = pd.concat(parts, ignore_index=True)
    seconds = predictions.groupby("row")["seconds"].first()
    scores = score_table(predictions, n_bootstrap=0).set_index(["row", "target"])
    rows = [row for row in ROWS if row in seconds.index]
    cells = {row: [row] for row in rows}
    for target, metric in TARGETS.items():
        column = {row: scores.loc[(row, target), metric] for row in rows}
        best = max(rows, key=lambda row: column[row])
        of_target = predictions[predictions["target"] == target]
        for row in rows:
            text = f"{column[row]:.3f}"
            if row == best:
                text = f"**{text}**"
            elif compare(of_target, best, row).iloc[0]["p"] >= 0.05:
                text += " ="
            cells[row].append(text)
    heads = ["", *(f"{target}, {metric}" for target, metric in TARGETS.items()), "CPU s"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(cells[row])} | {seconds[row]:,.0f} |")
    n = predictions["participant"].nunique()
    once = read_tsv(folder / "pretraining.tsv")["seconds"].iloc[0]
    lines.append(f"\n{n} participants. Pretraining, once for all rows that use it: {once} CPU s.")
    return "\n".join(lines)


def write_into_page(name: str, table: str) -> None:
    """Replace the table of a cohort between its two marks."""
    begin = f"<!-- table finetuning-{name} -->"
    end = f"<!-- end of finetuning-{name} -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    write_text(PAGE, f"{before}{begin}\n{table}\n{end}{after}")


def main() -> None:
    """Read the command line and make the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=list(EPOCHS), help="cohorts")
    parser.add_argument("--cohorts", type=Path, required=True, help="folder of cohort folders")
    parser.add_argument("--out", type=Path, required=True, help="where runs and tables are kept")
    parser.add_argument("--page", action="store_true", help="write the tables into the page too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        cohort = nerve.Cohort.load(args.cohorts / name)
        folder = args.out / name
        folder.mkdir(parents=True, exist_ok=True)
        run = pretrained_run(cohort, folder)
        for row in ROWS:
            predict_row(cohort, row, run, folder, name)
        table = table_of(folder)
        print(table)
        if args.page:
            write_into_page(name, table)


if __name__ == "__main__":
    main()
