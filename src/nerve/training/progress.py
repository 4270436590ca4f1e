"""Progress of a run on standard error: a live bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

log = logging.getLogger("nerve.training")
SECONDS_BETWEEN_LINES = 30.0


class TrainingProgress:
    """Shows loss, throughput and the time left; silent when `shown` is False."""

    def __init__(self, total_steps: int, start_step: int, shown: bool, label: str = "pretrain") -> None:
        self.total, self.start, self.label = total_steps, start_step, label
        self.began = self.last_line = time.perf_counter()
        self.samples = 0
        self.bar: Progress | None = None
        console = Console(stderr=True)
        self.shown = shown
        if shown and console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} steps"),
                TextColumn("{task.fields[status]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )
            self.task = self.bar.add_task(label, total=total_steps, completed=start_step, status="")

    def __enter__(self) -> TrainingProgress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar:
            self.bar.stop()

    @property
    def throughput(self) -> float:
        """Samples a second since the start."""
        return self.samples / max(time.perf_counter() - self.began, 1e-9)

    def advance(self, step: int, samples: int, loss: float, validation: float | None) -> None:
        """One step is done; `step` counts finished steps."""
        self.samples += samples
        status = f"loss {loss:.4g}" + ("" if validation is None else f", validation {validation:.4g}")
        status += f", {self.throughput:,.0f} samples/s"
        if self.bar:
            self.bar.update(self.task, completed=step, status=status)
        elif self.shown and time.perf_counter() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.perf_counter()
            left = (self.last_line - self.began) / max(step - self.start, 1) * (self.total - step)
            log.info("%s: step %d of %d, %s, %.0f s left", self.label, step, self.total, status, left)
