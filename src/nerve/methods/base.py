"""What every trained method shares: input checks, the path from a cohort to a trained module, saving and loading.

To add a method, write one file with one class and add a line to `METHODS`:

1. Derive from `Encoder` (``fit`` + ``transform``) or `predictor.Predictor` (``fit`` + ``predict``); say in ``paper``
   how to cite it, in ``adapted`` what we changed, and give ``presets`` "paper" and "small".
2. ``__init__`` only stores its arguments, all with defaults; two names are expected, ``seed`` and ``device``.
3. ``kind`` says what it reads: ``"fc"``, ``"upper"`` or ``"timeseries"`` (see `Cohort.inputs`).
4. ``build(parcellation)`` returns the untrained torch module, from the parameters and the parcellation alone (so that
   `load` can make it without data); random starts need no generator of their own, the caller has seeded torch. The
   module has ``training_loss(batch, draws)`` and ``embed(batch)`` or ``predict(batch)``.
5. ``training_settings()`` returns the `TrainingSettings` of the loop.
6. Optional: ``source(cohort, run_dir)`` when batches are not simply the inputs of some people; ``start(module, source,
   rows)`` for anything computed from the training people before the first step (a mean, say: keep it in a buffer).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from sklearn.base import BaseEstimator, TransformerMixin

from nerve.checks import NerveError, NotFitted, one_of, problem
from nerve.cohort import Cohort
from nerve.files import claim, read_json, read_tsv, write_json, write_markdown, write_tsv
from nerve.methods.inputs import as_cohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.saved import check_regions
from nerve.parcellation import Parcellation
from nerve.training import CohortSource, PairedSource, Result, Source, TrainingSettings, choose_device, train
from nerve.training.checkpoint import check_weights, load_tensors, restore_weights, save_tensors
from nerve.training.distributed import current_processes
from nerve.training.draws import mixed_seed
from nerve.training.sources import to_device
from nerve.training.splits import split_rows

FORMAT_VERSION = 1
WEIGHTS, CONFIG, HISTORY, CARD = "model.safetensors", "config.json", "history.tsv", "README.md"


class Method(BaseEstimator):
    """A torch module with scikit-learn's manners. See the top of this file for how to add one."""

    kind: ClassVar[str] = "fc"
    supervised: ClassVar[bool] = False
    paper: ClassVar[str] = ""  # how to cite it, in one line
    adapted: ClassVar[str] = ""  # what differs from the paper's method, in one sentence
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # name -> parameters that differ from the defaults
    adapted_: str = ""  # after fit: the substitute that this cohort made necessary; tables mark such rows
    batch_size_apply: ClassVar[int] = 128  # people at a time in transform and predict
    seed: int
    device: str

    @classmethod
    def from_preset(cls, name: str = "paper", **changes: Any) -> Self:
        """The method with the parameters of a preset, some of them changed."""
        return cls(**{**cls.presets[one_of("preset", name, list(cls.presets))], **changes})

    def __sklearn_tags__(self) -> Any:
        """Matrices come as (n, R, R) arrays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    # ---- what a method provides

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """The untrained module."""
        raise NotImplementedError

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        raise NotImplementedError

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """Where batches come from."""
        return CohortSource(cohort, self.kind)

    def start(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Prepare the module from the training people."""

    def split(self, cohort: Cohort, source: Source, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows of the source: the same share of each cohort."""
        groups = cohort.participants["cohort"].to_numpy() if "cohort" in cohort.participants else None
        return split_rows(len(source), groups, settings)

    def target_parcellation(self, data: Any) -> Parcellation | None:
        """The parcellation to train in: the parameter of that name, else that of the data."""
        return getattr(self, "parcellation", None)

    # ---- fit

    def _fit(
        self,
        data: Any,
        targets: np.ndarray | None,
        run_dir: str | os.PathLike[str] | None,
        resume: bool,
        progress: bool,
    ) -> Self:
        cohort = as_cohort(data, self.target_parcellation(data))
        settings = self.training_settings()
        folder = None if run_dir is None else claim(run_dir)
        self.parcellation_ = cohort.parcellation
        self.n_features_in_ = cohort.n_regions
        self.module_ = self.seeded_build(cohort.parcellation)
        source = self.source(cohort, folder)
        split = self.split(cohort, source, settings)
        self.start(self.module_, source, split[0])
        if targets is not None:
            source = PairedSource(source, targets)
        identity = {} if folder is None else {"data": cohort.fingerprint, **self._flat_parameters()}
        result: Result = train(
            self.module_,
            source,
            settings,
            run_dir=folder,
            split=split,
            resume=resume,
            identity=identity,
            progress=progress,
            label=type(self).__name__,
        )
        self.history_, self.best_step_ = result.history, result.best_step
        self.data_ = described_data(cohort, result)
        return self

    def seeded_build(self, parcellation: Parcellation) -> torch.nn.Module:
        """`build`, with torch's generator seeded for the time of the call only."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed_seed(self.seed, 0))
            return self.build(parcellation)

    # ---- apply

    def fitted_cohort(self, data: Any) -> Cohort:
        """The data in the region order that the module was trained in; regions that it lacks are an error."""
        if not hasattr(self, "module_"):
            raise NotFitted(f"This {type(self).__name__} is not fitted. Call fit first, or load a saved one.")
        return as_cohort(data, self.parcellation_)

    def apply(self, verb: Callable[[Any], torch.Tensor], source: Source, progress: bool = False) -> np.ndarray:
        """``verb(batch)`` for all samples in order, stacked: (n, …) float32."""
        device = choose_device(self.device)
        self.module_.to(device).eval()
        values: np.ndarray | None = None
        starts = range(0, len(source), self.batch_size_apply)
        console = Console(stderr=True)
        with torch.inference_mode():
            for start in track(starts, type(self).__name__, console=console, disable=not progress, transient=True):
                rows = np.arange(start, min(start + self.batch_size_apply, len(source)))
                part = verb(to_device(source.batch(rows), device)).float().cpu().numpy()
                if values is None:  # a whole cohort's tokens are gigabytes: written in place, never joined
                    values = np.empty((len(source), *part.shape[1:]), np.float32)
                values[rows] = part
        return np.zeros((0,), np.float32) if values is None else values

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, config.json, history.tsv and a model card into a folder; no participant is named."""
        if not hasattr(self, "module_"):
            raise NotFitted(f"This {type(self).__name__} is not fitted: there is nothing to save. Call fit first.")
        folder = claim(path)
        if current_processes().first:
            save_tensors(folder / WEIGHTS, self.module_.state_dict())
            write_tsv(folder / HISTORY, self.history_)
            write_markdown(folder / CARD, self.model_card())
            write_json(folder / CONFIG, self._configuration())  # last: a folder with it is complete
        return folder

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote. A newer format, missing file or changed shape is refused by name."""
        folder = Path(path)
        if not (folder / CONFIG).is_file():
            raise problem(
                folder,
                "it holds no config.json" if folder.is_dir() else "there is no such folder",
                expected="the folder of a trained model",
                remedy="A run that was stopped is finished with `nerve pretrain … --resume`.",
            )
        config = read_json(folder / CONFIG)
        method = cls._from_configuration(config, folder)
        method.set_params(device=device)
        tensors = load_tensors(folder / WEIGHTS)
        try:
            with torch.device("meta"):  # without numbers: a changed config cannot ask for more memory than the weights
                check_weights(method.seeded_build(method.parcellation_), tensors, folder / WEIGHTS)
            method.module_ = method.seeded_build(method.parcellation_)
        except NerveError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError, MemoryError) as error:
            raise problem(folder / CONFIG, f"no model can be built from its parameters ({error})") from error
        restore_weights(method.module_, tensors, folder / WEIGHTS)
        method.module_.eval()
        if not (folder / HISTORY).is_file():
            raise problem(folder, f"it holds no {HISTORY}", remedy="Copy the whole folder.")
        method.history_ = read_tsv(folder / HISTORY)
        return method

    @classmethod
    def _from_configuration(cls, config: Any, folder: Path) -> Self:
        if not isinstance(config, dict) or not isinstance(config.get("format_version"), int):
            raise problem(folder / CONFIG, "it does not describe a model of this package")
        if config["format_version"] > FORMAT_VERSION:
            raise problem(
                folder,
                f"it was written in format {config['format_version']} by nerve {config.get('nerve_version')}",
                expected=f"format {FORMAT_VERSION} or older",
                remedy="Update nerve to read it.",
            )
        if config.get("method") != cls.__name__:
            raise problem(folder, f"it holds a {config.get('method')}", expected=f"a {cls.__name__}")
        try:
            regions = pd.DataFrame(config["parcellation"]["regions"])
            regions[["x", "y", "z"]] = regions[["x", "y", "z"]].astype(float)
            method = cls(**cls.parameters_from_json(config["parameters"]))
            method.parcellation_ = Parcellation.from_table(regions, name=str(config["parcellation"]["name"]))
            check_regions(method.parcellation_, config["parcellation"], folder / CONFIG)
        except NerveError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise problem(folder / CONFIG, f"it is incomplete or has an unknown entry ({error})") from error
        method.n_features_in_ = method.parcellation_.n_regions
        method.data_, method.best_step_ = config.get("data", {}), config.get("best_step", 0)
        method.adapted_ = config.get("adapted", "")
        return method

    def _configuration(self) -> dict[str, Any]:
        table = self.parcellation_.to_table()
        regions = {str(c): [None if pd.isna(v) else v for v in table[c].tolist()] for c in table.columns}
        return {
            "format_version": FORMAT_VERSION,
            "nerve_version": version("nerve-fc"),
            "torch_version": torch.__version__,
            "method": type(self).__name__,
            "parameters": self._described_parameters(),
            "parcellation": {
                "name": self.parcellation_.name,
                "fingerprint": self.parcellation_.fingerprint,
                "regions": regions,
            },
            "training": self.training_settings().model_dump(mode="json"),
            "data": self.data_,
            "best_step": self.best_step_,
            "adapted": self.adapted_,
        }

    def _described_parameters(self) -> dict[str, Any]:
        """The parameters as plain JSON; the parcellation is stored whole beside them, the device not at all."""
        return {
            name: _plain(value) for name, value in self.get_params().items() if name not in ("parcellation", "device")
        }

    def _flat_parameters(self) -> dict[str, Any]:
        """The same, with the entries of `options` beside the others."""
        described = self._described_parameters()
        options = described.pop("options", None) or {}
        return {**described, **options}

    @classmethod
    def parameters_from_json(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `_described_parameters`; a method with parameters that are objects extends it."""
        known = inspect.signature(cls).parameters
        for name in parameters:
            if name not in known:
                raise KeyError(name)
        return dict(parameters)

    def model_card(self) -> str:
        """A page for whoever is handed the folder: what it is, what it was trained on, how to use it."""
        data = self.data_
        cohorts = ", ".join(f"{name} ({count})" for name, count in data.get("cohorts", {}).items())
        parameters = "\n".join(f"- {name}: {value}" for name, value in self._flat_parameters().items())
        last: Any = self.history_.iloc[-1] if len(self.history_) else {}
        return (
            f"# {type(self).__name__}\n\n"
            f"A model of brain functional connectivity, trained with nerve {version('nerve-fc')}.\n\n"
            f"- Regions: {self.parcellation_.n_regions}, {self.parcellation_.n_networks} networks "
            f"({self.parcellation_.name}); labels in config.json, data are matched by label\n"
            f"- Trained on: {cohorts or 'not recorded'}; {data.get('n_training', '?')} people for training, "
            f"{data.get('n_validation', '?')} for validation\n"
            f"- Trainable parameters: {sum(p.numel() for p in self.module_.parameters() if p.requires_grad):,}\n"
            f"- Loss at the end: training {_number(last, 'training_loss')}, validation "
            f"{_number(last, 'validation_loss')}; weights kept from step {self.best_step_ or 'last'}\n\n"
            f"## Parameters\n\n{parameters}\n\n"
            "## Use\n\n```python\nimport nerve\n"
            f"from {type(self).__module__} import {type(self).__name__}\n\n"
            f'model = {type(self).__name__}.load("this folder")\n```\n\n'
            "For research. Weights can carry information on the people they were trained on: share them under the\n"
            "terms of the training data. What the embeddings predict must be tested on other people than these.\n"
        )


class Encoder(TransformerMixin, Method):
    """A method that learns without labels: ``fit`` and ``transform``."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        progress: bool = False,
    ) -> Self:
        """Train on a cohort, several cohorts, or an (n, R, R) array; `y` is ignored.

        With `run_dir`, checkpoints and history are written there and `resume` goes on from them.
        """
        return self._fit(X, None, run_dir, resume, progress)

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) features of the same people in the same order."""
        cohort = self.fitted_cohort(X)
        return checked_embeddings(self.apply(self.module_.embed, self.source(cohort)), cohort)  # type: ignore[arg-type]


def described_data(cohort: Cohort, result: Result) -> dict[str, Any]:
    """What a model remembers of its training people: how many, of which cohorts; nobody by name."""
    names = cohort.participants["cohort"] if "cohort" in cohort.participants else [cohort.name] * len(cohort)
    return {
        "fingerprint": cohort.fingerprint,
        "cohorts": {str(name): int(count) for name, count in pd.Series(names).value_counts(sort=False).items()},
        "n_training": len(result.training_rows),
        "n_validation": len(result.validation_rows),
    }


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    return value


def _number(row: Any, name: str) -> str:
    value = row.get(name) if len(row) else None
    return "none" if value is None or pd.isna(value) else f"{float(value):.4g}"
