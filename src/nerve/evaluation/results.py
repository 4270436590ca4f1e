"""The results folder: one writer and one reader, whoever evaluates. Tables are swapped in together, tied by an id."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import problem
from nerve._utils.files import read_json, read_tsv, write_json, write_tsv
from nerve._utils.privacy import printable_table, printable_tree

FORMAT = 2
PROTOCOL = "protocol.json"
AGAIN = "Run the evaluation or experiment again: what is done is not repeated."
CURVE_COLUMNS = ["cohort", "target", "row", "labels", "draw", "metric", "score"]
TABLES = ("rows", "cohorts", "folds", "predictions", "scores", "comparisons", "nulls", "curves")
_TEXT = ("row", "line", "method", "label", "kind", "group", "view", "variant", "preset", "title", "swept", "scope",
         "trained_on", "adapted", "pretrained_on", "cohort", "target",
         "whole", "participant", "line_a", "line_b", "metric", "among")  # fmt: skip
_FLAGS = ("tie", "best_two", "simulated")


@dataclass
class ResultsFolder:
    """What an evaluation found. Every table is a plain DataFrame; empty where there is nothing of its kind.

    `about` is protocol.json: title, layout, parcellation, the protocol of every cohort, versions, fingerprints.
    """

    about: dict[str, Any]
    rows: pd.DataFrame  # what each row is: see `nerve.evaluation.Row`
    cohorts: (
        pd.DataFrame
    )  # cohort, label, n, n_regions, parcellation, fingerprint, pretrained_on, simulated
    folds: pd.DataFrame  # cohort, participant, repeat, fold
    # cohort, target, row, participant, fold, observed, predicted, observed_raw, maybe repeat, whole, training_mean
    predictions: pd.DataFrame
    scores: (
        pd.DataFrame
    )  # cohort, target, row, scope, trained_on, adapted, n, r and all other scores
    comparisons: (
        pd.DataFrame
    )  # cohort, target, line_a, line_b, among, metric, difference, p, q, tie, best_two
    nulls: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["cohort", "target", "row", "r"])
    )
    curves: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=CURVE_COLUMNS))


def write_results(folder: str | os.PathLike[str], results: ResultsFolder) -> None:
    """Write the tables and, last, protocol.json, which names their content."""
    folder = Path(folder)
    settings = [json.dumps(one, default=str) for one in results.rows["settings"]]
    for name in TABLES:
        table = printable_table(getattr(results, name))
        write_tsv(
            folder / f"{name}.tsv", table.assign(settings=settings) if name == "rows" else table
        )
    files = {name: _digest(folder / f"{name}.tsv") for name in TABLES}
    about = printable_tree(json.loads(json.dumps(results.about, default=str)))  # as it will be read
    write_json(
        folder / PROTOCOL,
        {"format": FORMAT, "id": _identity(files, about), "files": files, **about},
    )


def _identity(files: dict[str, str], about: dict[str, Any]) -> str:
    text = json.dumps([files, about], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read_results(folder: str | os.PathLike[str]) -> ResultsFolder:
    """Read what `write_results` wrote; tables of two evaluations, or changed since, are refused by name."""
    folder = Path(folder)
    about = read_json(folder / PROTOCOL)
    if (
        not isinstance(about, dict)
        or about.get("format") != FORMAT
        or not isinstance(about.get("files"), dict)
    ):
        raise problem(
            folder / PROTOCOL,
            f"it is not of format {FORMAT}",
            remedy="Evaluate again with this version.",
        )
    own = {name: value for name, value in about.items() if name not in ("format", "id", "files")}
    if _identity(about["files"], own) != about.get("id"):
        raise problem(folder / PROTOCOL, "it has been changed", remedy=AGAIN)
    tables = {}
    for name in TABLES:
        path = folder / f"{name}.tsv"
        if not path.is_file():
            raise problem(path, "it is not there", remedy=AGAIN)
        tables[name] = _table(path)
        if _digest(path) != about["files"].get(name):
            raise problem(path, f"it is not the one that {PROTOCOL} belongs to", remedy=AGAIN)
    tables["rows"]["settings"] = [json.loads(text) for text in tables["rows"]["settings"]]
    return ResultsFolder(about=about, **tables)


def is_results(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a finished evaluation."""
    return (Path(folder) / PROTOCOL).is_file()


def _table(path: Path) -> pd.DataFrame:
    table = read_tsv(path, dtype=dict.fromkeys((*_TEXT, "settings", *_FLAGS), str))
    text, flags = (table.columns.intersection(list(names)) for names in (_TEXT, _FLAGS))
    return table.assign(**table[text].fillna(""), **(table[flags] == "True"))


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
