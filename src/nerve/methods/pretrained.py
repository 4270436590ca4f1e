"""Where a trained model is: a folder, an archive, or one that comes with the package, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nerve.checks import did_you_mean, problem
from nerve.methods.archive import unpacked
from nerve.methods.base import CARD

PACKAGED = Path(__file__).parents[1] / "pretrained"


def packaged_models() -> dict[str, Path]:
    """The models that come with the package: name → archive."""
    return {path.stem: path for path in sorted(PACKAGED.glob("*.zip"))}


def find_model(model: str | os.PathLike[str]) -> Path:
    """The folder or archive of a model that is given as such or by name; what exists on disk comes first."""
    path, known = Path(model), packaged_models()
    if path.exists() or str(model) in known:
        return path if path.exists() else known[str(model)]
    raise problem(
        model,
        "there is no such model",
        expected="a folder of a trained model, an archive of one (.zip), or a name of `nerve models list`",
        remedy=did_you_mean(str(model), known).strip(),
    )


@contextmanager
def located(model: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of a model that is given as a folder, an archive or a name."""
    path = find_model(model)
    if path.is_dir():
        yield path
        return
    with unpacked(path) as folder:
        yield folder


def model_card(model: str | os.PathLike[str]) -> str:
    """The card of a model, without the lines for hubs."""
    with located(model) as folder:
        text = (folder / CARD).read_text(encoding="utf-8", errors="replace") if (folder / CARD).is_file() else ""
    if not text:
        raise problem(model, f"it holds no {CARD}", expected="the folder of a trained model")
    return text.split("---\n", 2)[-1].lstrip() if text.startswith("---\n") else text
