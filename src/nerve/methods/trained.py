"""Methods that are trained by gradient: the path from a cohort to a trained module.

Beside what `base` asks for, the class is a dataclass whose fields are its parameters, and provides

1. ``model``: the class of the torch module, made with the number of regions and the method itself, from which it reads
   the parameters. Where that is not enough, ``build(parcellation)`` makes the untrained module, from the parameters
   and the parcellation alone (so that `load` can make it without data); random weights need no generator of their own,
   the caller has seeded torch. The module has ``training_loss(batch, draws)`` and ``embed(batch)`` or
   ``predict(batch)``.
2. ``training``: settings of the training loop that are fixed; parameters named as settings of the loop are, are such.
3. Optional: ``source(cohort)`` when batches are not simply the inputs of some participants (what a `PackingSource`
   packs is kept for all epochs);
   ``prepare(module, source, rows)`` for anything computed from the training participants before the first step (a mean,
   say: keep it in a buffer); ``finish(module, source)`` for anything computed after the last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from nerve._utils.errors import NerveError, problem
from nerve._utils.files import claim, read_tsv, write_tsv
from nerve._utils.linalg import principal_components, turned
from nerve._utils.progress import progress_bar
from nerve.core.distributed import current_processes
from nerve.core.randomness import Draws, mixed_seed
from nerve.core.training import (
    Dataset,
    LabelledDataset,
    TrainingSettings,
    check_weights,
    choose_device,
    split_rows,
    to_device,
    train,
)
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.quality.learned import learned_little
from nerve.methods.base import WEIGHTS, Method, Saved
from nerve.methods.data import CohortDataset, Transformer, chunks
from nerve.methods.packing import PACKED, PackingSource, packed_source
from nerve.methods.run_folder import HISTORY, RunFolder
from nerve.methods.settings import Device, Seed
from nerve.methods.training_options import TrainingOptions

_LOOKED_AT = 2048  # participants, at most, from whom components come


@dataclass(kw_only=True, eq=False, repr=False)
class Trained(Method):
    """A torch module with scikit-learn's manners. See the top of this file."""

    model: ClassVar[Any]
    training: ClassVar[dict[str, Any]] = {}
    batch_size_apply: ClassVar[int] = 128  # participants at a time in transform and predict

    seed: Seed = 0
    device: Device = "auto"

    # ---- what a method provides

    def build(self, parcellation: Parcellation) -> Any:
        """The untrained module."""
        return self.model(parcellation.n_regions, self)

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        own = self.get_params(deep=False).items()
        named = {name: value for name, value in own if name in TrainingOptions.model_fields}
        return TrainingOptions(**named | self.training).training_settings()

    def source(self, cohort: Cohort) -> Dataset:
        """Where batches come from."""
        return CohortDataset(cohort, self.kind)

    def prepare(self, module: Any, source: Dataset, rows: np.ndarray) -> None:
        """Set what the module takes from the training participants, before the first step."""

    def finish(self, module: Any, source: Dataset) -> None:
        """Set what the module takes from everyone given to `fit`, after the last step."""

    def learn_target(self, y: Any) -> np.ndarray | None:
        """What is trained on beside the inputs, (n,)."""
        return None

    def split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows: the same share of each cohort."""
        cohorts = (
            cohort.participants["cohort"].to_numpy() if "cohort" in cohort.participants else None
        )
        return split_rows(len(cohort), settings.validation_fraction, settings.seed, cohorts)

    # ---- fit

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> Self:
        """Train on a cohort, several cohorts, or an (n, R, R) array: build, prepare, train, finish.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array
        y : (n,) array
            Numbers, or two different words, of methods that learn a target; others ignore it.
        groups : (n,) labels, optional
            Families: where a target is learned, one is never split between training and inner validation.
        run_dir : path, optional
            Where checkpoints and history are written.
        resume : bool
            Go on from the checkpoints there.
        """
        targets = self.learn_target(y)
        cohort, settings = self.begin_fit(X), self.training_settings()
        folder = None if run_dir is None else claim(run_dir)
        split = self.split(cohort, settings, groups)
        source = self.begin_training(cohort, split[0], folder)
        # checkpoints and model say by its fingerprint what they were trained on
        cohort.check_unchanged()
        identity = (
            {}
            if folder is None
            else {"data": self.data_["fingerprint"], **self.described_parameters()}
        )
        checkpoints = None if folder is None else RunFolder(folder)
        if checkpoints is not None and checkpoints.has_checkpoint() and not resume:
            raise NerveError(
                f"{folder}: already holds a training run. Add --resume, or choose another folder."
            )
        result = train(
            self.module_,
            source if targets is None else LabelledDataset(source, targets),
            settings,
            split=split,
            checkpoints=checkpoints,
            resume=resume and checkpoints is not None and checkpoints.has_checkpoint(),
            identity=identity,
            label=type(self).__name__,
        )
        self.history_ = pd.DataFrame(result.history)
        self.best_step_ = result.best_step
        self.data_ |= {"n_training": len(split[0]), "n_validation": len(split[1])}
        self.finish(self.module_, source)
        cohort.check_unchanged()
        if folder is not None and current_processes().first:
            (folder / PACKED).unlink(missing_ok=True)  # it can be made again
        return self

    def begin_training(
        self, cohort: Cohort, rows: np.ndarray, folder: Path | None = None
    ) -> Dataset:
        """Build the module and prepare it from the training rows; returns where batches come from."""
        self.module_ = self.seeded_build(cohort.parcellation)
        source = self.source(cohort)
        if isinstance(source, PackingSource):  # it is read at every epoch
            source = packed_source(source, folder)
        self.prepare(self.module_, source, rows)
        return source

    def seconds_per_step(self, data: Any) -> tuple[float, int]:
        """CPU seconds of one training step on these data, and how many samples they are; the method is not fitted."""
        cohort, settings = self.begin_fit(data), self.training_settings()
        source = self.begin_training(cohort, np.arange(len(cohort)))
        rows = np.arange(min(settings.batch_size, len(source)))
        if self.role == "supervised":
            source = LabelledDataset(source, np.zeros(len(source)))
        batch, device = source.batch(rows), choose_device(self.device)
        began = time.process_time()
        draws = Draws(settings.seed, 0, len(rows), slice(0, len(rows)), device)
        self.module_.to(device).training_loss(to_device(batch, device), draws).backward()
        return time.process_time() - began, len(source)

    def seeded_build(self, parcellation: Parcellation) -> Any:
        """`build`, with torch's generator seeded for the time of the call only."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(mixed_seed(self.seed, 0))
            return self.build(parcellation)

    def parameter_count(self, parcellation: Parcellation) -> int:
        """How many numbers are trained for these regions, counted without allocating them."""
        with torch.device("meta"):
            module = self.build(parcellation)
        return _trainable(module)

    # ---- apply

    def apply(
        self,
        verb: Callable[..., torch.Tensor],
        source: Dataset,
        beside: np.ndarray | None = None,
        *,
        rows: np.ndarray | None = None,
    ) -> np.ndarray:
        """``verb(batch)`` for all samples in order, or those at `rows`, stacked: (n, …) float32.

        With numbers `beside` the samples, masked patches say, it is ``verb(batch, numbers)``.
        """
        rows = np.arange(len(source)) if rows is None else rows
        if beside is not None and len(beside) != len(rows):
            raise problem(
                "masked",
                f"{len(beside)} rows",
                expected=f"one for each of {len(rows)} participants",
            )
        device = choose_device(self.device)
        self.module_.to(device).eval()
        values: np.ndarray | None = None
        parts = chunks(len(rows), self.batch_size_apply)
        with torch.inference_mode():
            for some in progress_bar(parts, label=type(self).__name__, unit="batches"):
                batch = [source.batch(rows[some])]
                if beside is not None:
                    batch.append(torch.from_numpy(np.ascontiguousarray(beside[some])))
                part = verb(*to_device(batch, device)).float().cpu().numpy()
                if (
                    values is None
                ):  # a whole cohort's tokens are gigabytes: written in place, never joined
                    values = np.empty((len(rows), *part.shape[1:]), np.float32)
                values[some] = part
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

    def restore(self, saved: Saved) -> None:
        """Build the module and give it its weights."""
        weights, history = saved.folder / WEIGHTS, saved.folder / HISTORY
        with torch.device(
            "meta"
        ):  # without numbers: a changed config cannot ask for more memory than the weights
            check_weights(self.seeded_build(self.parcellation_), saved.tensors, weights)
        self.module_ = self.seeded_build(self.parcellation_).eval()
        self.module_.load_state_dict(saved.tensors)
        if not history.is_file():
            raise problem(saved.folder, f"it holds no {HISTORY}", remedy="Copy the whole folder.")
        self.history_, self.best_step_ = read_tsv(history), saved.config.get("best_step", 0)

    def state(self) -> dict[str, Any]:
        """The settings of the training loop, and where the weights come from."""
        return {"training": asdict(self.training_settings()), "best_step": self.best_step_}

    def card_lines(self) -> list[str]:
        """With sizes and losses."""
        last: Any = next(iter(self.history_.tail(1).to_dict("records")), {})
        training, validation = (
            _number(last.get(name)) for name in ("training_loss", "validation_loss")
        )
        data, trainable = self.data_, _trainable(self.module_)
        return [
            *super().card_lines(),
            f"{data.get('n_training', '?')} participants for training, {data.get('n_validation', '?')} for validation",
            f"Trainable parameters: {trainable:,}",
            f"Loss at the end: training {training}, validation {validation}; "
            f"weights kept from step {self.best_step_ or 'last'}",
            *self._masked_error_lines(),
        ]

    def save_masked_error(self, folder: Path, error_ratio: float) -> str:
        """Write into card and config.json how well masked patches are filled in.

        Parameters
        ----------
        folder : path
            Where the method is saved.
        error_ratio : float
            Error of masked patches as a share of the group mean's: `nerve.interpret.pretraining.describe_run`.

        Returns
        -------
        str
            A sentence where training has learned next to nothing, empty otherwise.
        """
        self.data_["masked_error"] = error_ratio
        self.save_description(folder)
        return learned_little(error_ratio, self.training_settings().epochs)

    def _masked_error_lines(self) -> list[str]:
        """How well it fills in masked patches, where that is known."""
        ratio = self.data_.get("masked_error")
        if ratio is None:
            return []
        line = (
            f"Masked patches of held-out participants: {ratio:.3f} of the error of the group mean"
        )
        doubt = learned_little(ratio, self.training_settings().epochs)
        return [line, doubt] if doubt else [line]


class Encoder(Transformer, Trained):
    """A method that learns without labels: ``fit`` and ``transform``."""

    def features(self, cohort: Cohort) -> np.ndarray:
        """What `transform` returns, of a cohort in the region order of the method."""
        return self.apply(self.module_.embed, self.source(cohort))

    def looked_at(self, n: int) -> np.ndarray:
        """The rows from which components come: all, or so many drawn at random that they fit into memory."""
        return np.sort(np.random.default_rng([self.seed, 6]).permutation(n)[:_LOOKED_AT])

    def set_components(
        self, module: Any, verb: Callable[..., torch.Tensor], source: Dataset
    ) -> None:
        """Give the module the principal components of ``verb(batch)``.

        Of validation participants too: among fewer participants than numbers, those whom the components have not seen
        come out shorter than the others, and a kernel between the two kinds is distorted. Not centred: the group is
        the origin. Centred, the numbers of all would sum to zero, and who is tested be known from the others.
        """
        values = self.apply(verb, source, rows=self.looked_at(len(source)))
        width = module.components.shape[1]
        components = principal_components(values, width - 1, center=False)[1]
        with torch.no_grad():
            module.components.copy_(torch.from_numpy(turned(components, width)))


def mean_sample(source: Dataset, rows: np.ndarray) -> torch.Tensor:
    """The mean of the samples at some rows; of samples with something beside them, of the first part."""
    total: Any = 0.0
    for some in chunks(len(rows)):
        batch = source.batch(np.sort(rows[some]))
        total = total + (batch[0] if isinstance(batch, tuple) else batch).sum(
            0, dtype=torch.float64
        )
    return (total / len(rows)).float()


def _trainable(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _number(value: Any) -> str:
    return "none" if pd.isna(value) else f"{float(value):.4g}"
