"""Methods that are trained by gradient: the path from a cohort to a trained torch module.

Beside what `base.Method` asks for, such a method provides

1. ``build(parcellation)``: the untrained module, from the parameters and the parcellation alone
   (so that `load` can make it without data). torch is seeded when it is called. The module has
   ``training_loss(batch, draws)``, and ``embed(batch)`` or ``predict(batch)``.
2. ``training_settings()``: how it is trained.
3. Optional: ``dataset(cohort)`` if a batch is not simply the inputs of some participants;
   ``training_dataset(cohort, folder)`` if training reads other batches than `transform`;
   ``prepare_module(module, dataset, rows)`` for anything computed from the training participants
   before the first step (a mean, say: keep it in a buffer); ``finish(module, dataset)`` for
   anything computed after the last step.

`TrainedMethod.fit` goes through these in order. Checkpoints of a run are kept by `RunFolder`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import RegressorMixin
from torch import Tensor, nn
from torch.nn import functional

from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.files import claim, read_tsv, write_tsv
from nerve._utils.progress import progress_bar
from nerve.core.distributed import current_processes
from nerve.core.randomness import mixed_seed
from nerve.core.training import (
    Dataset,
    EpochCallback,
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
from nerve.evaluation.folds import complete_labels
from nerve.methods.base import (
    WEIGHTS,
    FeatureMixin,
    Method,
    Role,
    SavedModel,
    check_enough_to_save,
)
from nerve.methods.inputs import CohortDataset, chunks
from nerve.methods.packing import PACKED
from nerve.methods.parameters import plain
from nerve.methods.run_folder import HISTORY, RunFolder


class TrainedMethod(Method):
    """A torch module with the interface of scikit-learn. See the top of this file."""

    batch_size_apply: ClassVar[int] = 128  # participants at a time in transform and predict
    seed: int
    device: str

    # after fit
    module_: Any
    history_: pd.DataFrame  # one row per epoch
    best_step_: int

    # What a method provides

    def build(self, parcellation: Parcellation) -> Any:
        """Make the untrained module."""
        raise NotImplementedError

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        raise NotImplementedError

    def dataset(self, cohort: Cohort) -> Dataset:
        """Where batches of a cohort come from."""
        return CohortDataset(cohort, self.inputs)

    def training_dataset(self, cohort: Cohort, folder: Path | None) -> Dataset:
        """Where batches come from while training; large arrays may be kept in the run's folder."""
        return self.dataset(cohort)

    def prepare_module(self, module: Any, dataset: Dataset, rows: np.ndarray) -> None:
        """Compute what the module needs from the training rows, before the first step."""

    def finish(self, module: Any, dataset: Dataset) -> None:
        """Compute what the module needs from all participants of `fit`, after the last step."""

    def learn_target(self, y: Any) -> np.ndarray | None:
        """The numbers to learn, (n,), of methods that learn a target; None for the others."""
        return None

    def validation_split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and validation rows: the same share of each cohort."""
        cohorts = None
        if "cohort" in cohort.participants:
            cohorts = cohort.participants["cohort"].to_numpy()
        return split_rows(len(cohort), settings.validation_fraction, settings.seed, cohorts)

    # Fit

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[EpochCallback] = (),
    ) -> Self:
        """Train on participants: build, prepare, train or resume, finish.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array
        y : (n,) array
            Numbers, or two different words, for methods that learn a target; others ignore it.
        groups : (n,) labels, optional
            Families: if a target is learned, a family is never split between training and inner
            validation.
        run_dir : path, optional
            Where checkpoints and history are written.
        resume : bool
            Go on from the checkpoint in `run_dir`, or begin if there is none. Without it, a folder
            that holds a checkpoint is refused. Encoders of an experiment are always fitted with it.
        callbacks : sequence of callable
            Each is called at the end of an epoch with its row of the history, a dict, for example
            to send training curves to another program (`nerve.core.training.train`).

        Returns
        -------
        method
        """
        targets = self.learn_target(y)
        cohort = self.begin_fit(X)
        settings = self.training_settings()
        training_rows, validation_rows = self.validation_split(cohort, settings, groups)

        folder = None
        checkpoints = None
        has_checkpoint = False
        if run_dir is not None:
            # before the training, because checkpoints hold the weights too
            check_enough_to_save(len(cohort) - len(validation_rows))
            folder = claim(run_dir)
            checkpoints = RunFolder(folder)
            has_checkpoint = checkpoints.has_checkpoint()
            if has_checkpoint and not resume:
                raise NerveError(
                    f"{folder}: already holds a training run. Add --resume, or choose another "
                    "folder."
                )

        dataset = self.begin_training(cohort, training_rows, folder)
        # the fingerprint in `data_` must be that of the matrices that were read
        cohort.check_unchanged()
        result = train(
            self.module_,
            dataset if targets is None else LabelledDataset(dataset, targets),
            settings,
            split=(training_rows, validation_rows),
            checkpoints=checkpoints,
            resume=has_checkpoint,  # only with `resume`: refused above otherwise
            identity=self.identity_of_run(),
            label=type(self).__name__,
            callbacks=callbacks,
        )
        self.history_ = pd.DataFrame(result.history)
        self.best_step_ = result.best_step
        self.data_ |= {"n_training": len(training_rows), "n_validation": len(validation_rows)}
        self.finish(self.module_, dataset)
        cohort.check_unchanged()
        if folder is not None and current_processes().first:
            (folder / PACKED).unlink(missing_ok=True)  # it can be made again
        return self

    def identity_of_run(self) -> dict[str, Any]:
        """What must be the same when a training is resumed: data and parameters."""
        return {"data": self.data_["fingerprint"], **self.described_parameters()}

    def begin_training(
        self, cohort: Cohort, rows: np.ndarray, folder: Path | None = None
    ) -> Dataset:
        """Build the module and prepare it from the training rows.

        Parameters
        ----------
        cohort : Cohort
            What `begin_fit` gave.
        rows : array of int
            The training participants.
        folder : path, optional
            The folder of the run.

        Returns
        -------
        Dataset
            Where batches come from.
        """
        self.module_ = self.seeded_build(cohort.parcellation)
        dataset = self.training_dataset(cohort, folder)
        self.prepare_module(self.module_, dataset, rows)
        return dataset

    def seeded_build(self, parcellation: Parcellation) -> Any:
        """Call `build` with torch's generator seeded; its state is restored afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(mixed_seed(self.seed, 0))
            return self.build(parcellation)

    def parameter_count(self, parcellation: Parcellation) -> int:
        """How many numbers are trained for these regions, counted without allocating them."""
        with torch.device("meta"):
            module = self.build(parcellation)
        return _count_trainable(module)

    # Apply

    def apply(
        self,
        function: Callable[..., Tensor],
        dataset: Dataset,
        numbers: np.ndarray | None = None,
        *,
        rows: np.ndarray | None = None,
    ) -> np.ndarray:
        """Call a function of the module for all samples in order, a batch at a time.

        Parameters
        ----------
        function : callable
            Called as ``function(batch)``, or ``function(batch, numbers)`` where there are any.
        dataset : Dataset
        numbers : (n, …) array, optional
            One row per sample, its masked patches for example.
        rows : array of int, optional
            Only these samples.

        Returns
        -------
        (n, …) float32 array
        """
        if rows is None:
            rows = np.arange(len(dataset))
        if numbers is not None and len(numbers) != len(rows):
            expected = f"one for each of {len(rows)} participants"
            raise problem("masked", f"{len(numbers)} rows", expected=expected)
        device = choose_device(self.device)
        self.module_.to(device).eval()
        values: np.ndarray | None = None
        parts = chunks(len(rows), self.batch_size_apply)
        with torch.inference_mode():
            for places in progress_bar(parts, label=type(self).__name__, unit="batches"):
                arguments = [dataset.batch(rows[places])]
                if numbers is not None:
                    arguments.append(torch.from_numpy(np.ascontiguousarray(numbers[places])))
                part = function(*to_device(arguments, device)).float().cpu().numpy()
                # tokens of a whole cohort are gigabytes: parts are written in place, not joined
                if values is None:
                    values = np.empty((len(rows), *part.shape[1:]), np.float32)
                values[places] = part
        return np.zeros((0,), np.float32) if values is None else values

    # Files

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write model.safetensors, config.json, history.tsv and a model card.

        Parameters
        ----------
        path : path
            The folder. It will contain no participant ids.

        Returns
        -------
        Path
        """
        if hasattr(self, "history_") and current_processes().first:
            write_tsv(claim(path) / HISTORY, self.history_)
        return super().save(path)

    def tensors(self) -> dict[str, Tensor]:
        """Weights and buffers."""
        return self.module_.state_dict()

    def state(self) -> dict[str, Any]:
        """The settings of the training loop, and the step that the weights come from."""
        settings = plain(asdict(self.training_settings()))
        return {"training": settings, "best_step": self.best_step_}

    def restore(self, saved: SavedModel) -> None:
        """Build the module and give it its weights."""
        # checked on meta tensors first: a tampered config cannot allocate more than the weights
        with torch.device("meta"):
            empty = self.seeded_build(self.parcellation_)
        check_weights(empty, saved.tensors, saved.folder / WEIGHTS)
        self.module_ = self.seeded_build(self.parcellation_).eval()
        self.module_.load_state_dict(saved.tensors)
        history = saved.folder / HISTORY
        if not history.is_file():
            raise problem(saved.folder, f"it holds no {HISTORY}", remedy="Copy the whole folder.")
        self.history_ = read_tsv(history)
        self.best_step_ = saved.config.get("best_step", 0)

    def card_lines(self) -> list[str]:
        """Add sizes and losses."""
        last_epoch: Any = next(iter(self.history_.tail(1).to_dict("records")), {})
        training = _loss_in_words(last_epoch.get("training_loss"))
        validation = _loss_in_words(last_epoch.get("validation_loss"))
        n_training = self.data_.get("n_training", "?")
        n_validation = self.data_.get("n_validation", "?")
        return [
            *super().card_lines(),
            f"{n_training} participants for training, {n_validation} for validation",
            f"Trainable parameters: {_count_trainable(self.module_):,}",
            f"Loss at the end: training {training}, validation {validation}; "
            f"weights kept from step {self.best_step_ or 'last'}",
            *self._masked_error_lines(),
        ]

    def save_masked_error(self, folder: Path, error_ratio: float) -> str:
        """Write into the card and config.json how well masked patches are predicted.

        Parameters
        ----------
        folder : path
            Where the method is saved.
        error_ratio : float
            Error in masked patches, divided by the error of predicting the group mean
            (`nerve.interpret.pretraining.describe_run`).

        Returns
        -------
        str
            A warning if training has learned next to nothing, empty otherwise.
        """
        self.data_["masked_error"] = error_ratio
        self.save_description(folder)
        return learned_little(error_ratio, self.training_settings().epochs)

    def _masked_error_lines(self) -> list[str]:
        """How well masked patches are predicted, if that is known."""
        ratio = self.data_.get("masked_error")
        if ratio is None:
            return []
        line = (
            f"Masked patches of held-out participants: {ratio:.3f} of the error of the group mean"
        )
        doubt = learned_little(ratio, self.training_settings().epochs)
        return [line, doubt] if doubt else [line]


class Encoder(FeatureMixin, TrainedMethod):
    """A method that learns without labels: ``fit`` and ``transform``."""

    def features(self, cohort: Cohort) -> np.ndarray:
        """What `transform` returns, for a cohort in the region order of the method."""
        return self.apply(self.module_.embed, self.dataset(cohort))


class SupervisedMethod(RegressorMixin, TrainedMethod):
    """A method that learns one target from FC: ``fit`` and ``predict``.

    A continuous target is z-scored and learned by squared error. A target with two values is
    learned by cross-entropy and predicted as its expected value (of 0 and 1: the probability of 1),
    so that correlation, AUC and accuracy can be computed from one prediction. A target of words is
    predicted as words.

    The weights are those of the epoch with the least error on participants held out within the
    training set (``validation_fraction``).
    """

    role: ClassVar[Role] = "supervised"
    # mean, scale, binary, labels: y = mean + scale · output of the module
    target_: dict[str, Any]

    def predict(self, X: Any) -> np.ndarray:
        """Predictions in the target's own units; labels if the target was words.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        (n,) array
        """
        expected = self._expected(X)
        target = self.target_
        if target["labels"] is not None:
            return np.asarray(target["labels"])[(expected > 0.5).astype(int)]
        return expected * target["scale"] + target["mean"]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the two values of a two-valued target, the lower (or first) one first.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        (n, 2) array
        """
        high = self._expected(X)
        if not self.target_["binary"]:
            raise NerveError(
                "The target has more than two values: there are no probabilities. Call predict."
            )
        return np.column_stack([1 - high, high])

    def _expected(self, X: Any) -> np.ndarray:
        """(n,) z-scores, or probabilities of the higher value of a two-valued target."""
        cohort = self.align_to_fitted(X)
        outputs = self.apply(self.module_.predict, self.dataset(cohort))
        outputs = outputs.reshape(len(cohort)).astype(float)
        return 1 / (1 + np.exp(-outputs)) if self.target_["binary"] else outputs

    def learn_target(self, y: Any) -> np.ndarray:
        """Check the target and find its scale."""
        values, labels = _as_numbers(y)
        distinct = np.unique(values)
        binary = len(distinct) == 2
        if binary:
            mean = float(distinct[0])
            scale = float(distinct[1]) - float(distinct[0])
        else:
            mean = float(values.mean())
            scale = float(values.std()) or 1.0
        self.target_ = {"mean": mean, "scale": scale, "binary": binary, "labels": labels}
        return ((values - mean) / scale).astype(np.float32)

    def prepare_module(self, module: Any, dataset: Dataset, rows: np.ndarray) -> None:
        """Tell the module which error to train on."""
        module.binary = hasattr(self, "target_") and self.target_["binary"]

    def validation_split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and inner validation rows; families are not split."""
        if groups is None:
            return super().validation_split(cohort, settings, groups)
        if len(groups) != len(cohort):
            raise NerveError(
                f"There are {len(groups)} groups for {len(cohort)} participants, expected one each."
            )
        return _split_families(np.asarray(groups), settings)

    def state(self) -> dict[str, Any]:
        """Add the scale of the target."""
        return {**super().state(), "target": self.target_}

    def restore(self, saved: SavedModel) -> None:
        """Set the scale of the target too."""
        super().restore(saved)
        target = saved.config["target"]
        self.target_ = {name: target[name] for name in ("mean", "scale", "binary", "labels")}


class ScalarModule(nn.Module):
    """A module whose ``forward(inputs)`` is one number per participant, for `SupervisedMethod`.

    It is trained on (inputs, target) batches. The number is a z-score, learned by squared error, or
    the logit of a two-valued target, learned by cross-entropy; the estimator sets `binary` before
    training.
    """

    binary = False

    def predict(self, inputs: Any) -> Tensor:
        """(batch,) z-scores or logits."""
        return self(inputs)

    def error(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Mean squared error, or mean cross-entropy if the target is two-valued."""
        if self.binary:
            return functional.binary_cross_entropy_with_logits(predicted, target)
        return functional.mse_loss(predicted, target)

    def training_loss(self, batch: tuple[Any, Tensor], draws: Any) -> Tensor:
        """The error over a batch; in evaluation mode without dropout and augmentation."""
        inputs, target = batch
        return self.error(self(inputs), target)


def _split_families(
    groups: np.ndarray, settings: TrainingSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Split into training and validation rows, whole groups at a time.

    Parameters
    ----------
    groups : (n,) array
        Labels; a participant without a label forms a group of its own.
    settings : TrainingSettings
        Share of the validation, and the seed.

    Returns
    -------
    training, validation : arrays of int

    Examples
    --------
    >>> settings = TrainingSettings(validation_fraction=0.3)
    >>> training, validation = _split_families(np.array(["a", "a", "b", "c"]), settings)
    >>> bool(set(training) & set(validation)), len(training) + len(validation)
    (False, 4)
    >>> training, validation = _split_families(np.array([None] * 9 + ["a"]), settings)
    >>> len(validation)
    3
    """
    family = np.unique(complete_labels(groups), return_inverse=True)[1]
    order = np.random.default_rng([settings.seed, 3]).permutation(family.max() + 1)
    sizes = np.bincount(family)[order]
    n_wanted = settings.validation_fraction * len(family)
    n_before = np.cumsum(sizes) - sizes
    # at least one family is left to train on
    chosen = order[n_before < n_wanted][: len(order) - 1]
    held_out = np.isin(family, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def mean_sample(dataset: Dataset, rows: np.ndarray) -> Tensor:
    """The mean of some samples; where samples have several parts, of the first part.

    Parameters
    ----------
    dataset : Dataset
    rows : array of int
        Which samples.

    Returns
    -------
    tensor
        Shaped as one sample.
    """
    total: Any = 0.0
    for places in chunks(len(rows)):
        batch = dataset.batch(np.sort(rows[places]))
        values = batch[0] if isinstance(batch, tuple) else batch
        total = total + values.sum(0, dtype=torch.float64)
    return (total / len(rows)).float()


def _count_trainable(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _loss_in_words(value: Any) -> str:
    return "none" if pd.isna(value) else f"{float(value):.4g}"


def _as_numbers(y: Any) -> tuple[np.ndarray, list[str] | None]:
    """The target as numbers; and the two words that 0 and 1 stand for, if it was words."""
    values = np.asarray(y)
    if values.ndim != 1:
        raise NerveError(
            f"The target has shape {values.shape}, expected one value per participant."
        )
    try:
        numbers = values.astype(float)
    except (TypeError, ValueError):
        words, codes = np.unique(values.astype(str), return_inverse=True)
        if len(words) != 2:
            raise NerveError(
                f"The target is not numeric and has {len(words)} different values "
                f"({listed(words, most=4)}), expected numbers, or two values."
            ) from None
        return codes.astype(float), [str(word) for word in words]
    n_missing = int((~np.isfinite(numbers)).sum())
    if n_missing:
        raise NerveError(
            f"The target has {n_missing} missing values. Leave these participants out."
        )
    return numbers, None
