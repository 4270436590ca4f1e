"""The `Row` of a method, of a trained model and of a table of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveError
from nerve.evaluation.feature_sets import NAMED
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import GIVEN, REFERENCE, Row
from nerve.methods import NAME_OF_CLASS, PRETRAINED, method_class
from nerve.methods.configuration import read_configuration
from nerve.methods.pretrained import located


def method_row(
    row: str,
    name: str,
    method: Any,
    preset: str,
    settings: Mapping[str, Any],
    swept: Mapping[str, Any],
    protocols: Sequence[Protocol] = (),
) -> Row:
    """Describe a method as a row: with the settings that differ from its preset or are swept.

    Parameters
    ----------
    row : str
        The id of the row.
    name : str
        A name of `METHODS`.
    method : estimator
        With these settings, not fitted.
    preset : str
        Which its settings began with.
    settings : mapping
        What was asked for beside the preset.
    swept : mapping
        Those of the settings that the label of the row shows.
    protocols : sequence of Protocol
        Of every cohort. The settings of "raw", "pca" and "covariates" are fields of the protocol,
        and are shown where they differ from it.

    Returns
    -------
    Row
        The row, before an evaluation adds its scope, width and time.
    """
    if name in NAMED:
        differences = {}
        for key, value in settings.items():
            if any(getattr(protocol, key) != value for protocol in protocols):
                differences[key] = value
    else:
        differences = method.differences(method.described_parameters(), preset)
        if PRETRAINED in swept:  # a trained model is called by its name, never by its path
            swept = {**swept, PRETRAINED: method.described_parameters()[PRETRAINED]}
    has_preset = name not in NAMED and method.has_presets()
    return Row(
        row=row,
        line=row,
        method=name,
        label=method.title,
        kind=method.role,
        view=method.view,
        variant=", ".join(f"{key}={value}" for key, value in swept.items() if key != "view"),
        settings={**swept, **differences},
        preset=preset if has_preset else "",
        title=method.title,
        swept=",".join(swept),
    )


def file_row(row: str, path: str) -> Row:
    """Describe a trained model, or a table of features, as a row.

    Parameters
    ----------
    row : str
        The id of the row.
    path : str
        A folder or archive of a model, or a table.

    Returns
    -------
    Row
        Its label is the name of the file.
    """
    label = Path(path).stem
    if not is_model(path):
        return Row(row, row, method="features", label=label, kind=GIVEN, trained_before=True)
    with located(path) as folder:
        config = read_configuration(folder)
    name = NAME_OF_CLASS.get(str(config.get("method")))
    if name is None or not hasattr(method_class(name), "transform"):
        raise NerveError(
            f"{path}: holds a {config.get('method')}, which was trained on a target, expected an "
            "encoder. Supervised methods are trained inside each fold: name the method itself."
        )
    cls = method_class(name)
    parameters = dict(config.get("parameters") or {})
    preset = cls.saved_preset(config)
    return Row(
        row,
        row,
        method=name,
        label=label,
        kind=str(cls.role),
        view=str(parameters.get("view") or "fc"),
        settings=cls.differences(parameters, preset),
        preset=preset if cls.has_presets() else "",
        title=cls.title,
        seed=int(parameters.get("seed") or 0),
        trained_before=True,
    )


def is_model(path: str) -> bool:
    """Whether a path is that of a trained model (folder or archive) rather than of a table."""
    return Path(path).is_dir() or Path(path).suffix.lower() == ".zip"


def citations_of(rows: Sequence[Row]) -> dict[str, str]:
    """The works to cite, by method; references and the user's own features have none."""
    methods = dict.fromkeys(row.method for row in rows if row.kind not in (GIVEN, REFERENCE))
    return {name: method_class(name).citation for name in methods}
