"""The loop: batches in a fixed order, one verb of the module, AdamW, clipping, validation, checkpoints."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from nerve._utils.errors import NerveError, listed
from nerve._utils.files import write_tsv
from nerve._utils.progress import progress_bar
from nerve.training import checkpoint as disk
from nerve.training.distributed import Processes, current_processes, equal_part
from nerve.training.draws import VALIDATION_STEP, Draws, mixed_seed, seed_dropout
from nerve.training.optimizers import Optimizer
from nerve.training.settings import TrainingSettings, choose_device
from nerve.training.sources import Source, split_rows, to_device

log = logging.getLogger("nerve.training")
FORMAT = 2  # of the checkpoint
_COUNTERS = ("step", "best_step", "best_loss", "epoch_loss", "epoch_steps", "seconds", "history")  # that it holds
_MAY_CHANGE = {"device", "compile", "checkpoint_seconds"}  # settings that a resumed run may have otherwise


class Result(NamedTuple):
    """What a training run leaves beside the trained module."""

    history: pd.DataFrame
    best_step: int
    best_loss: float
    training_rows: np.ndarray
    validation_rows: np.ndarray


def train(
    module: torch.nn.Module,
    source: Source,
    settings: TrainingSettings,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    split: tuple[np.ndarray, np.ndarray] | None = None,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    label: str = "training",
) -> Result:
    """Train a module in place and leave it in evaluation mode, on its device, with the weights that `keep` asks for.

    Parameters
    ----------
    module : torch.nn.Module
        Has ``training_loss(batch, draws) -> scalar tensor``, the mean over the samples of the batch, with everything
        random taken from `draws`. Optional verb: ``after_step(step, total_steps)``, called after each update.
    source : Source
        ``len(source)`` samples, ``source.batch(rows)``.
    settings : TrainingSettings
    run_dir : path, optional
        Where checkpoints and `history.tsv` go; without it nothing is written.
    split : (training rows, validation rows), optional
        Instead of a random split.
    resume : bool
        Go on from the checkpoint in `run_dir`, if there is one.
    identity : dict, optional
        What must not change between a run and its continuation (a data fingerprint, say); plain JSON values.
    label : str
        What the progress, with loss, throughput and time left, calls the work.

    Raises
    ------
    TrainingStopped
        After Ctrl-C or SIGTERM, once the checkpoint is written.
    NerveError
        When the loss is no longer finite; the last good checkpoint is kept.
    """
    folder = None if run_dir is None else Path(run_dir)
    split = split or split_rows(len(source), None, settings)
    trainer = _Trainer(module, source, settings, split, folder, identity or {})
    if folder is not None and (folder / disk.LAST).is_file():
        if not resume:
            raise NerveError(f"{folder}: already holds a training run. Add --resume, or choose another folder.")
        trainer.resume(folder / disk.LAST)
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), disk.stop_on_signals(folder is not None) as stop:
        try:
            trainer.run(stop, label)
        except RuntimeError as error:
            if trainer.processes.count == 1:
                raise
            found = f"A process of this run ended, or could not be reached ({str(error).splitlines()[0]})."
            raise NerveError(f"{found} Start it again with --resume.") from error
    if settings.keep == "best" and trainer.best_weights:
        module.load_state_dict(trainer.best_weights)
    module.eval()
    return Result(pd.DataFrame(trainer.history), trainer.best_step, trainer.best_loss, *split)


class _Trainer:
    """One run: what it knows, and its steps."""

    def __init__(
        self,
        module: torch.nn.Module,
        source: Source,
        settings: TrainingSettings,
        split: tuple[np.ndarray, np.ndarray],
        run_dir: Path | None,
        identity: dict[str, Any],
    ) -> None:
        self.processes: Processes = current_processes()
        self.device = choose_device(settings.device, self.processes.local_rank)
        self.module, self.source, self.settings = module.to(self.device), source, settings
        self.training, self.validation = split
        self.run_dir, self.written_to = run_dir, run_dir if self.processes.first else None
        same = settings.model_dump(mode="json", exclude=_MAY_CHANGE)
        self.described = {**same, "samples": len(source), "format": FORMAT, **identity}
        self.steps_per_epoch = max(1, -(-len(self.training) // settings.batch_size))
        self.total_steps = settings.total_steps(self.steps_per_epoch)
        first_and_last = [self._batch_part(place) for place in (0, self.steps_per_epoch - 1)]
        smallest_batch = min(part.stop - part.start for part in first_and_last)
        if smallest_batch < self.processes.count:
            found = f"The smallest batch has {smallest_batch} participants, fewer than the {self.processes.count}"
            remedy = "Start fewer processes or use larger batches."
            raise NerveError(f"{found} processes. {remedy}")
        self.optimizer = Optimizer(module, settings)
        self.dtype = settings.autocast_dtype(self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.verb: Callable[..., torch.Tensor] = module.training_loss  # type: ignore[assignment]
        self.loss = torch.compile(self.verb) if settings.compile else self.verb
        self.step, self.best_step, self.best_loss = 0, 0, float("inf")
        self.best_weights: dict[str, torch.Tensor] = {}
        self.epoch_loss, self.epoch_steps, self.seconds = 0.0, 0, 0.0
        self.history: list[dict[str, Any]] = []

    # ---- a run and its checkpoints

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if it is one of this run."""
        state = disk.load_state(path)
        now, then = self.described, state["run"]
        changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        if changed:
            was = listed(f"{key} was {then.get(key)!r} and is {now.get(key)!r}" for key in changed)
            raise NerveError(f"{path}: cannot be resumed, for {was}. Use the same data and settings, or a new folder.")
        disk.restore_training(self.module, self.optimizer, disk.load_tensors(path), path)
        for name in _COUNTERS:
            setattr(self, name, state[name])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.best_step and self.settings.keep == "best":
            self.best_weights = disk.load_tensors(path.parent / disk.BEST)
        log.info("resuming %s at step %d of %d", path.parent, self.step, self.total_steps)

    def checkpoint(self) -> None:
        """Write everything that is needed to go on from here."""
        if self.written_to is not None:
            state = {name: getattr(self, name) for name in _COUNTERS}
            state |= {"scaler": self.scaler.state_dict(), "run": self.described}
            disk.save_tensors(self.written_to / disk.LAST, disk.training_tensors(self.module, self.optimizer), state)

    # ---- steps

    def run(self, stop: list[int], label: str) -> None:
        """All steps that are left."""
        before, began = self.seconds, time.perf_counter()
        saved, samples = began, 0
        if not self.total_steps and not self.history:
            self._end_epoch(norm=0.0, throughput=0.0)
            self.checkpoint()
        with progress_bar(label=label, total=self.total_steps, initial=self.step, unit="steps") as bar:
            for rows, batch in self._batches():
                loss, norm = self._advance(rows, batch)
                samples += len(rows)
                now = time.perf_counter()
                self.seconds, throughput = before + now - began, samples / max(now - began, 1e-9)
                bar.set_postfix_str(self._status(loss, throughput), refresh=False)
                bar.update()
                done = self.step == self.total_steps
                if done or self.step % self.steps_per_epoch == 0:
                    self._end_epoch(norm, throughput)
                stopping = self.processes.any(bool(stop), self.device)
                if stopping or done or now - saved >= self.settings.checkpoint_seconds:
                    self.checkpoint()
                    saved = now
                if stopping and not done:
                    self.processes.wait()
                    found = f"Stopped at step {self.step} of {self.total_steps}; the checkpoint is in {self.run_dir}."
                    raise disk.TrainingStopped(f"{found} Add --resume to go on.", stop[0] if stop else 0)

    def _status(self, loss: float, throughput: float) -> str:
        validation = self.history[-1]["validation_loss"] if self.history else None
        checked = "" if validation is None else f", validation {validation:.4g}"
        return f"loss {loss:.4g}{checked}, {throughput:,.0f} samples/s"

    def _batches(self) -> Iterator[tuple[np.ndarray, Any]]:
        """(global rows, this process's part of the batch), the next one read while the present one is in use."""
        with ThreadPoolExecutor(1) as reader:
            reads = (reader.submit(self._read, step) for step in range(self.step, self.total_steps))
            waiting = next(reads, None)
            while waiting is not None:
                ready, waiting = waiting.result(), next(reads, None)
                yield ready

    def _read(self, step: int) -> tuple[np.ndarray, Any]:
        """The global batch of a step is a part of the epoch's own permutation."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng([self.settings.seed, 2, epoch]).permutation(self.training)
        rows = order[self._batch_part(place)]
        return rows, self.source.batch(rows[self.processes.share(len(rows))])

    def _batch_part(self, place: int) -> slice:
        """The part of an epoch's order that is its batch number `place`, counted from 0."""
        n_samples = len(self.training)
        if self.settings.equal_batches:
            return equal_part(n_samples, place, self.steps_per_epoch)
        start = place * self.settings.batch_size
        return slice(start, min(start + self.settings.batch_size, n_samples))

    def _advance(self, rows: np.ndarray, batch: Any) -> tuple[float, float]:
        """One update; returns the loss over the global batch and the norm of its gradient."""
        self.module.train()
        share = self.processes.share(len(rows))
        draws = Draws(self.settings.seed, self.step, len(rows), share, self.device)
        seed_dropout(mixed_seed(self.settings.seed, self.step, 1 + self.processes.rank), self.device)  # forked
        self.optimizer.lr = self.settings.learning_rate(self.step, self.steps_per_epoch)
        self.module.zero_grad()
        with self._autocast():
            loss = self.loss(to_device(batch, self.device), draws) * ((share.stop - share.start) / len(rows))
        self.scaler.scale(loss).backward()
        self.processes.sum_gradients(self.module)
        self.scaler.unscale_(self.optimizer)  # type: ignore[arg-type]  # it asks for groups and a step
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip or float("inf")))
        value = float(self.processes.sum(loss.detach().float()))
        self._check_finite(value, norm)
        self.scaler.step(self.optimizer)  # type: ignore[arg-type]
        self.scaler.update()
        self.step += 1
        if hasattr(self.module, "after_step"):
            self.module.after_step(self.step, self.total_steps)  # type: ignore[operator]
        self.epoch_loss, self.epoch_steps = self.epoch_loss + value, self.epoch_steps + 1
        return value, norm

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None)

    def _check_finite(self, loss: float, norm: float) -> None:
        """Stop before the update that would spoil the weights; float16 may overflow now and then, its scaler skips."""
        if np.isfinite(loss) and (np.isfinite(norm) or self.scaler.is_enabled()):
            return
        kept = "" if self.run_dir is None else f" The last good checkpoint is kept in {self.run_dir}."
        what = f"loss is {loss}" if not np.isfinite(loss) else f"gradient's norm is {norm}"
        raise NerveError(
            f"Training stopped at step {self.step + 1}: the {what}.{kept} Check the data for missing values "
            f"(`nerve check`), or use a smaller learning rate (it is {self.settings.lr:g}; --set lr=...), a longer "
            "warm-up or precision float32."
        )

    def _end_epoch(self, norm: float, throughput: float) -> None:
        """Validate, note the epoch in the history and keep the best weights."""
        epoch = -(-self.step // self.steps_per_epoch)
        due = epoch % self.settings.validate_every == 0 or self.step == self.total_steps
        validation = self._validate() if due and len(self.validation) else None
        row = {
            "epoch": epoch,
            "step": self.step,
            "training_loss": self.epoch_loss / self.epoch_steps if self.epoch_steps else None,
            "validation_loss": validation,
            "lr": self.settings.learning_rate(max(self.step - 1, 0), self.steps_per_epoch),
            "gradient_norm": norm,
            "seconds": round(self.seconds, 3),
            "samples_per_second": round(throughput, 2),
        }
        self.history.append(row)
        self.epoch_loss, self.epoch_steps = 0.0, 0
        if validation is not None and validation < self.best_loss:
            self.best_loss, self.best_step = validation, self.step
            self.best_weights = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
            if self.written_to is not None:
                disk.save_tensors(self.written_to / disk.BEST, self.best_weights)
        if self.written_to is not None:
            write_tsv(self.written_to / disk.HISTORY, pd.DataFrame(self.history))

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss over the validation rows, with the same draws every time."""
        self.module.eval()
        total, mine = len(self.validation), self.processes.share(len(self.validation))
        summed = torch.zeros((), dtype=torch.float64, device=self.device if self.device.type != "mps" else "cpu")
        for start in range(mine.start, mine.stop, self.settings.batch_size):
            part = slice(start, min(start + self.settings.batch_size, mine.stop))
            draws = Draws(self.settings.seed, VALIDATION_STEP, total, part, self.device)
            seed_dropout(mixed_seed(self.settings.seed, VALIDATION_STEP, 1), self.device)
            batch = to_device(self.source.batch(self.validation[part]), self.device)
            with self._autocast():
                summed += float(self.verb(batch, draws)) * (part.stop - part.start)
        return float(self.processes.sum(summed)) / total
