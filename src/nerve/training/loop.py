"""The loop: batches in a fixed order, one verb of the module, AdamW, clipping, validation, checkpoints."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from nerve.checks import NerveError, listed
from nerve.progress import Progress
from nerve.training.checkpoint import (
    BEST,
    LAST,
    StopRequest,
    TrainingStopped,
    load_state,
    load_tensors,
    read_history,
    restore_training,
    restore_weights,
    save_tensors,
    stop_on_signals,
    training_tensors,
    write_history,
)
from nerve.training.distributed import Processes, current_processes
from nerve.training.draws import VALIDATION_STEP, Draws, mixed_seed
from nerve.training.settings import TrainingSettings, choose_device
from nerve.training.sources import Source, to_device
from nerve.training.splits import split_rows

log = logging.getLogger("nerve.training")
_MAY_CHANGE = {"device", "compile", "checkpoint_seconds"}  # settings that a resumed run may have otherwise


@dataclass(frozen=True)
class Result:
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
    groups: Sequence[Any] | np.ndarray | None = None,
    split: tuple[np.ndarray, np.ndarray] | None = None,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    progress: bool = True,
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
    groups : sequence, optional
        The cohort of each sample: the validation split takes its share of each.
    split : (training rows, validation rows), optional
        Instead of a random split.
    resume : bool
        Go on from the checkpoint in `run_dir`, if there is one.
    identity : dict, optional
        What must not change between a run and its continuation (a data fingerprint, say); plain JSON values.
    progress : bool
        Show loss, throughput and time left on standard error.
    label : str
        What the progress calls the work.

    Raises
    ------
    TrainingStopped
        After Ctrl-C or SIGTERM, once the checkpoint is written.
    NerveError
        When the loss is no longer finite; the last good checkpoint is kept.
    """
    training, validation = split or split_rows(len(source), groups, settings)
    trainer = _Trainer(module, source, settings, training, validation, run_dir)
    trainer.identity = identity or {}
    trainer.open_run(resume)
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), stop_on_signals() if run_dir else contextlib.nullcontext() as stop:
        try:
            trainer.run(StopRequest() if stop is None else stop, progress and trainer.processes.first, label)
        except RuntimeError as error:
            if trainer.processes.count == 1:
                raise
            raise NerveError(
                f"A process of this run ended, or could not be reached ({str(error).splitlines()[0]}). "
                "Start it again with --resume."
            ) from error
    trainer.finish()
    return Result(pd.DataFrame(trainer.history), trainer.best_step, trainer.best_loss, training, validation)


class _Trainer:
    """One run: what it knows, and its steps."""

    identity: dict[str, Any]

    def __init__(
        self,
        module: torch.nn.Module,
        source: Source,
        settings: TrainingSettings,
        training: np.ndarray,
        validation: np.ndarray,
        run_dir: str | os.PathLike[str] | None,
    ) -> None:
        self.processes: Processes = current_processes()
        self.device = choose_device(settings.device, self.processes.local_rank)
        self.module = module.to(self.device)
        self.source, self.settings = source, settings
        self.training, self.validation = training, validation
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.steps_per_epoch = max(1, -(-len(training) // settings.batch_size))
        self.total_steps = settings.total_steps(self.steps_per_epoch)
        if len(training) // self.steps_per_epoch < self.processes.count:
            raise NerveError(
                f"There are {len(training)} participants and batches of {settings.batch_size}, fewer than the "
                f"{self.processes.count} processes. Start fewer processes or use larger batches."
            )
        self.optimizer = settings.build_optimizer(module)
        self.dtype = settings.autocast_dtype(self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.verb: Callable[..., torch.Tensor] = module.training_loss  # type: ignore[assignment]
        self.loss = torch.compile(self.verb) if settings.compile else self.verb
        self.step, self.history = 0, []  # type: tuple[int, list[dict[str, Any]]]
        self.best_step, self.best_loss = 0, float("inf")
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.epoch_loss, self.epoch_steps = 0.0, 0
        self.seconds_before = 0.0

    # ---- a run and its checkpoints

    def open_run(self, resume: bool) -> None:
        """Prepare the run folder, or go on from what it holds."""
        if self.run_dir is None:
            return
        path = self.run_dir / LAST
        if not path.is_file():
            self.run_dir.mkdir(parents=True, exist_ok=True)
            return
        if not resume:
            raise NerveError(f"{self.run_dir}: already holds a training run. Add --resume, or choose another folder.")
        state = load_state(path)
        self._check_same_run(state, path)
        restore_training(self.module, self.optimizer, load_tensors(path), path)
        self.step, self.best_step, self.best_loss = state["step"], state["best_step"], state["best_loss"]
        self.epoch_loss, self.epoch_steps = state["epoch_loss"], state["epoch_steps"]
        self.seconds_before = state["seconds"]
        self.scaler.load_state_dict(state["scaler"]) if state["scaler"] else None
        self.history = read_history(self.run_dir, self.step)
        log.info("resuming %s at step %d of %d", self.run_dir, self.step, self.total_steps)

    def _check_same_run(self, state: dict[str, Any], path: Path) -> None:
        now = self._description()
        changed = sorted(key for key in now.keys() | state["run"].keys() if now.get(key) != state["run"].get(key))
        if changed:
            was = listed(f"{key} was {state['run'].get(key)!r} and is {now.get(key)!r}" for key in changed)
            raise NerveError(f"{path}: cannot be resumed, for {was}. Use the same data and settings, or a new folder.")

    def _description(self) -> dict[str, Any]:
        settings = self.settings.model_dump(mode="json", exclude=_MAY_CHANGE)
        return {**settings, "samples": len(self.source), **self.identity}

    def checkpoint(self, seconds: float) -> None:
        """Write everything that is needed to go on from here."""
        if self.run_dir is None or not self.processes.first:
            return
        state = {
            "step": self.step,
            "best_step": self.best_step,
            "best_loss": self.best_loss,
            "epoch_loss": self.epoch_loss,
            "epoch_steps": self.epoch_steps,
            "seconds": self.seconds_before + seconds,
            "scaler": self.scaler.state_dict(),
            "run": self._description(),
        }
        save_tensors(self.run_dir / LAST, training_tensors(self.module, self.optimizer), state)

    def finish(self) -> None:
        """Leave the module with the weights that were asked for."""
        if self.settings.keep == "best" and self.best_step and self.best_step != self.step:
            if self.run_dir is not None:
                self.processes.wait()
                restore_weights(self.module, load_tensors(self.run_dir / BEST), self.run_dir / BEST)
            elif self.best_weights is not None:
                self.module.load_state_dict(self.best_weights)
        self.module.eval()

    # ---- steps

    def run(self, stop: StopRequest, progress: bool, label: str) -> None:
        """All steps that are left."""
        began = saved = time.perf_counter()
        validation = self.history[-1].get("validation_loss") if self.history else None
        samples = 0
        if not self.total_steps and not self.history:
            self._end_epoch(norm=0.0, seconds=0.0, throughput=0.0)
            self.checkpoint(0.0)
        with Progress(label, self.total_steps, done=self.step, unit="steps", shown=progress) as shown:
            for rows, batch in self._batches():
                loss, norm = self._advance(rows, batch)
                samples += len(rows)
                throughput = samples / max(time.perf_counter() - began, 1e-9)
                shown.update(self.step, _status(loss, validation, throughput))
                if self.step % self.steps_per_epoch == 0 or self.step == self.total_steps:
                    seconds = self.seconds_before + time.perf_counter() - began
                    validation = self._end_epoch(norm, seconds, throughput)
                now = time.perf_counter()
                stopping = self.processes.any(bool(stop), self.device)
                done = self.step == self.total_steps
                if stopping or done or now - saved >= self.settings.checkpoint_seconds:
                    self.checkpoint(now - began)
                    saved = now
                if stopping and not done:
                    self.processes.wait()
                    raise TrainingStopped(
                        f"Stopped at step {self.step} of {self.total_steps}; the checkpoint is in {self.run_dir}. "
                        "Add --resume to go on.",
                        stop.signal_number,
                    )

    def _rows(self, step: int) -> np.ndarray:
        """The global batch of a step: the epoch's own permutation, cut into batches that differ by at most one."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng([self.settings.seed, 2, epoch]).permutation(self.training)
        n = len(order)
        return order[place * n // self.steps_per_epoch : (place + 1) * n // self.steps_per_epoch]

    def _batches(self) -> Iterator[tuple[np.ndarray, Any]]:
        """(global rows, this process's part of the batch), the next one read while the present one is in use."""
        with ThreadPoolExecutor(1) as reader:

            def read(step: int) -> tuple[np.ndarray, Any]:
                rows = self._rows(step)
                return rows, self.source.batch(rows[self.processes.share(len(rows))])

            waiting = reader.submit(read, self.step) if self.step < self.total_steps else None
            for step in range(self.step, self.total_steps):
                rows, batch = waiting.result()  # type: ignore[union-attr]
                waiting = reader.submit(read, step + 1) if step + 1 < self.total_steps else None
                yield rows, batch

    def _advance(self, rows: np.ndarray, batch: Any) -> tuple[float, float]:
        """One update; returns the loss over the global batch and the norm of its gradient."""
        self.module.train()
        share = self.processes.share(len(rows))
        draws = Draws(self.settings.seed, self.step, len(rows), share, self.device)
        torch.manual_seed(mixed_seed(self.settings.seed, self.step, 1 + self.processes.rank))  # for dropout; forked
        rate = self.settings.learning_rate(self.step, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.loss(to_device(batch, self.device), draws) * ((share.stop - share.start) / len(rows))
        self.scaler.scale(loss).backward()
        self.processes.sum_gradients(self.module)
        self.scaler.unscale_(self.optimizer)  # type: ignore[arg-type]  # it asks for groups and a step
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.clip or float("inf"))
        value = float(self.processes.sum(loss.detach().float()))
        self._check_finite(value, float(norm))
        self.scaler.step(self.optimizer)  # type: ignore[arg-type]
        self.scaler.update()
        self.step += 1
        if hasattr(self.module, "after_step"):
            self.module.after_step(self.step, self.total_steps)  # type: ignore[operator]
        self.epoch_loss, self.epoch_steps = self.epoch_loss + value, self.epoch_steps + 1
        return value, float(norm)

    def _autocast(self) -> Any:
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

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

    def _end_epoch(self, norm: float, seconds: float, throughput: float) -> float | None:
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
            "seconds": round(seconds, 3),
            "samples_per_second": round(throughput, 2),
        }
        self.history.append(row)
        self.epoch_loss, self.epoch_steps = 0.0, 0
        if validation is not None and validation < self.best_loss:
            self.best_loss, self.best_step = validation, self.step
            self._keep_best()
        if self.run_dir is not None and self.processes.first:
            write_history(self.run_dir, self.history)
        return validation

    def _keep_best(self) -> None:
        if self.run_dir is None:
            self.best_weights = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        elif self.processes.first:
            save_tensors(self.run_dir / BEST, self.module.state_dict())

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss over the validation rows, with the same draws every time."""
        self.module.eval()
        total, mine = len(self.validation), self.processes.share(len(self.validation))
        summed = torch.zeros((), dtype=torch.float64, device=self.device if self.device.type != "mps" else "cpu")
        for start in range(mine.start, mine.stop, self.settings.batch_size):
            part = slice(start, min(start + self.settings.batch_size, mine.stop))
            draws = Draws(self.settings.seed, VALIDATION_STEP, total, part, self.device)
            torch.manual_seed(mixed_seed(self.settings.seed, VALIDATION_STEP, 1))
            batch = to_device(self.source.batch(self.validation[part]), self.device)
            with self._autocast():
                loss = self.verb(batch, draws)
            summed += float(loss) * (part.stop - part.start)
        return float(self.processes.sum(summed)) / total


def _status(loss: float, validation: float | None, throughput: float) -> str:
    checked = "" if validation is None else f", validation {validation:.4g}"
    return f"loss {loss:.4g}{checked}, {throughput:,.0f} samples/s"
