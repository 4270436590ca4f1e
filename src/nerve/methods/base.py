"""What every method shares: name and presets, check of parameters, saving, loading, model card.

To add a method, write one file with its torch module and its estimator, and add a line to
`nerve.methods.METHODS`:

1. Derive from `trained.Encoder` (``fit`` + ``transform``), `trained.SupervisedMethod` (``fit`` +
   ``predict``), or, if nothing is trained by gradient, from `Reference` below.
2. Write the class attributes ``title`` (what tables call it), ``citation``, ``adapted`` (what
   differs from the paper's method), ``inputs`` (what it reads: ``"fc"``, ``"upper"`` or
   ``"timeseries"``, see `Cohort.inputs`) and ``presets`` ("paper" and "small" at least).
3. ``__init__`` has every parameter with a type of `parameters` and a default, and only stores
   them. Each has a line in the docstring.
4. The docstrings at the top of `trained` and of `Reference` say what else a class provides.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin

import nerve
from nerve._utils.errors import (
    NerveError,
    NerveWarning,
    NotFitted,
    facts_html,
    listed,
    one_of,
    problem,
)
from nerve._utils.files import claim, write_json, write_markdown
from nerve._utils.privacy import printable_name
from nerve._utils.progress import progress_bar
from nerve.core.distributed import current_processes
from nerve.core.views import check_arrays
from nerve.data.cohort import Cohort
from nerve.data.connectivity import CORRELATIONS, MEASURES, in_words
from nerve.data.named_patchings import PATCHING_NAMES, is_patching_name
from nerve.data.parcellation import Parcellation
from nerve.data.quality.likeness import FEWEST
from nerve.evaluation.rows import setting_phrases, settings_in_words
from nerve.methods.configuration import CONFIG, FORMAT_VERSION, read_configuration
from nerve.methods.inputs import as_cohort, chunks, cohorts_in
from nerve.methods.parameters import check_names, checked_parameters, plain
from nerve.methods.run_folder import load_tensors, save_tensors, single_precision

WEIGHTS = "model.safetensors"
CARD = "README.md"
Role = Literal["reference", "supervised", "self-supervised"]

# no differences from a preset: rows of results name the seed beside it
_NOT_COMPARED = ("seed", "preset")
# the parcellation is stored whole beside the parameters; the others change no result
_NOT_SAVED = ("parcellation", "device", "compile", "checkpoint_seconds")
_ERRORS_OF_DAMAGED_FILES = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)


class SavedModel(NamedTuple):
    """What `Method.save` wrote."""

    folder: Path
    config: dict[str, Any]  # config.json
    tensors: dict[str, torch.Tensor]


class Method(BaseEstimator):
    """A scikit-learn estimator that can be saved. The top of this file says how to add one."""

    title: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    adapted: ClassVar[str] = ""
    role: ClassVar[Role] = "self-supervised"
    inputs: ClassVar[str] = "fc"
    # name → parameters that differ from the defaults of the signature
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}
    # what matrices may hold (`nerve.data.connectivity`)
    measures: ClassVar[tuple[str, ...]] = CORRELATIONS
    view: Any = "fc"

    # the preset that `from_preset` or a saved model named
    _preset: str | None = None

    # after fit
    parcellation_: Parcellation
    n_features_in_: int
    data_: dict[str, Any]  # about the training participants; contains no participant ids
    # how the method had to deviate for this cohort, in words; tables mark such rows
    adapted_: str = ""

    # Parameters and presets

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Make the method with the parameters of a preset.

        Parameters
        ----------
        name : str
            One of ``presets``.
        **changes
            Parameters that differ from the preset.

        Returns
        -------
        method
        """
        preset = cls.presets[one_of("preset", name, list(cls.presets))]
        check_names(changes, cls._get_param_names(), cls.title or cls.__name__)
        method = cls(**{**preset, **changes})
        method._preset = name
        return method

    def check_parameters(self, where: str = "") -> dict[str, Any]:
        """Check the parameters against the types in the signature; `fit` begins with this.

        Parameters
        ----------
        where : str
            Where the parameters come from, for the error; the title of the method by default.

        Returns
        -------
        dict
            The parameters as plain values.
        """
        return checked_parameters(self, where or self.title or type(self).__name__)

    def described_parameters(self) -> dict[str, Any]:
        """The parameters as plain JSON, without those that change no result."""
        parameters = self.check_parameters()
        saved = {name: value for name, value in parameters.items() if name not in _NOT_SAVED}
        # through JSON: tuples become lists, classes become words
        return json.loads(json.dumps(saved, default=_described_object))

    @classmethod
    def differences(cls, parameters: Mapping[str, Any], preset: str) -> dict[str, Any]:
        """The parameters that differ from a preset.

        Parameters
        ----------
        parameters : mapping
            What `described_parameters` gives, or `parameters` of config.json.
        preset : str
            One of ``presets``.

        Returns
        -------
        dict
            Plain JSON.
        """
        preset_parameters = cls.from_preset(preset).described_parameters()
        different = {}
        for name, value in parameters.items():
            if name not in _NOT_COMPARED and value != preset_parameters.get(name):
                different[name] = value
        return different

    @classmethod
    def nearest_preset(cls, parameters: Mapping[str, Any]) -> str:
        """The preset that parameters differ least from.

        Parameters
        ----------
        parameters : mapping
            What `described_parameters` gives, or `parameters` of config.json.

        Returns
        -------
        str
        """
        return min(cls.presets, key=lambda name: len(cls.differences(parameters, name)))

    @classmethod
    def saved_preset(cls, config: Mapping[str, Any]) -> str:
        """The preset that a config.json names, or else the one that it differs least from.

        Parameters
        ----------
        config : mapping
            What `read_configuration` gives.

        Returns
        -------
        str
        """
        parameters = config.get("parameters") or {}
        # models of NERVE of earlier versions name their preset among the parameters
        for preset in (config.get("preset"), parameters.get("preset")):
            if preset in cls.presets:
                return str(preset)
        return cls.nearest_preset(parameters)

    def preset_name(self) -> str:
        """The preset that the method was made from, or else the one that it differs least from.

        Returns
        -------
        str
            Empty for methods whose presets are all the same.
        """
        if not self.has_presets():
            return ""
        return self._preset or self.nearest_preset(self.described_parameters())

    @classmethod
    def has_presets(cls) -> bool:
        """Whether the presets of the method differ from one another."""
        first, *others = cls.presets.values()
        return any(other != first for other in others)

    def label(self) -> str:
        """The title, with the view that the method reads if that is not FC."""
        name = self.title or type(self).__name__
        return name if self.view in (None, "fc") else f"{name}, {self.view} view"

    # Inputs

    def __sklearn_tags__(self) -> Any:
        """Matrices come as (n, R, R) arrays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def begin_fit(self, data: Any) -> Cohort:
        """Check the parameters, pool the data into one cohort and set `data_`, which describes it.

        Parameters
        ----------
        data : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        Cohort
            In the region order of `parcellation_`, which the method keeps from now on.
        """
        self.check_parameters()
        cohort = self.align_and_check_measure(data, getattr(self, "parcellation", None))
        self.parcellation_ = cohort.parcellation
        self.n_features_in_ = cohort.n_regions
        counts = cohort.cohort_names.value_counts(sort=False)
        resampled = {}
        for part in cohorts_in(data):
            if "resampled" in part.notes:
                summary = part.notes["resampled"]
                regions = f"{summary['source']} → {summary['target']}"
                resampled[printable_name(part.name)] = printable_name(regions)
        self.data_ = {
            "fingerprint": cohort.fingerprint,
            # see `trained_on_all_of`
            "fc": [part.fc_fingerprint for part in cohorts_in(data) or [cohort]],
            "cohorts": {printable_name(name): int(n) for name, n in counts.items()},
        }
        if resampled:
            self.data_["resampled"] = resampled
        return cohort

    def trained_on_all_of(self, cohort: Cohort) -> bool:
        """Whether the method was fitted on a cohort with exactly this FC.

        The participants table may have changed since. The answer is False for a part of a training
        cohort, and for a larger cohort that contains one: models are passed on, so they keep a hash
        of each whole cohort and nothing about single participants.

        Parameters
        ----------
        cohort : Cohort

        Returns
        -------
        bool
        """
        return cohort.fc_fingerprint in self.data_.get("fc", ())

    def align_and_check_measure(
        self, data: Any, parcellation: Parcellation | str | None = None
    ) -> Cohort:
        """Reorder the regions of data by label, and refuse a measure that the method cannot use.

        Parameters
        ----------
        data : Cohort, sequence of Cohorts, or (n, R, R) array
        parcellation : Parcellation or str, optional
            The order of regions that is wanted; by default that of the (first) cohort. A region
            that is missing from the data is an error; a region that only the data have is left out
            (`Cohort.align`). An array has no labels: only its number of regions is checked.

        Returns
        -------
        Cohort
        """
        cohorts = cohorts_in(data)
        if cohorts and parcellation is not None:
            data = [cohort.align(parcellation) for cohort in cohorts]
        cohort = as_cohort(data, parcellation)
        if cohort.measure in self.measures:
            return cohort
        remedy = "The feature sets raw and pca take any measure."
        if cohort.measure == "fisher_z":
            remedy = "Ingest it again with --values z, which makes r of it."
        needed = " or ".join(in_words(measure) for measure in self.measures)
        raise NerveError(
            f"Cohort {cohort.name!r} holds {in_words(cohort.measure)}, "
            f"and {type(self).__name__} needs {needed}. {remedy}"
        )

    def align_to_fitted(self, data: Any) -> Cohort:
        """Reorder the regions of data by label, into the order that the method was fitted with.

        `transform` and `predict` of every method begin here. `align_and_check_measure` says what is
        refused.

        Parameters
        ----------
        data : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        Cohort
        """
        self.check_fitted()
        return self.align_and_check_measure(data, self.parcellation_)

    def check_fitted(self) -> None:
        """Raise `NotFitted` before `fit`."""
        if not hasattr(self, "parcellation_"):
            raise NotFitted(
                f"This {type(self).__name__} is not fitted. Call fit first, or load a saved one."
            )

    def parameter_count(self, parcellation: Parcellation) -> int:
        """How many numbers are trained for the regions of a parcellation."""
        raise NotImplementedError

    # Files

    def tensors(self) -> dict[str, torch.Tensor]:
        """What was learned, by name."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What else was learned, for config.json."""
        return {}

    def restore(self, saved: SavedModel) -> None:
        """Set what `tensors` and `state` have saved; refuse what does not fit the parameters."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, config.json and a model card, without participant ids.

        Parameters
        ----------
        path : path
            The folder.

        Returns
        -------
        Path
        """
        self.check_fitted()
        n_fitted = sum(self.data_.get("cohorts", {}).values())
        check_enough_to_save(self.data_.get("n_training", n_fitted))
        folder = claim(path)
        if current_processes().first:
            save_tensors(folder / WEIGHTS, self.tensors())
            self.save_description(folder)
        return folder

    def save_description(self, folder: Path) -> None:
        """Write the model card, and config.json last: a folder that holds it is complete."""
        write_markdown(folder / CARD, self.model_card())
        write_json(folder / CONFIG, self.configuration())

    def configuration(self) -> dict[str, Any]:
        """What config.json holds."""
        table = self.parcellation_.to_table()
        regions = {}
        for column in table.columns:
            values = table[column].tolist()
            regions[str(column)] = [None if pd.isna(value) else value for value in values]
        parameters = self.described_parameters()
        preset = self.preset_name()
        # for readers of the file: `load` uses `parameters`
        differences = self.differences(parameters, preset or next(iter(self.presets)))
        return {
            "format_version": FORMAT_VERSION,
            "nerve_version": nerve.__version__,
            "torch_version": torch.__version__,
            "method": type(self).__name__,
            "parameters": parameters,
            "preset": preset,
            "differences": differences,
            "parcellation": {
                "name": self.parcellation_.name,
                "fingerprint": self.parcellation_.fingerprint,
                "regions": regions,
            },
            "data": self.data_,
            "adapted": self.adapted_,
            **self.state(),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote. A newer format, missing file or changed shape is refused.

        Parameters
        ----------
        path : path
            The folder.
        device : str
            Where a trained method computes.

        Returns
        -------
        method
        """
        return cls.from_files(Path(path), read_configuration(path), device)

    @classmethod
    def from_files(cls, folder: Path, config: dict[str, Any], device: str) -> Self:
        """Make the method that a config.json describes, with the arrays beside it."""
        if config.get("method") != cls.__name__:
            raise problem(
                folder, f"it holds a {config.get('method')}", expected=f"a {cls.__name__}"
            )
        try:
            method = cls.from_configuration(config)
            regions = pd.DataFrame(config["parcellation"]["regions"])
            regions[["x", "y", "z"]] = regions[["x", "y", "z"]].astype(float)
            name = str(config["parcellation"]["name"])
            method.parcellation_ = Parcellation.from_table(regions, name=name)
            # data are matched by label: a changed label would match other regions
            if config["parcellation"]["fingerprint"] != method.parcellation_.fingerprint:
                raise NerveError(
                    "its regions are not those that the model was saved with (their fingerprint "
                    "differs). Copy the folder again from where it was made."
                )
            if "device" in cls._get_param_names():
                method.set_params(device=device)
            method.check_parameters()
            method.n_features_in_ = method.parcellation_.n_regions
            method.data_ = config.get("data", {})
            method.adapted_ = config.get("adapted", "")
            tensors = single_precision(load_tensors(folder / WEIGHTS))
            method.restore(SavedModel(folder, config, tensors))
        except NerveError as error:
            if str(folder) in str(error):
                raise
            raise NerveError(f"{folder / CONFIG}: {error}") from error
        except _ERRORS_OF_DAMAGED_FILES as error:
            raise problem(
                folder / CONFIG, f"no model can be made of what it says ({error})"
            ) from error
        return method

    @classmethod
    def from_configuration(cls, config: Mapping[str, Any]) -> Self:
        """Make the unfitted method that a config.json describes."""
        parameters = dict(config["parameters"])
        parameters.pop("preset", None)  # see `saved_preset`
        known = [name for name in cls._get_param_names() if name not in _NOT_SAVED]
        check_names(parameters, known, "parameters")
        patching = parameters.get("patching")
        if isinstance(patching, str) and not is_patching_name(patching):
            # elsewhere it may be a table of the user's; a model that is passed on opens no file
            raise problem("parameters", "patching is no known name", expected=PATCHING_NAMES)
        method = cls(**plain(parameters))
        method._preset = cls.saved_preset(config)
        return method

    def model_card(self) -> str:
        """The page of a saved folder: what the model is, its training data, how to use it."""
        described = self.described_parameters().items()
        parameters = "\n".join(f"- {name}: {value}" for name, value in described)
        facts = "".join(f"- {line}\n" for line in self.card_lines())
        name = type(self).__name__
        return (
            f"# {self.label()}\n\n"
            f"## Good for, and not\n\n{self.purpose()}\n\n"
            "## What it is\n\n"
            f"A model of brain functional connectivity, made with nerve {nerve.__version__}. "
            f"{self.citation}.\n\n"
            f"- Regions: {self.parcellation_.n_regions}, {self.parcellation_.n_networks} networks "
            f"({self.parcellation_.name}); labels in config.json, data are matched by label\n"
            f"{facts}"
            f"\n## Parameters\n\n{parameters}\n\n"
            "## Use\n\n```python\n"
            f"from {type(self).__module__} import {name}\n\n"
            f'model = {name}.load("this folder")\n```\n\n'
            "For research. Weights can carry information on the participants they were fitted on: "
            "share them under\n"
            "the terms of the data.\n"
        )

    def purpose(self) -> str:
        """What the fitted method is good for and what it is not, for the top of the model card."""
        result = "predictions" if self.role == "supervised" else "features"
        comparison = ""
        if hasattr(self, "likeness"):
            comparison = " `nerve check COHORT --model` with this model compares them."
        return (
            f"Good for {result} of other participants whose FC has the same "
            f"{self.parcellation_.n_regions} regions and was made in the same way as that of the "
            f"training cohort.{comparison}\n\n"
            "Not good for other regions, and not for the diagnosis of a participant. What it says "
            "about the participants it was fitted on proves nothing: test it on others."
        )

    def card_lines(self) -> list[str]:
        """Facts about the fitted method, for the model card."""
        counts = self.data_.get("cohorts", {}).items()
        cohorts = ", ".join(f"{name} ({count})" for name, count in counts)
        lines = [f"Fitted on: {cohorts or 'not recorded'}"]
        resampled = self.data_.get("resampled", {}).items()
        if resampled:
            changes = ", ".join(f"{name} ({regions})" for name, regions in resampled)
            lines.append(f"Resampled from other regions: {changes}")
        preset = self.preset_name()
        differences = self.differences(
            self.described_parameters(), preset or next(iter(self.presets))
        )
        settings = settings_in_words(preset, setting_phrases(differences))
        if settings:
            lines.append(f"Settings: {settings}")
        return lines

    def _html_repr(self) -> str:
        """What notebooks show: what it was fitted on, above scikit-learn's list of parameters."""
        diagram = super()._html_repr()
        if not hasattr(self, "parcellation_"):
            return diagram
        parcellation = self.parcellation_
        facts = {
            "regions": f"{parcellation.n_regions} in {parcellation.n_networks} networks",
            "parcellation": parcellation.name,
        }
        for line in self.card_lines():
            name, colon, fact = line.partition(": ")
            if colon:
                facts[name] = fact
        return facts_html(self.label(), facts) + diagram


class FeatureMixin(TransformerMixin):
    """`transform` for methods that provide ``features(cohort)``, and `width` or `n_features`.

    With ``set_output(transform="pandas")``, rows are participant ids where the data are cohorts.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        # scikit-learn wraps `transform` here, so that it returns tables where asked to
        super().__init_subclass__(**options)
        if "transform" in vars(cls):
            cls.transform = _indexed_by_participant(vars(cls)["transform"])  # type: ignore[method-assign]

    def __sklearn_tags__(self) -> Any:
        """Features are float32, whatever comes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def transform(self, X: Any) -> np.ndarray:
        """Features of the same participants in the same order.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        (n, n_features) array
        """
        cohort = self.align_to_fitted(X)  # type: ignore[attr-defined]
        return checked_features(self.features(cohort), cohort)

    def features(self, cohort: Cohort) -> np.ndarray:
        """What `transform` returns, for a cohort in the region order of the method."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Numbers per participant; known after `fit`."""
        return self.width  # type: ignore[attr-defined, no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns: dim0, dim1 and so on."""
        self.check_fitted()  # type: ignore[attr-defined]
        return np.array([f"dim{k}" for k in range(self.n_features)], object)


def _indexed_by_participant(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A `transform` whose table, if it returns one, has participants as its index."""

    @wraps(transform)
    def transform_and_index(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        features = transform(self, X, *arguments, **options)
        cohorts = cohorts_in(X)
        if isinstance(features, pd.DataFrame) and cohorts:
            ids = pd.concat([cohort.participants["participant_id"] for cohort in cohorts])
            features = features.set_axis(pd.Index(ids, name="participant_id"))
        return features

    return transform_and_index


# `__init_subclass__` reaches the classes below this one, not this one itself
FeatureMixin.transform = _indexed_by_participant(FeatureMixin.transform)  # type: ignore[method-assign]


class Reference(FeatureMixin, Method):
    """A method without training by gradient: a reference row that learns from the cohort once.

    Beside what `Method` asks for, a reference provides ``learn(cohort)``, which returns named
    arrays, ``features(cohort)``, and ``shapes()`` of the arrays.
    """

    role: ClassVar[Role] = "reference"
    measures: ClassVar[tuple[str, ...]] = tuple(MEASURES)
    arrays_: dict[str, np.ndarray]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the participants.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array
        y : ignored

        Returns
        -------
        method
        """
        cohort = self.begin_fit(X)
        learned = self.learn(cohort)
        cohort.check_unchanged()  # `data_` holds the fingerprint of what was learned from
        # contiguous, as they are after loading: products with them then have the same bits
        self.arrays_ = {name: np.array(array, order="C") for name, array in learned.items()}
        return self

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Compute the named arrays that `features` needs."""
        return {}

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Shapes of the arrays of `learn`, with None for a length that depends on the data."""
        return {}

    def parts(self, cohort: Cohort) -> Iterator[np.ndarray]:
        """The row numbers of a cohort, some at a time, with a progress bar."""
        parts = chunks(len(cohort))
        return iter(progress_bar(parts, label=type(self).__name__, unit="batches"))

    def parameter_count(self, parcellation: Parcellation) -> int:
        """Nothing is trained."""
        return 0

    def tensors(self) -> dict[str, torch.Tensor]:
        """The arrays."""
        return {name: torch.from_numpy(array) for name, array in self.arrays_.items()}

    def restore(self, saved: SavedModel) -> None:
        """Set the arrays, if they have the shapes of this method."""
        check_arrays(saved.tensors, self.shapes(), saved.folder)
        self.arrays_ = {name: np.array(tensor.numpy()) for name, tensor in saved.tensors.items()}


def check_enough_to_save(n_training: int) -> None:
    """Refuse to save a model of few participants, because its weights would reveal their FC.

    Parameters
    ----------
    n_training : int
        Participants that the model is trained or fitted on.
    """
    if n_training < FEWEST:
        raise problem(
            "The model",
            f"{n_training} training participants",
            expected=f"at least {FEWEST} for anything that is saved: the weights of a model of "
            "few participants hold their FC",
            remedy="Train on more participants.",
        )


def checked_features(features: np.ndarray, cohort: Cohort) -> np.ndarray:
    """Refuse features that are not finite, and warn if all participants have the same ones.

    Parameters
    ----------
    features : (n, …) array
    cohort : Cohort
        The same participants in the same order.

    Returns
    -------
    (n, …) array
        The features themselves.
    """
    flat = features.reshape(len(features), -1)
    # by sums, so that no copy is made: tokens of a large cohort are gigabytes
    not_finite = ~np.isfinite(flat.sum(axis=1, dtype=float))
    if not_finite.any():
        ids = listed(cohort.participants["participant_id"][not_finite], most=5)
        remedy = "`nerve check` lists participants whose FC holds missing or infinite values."
        raise problem(
            f"Cohort {cohort.name!r}",
            f"the embedding of {ids} is not finite",
            expected="numbers",
            remedy=remedy,
        )
    if len(flat) > 1 and (flat.min(axis=0) == flat.max(axis=0)).all():
        warnings.warn(
            f"Cohort {cohort.name!r}: all {len(flat)} participants have the same embedding. Check "
            "that their FC differs (`nerve check`) and that its values have the size of those that "
            "the model was trained on.",
            NerveWarning,
            stacklevel=3,
        )
    return features


def class_name(value: type) -> str:
    """The name of a class in a saved model: its module and name. `load` never imports it.

    Parameters
    ----------
    value : type

    Returns
    -------
    str

    Examples
    --------
    >>> class_name(Method)
    'nerve.methods.base:Method'
    """
    return f"{value.__module__}:{value.__qualname__}"


def _described_object(value: Any) -> str:
    """A parameter that is not a JSON value, as a word; `NERVE` writes out its patching itself."""
    return class_name(value if isinstance(value, type) else type(value))
