"""What every method shares: what it is called, its presets, one check of its parameters, saving and loading.

To add a method, write one file with one class and add a line to `METHODS`:

1. Derive from `trained.Encoder` (``fit`` + ``transform``), `predictor.Predictor` (``fit`` + ``predict``), or, if
   nothing is trained by gradient, `references.Reference`. Say in ``role`` what it is and, in methods.yaml or as
   attributes of the class, in ``title`` what tables call it, in ``paper`` how to cite it, in ``adapted`` what we
   changed, and give ``presets`` "paper" and "small".
2. ``__init__`` only stores its arguments, all with defaults; their types (`settings`) say what is allowed.
3. ``kind`` says what it reads: ``"fc"``, ``"upper"`` or ``"timeseries"`` (see `Cohort.inputs`).
4. What else the class provides is said at the top of `trained` and `references`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator

import nerve
from nerve._utils.errors import NerveError, NotFitted, facts_html, one_of, problem
from nerve._utils.files import claim, read_json, write_json, write_markdown
from nerve._utils.privacy import printable_name
from nerve.core.distributed import current_processes
from nerve.data.cohort import Cohort
from nerve.data.connectivity import CORRELATIONS, in_words
from nerve.data.parcellation import Parcellation
from nerve.evaluation.rows import setting_phrases, settings_in_words
from nerve.methods.data import as_cohort, pool_of
from nerve.methods.run_folder import load_tensors, save_tensors, single_precision
from nerve.methods.settings import SAID, check_names, signature_model, validated

FORMAT_VERSION = 2
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
Role = Literal["reference", "supervised", "self-supervised"]
NOT_SETTINGS = (
    "preset",
    "seed",
    "device",
    "compile",
    "checkpoint_seconds",
)  # of no preset: a row says the seed
_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)


class Saved(NamedTuple):
    """What `save` wrote."""

    folder: Path
    config: dict[str, Any]  # config.json
    tensors: dict[str, torch.Tensor]


class Method(BaseEstimator):
    """An estimator of scikit-learn's kind that can be saved. See the top of this file for how to add one."""

    title: ClassVar[str] = ""  # what tables call it
    role: ClassVar[Role] = "self-supervised"
    kind: ClassVar[str] = "fc"
    view: Any = "fc"  # the view of FC that is read
    measures: ClassVar[tuple[str, ...]] = (
        CORRELATIONS  # what matrices may hold: see `nerve.data.connectivity`
    )
    paper: ClassVar[str] = ""  # how to cite it, in one line
    adapted: ClassVar[str] = ""  # what differs from the paper's method, in one sentence
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": {},
    }  # what differs from the defaults
    adapted_: str = (
        ""  # after fit: the substitute that this cohort made necessary; tables mark such rows
    )
    parcellation_: Parcellation
    n_features_in_: int
    data_: dict[str, Any]  # what is remembered of the training participants: nobody by name

    def __init_subclass__(cls, **options: Any) -> None:
        """What methods.yaml says of a method of the package."""
        super().__init_subclass__(**options)
        for name, value in (
            SAID.get(cls.__name__, {}).items()
            if cls.__module__.startswith("nerve.methods.")
            else ()
        ):
            setattr(cls, name, value)

    @classmethod
    def from_preset(cls, name: str = "paper", **changes: Any) -> Self:
        """The method with the parameters of a preset, some of them changed."""
        preset = cls.presets[one_of("preset", name, list(cls.presets))]
        check_names(changes, cls._get_param_names(), cls.title or cls.__name__)
        return cls(**{**preset, **changes})

    def check_settings(self) -> None:
        """Refuse parameters of the wrong type or out of range with a sentence; `fit` begins with this."""
        cls: Any = type(self)
        validated(signature_model(cls), self.get_params(deep=False), cls.title or cls.__name__)

    def __sklearn_tags__(self) -> Any:
        """Matrices come as (n, R, R) arrays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def begin_fit(self, data: Any) -> Cohort:
        """Parameters checked; the data as one cohort, whose regions are those of the method from now on."""
        self.check_settings()
        cohort = self.checked_cohort(data, getattr(self, "parcellation", None))
        self.parcellation_, self.n_features_in_ = cohort.parcellation, cohort.n_regions
        counts = cohort.cohort_names.value_counts(sort=False)
        self.data_ = {
            "fingerprint": cohort.fingerprint,
            "fc": [
                one.fc_fingerprint for one in pool_of(data) or [cohort]
            ],  # see `trained_on_all_of`
            "cohorts": {printable_name(name): int(n) for name, n in counts.items()},
        }
        return cohort

    def trained_on_all_of(self, cohort: Cohort) -> bool:
        """Whether the FC of this cohort is that of one that the method was fitted on.

        Tables may have changed since. Of a part of such a cohort, or of one that holds it, this is not known: models
        are passed on, and keep nothing of any one participant.
        """
        return cohort.fc_fingerprint in self.data_.get("fc", ())

    def checked_cohort(self, data: Any, parcellation: Parcellation | str | None = None) -> Cohort:
        """The data as a cohort in this order, if their measure is one that the method can work with."""
        cohort = as_cohort(data, parcellation)
        if cohort.measure in self.measures:
            return cohort
        remedy = (
            "Ingest it again with --values z, which makes r of it."
            if cohort.measure == "fisher_z"
            else ""
        )
        raise NerveError(
            f"Cohort {cohort.name!r} holds {in_words(cohort.measure)}, and {type(self).__name__} needs "
            f"{' or '.join(map(in_words, self.measures))}. {remedy or 'The feature sets raw and pca take any measure.'}"
        )

    def fitted_cohort(self, data: Any) -> Cohort:
        """The data in the region order that the method was fitted in; regions that it lacks are an error."""
        self.check_fitted()
        return self.checked_cohort(data, self.parcellation_)

    def check_fitted(self) -> None:
        """Refuse to go on before `fit`."""
        if not hasattr(self, "parcellation_"):
            raise NotFitted(
                f"This {type(self).__name__} is not fitted. Call fit first, or load a saved one."
            )

    def _html_repr(self) -> str:
        """What notebooks show: what a fitted method was fitted on, above scikit-learn's list of parameters."""
        diagram = super()._html_repr()
        if not hasattr(self, "parcellation_"):
            return diagram
        facts = {
            "regions": f"{self.parcellation_.n_regions} in {self.parcellation_.n_networks} networks",
            "parcellation": self.parcellation_.name,
            **dict(line.split(": ", 1) for line in self.card_lines() if ": " in line),
        }
        return facts_html(self.label(), facts) + diagram

    # ---- files

    def tensors(self) -> dict[str, torch.Tensor]:
        """What was learned, by name."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What else was learned, for config.json."""
        return {}

    def restore(self, saved: Saved) -> None:
        """The inverse of `tensors` and `state`; what does not fit is refused."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, config.json and a model card into a folder; no participant is named."""
        self.check_fitted()
        folder = claim(path)
        if current_processes().first:
            save_tensors(folder / WEIGHTS, self.tensors())
            self.save_description(folder)
        return folder

    def save_description(self, folder: Path) -> None:
        """Write the model card, and config.json last: a folder with it is complete."""
        write_markdown(folder / CARD, self.model_card())
        write_json(folder / CONFIG, self.configuration())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote. A newer format, missing file or changed shape is refused by name.

        Parameters
        ----------
        path : path
        device : str
            Where a trained method computes.
        """
        return cls.from_files(Path(path), read_configuration(path), device)

    @classmethod
    def from_files(cls, folder: Path, config: dict[str, Any], device: str) -> Self:
        """The method that a config.json describes, with the arrays beside it."""
        if config.get("method") != cls.__name__:
            raise problem(
                folder, f"it holds a {config.get('method')}", expected=f"a {cls.__name__}"
            )
        try:
            method = cls.from_configuration(config)
            regions = pd.DataFrame(config["parcellation"]["regions"])
            regions[["x", "y", "z"]] = regions[["x", "y", "z"]].astype(float)
            method.parcellation_ = Parcellation.from_table(
                regions, name=str(config["parcellation"]["name"])
            )
            if (
                config["parcellation"]["fingerprint"] != method.parcellation_.fingerprint
            ):  # data are matched by label
                found = "its regions are not those that the model was saved with (their fingerprint differs)."
                raise NerveError(f"{found} Copy the folder again from where it was made.")
            if "device" in cls._get_param_names():
                method.set_params(device=device)
            method.check_settings()
            method.n_features_in_ = method.parcellation_.n_regions
            method.data_, method.adapted_ = config.get("data", {}), config.get("adapted", "")
            method.restore(Saved(folder, config, single_precision(load_tensors(folder / WEIGHTS))))
        except NerveError as error:
            raise (
                error if str(folder) in str(error) else NerveError(f"{folder / CONFIG}: {error}")
            ) from error
        except _DAMAGE as error:
            raise problem(
                folder / CONFIG, f"no model can be made of what it says ({error})"
            ) from error
        return method

    @classmethod
    def from_configuration(cls, config: dict[str, Any]) -> Self:
        """The unfitted method that a config.json describes."""
        check_names(config["parameters"], cls._get_param_names(), "parameters")
        return cls(**config["parameters"])

    def configuration(self) -> dict[str, Any]:
        """What config.json holds."""
        parcellation, table = self.parcellation_, self.parcellation_.to_table()
        regions = {
            str(c): [None if pd.isna(v) else v for v in table[c].tolist()] for c in table.columns
        }
        parameters = self.described_parameters()
        preset = self.nearest_preset(parameters)
        return {
            "format_version": FORMAT_VERSION,
            "nerve_version": nerve.__version__,
            "torch_version": torch.__version__,
            "method": type(self).__name__,
            "parameters": parameters,
            "preset": preset if self.has_presets() else "",
            "differences": self.differences(parameters, preset),  # from the preset, for the reader
            "parcellation": {
                "name": parcellation.name,
                "fingerprint": parcellation.fingerprint,
                "regions": regions,
            },
            "data": self.data_,
            "adapted": self.adapted_,
            **self.state(),
        }

    def described_parameters(self) -> dict[str, Any]:
        """The parameters as plain JSON; the parcellation is stored whole beside them, the device not at all."""
        named = {
            name: value
            for name, value in self.get_params().items()
            if name not in ("parcellation", "device")
        }
        return json.loads(json.dumps(named, default=np.generic.item))  # type: ignore[arg-type]

    @classmethod
    def differences(cls, parameters: Mapping[str, Any], preset: str) -> dict[str, Any]:
        """The settings that differ from those of a preset, as plain JSON.

        Parameters
        ----------
        parameters : mapping
            What `described_parameters` gives, or `parameters` of config.json.
        preset : str
        """
        usual = cls.from_preset(preset).described_parameters()
        names = [name for name in {**usual, **parameters} if name not in NOT_SETTINGS]
        return {
            name: parameters.get(name) for name in names if parameters.get(name) != usual.get(name)
        }

    @classmethod
    def nearest_preset(cls, parameters: Mapping[str, Any]) -> str:
        """The preset that parameters name, or else the one that they differ least from."""
        if parameters.get("preset") in cls.presets:
            return str(parameters["preset"])
        return min(cls.presets, key=lambda name: len(cls.differences(parameters, name)))

    @classmethod
    def has_presets(cls) -> bool:
        """Whether presets of the method differ from one another."""
        first, *others = cls.presets.values()
        return any(other != first for other in others)

    def label(self) -> str:
        """What it is, in words: its title, and the view that it reads if that is not FC."""
        name = self.title or type(self).__name__
        return name if self.view in (None, "fc") else f"{name}, {self.view} view"

    def model_card(self) -> str:
        """A page for whoever is handed the folder: what it is, what it was fitted on, how to use it."""
        parameters = "\n".join(
            f"- {name}: {value}" for name, value in self.described_parameters().items()
        )
        name = type(self).__name__
        return (
            f"# {self.label()}\n\n"
            f"A model of brain functional connectivity, made with nerve {nerve.__version__}. {self.paper}.\n\n"
            f"- Regions: {self.parcellation_.n_regions}, {self.parcellation_.n_networks} networks "
            f"({self.parcellation_.name}); labels in config.json, data are matched by label\n"
            + "".join(f"- {line}\n" for line in self.card_lines())
            + f"\n## Parameters\n\n{parameters}\n\n"
            "## Use\n\n```python\n"
            f"from {type(self).__module__} import {name}\n\n"
            f'model = {name}.load("this folder")\n```\n\n'
            "For research. Weights can carry information on the participants they were fitted on: share them under\n"
            "the terms of the data. What the embeddings predict must be tested on other participants than these.\n"
        )

    def card_lines(self) -> list[str]:
        """Facts about the fitted method, for the model card."""
        cohorts = ", ".join(
            f"{name} ({count})" for name, count in self.data_.get("cohorts", {}).items()
        )
        parameters = self.described_parameters()
        preset = self.nearest_preset(parameters)
        differences = self.differences(parameters, preset)
        settings = settings_in_words(
            preset if self.has_presets() else "", setting_phrases(differences)
        )
        return [
            f"Fitted on: {cohorts or 'not recorded'}",
            *([f"Settings: {settings}"] if settings else []),
        ]


def read_configuration(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The config.json of a saved method; anything else is refused."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        found = f"it holds no {CONFIG}" if folder.is_dir() else "there is no such folder"
        remedy = "A run that was stopped is finished with `nerve pretrain … --resume`."
        raise problem(folder, found, expected="the folder of a trained model", remedy=remedy)
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or not isinstance(config.get("format_version"), int):
        raise problem(folder / CONFIG, "it does not describe a model of this package")
    if config["format_version"] != FORMAT_VERSION:
        found = f"it was written in format {config['format_version']} by nerve {config.get('nerve_version')}"
        remedy = (
            "Update nerve to read it."
            if config["format_version"] > FORMAT_VERSION
            else "Fit the model again."
        )
        raise problem(folder, found, expected=f"format {FORMAT_VERSION}", remedy=remedy)
    return config
