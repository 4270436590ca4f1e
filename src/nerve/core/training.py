"""The one training loop of the package (Methods, "Implementation Details").

`train` knows one verb of a module, ``training_loss(batch, draws)``: the mean loss over a batch. It
serves NERVE and every comparison method. Everything random is derived from (seed, step), so that a
run can be stopped anywhere and continued bit for bit, and several processes draw what one process
would have drawn. Core knows no files: where checkpoints go is the business of `Checkpoints`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from nerve._utils.cores import reuse_freed_memory, usable_cores
from nerve._utils.errors import NerveError, listed
from nerve._utils.progress import progress_bar
from nerve._utils.signals import TrainingStopped, stop_requests
from nerve.core.distributed import current_processes, equal_part
from nerve.core.randomness import VALIDATION_STEP, Draws, mixed_seed, seed_dropout

log = logging.getLogger("nerve.training")

# Format of a checkpoint.
FORMAT = 2
# Settings that may differ between a run and its continuation.
_MAY_CHANGE = ("device", "compile", "checkpoint_seconds")
# What a checkpoint holds besides tensors and the identity of the run: how far it has come.
_PROGRESS = (
    "step",
    "best_step",
    "best_loss",
    "epoch_loss",
    "epoch_steps",
    "seconds",
    "history",
)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:  # numpydoc ignore=PR02
    """How a module is trained: every number of the loop, with its default.

    Parameters
    ----------
    epochs : int
        Passes over the training participants. 0 gives a model without training, as a control.
    max_steps : int, optional
        Stop after this many steps, whatever `epochs` says.
    batch_size : int
        Participants per step, in all processes together.
    equal_batches : bool
        Batches of equal size, none above `batch_size`. False: full ones, then a smaller last one.
    optimizer : {"adamw", "adam", "sgd"}
        Which optimiser of torch.
    lr, min_lr : float
        Largest learning rate, and that at the end of the schedule.
    weight_decay : float
        Weight decay, on every parameter.
    betas, eps : floats
        Momenta and stabiliser of Adam and AdamW.
    momentum : float
        Momentum of SGD.
    schedule : {"cosine", "constant", "step"}
        What follows the warm-up.
    warmup_epochs : float
        Epochs of linear warm-up.
    warmup : {"steps", "steps_from_zero", "epochs"}
        How the learning rate rises: at every step, at every step from 0 on, or at every epoch.
    decay_epochs, decay_factor : int and float
        Of the schedule ``step``: epochs between two cuts, and the factor of a cut.
    clip : float, optional
        Largest norm of the gradient; None leaves it as it is.
    validation_fraction : float
        Share of each cohort held out for validation.
    validate_every : int
        Epochs between two validations.
    keep : {"best", "last"}
        Weights at the end: those of least validation loss, or the last.
    patience : int, optional
        Stop early after this many validations in a row without a smaller loss than the least before
        them; by default all epochs are trained.
    precision : {"auto", "float32", "bf16", "fp16"}
        ``auto`` is mixed precision on CUDA and float32 on a CPU.
    compile : bool
        Use torch.compile.
    device : str
        ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
    checkpoint_seconds : float
        Seconds between checkpoints; 0 for every step.
    seed : int
        Fixes split, data order, masks and dropout.
    """

    epochs: int = 200
    max_steps: int | None = None
    batch_size: int = 128
    equal_batches: bool = True
    optimizer: str = "adamw"
    lr: float = 1e-3
    min_lr: float = 0.0
    weight_decay: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    momentum: float = 0.9
    schedule: str = "cosine"
    warmup_epochs: float = 0.0
    warmup: str = "steps"
    decay_epochs: int = 20
    decay_factor: float = 0.5
    clip: float | None = 1.0
    validation_fraction: float = 0.1
    validate_every: int = 1
    keep: str = "best"
    patience: int | None = None
    precision: str = "auto"
    compile: bool = False
    device: str = "auto"
    checkpoint_seconds: float = 60.0
    seed: int = 0

    def steps_per_epoch(self, n_samples: int) -> int:
        """Steps of one epoch over so many training participants."""
        return max(1, math.ceil(n_samples / self.batch_size))

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the whole run."""
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step: linear warm-up, then cosine, constant or stepwise decay.

        With T steps of which W are warm-up, and the step t counted from 0:

        - warm-up ``steps``: lr (t + 1) / W; ``steps_from_zero``: lr t / W; ``epochs``:
          lr (e + 1) / E in epoch e of the E of `warmup_epochs`;
        - cosine: min_lr + (lr - min_lr) · ½ (1 + cos(π (t - W) / (T - W))).

        Parameters
        ----------
        step : int
            Counted from 0.
        steps_per_epoch : int
            Steps of one epoch.

        Returns
        -------
        float

        Examples
        --------
        >>> settings = TrainingSettings(epochs=10, warmup_epochs=2, lr=1.0)
        >>> [settings.learning_rate(step, steps_per_epoch=2) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        total = self.total_steps(steps_per_epoch)
        warmup = min(round(self.warmup_epochs * steps_per_epoch), total)
        if step < warmup:
            if self.warmup == "epochs":
                epoch = step // steps_per_epoch
                return self.lr * min(1.0, (epoch + 1) / self.warmup_epochs)
            first = 0 if self.warmup == "steps_from_zero" else 1
            return self.lr * (step + first) / warmup
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "step":
            n_cuts = (step // steps_per_epoch) // self.decay_epochs
            return self.lr * self.decay_factor**n_cuts
        done = (step - warmup) / max(total - warmup, 1)
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done))

    def autocast_dtype(self, device: torch.device) -> torch.dtype | None:
        """The reduced precision to compute in, or None for float32."""
        if self.precision == "float32":
            return None
        if self.precision == "auto":
            if device.type != "cuda":
                return None
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        if device.type == "cpu":
            # some processors stop with a signal when they meet bf16
            raise NerveError(
                f"precision is {self.precision!r}, which is for GPUs. On a CPU use auto or float32."
            )
        return torch.bfloat16 if self.precision == "bf16" else torch.float16


class Dataset(Protocol):
    """Where batches come from: samples 0 … len - 1.

    A batch is a tensor, or a tuple, list or dict of tensors, whose first axis are the samples.
    """

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Any:
        """The samples at these positions, on the CPU."""


class ArrayDataset:
    """The rows of an array, in memory or memory-mapped, given in float32.

    Parameters
    ----------
    array : (n, …) array
        One sample per row.

    Examples
    --------
    >>> ArrayDataset(np.arange(6.0).reshape(3, 2)).batch(np.array([2, 0])).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """(batch, …): the rows at these positions."""
        return torch.from_numpy(np.ascontiguousarray(self.array[rows], np.float32))


class LabelledDataset:
    """Another dataset's samples, each with a target: batches are (samples, targets).

    Parameters
    ----------
    samples : Dataset
        The inputs.
    targets : (n, …) array
        One target per sample.
    """

    def __init__(self, samples: Dataset, targets: np.ndarray) -> None:
        if len(samples) != len(targets):
            raise NerveError(
                f"There are {len(targets)} targets for {len(samples)} participants, expected one "
                "each."
            )
        self.samples = samples
        self.targets = np.asarray(targets, np.float32)

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, rows: np.ndarray) -> tuple[Any, torch.Tensor]:
        """(samples, targets) at these positions."""
        return self.samples.batch(rows), torch.from_numpy(self.targets[rows])


class Checkpoints(Protocol):
    """Where a run is kept, so that it can be resumed.

    `nerve.methods.run_folder` has one in a folder; `nerve.methods.trained` looks there before it
    trains.
    """

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and state of the last checkpoint."""

    def save(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Keep everything that is needed to go on."""

    def load_best(self) -> dict[str, torch.Tensor]:
        """The weights of least validation loss."""

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """Keep the weights of least validation loss."""

    def save_history(self, rows: list[dict[str, Any]]) -> None:
        """Keep the training curve, one row per epoch."""


# Called at the end of each epoch with its row of the history, in the first process only. It may
# write, draw or send the row; it must not change the module or draw random numbers.
EpochCallback = Callable[[dict[str, Any]], None]


class TrainingResult(NamedTuple):
    """What a training run leaves beside the trained module."""

    history: list[dict[str, Any]]
    best_step: int
    best_loss: float


def train(
    module: torch.nn.Module,
    dataset: Dataset,
    settings: TrainingSettings,
    *,
    split: tuple[np.ndarray, np.ndarray] | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    label: str = "training",
    callbacks: Sequence[EpochCallback] = (),
) -> TrainingResult:
    """Train a module in place.

    It is left in evaluation mode, on its device, with the weights that `settings.keep` asks for.

    Parameters
    ----------
    module : torch.nn.Module
        Has ``training_loss(batch, draws) -> scalar tensor``, the mean over the samples of the
        batch, with everything random taken from `draws`. It may have
        ``after_step(step, total_steps)``, called after each update.
    dataset : Dataset
        ``len(dataset)`` samples, ``dataset.batch(rows)``.
    settings : TrainingSettings
        How to train.
    split : (training rows, validation rows), optional
        Instead of a random split.
    checkpoints : Checkpoints, optional
        Where the run is kept; by default it is not.
    resume : bool
        Go on from the last checkpoint.
    identity : dict, optional
        What must not change between a run and its continuation (a data fingerprint, say); plain
        JSON values.
    label : str
        What the progress bar calls the work.
    callbacks : sequence of callable
        Each is called at the end of an epoch, in the first process only, with a copy of its row of
        the history: epoch, step, training_loss, validation_loss (None where the epoch is not
        validated), lr, gradient_norm, seconds, samples_per_second. An error of theirs ends the
        training; what was saved before can be resumed.

    Returns
    -------
    TrainingResult

    Raises
    ------
    TrainingStopped
        After Ctrl-C or SIGTERM, once the checkpoint is written.
    NerveError
        When the loss is no longer finite. The last good checkpoint is kept.

    Examples
    --------
    >>> class Mean(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.value = torch.nn.Parameter(torch.zeros(2))
    ...
    ...     def training_loss(self, batch, draws):
    ...         return ((batch - self.value) ** 2).mean()
    >>> steps = []
    >>> result = train(
    ...     Mean(),
    ...     ArrayDataset(np.ones((10, 2))),
    ...     TrainingSettings(epochs=3, device="cpu"),
    ...     callbacks=[lambda record: steps.append(record["step"])],
    ... )
    >>> steps
    [1, 2, 3]
    """
    if split is None:
        split = split_rows(len(dataset), settings.validation_fraction, settings.seed)
    trainer = _Trainer(module, dataset, settings, split, checkpoints, identity or {}, callbacks)
    if resume:
        trainer.resume()
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        _threads_for_usable_cores(),
        stop_requests(checkpoints is not None) as stop,
    ):
        try:
            trainer.run(stop, label)
        except RuntimeError as error:
            if trainer.processes.count == 1:
                raise
            cause = str(error).splitlines()[0]
            raise NerveError(
                f"A process of this run ended, or could not be reached ({cause}). Start it again "
                "with --resume."
            ) from error
    if settings.keep == "best" and trainer.best_weights:
        module.load_state_dict(trainer.best_weights)
    module.eval()
    return TrainingResult(trainer.history, trainer.best_step, trainer.best_loss)


@contextmanager
def _threads_for_usable_cores() -> Iterator[None]:
    """Use no more threads inside than cores: torch does not see the quota of a container."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads, usable_cores()))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Trainer:
    """One training: its state and its steps."""

    def __init__(
        self,
        module: torch.nn.Module,
        dataset: Dataset,
        settings: TrainingSettings,
        split: tuple[np.ndarray, np.ndarray],
        checkpoints: Checkpoints | None,
        identity: dict[str, Any],
        callbacks: Sequence[EpochCallback],
    ) -> None:
        self.settings = settings
        self.callbacks = callbacks
        self.processes = current_processes()
        self.device = choose_device(settings.device, self.processes.local_rank)
        if self.device.type == "cpu":
            reuse_freed_memory()
        self.module = module.to(self.device)
        self.dataset = dataset
        self.training_rows, self.validation_rows = split
        self.checkpoints = checkpoints
        self.steps_per_epoch = settings.steps_per_epoch(len(self.training_rows))
        self.total_steps = settings.total_steps(self.steps_per_epoch)
        self._check_batches()

        self.optimizer = make_optimizer(module, settings)
        self.autocast_dtype = settings.autocast_dtype(self.device)
        uses_fp16 = self.autocast_dtype == torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=uses_fp16)
        training_loss: Any = module.training_loss
        self.training_loss = torch.compile(training_loss) if settings.compile else training_loss

        self.step = 0
        self.best_step = 0
        self.best_loss = float("inf")
        self.best_weights: dict[str, torch.Tensor] = {}
        self.epoch_loss = 0.0
        self.epoch_steps = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []

        # what a run and its continuation have in common
        self.identity: dict[str, Any] = asdict(settings)
        for name in _MAY_CHANGE:
            del self.identity[name]
        self.identity["betas"] = list(settings.betas)  # as JSON gives it back
        self.identity["samples"] = len(dataset)
        self.identity["format"] = FORMAT
        self.identity.update(identity)

    def _check_batches(self) -> None:
        """Every process needs a part of every batch."""
        batches = [self._part_of_epoch(0), self._part_of_epoch(self.steps_per_epoch - 1)]
        smallest = min(batch.stop - batch.start for batch in batches)
        if smallest < self.processes.count:
            raise NerveError(
                f"The smallest batch has {smallest} participants, fewer than the "
                f"{self.processes.count} processes. Start fewer processes or use larger batches."
            )

    # Checkpoints

    def resume(self) -> None:
        """Go on from the last checkpoint; refuse one of another run.

        `nerve.methods.trained` asks for this only where there is a checkpoint.
        """
        if self.checkpoints is None:
            raise NerveError("There is no checkpoint to resume from.")
        tensors, state = self.checkpoints.load()
        now = self.identity
        then = state["identity"]
        changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        if changed:
            changes = [f"{key} was {then.get(key)!r} and is {now.get(key)!r}" for key in changed]
            raise NerveError(
                f"This run cannot be resumed, for {listed(changes)}. Use the same data and "
                "settings, or a new folder."
            )
        self._restore(tensors)
        for name in _PROGRESS:
            setattr(self, name, state[name])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.best_step and self.settings.keep == "best":
            self.best_weights = self.checkpoints.load_best()
        log.info("resuming at step %d of %d", self.step, self.total_steps)

    def checkpoint(self) -> None:
        """Keep everything that is needed to go on from here."""
        if self.checkpoints is None or not self.processes.first:
            return
        tensors = {f"module/{name}": tensor for name, tensor in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{name}/{key}"] = value
        state = {name: getattr(self, name) for name in _PROGRESS}
        state["scaler"] = self.scaler.state_dict()
        state["identity"] = self.identity
        self.checkpoints.save(tensors, state)

    def _restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of what `checkpoint` makes of the module and the optimiser."""
        weights = _below("module/", tensors)
        check_weights(self.module, weights, "The checkpoint")
        self.module.load_state_dict(weights)
        for name, parameter in self.module.named_parameters():
            memory = _below(f"optimizer/{name}/", tensors)
            if memory:
                # Adam keeps its step counter on the CPU, moments beside the parameter
                for key, value in memory.items():
                    memory[key] = value if key == "step" else value.to(parameter.device)
                self.optimizer.state[parameter] = memory

    # Steps

    def run(self, stop: list[int], label: str) -> None:
        """All steps that are left; `stop` holds the signals that asked to stop."""
        seconds_before = self.seconds
        began = time.perf_counter()
        last_checkpoint = began
        n_samples = 0
        if self.total_steps == 0 and not self.history:
            self._end_epoch(gradient_norm=0.0, throughput=0.0)
            self.checkpoint()
        if self._has_lost_patience():  # a run that is resumed after its end
            return
        with progress_bar(
            label=label, total=self.total_steps, initial=self.step, unit="steps"
        ) as bar:
            for rows, batch in self._batches():
                loss, gradient_norm = self._advance(rows, batch)
                n_samples += len(rows)
                now = time.perf_counter()
                self.seconds = seconds_before + now - began
                throughput = n_samples / max(now - began, 1e-9)
                bar.set_postfix_str(self._status(loss, throughput), refresh=False)
                bar.update()

                is_last = self.step == self.total_steps
                if is_last or self.step % self.steps_per_epoch == 0:
                    self._end_epoch(gradient_norm, throughput)
                    is_last = is_last or self._has_lost_patience()
                stopping = self.processes.any(bool(stop), self.device)
                is_due = now - last_checkpoint >= self.settings.checkpoint_seconds
                if stopping or is_last or is_due:
                    self.checkpoint()
                    last_checkpoint = now
                if stopping and not is_last:
                    self.processes.wait()
                    raise TrainingStopped(
                        f"Stopped at step {self.step} of {self.total_steps}; the checkpoint is "
                        "written. Add --resume to go on.",
                        stop[0] if stop else 0,
                    )
                if is_last:
                    return

    def _has_lost_patience(self) -> bool:
        """Whether the last validations, as many as `patience` says, all failed to improve."""
        if self.settings.patience is None:
            return False
        validated = [row for row in self.history if row["validation_loss"] is not None]
        since_best = [row for row in validated if row["step"] > self.best_step]
        return len(since_best) >= self.settings.patience

    def _status(self, loss: float, throughput: float) -> str:
        parts = [f"loss {loss:.4g}"]
        if self.history and self.history[-1]["validation_loss"] is not None:
            parts.append(f"validation {self.history[-1]['validation_loss']:.4g}")
        parts.append(f"{throughput:,.0f} samples/s")
        return ", ".join(parts)

    def _batches(self) -> Iterator[tuple[np.ndarray, Any]]:
        """(rows of the global batch, this process's part of it) for each step that is left.

        The next batch is read while the present one is in use.
        """
        with ThreadPoolExecutor(1) as reader:
            next_batch = None
            for step in range(self.step, self.total_steps):
                ready = next_batch or reader.submit(self._read_batch, step)
                next_batch = None
                if step + 1 < self.total_steps:
                    next_batch = reader.submit(self._read_batch, step + 1)
                yield ready.result()

    def _read_batch(self, step: int) -> tuple[np.ndarray, Any]:
        """The global batch of a step is a part of the epoch's own permutation."""
        epoch, place = divmod(step, self.steps_per_epoch)
        generator = np.random.default_rng([self.settings.seed, 2, epoch])
        order = generator.permutation(self.training_rows)
        rows = order[self._part_of_epoch(place)]
        return rows, self.dataset.batch(rows[self.processes.share(len(rows))])

    def _part_of_epoch(self, place: int) -> slice:
        """The part of an epoch's order that is its batch number `place`, counted from 0."""
        n_samples = len(self.training_rows)
        if self.settings.equal_batches:
            return equal_part(n_samples, place, self.steps_per_epoch)
        start = place * self.settings.batch_size
        return slice(start, min(start + self.settings.batch_size, n_samples))

    def _advance(self, rows: np.ndarray, batch: Any) -> tuple[float, float]:
        """One update; returns the loss over the global batch and the norm of its gradient."""
        seed = self.settings.seed
        share = self.processes.share(len(rows))
        draws = Draws(seed, self.step, len(rows), share, self.device)
        seed_dropout(mixed_seed(seed, self.step, 1 + self.processes.rank), self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate(self.step, self.steps_per_epoch)

        self.module.train()
        self.module.zero_grad()
        with self._autocast():
            loss = self.training_loss(to_device(batch, self.device), draws)
            loss = loss * ((share.stop - share.start) / len(rows))  # of the global batch
        self.scaler.scale(loss).backward()
        self.processes.sum_gradients(self.module)
        self.scaler.unscale_(self.optimizer)
        clip = self.settings.clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), clip))
        loss_value = float(self.processes.sum(loss.detach().float()))
        self._check_finite(loss_value, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()

        self.step += 1
        if hasattr(self.module, "after_step"):
            self.module.after_step(self.step, self.total_steps)  # type: ignore[operator]
        self.epoch_loss += loss_value
        self.epoch_steps += 1
        return loss_value, norm

    def _autocast(self) -> torch.autocast:
        enabled = self.autocast_dtype is not None
        return torch.autocast(self.device.type, self.autocast_dtype, enabled=enabled)

    def _check_finite(self, loss: float, norm: float) -> None:
        """Stop before the update that would spoil the weights.

        float16 may overflow now and then; its scaler skips such steps.
        """
        if np.isfinite(loss) and (np.isfinite(norm) or self.scaler.is_enabled()):
            return
        what = f"gradient's norm is {norm}" if np.isfinite(loss) else f"loss is {loss}"
        kept = "" if self.checkpoints is None else " The last good checkpoint is kept."
        raise NerveError(
            f"Training stopped at step {self.step + 1}: the {what}.{kept} Check the data for "
            "missing values (`nerve check`), or use a smaller learning rate (it is "
            f"{self.settings.lr:g}; --set lr=...), a longer warm-up or precision float32."
        )

    def _end_epoch(self, gradient_norm: float, throughput: float) -> None:
        """Validate, note the epoch in the history and keep the best weights."""
        epoch = math.ceil(self.step / self.steps_per_epoch)
        is_due = epoch % self.settings.validate_every == 0 or self.step == self.total_steps
        validation_loss = None
        if is_due and len(self.validation_rows):
            validation_loss = self._validate()
        last_step = max(self.step - 1, 0)
        row = {
            "epoch": epoch,
            "step": self.step,
            "training_loss": self.epoch_loss / self.epoch_steps if self.epoch_steps else None,
            "validation_loss": validation_loss,
            "lr": self.settings.learning_rate(last_step, self.steps_per_epoch),
            "gradient_norm": gradient_norm,
            "seconds": round(self.seconds, 3),
            "samples_per_second": round(throughput, 2),
        }
        self.history.append(row)
        self.epoch_loss = 0.0
        self.epoch_steps = 0
        checkpoints = self.checkpoints if self.processes.first else None
        if validation_loss is not None and validation_loss < self.best_loss:
            self.best_loss = validation_loss
            self.best_step = self.step
            weights = self.module.state_dict()
            self.best_weights = {name: tensor.clone() for name, tensor in weights.items()}
            if checkpoints is not None:
                checkpoints.save_best(self.best_weights)
        if checkpoints is not None:
            checkpoints.save_history(self.history)
        if self.processes.first:
            for callback in self.callbacks:
                callback(dict(row))

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss over the validation rows, with the same draws every time."""
        self.module.eval()
        seed = self.settings.seed
        total = len(self.validation_rows)
        share = self.processes.share(total)
        summed = torch.zeros((), dtype=torch.float64)
        for start in range(share.start, share.stop, self.settings.batch_size):
            part = slice(start, min(start + self.settings.batch_size, share.stop))
            draws = Draws(seed, VALIDATION_STEP, total, part, self.device)
            seed_dropout(mixed_seed(seed, VALIDATION_STEP, 1), self.device)
            batch = to_device(self.dataset.batch(self.validation_rows[part]), self.device)
            with self._autocast():
                loss = self.module.training_loss(batch, draws)  # type: ignore[operator]
            summed += float(loss) * (part.stop - part.start)
        if self.device.type == "cuda":
            summed = summed.to(self.device)  # where processes can add it up
        return float(self.processes.sum(summed)) / total


def make_optimizer(module: torch.nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The optimiser that the settings name, over all trainable parameters of a module.

    Parameters
    ----------
    module : torch.nn.Module
        On the device where it is trained.
    settings : TrainingSettings
        Which optimiser, and its constants.

    Returns
    -------
    torch.optim.Optimizer
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
    optimizer_class = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    return optimizer_class(
        parameters,
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True if on_cpu else None,  # on a CPU: one pass per parameter; elsewhere torch chooses
    )


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """A device by name.

    Parameters
    ----------
    name : str
        ``auto`` takes CUDA (the process's own card), then Apple's MPS, then the CPU.
    local_rank : int
        Number of this process on its machine.

    Returns
    -------
    torch.device
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank % torch.cuda.device_count())
        name = "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise NerveError(
            f"The device is {name!r}, expected auto, cpu, cuda, cuda:<number> or mps."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NerveError(
            f"The device is {name!r}, but this machine's torch sees no CUDA card. Use --device cpu."
        )
    return device


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch (tensor, or tuple, list or dict of them) with every tensor moved to a device.

    Parameters
    ----------
    batch : tensor, or tuple, list or dict of batches
        What `Dataset.batch` gives.
    device : torch.device
        Where to.

    Returns
    -------
    batch
        Of the same structure.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    return type(batch)(to_device(part, device) for part in batch)


def split_rows(
    n_samples: int,
    validation_fraction: float,
    seed: int,
    cohorts: Sequence[Any] | np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows.

    Parameters
    ----------
    n_samples : int
        Number of participants.
    validation_fraction : float
        Share of each cohort that is held out, at least one of two or more participants.
    seed : int
        Fixes who is held out.
    cohorts : (n_samples,) labels, optional
        Every cohort gives its share; all are one by default.

    Returns
    -------
    training, validation : arrays of int
        Ascending.

    Examples
    --------
    >>> training, validation = split_rows(30, 0.1, 0, ["a"] * 10 + ["b"] * 20)
    >>> len(training), (validation < 10).sum(), (validation >= 10).sum()
    (27, np.int64(1), np.int64(2))
    """
    if cohorts is None:
        cohort_of = np.zeros(n_samples, int)
    else:
        cohort_of = np.unique(np.asarray(cohorts), return_inverse=True)[1]
    held_out = [np.zeros(0, int)]
    for cohort in np.unique(cohort_of):
        rows = np.flatnonzero(cohort_of == cohort)
        count = round(validation_fraction * len(rows))
        if validation_fraction > 0 and len(rows) > 1:
            count = max(count, 1)
        generator = np.random.default_rng([seed, 1, int(cohort)])
        held_out.append(generator.permutation(rows)[:count])
    validation = np.sort(np.concatenate(held_out))
    training = np.setdiff1d(np.arange(n_samples), validation)
    return training, validation


def check_weights(module: torch.nn.Module, tensors: dict[str, torch.Tensor], where: object) -> None:
    """Refuse weights that are not those of the module, by name, shape or type.

    Parameters
    ----------
    module : torch.nn.Module
        One without numbers (on the device ``meta``) will do.
    tensors : dict of str to tensor
        The weights.
    where : object
        Named in the error.
    """
    expected = {name: _describe(tensor) for name, tensor in module.state_dict().items()}
    actual = {name: _describe(tensor) for name, tensor in tensors.items()}
    names = expected.keys() | actual.keys()
    wrong = sorted(name for name in names if expected.get(name) != actual.get(name))
    if wrong:
        texts = [
            f"{name} is {actual.get(name, 'missing')}, expected {expected.get(name, 'none')}"
            for name in wrong
        ]
        raise NerveError(f"{where}: the weights do not fit the model: {listed(texts, most=3)}.")


def _describe(tensor: torch.Tensor) -> str:
    shape = str(tuple(tensor.shape))
    if tensor.dtype == torch.float32:
        return shape
    return f"{shape} of {str(tensor.dtype).removeprefix('torch.')}"


def _below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors whose name begins with a prefix, without it."""
    below = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            below[name.removeprefix(prefix)] = tensor
    return below
