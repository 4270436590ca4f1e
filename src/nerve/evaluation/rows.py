"""What a row of results is: an id, and what it ran with. Labels are only made for printing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pandas as pd

# values of `Row.kind`
REFERENCE = "reference"
SUPERVISED = "supervised"
SELF_SUPERVISED = "self-supervised"
GIVEN = "given"
NULL = "null"


@dataclass(frozen=True)
class Row:  # numpydoc ignore=PR02
    """One set of predictions: a method, its preset, the settings that differ from it, and its seed.

    Rows that differ in their seed alone share a `line`, which is what a table prints: the mean over
    its rows.

    Parameters
    ----------
    row : str
        The id, unique in a results folder.
    line : str
        The id of the line that the row belongs to.
    method : str
        A name of `nerve.methods.METHODS`, or "features" for numbers that the user has given.
    label : str
        What tables call it: the user's name for it, or the title of the method.
    kind : str
        reference, supervised, self-supervised, given (the user's own features) or null (permuted
        networks).
    group : str
        Lines of one group stand together between rules.
    view : str
        The matrix that is cut into patches.
    variant : str
        How it differs from other lines of the same label, in words.
    settings : dict
        Those that differ from the preset, and those swept.
    preset : str
        Empty for methods without settings that presets change.
    title : str
        What the method is called.
    swept : str
        Names of the settings that were swept, joined by commas.
    seed : int
        Of the method.
    scope : str
        Which of the tested participants it was trained on (see `SCOPES`). Where cohorts differ, the
        text names the cohorts of each scope; scores.tsv has the scope of each.
    trained_on : str
        Cohorts that its encoder was trained on, with numbers of participants.
    width : int
        Numbers per participant; 0 where it does not apply.
    seconds : float
        Time of training and embedding.
    adapted : str
        The substitute that a cohort made necessary.
    trained_before : bool
        Whether it is the user's own trained model or numbers: nothing was trained here.
    """

    row: str
    line: str
    method: str
    label: str
    kind: str
    group: str = ""
    view: str = "fc"
    variant: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    title: str = ""
    swept: str = ""
    seed: int = 0
    scope: str = "none"
    trained_on: str = ""
    width: int = 0
    seconds: float = 0.0
    adapted: str = ""
    trained_before: bool = False


# which of the tested participants a row was trained on; decided once, by `evaluate_features`
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
    scopes : iterable of str
        Names of `SCOPES`, of all rows on the cohort.
    of_encoders : iterable of str
        Names of `SCOPES`, of the rows of encoders and of given features: references that are
        fitted in training folds are no encoders.

    Returns
    -------
    str
        yes, in part, not known, in training folds only, or no.

    Examples
    --------
    >>> pretraining_use(["none", "all"], ["all"]), pretraining_use(["none", "train_folds"], [])
    ('yes', 'no')
    """
    all_scopes = set(scopes)
    if "all" in all_scopes:
        return "yes"
    if "some" in all_scopes:
        return "in part"
    if "not stated" in all_scopes:
        return "not known"
    if "train_folds" in set(of_encoders):
        return "in training folds only"
    return "no"


def class_target(column: str, label: str) -> str:
    """The name of the target that is one class of a column against all others."""
    return f"{column}: {label}"


def rows_table(rows: Iterable[Row]) -> pd.DataFrame:
    """Make the table of rows.tsv, one row per `Row`."""
    columns = [row_field.name for row_field in fields(Row)]
    return pd.DataFrame([asdict(row) for row in rows], columns=columns)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """The rows of rows.tsv as objects."""
    records: list[Any] = table.to_dict("records")
    return [Row(**record) for record in records]


def lines_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per line, in order, indexed by line; seeds are dropped."""
    return rows.drop_duplicates("line").set_index("line", drop=False)


def short_name(line: Any) -> str:
    """What a line is called, without its settings: its label, and the view if it is not FC."""
    view = "" if line.view in ("", "fc") else f"{line.view} view"
    return ", ".join(filter(None, (line.label, view)))


def line_label(line: Any, most: int | None = None) -> str:
    """What a figure or sentence calls a line: its name, preset and settings that differ from it.

    Parameters
    ----------
    line : Row
        Any row of the line.
    most : int, optional
        How many settings are named, the swept ones first; the others are counted. All by default.

    Returns
    -------
    str
        The label.

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
    method_and_preset = " ".join(filter(None, (_title_not_in_label(line), line.preset)))
    description = "; ".join(filter(None, (method_and_preset, ", ".join(words))))
    return f"{name} ({description})" if description else name


def line_labels(rows: Iterable[Row], most: int = 3) -> dict[str, str]:
    """The label of each line: short, unless two lines could then not be told apart."""
    lines = {row.line: row for row in rows}
    labels = {line: line_label(row, most) for line, row in lines.items()}
    counts = Counter(labels.values())
    for line, label in labels.items():
        if counts[label] > 1:
            labels[line] = line_label(lines[line])
    return labels


def setting_words(line: Any) -> list[str]:
    """The settings that differ from the preset, "epochs 1" each; swept ones first.

    The view is left out where `short_name` has it.

    Parameters
    ----------
    line : Row
        Any row of the line.

    Returns
    -------
    list of str
        One phrase per setting.
    """
    settings = dict(line.settings)
    if line.view not in ("", "fc"):
        settings.pop("view", None)
    swept = line.swept.split(",") if line.swept else []
    # the sort is stable: others stay in their order
    ordered = sorted(settings, key=lambda name: name not in swept)
    return setting_phrases({name: settings[name] for name in ordered})


def setting_phrases(settings: Mapping[str, Any]) -> list[str]:
    """Settings in words, one phrase each.

    Parameters
    ----------
    settings : mapping
        Name → value.

    Returns
    -------
    list of str
        The phrases.

    Examples
    --------
    >>> setting_phrases({"epochs": 1, "tokenizer": "shared"})
    ['epochs 1', 'tokenizer shared']
    """
    phrases = []
    for name, value in settings.items():
        word = value if isinstance(value, str) else json.dumps(value, default=str)
        phrases.append(f"{name} {word}")
    return phrases


def settings_in_words(preset: str, phrases: Sequence[str]) -> str:
    """A preset and what differs from it; "preset" stands only where nothing does.

    Parameters
    ----------
    preset : str
        Its name; may be empty.
    phrases : sequence of str
        What `setting_phrases` gives.

    Returns
    -------
    str
        Part of a sentence.

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
    """The method, preset and settings of a line in full, as a sentence has them.

    Parameters
    ----------
    line : Row
        Any row of the line.

    Returns
    -------
    str
        Empty where there are none.

    Examples
    --------
    >>> row = Row("a", "a", "nerve", "bilinear", "self-supervised", title="NERVE", preset="paper")
    >>> settings_text(row)
    'NERVE, preset paper'
    >>> settings_text(replace(row, settings={"epochs": 1}))
    'NERVE, the settings of paper except epochs 1'
    """
    settings = settings_in_words(line.preset, setting_words(line))
    return ", ".join(filter(None, (_title_not_in_label(line), settings)))


def lines_with_permuted_networks(null: Iterable[Row], lines: Iterable[Row]) -> list[Row]:
    """The lines whose networks null models permute: all other settings are the same.

    Parameters
    ----------
    null : iterable of Row
        Rows of null models.
    lines : iterable of Row
        All other rows.

    Returns
    -------
    list of Row
        One row per line.
    """
    # the id of a line begins with the method (or "null") and the number of its entry in the
    # experiment file
    entries = {row.line.removeprefix("null-") for row in null}
    tested = {}
    for row in lines:
        entry = row.line.removeprefix(f"{row.method}-").removesuffix("-0")
        if entry in entries:
            tested[row.line] = row
    return list(tested.values())


def contenders(rows: pd.DataFrame) -> list[str]:
    """Lines that are compared with each other: the methods, or the references without methods.

    Parameters
    ----------
    rows : DataFrame
        What each row is (rows.tsv).

    Returns
    -------
    list of str
        Ids of lines; never that of covariates.
    """
    lines = lines_of(rows)
    compared = lines[(lines["kind"] != NULL) & (lines["method"] != "covariates")]
    methods = compared[compared["kind"] != REFERENCE]
    return list((methods if len(methods) else compared).index)


def references(rows: pd.DataFrame) -> list[str]:
    """Reference lines that are not contenders: each is compared with the best contender."""
    lines = lines_of(rows)
    is_reference = (lines["kind"] == REFERENCE) & (lines["method"] != "covariates")
    is_contender = lines.index.isin(contenders(rows))
    return list(lines.index[is_reference & ~is_contender])


def _title_not_in_label(line: Any) -> str:
    """The title of the method; empty where the label contains it."""
    return "" if line.title.casefold() in line.label.casefold() else line.title
