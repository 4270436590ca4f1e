"""report.html: one self-contained page."""

from __future__ import annotations

import os
from pathlib import Path

from nerve.files import write_text


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write report.html beside what it reads."""
    path = Path(folder) / "report.html"
    write_text(path, "<!doctype html><title>nerve</title>")
    return path
