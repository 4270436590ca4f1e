"""The methods paragraph of a manuscript: protocol.md.jinja, filled in from a protocol."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nerve._utils.errors import listed
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import (
    NULL,
    SCOPES,
    SUPERVISED,
    lines_of,
    lines_with_permuted_networks,
    rows_of,
    settings_text,
    short_name,
)

if TYPE_CHECKING:
    from jinja2 import Template


@functools.cache
def template() -> Template:
    """Compile protocol.md.jinja, once per process."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters |= {"listed": listed, "label": short_name, "settings": settings_text}
    path = Path(__file__).with_name("protocol.md.jinja")
    return environment.from_string(path.read_text(encoding="utf-8"))


def participants_summary(participants: Participants) -> dict[str, Any]:
    """What `protocol_text` says about a cohort's participants, as plain values."""
    targets: dict[str, dict[str, Any]] = {}
    for name, values in participants.targets[participants.tested].items():
        target = str(name)
        column = participants.class_columns.get(target, target)
        classes = list(participants.classes.get(target, ()))
        if column != target:
            # of ("others", class), the class: each target of the column adds its own
            classes = classes[1:]
        about = targets.setdefault(column, {"n": int(values.notna().sum()), "classes": None})
        if classes:
            about["classes"] = [*(about["classes"] or ()), *classes]
    trained_on = None
    if participants.trained_on:
        n_training = int((~participants.tested).sum())
        trained_on = {"cohort": participants.trained_on, "n": n_training}
    folds = participants.folds[participants.folds >= 0]
    return {
        "cohort": participants.cohort,
        "n": int(participants.tested.sum()),
        "n_folds": len(np.unique(folds)),
        "targets": targets,
        "trained_on": trained_on,
        "notes": list(participants.notes),
    }


def rows_on(cohort: str, rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The rows that have scores on a cohort, with their scope and training cohorts there.

    Parameters
    ----------
    cohort : str
        Name of the cohort.
    rows, scores : DataFrame
        Of `Results`.

    Returns
    -------
    DataFrame
        Part of `rows`, with the columns scope and trained_on as they are on this cohort.
    """
    on_cohort = scores[scores["cohort"] == cohort]
    facts = on_cohort.groupby("row")[["scope", "trained_on"]].first()
    evaluated = rows[rows["row"].isin(facts.index)]
    facts = facts.reindex(evaluated["row"]).fillna("")  # null models have none
    return evaluated.assign(
        scope=facts["scope"].to_numpy(), trained_on=facts["trained_on"].to_numpy()
    )


def protocol_text(protocol: Protocol, summary: Mapping[str, Any], rows: pd.DataFrame) -> str:
    """How one cohort was evaluated, as Markdown.

    Parameters
    ----------
    protocol : Protocol
        Resolved: motion and preserved columns by name.
    summary : mapping
        What `participants_summary` gives.
    rows : DataFrame
        What `rows_on` gives.

    Returns
    -------
    str
        Paragraphs.
    """
    lines = rows_of(lines_of(rows[rows["kind"] != NULL])) if len(rows) else []
    null = rows_of(rows[rows["kind"] == NULL]) if len(rows) else []
    permuted = [short_name(line) for line in lines_with_permuted_networks(null, lines)]
    several_classes = []
    for name, about in summary["targets"].items():
        if len(about["classes"] or ()) > 2:
            several_classes.append(name)
    has_ridge = any(line.kind != SUPERVISED and line.method != "covariates" for line in lines)
    text = template().render(
        p=protocol,
        s={"trained_on": None, **summary},
        lines=lines,
        n_null=len(null),
        null_of=" and ".join(dict.fromkeys(permuted)),
        several=several_classes,
        has_ridge=has_ridge,
        scopes=SCOPES,
    )
    paragraphs = []
    for part in re.split(r"\n\s*\n", text):
        # one line per paragraph, except items of a list
        paragraphs.append(re.sub(r"\s*\n(?!- )\s*", " ", part.strip()))
    return "\n\n".join(filter(None, paragraphs)) + "\n"
