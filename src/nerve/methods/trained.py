"""Methods that are trained by gradient: the path from a cohort to a trained module.

Beside what `base` asks for, the class has the parameters ``seed`` and ``device`` and provides

1. ``build(parcellation)``: the untrained torch module, from the parameters and the parcellation alone (so that `load`
   can make it without data); random weights need no generator of their own, the caller has seeded torch. The module has
   ``training_loss(batch, draws)`` and ``embed(batch)`` or ``predict(batch)``.
2. ``training_settings()``: the `TrainingSettings` of the loop.
3. Optional: ``source(cohort, run_dir)`` when batches are not simply the inputs of some participants;
   ``prepare(module, source, rows)`` for anything computed from the training participants before the first step (a mean,
   say: keep it in a buffer); ``finish(module, source)`` for anything computed after the last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from nerve.checks import NerveError, problem
from nerve.cohort import Cohort
from nerve.files import claim, read_tsv, write_tsv
from nerve.methods.base import CONFIG, WEIGHTS, Method, cohort_counts, read_configuration
from nerve.methods.frames import Transformer
from nerve.methods.outputs import checked_embeddings
from nerve.parcellation import Parcellation
from nerve.progress import Progress, tracked
from nerve.training import CohortSource, PairedSource, Result, Source, TrainingSettings, choose_device, train
from nerve.training.checkpoint import check_weights, restore_weights
from nerve.training.distributed import current_processes
from nerve.training.draws import Draws, mixed_seed
from nerve.training.sources import to_device
from nerve.training.splits import split_rows

HISTORY = "history.tsv"
TORCHS_ADAM = {"betas": (0.9, 0.999), "eps": 1e-8}  # torch's defaults, which are not the paper's


class Trained(Method):
    """A torch module with scikit-learn's manners. See the top of this file."""

    training: ClassVar[dict[str, Any]] = {}
    batch_size_apply: ClassVar[int] = 128  # participants at a time in transform and predict
    seed: int
    device: str
    module_: torch.nn.Module
    history_: pd.DataFrame
    best_step_: int

    # ---- what a method provides

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """The untrained module."""
        raise NotImplementedError

    def training_settings(self) -> TrainingSettings:
        """How it is trained: what is fixed in `training`, and parameters named as settings of the loop are."""
        names, own = TrainingSettings.model_fields, self.get_params(deep=False)
        return TrainingSettings(**{name: own[name] for name in names if name in own} | self.training)

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """Where batches come from."""
        return CohortSource(cohort, self.kind)

    def prepare(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Set what the module takes from the training participants, before the first step."""

    def finish(self, module: torch.nn.Module, source: Source) -> None:
        """Set what the module takes from everyone given to `fit`, after the last step."""

    def split(self, cohort: Cohort, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows: the same share of each cohort."""
        groups = cohort.participants["cohort"].to_numpy() if "cohort" in cohort.participants else None
        return split_rows(len(cohort), groups, settings)

    # ---- fit

    def fit_module(
        self,
        data: Any,
        targets: np.ndarray | None,
        run_dir: str | os.PathLike[str] | None,
        resume: bool,
        progress: bool,
    ) -> Self:
        """The whole of `fit`: build, prepare, train, finish."""
        cohort, settings = self.begin_fit(data), self.training_settings()
        folder = None if run_dir is None else claim(run_dir)
        split = self.split(cohort, settings)
        with Progress(f"{type(self).__name__}: before the first step", shown=progress):
            source = self.begin_training(cohort, split[0], folder)
        identity = {} if folder is None else {"data": cohort.fingerprint, **self.described_parameters()}
        result = train(
            self.module_,
            source if targets is None else PairedSource(source, targets),
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
        with Progress(f"{type(self).__name__}: after the last step", shown=progress):
            self.finish(self.module_, source)
        return self

    def begin_training(self, cohort: Cohort, rows: np.ndarray, folder: Path | None = None) -> Source:
        """Build the module and prepare it from the training rows; returns where batches come from."""
        self.module_ = self.seeded_build(cohort.parcellation)
        source = self.source(cohort, folder)
        self.prepare(self.module_, source, rows)
        return source

    def seconds_per_step(self, data: Any) -> tuple[float, int]:
        """CPU seconds of one training step on these data, and how many samples they are; the method is not fitted."""
        cohort, settings = self.begin_fit(data), self.training_settings()
        source = self.begin_training(cohort, np.arange(len(cohort)))
        rows = np.arange(min(settings.batch_size, len(source)))
        batch = source.batch(rows)
        if self.role == "supervised":
            batch = PairedSource(source, np.zeros(len(source), np.float32)).batch(rows)
        device = choose_device(self.device)
        began = time.process_time()
        draws = Draws(settings.seed, 0, len(rows), slice(0, len(rows)), device)
        self.module_.to(device).training_loss(to_device(batch, device), draws).backward()  # type: ignore[operator]
        return time.process_time() - began, len(source)

    def seeded_build(self, parcellation: Parcellation) -> torch.nn.Module:
        """`build`, with torch's generator seeded for the time of the call only."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mixed_seed(self.seed, 0))
            return self.build(parcellation)

    def parameter_count(self, parcellation: Parcellation) -> int:
        """How many numbers are trained for these regions, counted without allocating them."""
        with torch.device("meta"):
            module = self.build(parcellation)
        return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)

    # ---- apply

    def apply(self, verb: Callable[[Any], torch.Tensor], source: Source, progress: bool = False) -> np.ndarray:
        """``verb(batch)`` for all samples in order, stacked: (n, …) float32."""
        device = choose_device(self.device)
        self.module_.to(device).eval()
        values: np.ndarray | None = None
        starts = range(0, len(source), self.batch_size_apply)
        with torch.inference_mode():
            for start in tracked(starts, type(self).__name__, len(starts), shown=progress):
                rows = np.arange(start, min(start + self.batch_size_apply, len(source)))
                part = verb(to_device(source.batch(rows), device)).float().cpu().numpy()
                if values is None:  # a whole cohort's tokens are gigabytes: written in place, never joined
                    values = np.empty((len(source), *part.shape[1:]), np.float32)
                values[rows] = part
        return np.zeros((0,), np.float32) if values is None else values

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, config.json, history.tsv and a model card into a folder; no participant is named."""
        if hasattr(self, "history_") and current_processes().first:
            write_tsv(claim(path) / HISTORY, self.history_)
        return super().save(path)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and buffers."""
        return self.module_.state_dict()

    def restore(self, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        """Build the module and give it its weights."""
        try:
            with torch.device("meta"):  # without numbers: a changed config cannot ask for more memory than the weights
                check_weights(self.seeded_build(self.parcellation_), tensors, folder / WEIGHTS)
            self.module_ = self.seeded_build(self.parcellation_)
        except NerveError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError, MemoryError) as error:
            raise problem(folder / CONFIG, f"no model can be built from its parameters ({error})") from error
        restore_weights(self.module_, tensors, folder / WEIGHTS)
        self.module_.eval()
        if not (folder / HISTORY).is_file():
            raise problem(folder, f"it holds no {HISTORY}", remedy="Copy the whole folder.")
        self.history_ = read_tsv(folder / HISTORY)
        self.best_step_ = read_configuration(folder).get("best_step", 0)

    def configuration(self) -> dict[str, Any]:
        """With the settings of the training loop."""
        training = self.training_settings().model_dump(mode="json")
        return {**super().configuration(), "training": training, "best_step": self.best_step_}

    def card_lines(self) -> list[str]:
        """With sizes and losses."""
        last: Any = self.history_.iloc[-1] if len(self.history_) else {}
        data = self.data_
        trainable = sum(p.numel() for p in self.module_.parameters() if p.requires_grad)
        return [
            *super().card_lines(),
            f"{data.get('n_training', '?')} participants for training, {data.get('n_validation', '?')} for validation",
            f"Trainable parameters: {trainable:,}",
            f"Loss at the end: training {_number(last, 'training_loss')}, validation "
            f"{_number(last, 'validation_loss')}; weights kept from step {self.best_step_ or 'last'}",
        ]


class Encoder(Transformer, Trained):
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
        return self.fit_module(X, None, run_dir, resume, progress)

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) features of the same participants in the same order."""
        cohort = self.fitted_cohort(X)
        return checked_embeddings(self.apply(self.module_.embed, self.source(cohort)), cohort)  # type: ignore[arg-type]


def described_data(cohort: Cohort, result: Result) -> dict[str, Any]:
    """What a model remembers of its training participants: how many, of which cohorts; nobody by name."""
    return {
        "fingerprint": cohort.fingerprint,
        "cohorts": cohort_counts(cohort),
        "n_training": len(result.training_rows),
        "n_validation": len(result.validation_rows),
    }


def _number(row: Any, name: str) -> str:
    value = row.get(name) if len(row) else None
    return "none" if value is None or pd.isna(value) else f"{float(value):.4g}"
