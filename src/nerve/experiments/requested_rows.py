"""Recognise what users give as features: numbers, files, names of methods, models, estimators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from sklearn.base import clone

from nerve._utils.errors import NerveError, did_you_mean, listed, problem
from nerve._utils.privacy import printable_name
from nerve.evaluation.feature_sets import NAMED, FeatureSet
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import GIVEN, Row, line_label
from nerve.experiments.method_rows import file_row, method_row
from nerve.methods import METHODS, NAME_OF_CLASS, PRETRAINED, make_method
from nerve.methods.pretrained import find_model, packaged_models

_FINETUNE = "finetune"  # the method whose first word after the colon is a trained model
_PRESET = "small"  # of methods that are named and not given as an object


@dataclass
class RequestedRow:  # numpydoc ignore=PR02
    """One row that was asked for, before it is evaluated.

    Parameters
    ----------
    row : Row
        Its id, label and settings, as results have them.
    value : object
        For a method its name, for a model its path; otherwise what the user gave: numbers, a
        table, the path of one, or an estimator.
    make : callable, optional
        For a method: a function without arguments that makes the estimator, not fitted.
    settings : mapping
        For "raw", "pca" and "covariates": fields of the protocol that this row changes.
    """

    row: Row
    value: Any
    make: Callable[[], Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def request_rows(features: Any, protocol: Protocol) -> list[RequestedRow]:
    """List the rows that `features` asks for; two that a reader could not tell apart are refused.

    Parameters
    ----------
    features : object
        What `nerve.evaluate` takes.
    protocol : Protocol
        Which the settings of "raw", "pca" and "covariates" are compared with.

    Returns
    -------
    list of RequestedRow
        No two have the same id or label.
    """
    if isinstance(features, Mapping):
        rows = [_request_row(value, protocol, str(name)) for name, value in features.items()]
    elif _is_list_of_features(features):
        rows = [_request_row(value, protocol) for value in features]
    else:
        rows = [_request_row(features, protocol)]

    labels = [line_label(requested.row) for requested in rows]
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise NerveError(f"Two rows are called {listed(repeated)}: give each a name of its own.")
    ids = [requested.row.row for requested in rows]
    for number, requested in enumerate(rows, start=1):
        if ids.count(requested.row.row) > 1:
            unique_id = f"{requested.row.row} {number}"
            requested.row = replace(requested.row, row=unique_id, line=unique_id)
    return rows


def _is_list_of_features(features: Any) -> bool:
    """Whether it lists names, paths and estimators; a list of numbers is one feature set."""
    if not isinstance(features, (list, tuple)):
        return False
    return all(isinstance(value, (str, os.PathLike)) or hasattr(value, "fit") for value in features)


def _request_row(value: Any, protocol: Protocol, name: str | None = None) -> RequestedRow:
    """One row; `name` is what the user calls it."""
    if isinstance(value, (str, os.PathLike)):
        requested = _row_of_text(str(value), protocol)
    elif isinstance(value, FeatureSet):
        row = Row(value.name, value.name, "features", value.name, GIVEN, trained_before=True)
        requested = RequestedRow(row, value)
    elif type(value).__name__ in NAME_OF_CLASS and hasattr(value, "differences"):
        method = NAME_OF_CLASS[type(value).__name__]
        preset = type(value).nearest_preset(value.described_parameters())
        row = method_row(type(value).__name__, method, value, preset, {}, {})
        row = replace(row, seed=getattr(value, "seed", 0))
        requested = RequestedRow(row, method, make=lambda: clone(value))
    else:
        label = type(value).__name__ if hasattr(value, "fit") else "features"
        row = Row(label, label, "features", label, GIVEN, trained_before=True)
        requested = RequestedRow(row, value)
    if name is not None:
        requested.row = replace(requested.row, row=name, line=name, label=name)
    return requested


def _row_of_text(text: str, protocol: Protocol) -> RequestedRow:
    """A row by name: that of a method, perhaps with settings, a model or a file."""
    method, *settings = text.split(":")
    if method in METHODS:
        parsed: dict[str, Any] = {}
        if method == _FINETUNE and settings and "=" not in settings[0]:
            parsed[PRETRAINED] = settings.pop(0)
        parsed.update(map(_parse_setting, settings))
        return _row_of_method(text, method, parsed, protocol)
    if Path(text).exists() or text in packaged_models():
        path = find_model(text)
        stem = path.stem if path.is_file() else path.resolve().name
        label = printable_name(stem, most=60)
        row = replace(file_row(label, str(path)), label=label)
        return RequestedRow(row, str(path))
    raise problem(
        f"features {text}",
        "there is no such file, folder, method or model",
        expected="a trained model (folder, archive or name of `nerve models list`), a table with "
        f"participant_id, or one of {listed(METHODS, most=30)}",
        remedy=did_you_mean(text, [*METHODS, *packaged_models()]).strip(),
    )


def _row_of_method(
    text: str, method: str, settings: dict[str, Any], protocol: Protocol
) -> RequestedRow:
    """A row of a method by name; it is called by its settings."""

    def make() -> Any:
        return make_method(method, _PRESET, settings, seed=0, device="auto")

    try:
        row = method_row(text, method, make(), _PRESET, settings, settings, [protocol])
        if settings.get(PRETRAINED):
            # results are passed on: the id has the name of the trained model, not its path
            words = [f"{key}={value}" for key, value in settings.items() if key != PRETRAINED]
            row_id = ":".join([method, str(row.settings[PRETRAINED]), *words])
            row = replace(row, row=row_id, line=row_id)
    except NerveError as error:
        raise NerveError(f"features {text}: {error}") from None
    return RequestedRow(row, method, make=make, settings=settings if method in NAMED else {})


def _parse_setting(text: str) -> tuple[str, Any]:
    """One setting, its value as YAML reads it."""
    name, sign, value = text.partition("=")
    if not sign:
        raise problem(
            f"features …:{text}", "there is no '='", expected="settings as tangent:recentre=site"
        )
    return name, yaml.safe_load(value)
