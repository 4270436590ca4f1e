"""When does fine-tuning NERVE beat frozen features? The tables of docs/howto/fine-tuning.md.

`python -m studies.finetuning abide ucla --cohorts cohorts --out out/finetuning --page`, with the
cohort folders of `python -m studies.real_cohorts`. NERVE `small` is pretrained on each cohort
without labels. Every row predicts age and sex in the same five folds: fine-tuned networks, frozen
features, random weights and references. A row that is in OUT already is not computed again. Times
are CPU seconds of one thread.
"""

from __future__ import annotations

import os

# numpy and torch read this once, when they are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import re
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from studies._tables import DOCS, fill

import nerve
from nerve._utils.files import read_tsv, write_text, write_tsv
from nerve.evaluation import compare, score_table
from nerve.methods.finetuned import FineTunedNERVE

PAGE = DOCS / "howto" / "fine-tuning.md"
TARGETS = {"age": "r", "sex": "auc"}
PROTOCOL = {"n_folds": 5, "motion": "none", "pretrain_scope": "all", "n_bootstrap": 0}
# at most; one epoch of ABIDE has four times as many steps as one of UCLA
EPOCHS = {"abide": 8, "ucla": 30}
EPOCHS_OF_HEAD = 30
FROZEN = "NERVE `small`, frozen, kernel ridge"
REFERENCES = {
    "raw FC, kernel ridge": "raw",
    "shrunk tangent space, kernel ridge": "shrunk",
}
ROWS = (
    *REFERENCES,
    FROZEN,
    "head only, on the pretrained encoder",
    "fine-tuned, all layers",
    "all layers, from random weights",
    "head only, on random weights",
)


def features_of_row(row: str, run: Path, cohort_name: str) -> Any:
    """Return what `nerve.evaluate` takes as the features of a row.

    Parameters
    ----------
    row : str
        One of `ROWS`.
    run : Path
        The pretrained run of the cohort.
    cohort_name : str
        The cohort.

    Returns
    -------
    str or estimator
    """
    if row in REFERENCES:
        return REFERENCES[row]
    if row == FROZEN:
        return str(run)
    pretrained = None if "random weights" in row else str(run)
    layers: Any = "all"
    epochs = EPOCHS[cohort_name]
    if row.startswith("head only"):
        layers = 0
        epochs = EPOCHS_OF_HEAD
    return FineTunedNERVE(
        pretrained, network="small", layers=layers, epochs=epochs, seed=0, device="cpu"
    )


def pretrain_or_find(cohort: nerve.Cohort, folder: Path) -> Path:
    """Return the run of a cohort; train it if it is not there, with the CPU seconds beside it."""
    run = folder / "run"
    if not (run / "config.json").is_file():
        began = time.process_time()
        nerve.NERVE.from_preset("small", seed=0, device="cpu").fit(cohort).save(run)
        seconds = round(time.process_time() - began)
        write_tsv(folder / "pretraining.tsv", pd.DataFrame({"seconds": [seconds]}))
    return run


def predict_row(cohort: nerve.Cohort, row: str, run: Path, folder: Path, cohort_name: str) -> None:
    """Write the predictions of a row, out of fold, with its CPU seconds, if they are not there."""
    path = folder / f"{re.sub('[^a-z]+', '-', row.lower())}.tsv"
    if path.is_file():
        return
    features = {row: features_of_row(row, run, cohort_name)}
    results = nerve.evaluate(features, cohort, list(TARGETS), **PROTOCOL)
    seconds = float(results.rows["seconds"].iloc[0])
    write_tsv(path, results.predictions.assign(seconds=round(seconds)))
    scores = results.scores[["target", "r", "auc"]].round(3)
    print(cohort_name, row, scores.to_dict("records"), f"{seconds:.0f} s", flush=True)


def scores_table(folder: Path) -> str:
    """Return the Markdown table of a cohort, one line per row whose predictions are there.

    Bold is the best of a column; = is not distinguishable from it (p_cv ≥ .05).
    """
    tables = []
    # names of rows have a hyphen, pretraining.tsv has none
    for path in sorted(folder.glob("*-*.tsv")):
        tables.append(read_tsv(path, dtype={"participant": str}))
    predictions = pd.concat(tables, ignore_index=True)
    seconds = predictions.groupby("row")["seconds"].first()
    scores = score_table(predictions, n_bootstrap=0).set_index(["row", "target"])
    rows = [row for row in ROWS if row in seconds.index]
    heads = [""]
    cells = {row: [row] for row in rows}
    for target, metric in TARGETS.items():
        heads.append(f"{target}, {metric}")
        column = {row: scores.loc[(row, target), metric] for row in rows}
        best = max(rows, key=column.__getitem__)
        of_target = predictions[predictions["target"] == target]
        for row in rows:
            text = f"{column[row]:.3f}"
            if row == best:
                text = f"**{text}**"
            elif compare(of_target, best, row).iloc[0]["p_cv"] >= 0.05:
                text += " ="
            cells[row].append(text)
    heads.append("CPU s")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(cells[row])} | {seconds[row]:,.0f} |")
    n = predictions["participant"].nunique()
    pretraining = read_tsv(folder / "pretraining.tsv")["seconds"].iloc[0]
    lines.append("")
    lines.append(
        f"{n} participants. Pretraining, once for all rows that use it: {pretraining} CPU s."
    )
    return "\n".join(lines)


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
        run = pretrain_or_find(cohort, folder)
        for row in ROWS:
            predict_row(cohort, row, run, folder, name)
        table = scores_table(folder)
        print(table)
        if args.page:
            page = PAGE.read_text(encoding="utf-8")
            write_text(PAGE, fill(page, f"finetuning-{name}", table))


if __name__ == "__main__":
    main()
