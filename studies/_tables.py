"""Markdown tables of the studies, and the marks between which they stand in the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import nerve
from nerve.evaluation import make_feature_set
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.participants import prepare_participants

DOCS = Path(__file__).resolve().parents[1] / "docs"
TARGETS = {"age": "r", "sex": "auc", "diagnosis": "auc"}  # target → metric
HEADS = {"r": "r", "auc": "AUC"}  # metric → what the head of a column says
LABELLED = {"abide": (25, 50, 100, 200), "ucla": (25, 50, 100)}  # numbers of labels
Rows = Iterator[dict[str, Any]]


def score_few_labels(
    cohort: nerve.Cohort,
    feature_sets: dict[str, np.ndarray],
    n_labels: tuple[int, ...],
    targets: tuple[str, ...] = tuple(TARGETS),
) -> Rows:
    """Yield one row per feature set, target, number of labels and draw.

    Participants are drawn as `nerve evaluate --labels` draws them, the same for every feature set.
    """
    protocol = nerve.Protocol(targets=targets, labels=n_labels, motion="none", covariates=())
    participants, protocol = prepare_participants(cohort, protocol)
    for name, values in feature_sets.items():
        feature_set = make_feature_set(values, cohort, name)
        feature_set = feature_set.prepare(cohort, participants, protocol)
        for row in learning_curve(feature_set, participants, protocol).to_dict("records"):
            yield {"cohort": cohort.name, "features": name, **row}


def few_labels_table(table: pd.DataFrame, reference: str) -> str:
    """Return the means over draws as Markdown: one row per feature set, one column per target.

    A cell lists the numbers of labels from few to many; brackets say in how many draws the row is
    above the reference.
    """
    keys = ["target", "labels"]
    scores = table.set_index([*keys, "draw", "features"])["score"]
    scores = scores.unstack("features", sort=False)  # one column per feature set
    rows = []
    for name in scores:
        mean = scores[name].groupby(keys, sort=False).mean()
        texts = mean.map("{:.3f}".format)
        if name != reference:
            is_above = scores[name] - scores[reference] > 0
            n_above = is_above.groupby(keys, sort=False).sum()
            texts = texts + n_above.map(" ({})".format)
        cells = texts.groupby("target", sort=False).agg(", ".join)
        rows.append([name, *[cells[target] for target in TARGETS]])
    return markdown_table(["features", *target_heads()], rows)


def target_heads() -> list[str]:
    """Return the heads of the columns of targets: "age r", "sex AUC" …"""
    return [f"{target} {HEADS[metric]}" for target, metric in TARGETS.items()]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a hyphen before a digit becomes a minus sign."""
    lines = []
    for cells in [head, ["---"] * len(head), *rows]:
        lines.append(f"| {' | '.join(cells)} |")
    return re.sub(r"-(?=\d)", "−", "\n".join(lines))


def fill(page: str, name: str, table: str) -> str:
    """Return the page with what stands between the marks of a table replaced."""
    begin = f"<!-- table {name} -->\n"
    end = f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have one {begin.strip()} and one {end}")
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    return f"{before}{begin}{table}\n{end}{after}"
