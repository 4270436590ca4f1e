"""The methods paragraph in words, ready for a manuscript: protocol.md.jinja, filled in from the protocol that ran."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nerve._utils.errors import listed
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import (
    NULL,
    SCOPES,
    lines_of,
    lines_under_test,
    rows_of,
    settings_text,
    short_name,
)

if TYPE_CHECKING:
    from jinja2 import Template


@functools.cache
def template() -> Template:
    """protocol.md.jinja, compiled once per process."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters |= {"listed": listed, "label": short_name, "settings": settings_text}
    return environment.from_string(
        Path(__file__).with_name("protocol.md.jinja").read_text(encoding="utf-8")
    )


def participants_summary(participants: Participants) -> dict[str, Any]:
    """What the text says of a cohort's participants, as plain values."""
    targets: dict[str, dict[str, Any]] = {}
    for name, values in participants.targets[participants.tested].items():
        column, classes = (
            participants.class_columns.get(str(name), str(name)),
            list(participants.classes.get(str(name), ())),
        )
        about = targets.setdefault(column, {"n": int(values.notna().sum()), "classes": None})
        if classes:  # of a column of several, each target adds the one that it is about
            about["classes"] = [
                *(about["classes"] or ()),
                *(classes[1:] if column != name else classes),
            ]
    folds = participants.folds[participants.folds >= 0]
    elsewhere = (
        {"cohort": participants.trained_on, "n": int((~participants.tested).sum())}
        if participants.trained_on
        else None
    )
    return {"cohort": participants.cohort, "n": int(participants.tested.sum()), "n_folds": len(set(folds.tolist())),
            "targets": targets, "trained_on": elsewhere, "notes": list(participants.notes)}  # fmt: skip


def rows_on(cohort: str, rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The rows that have scores on a cohort, with the scope of each there and what it was trained on."""
    mine = scores[scores["cohort"] == cohort].groupby("row")[["scope", "trained_on"]].first()
    evaluated = rows[rows["row"].isin(mine.index)]
    facts = mine.reindex(evaluated["row"]).fillna("")  # null models have none
    return evaluated.assign(
        scope=facts["scope"].to_numpy(), trained_on=facts["trained_on"].to_numpy()
    )


def protocol_text(protocol: Protocol, summary: Mapping[str, Any], rows: pd.DataFrame) -> str:
    """Markdown: how one cohort was evaluated.

    Parameters
    ----------
    summary : mapping
        What `participants_summary` gives.
    rows : DataFrame
        What `rows_on` gives.
    """
    lines = rows_of(lines_of(rows[rows["kind"] != NULL])) if len(rows) else []
    null = rows_of(rows[rows["kind"] == NULL]) if len(rows) else []
    text = template().render(
        p=protocol,
        s={"trained_on": None, **summary},
        lines=lines,
        n_null=len(null),
        null_of=" and ".join(
            dict.fromkeys(short_name(tested) for tested in lines_under_test(null, lines))
        ),
        several=[
            name for name, about in summary["targets"].items() if len(about["classes"] or ()) > 2
        ],
        read_by_ridge=any(
            line.kind != "supervised" and line.method != "covariates" for line in lines
        ),
        scopes=SCOPES,
    )
    paragraphs = [
        re.sub(r"\s*\n(?!- )\s*", " ", part.strip()) for part in re.split(r"\n\s*\n", text)
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"
