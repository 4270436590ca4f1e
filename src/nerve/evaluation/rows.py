"""What one line of a table of results is. Identity is an id; labels are joined when printing, never compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pandas as pd

REFERENCE, SUPERVISED, SELF_SUPERVISED, GIVEN, NULL = (
    "reference",
    "supervised",
    "self-supervised",
    "given",
    "null",
)


@dataclass(frozen=True)
class Row:
    """One set of predictions: a method, its preset, every setting that differs from the preset, and its seed.

    Rows that differ in their seed alone share a `line`, which is what a table prints: the mean over its rows.
    """

    row: str  # the id, unique in a results folder
    line: str  # the id of the line that the row belongs to
    method: (
        str  # a name of `nerve.methods.METHODS`, or "features" for numbers that the user has given
    )
    label: str  # what tables call it: the user's name for it, or the title of the method
    kind: str  # reference, supervised, self-supervised, given (the user's own features) or null (permuted networks)
    group: str = ""  # lines of one group stand together between rules
    view: str = "fc"  # the matrix that is cut into patches
    variant: str = ""  # what sets it apart from other lines of the same label, in words
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # those that differ from the preset, and those swept
    preset: str = ""  # empty for methods without settings that presets change
    title: str = ""  # what the method is called
    swept: str = ""  # names of the settings that were swept, joined by commas
    seed: int = 0
    scope: str = "none"  # whom it had seen (see `SCOPES`); with the cohorts, where these differ: scores.tsv has each
    trained_on: str = ""  # cohorts that its encoder was trained on, with numbers of participants
    width: int = 0  # numbers per participant; 0 where it does not apply
    seconds: float = 0.0  # time of training and embedding
    adapted: str = ""  # the substitute that a cohort made necessary
    given: bool = (
        False  # a trained model, or numbers, of the user's: nothing of it was trained here
    )


# whom a row had seen of the participants that it is tested on; found out once, by the run of each row and cohort
SCOPES = {
    "all": "pretrained, without labels, on all participants including those tested",
    "some": "pretrained, without labels, on some of the participants tested",
    "train_folds": "everything it learned comes from training folds",
    "other_people": "pretrained on other participants: none of the FC tested was trained on",
    "none": "nothing was pretrained",
    "not stated": "whether its encoder saw the tested participants is not known",
}


def pretraining_use(scopes: Iterable[str], of_encoders: Iterable[str]) -> str:
    """Whether a cohort was used in pretraining, in words, from the scopes of its rows.

    Parameters
    ----------
    scopes : names of `SCOPES`
        Of all rows on the cohort.
    of_encoders : names of `SCOPES`
        Of the rows of encoders and of given features: references that are fitted in training folds are no encoders.

    Examples
    --------
    >>> pretraining_use(["none", "all"], ["all"]), pretraining_use(["none", "train_folds"], [])
    ('yes', 'no')
    """
    known, encoders = set(scopes), set(of_encoders)
    if "all" in known:
        return "yes"
    if "some" in known:
        return "in part"
    if "not stated" in known:
        return "not known"
    return "in training folds only" if "train_folds" in encoders else "no"


def class_target(column: str, label: str) -> str:
    """What the target is called that is one class of a column against all others."""
    return f"{column}: {label}"


def rows_table(rows: Iterable[Row]) -> pd.DataFrame:
    """rows.tsv as a table, one row per `Row`."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[one.name for one in fields(Row)])


def rows_of(table: pd.DataFrame) -> list[Row]:
    """The rows of rows.tsv as objects."""
    return [
        Row(**{str(name): value for name, value in record.items()})
        for record in table.to_dict("records")
    ]


def lines_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per line, in order, indexed by line; seeds are dropped."""
    return rows.drop_duplicates("line").set_index("line", drop=False)


def short_name(line: Any) -> str:
    """What a line is called, without its settings: its label, and the view if that is not FC itself."""
    view = "" if line.view in ("", "fc") else f"{line.view} view"
    return ", ".join(part for part in (line.label, view) if part)


def line_label(line: Any, most: int | None = None) -> str:
    """What a figure or sentence calls a line: its name, its preset, and the settings that differ from the preset.

    Parameters
    ----------
    line : Row
    most : int, optional
        Settings that are named, the swept ones first; how many more there are is said. All by default.

    Examples
    --------
    >>> row = Row("a", "a", "nerve", "NERVE", "self-supervised", title="NERVE", preset="paper")
    >>> line_label(row)
    'NERVE (paper)'
    >>> line_label(replace(row, settings={"epochs": 1, "mask_ratio": 0.25, "dim": 16}), most=2)
    'NERVE (paper; epochs 1, mask_ratio 0.25, 1 more)'
    """
    name = short_name(line)
    if line.kind == NULL:  # its rows differ in the permutation
        return name
    words = setting_words(line)
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    described = "; ".join(part for part in (_method_and_preset(line), ", ".join(words)) if part)
    return f"{name} ({described})" if described else name


def line_labels(rows: Iterable[Row], most: int = 3) -> dict[str, str]:
    """The label of each line: short, unless two lines could then not be told apart."""
    lines = {row.line: row for row in rows}
    short = {line: line_label(row, most) for line, row in lines.items()}
    labels = list(short.values())
    return {
        line: label if labels.count(label) == 1 else line_label(lines[line])
        for line, label in short.items()
    }


def setting_words(line: Any) -> list[str]:
    """The settings that differ from the preset, "epochs 1" each; swept ones first, and no view that the name has."""
    swept = line.swept.split(",") if line.swept else []
    in_name = line.view not in ("", "fc")
    ordered = sorted(
        line.settings, key=lambda name: name not in swept
    )  # stable: others stay in their order
    return setting_phrases(
        {name: line.settings[name] for name in ordered if not (name == "view" and in_name)}
    )


def setting_phrases(settings: Mapping[str, Any]) -> list[str]:
    """Settings in words, one phrase each.

    Examples
    --------
    >>> setting_phrases({"epochs": 1, "tokenizer": "shared"})
    ['epochs 1', 'tokenizer shared']
    """
    return [f"{name} {_word(value)}" for name, value in settings.items()]


def settings_in_words(preset: str, phrases: Sequence[str]) -> str:
    """A preset and what differs from it; "preset" stands only where nothing does.

    Examples
    --------
    >>> settings_in_words("paper", []), settings_in_words("paper", ["epochs 1"])
    ('preset paper', 'the settings of paper except epochs 1')
    """
    words = ", ".join(phrases)
    if preset and words:
        return f"the settings of {preset} except {words}"
    return f"preset {preset}" if preset else words


def without_swept(line: Row) -> Row:
    """The row without the settings that were swept."""
    swept = line.swept.split(",")
    settings = {name: value for name, value in line.settings.items() if name not in swept}
    return replace(line, settings=settings, swept="")


def settings_text(line: Any) -> str:
    """The method, preset and settings of a line in full, as a sentence has them; empty where there are none.

    Examples
    --------
    >>> row = Row("a", "a", "nerve", "bilinear", "self-supervised", title="NERVE", preset="paper")
    >>> settings_text(row)
    'NERVE, preset paper'
    >>> settings_text(replace(row, settings={"epochs": 1}))
    'NERVE, the settings of paper except epochs 1'
    """
    said = settings_in_words(line.preset, setting_words(line))
    return ", ".join(part for part in (_unnamed_title(line), said) if part)


def _method_and_preset(line: Any) -> str:
    return " ".join(part for part in (_unnamed_title(line), line.preset) if part)


def _unnamed_title(line: Any) -> str:
    """The title of the method, where the label does not say it."""
    return "" if line.title.casefold() in line.label.casefold() else line.title


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def lines_under_test(null: Iterable[Row], lines: Iterable[Row]) -> list[Row]:
    """The lines whose networks null models permute: these have all other settings of theirs."""
    entries = {row.line.removeprefix("null-") for row in null}  # the number in the experiment file
    first = [
        row
        for row in lines
        if row.line.removeprefix(f"{row.method}-").removesuffix("-0") in entries
    ]
    return list({row.line: row for row in first}.values())


def contenders(rows: pd.DataFrame) -> list[str]:
    """Lines that are compared with each other: the methods; references where there is no method; never covariates."""
    lines = lines_of(rows)
    compared = lines[(lines["kind"] != NULL) & (lines["method"] != "covariates")]
    methods = compared[compared["kind"] != REFERENCE]
    return list((methods if len(methods) else compared).index)


def references(rows: pd.DataFrame) -> list[str]:
    """Reference lines that stand apart: each is compared with the best contender."""
    lines = lines_of(rows)
    apart = (
        (lines["kind"] == REFERENCE)
        & (lines["method"] != "covariates")
        & ~lines.index.isin(contenders(rows))
    )
    return list(lines.index[apart])
