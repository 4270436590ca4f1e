"""Readers: from the files that labs really have to one `Cohort`. How to add one is told in `nerve.data.readers.base`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nerve._utils.errors import one_of
from nerve.data.readers.base import Options, Reader, Reading, Scan

# name, which is that of the module too -> class, imported on first use; the more specific stand first (`--format auto`
# breaks ties by order)
READERS = {
    "xcpd": "XCPD", "bep017": "BEP017", "cpac": "CPAC", "cbig": "CBIG", "abide": "ABIDE", "conn": "CONN",
    "giga_h5": "GigaH5", "cifti": "CIFTI", "nifti": "NIfTI", "ukb": "UKB", "edges": "Edges", "plain": "Plain",
}  # fmt: skip

_LATER = {"ingest": "ingesting", "read_cohort": "ingesting", "preview": "planning"}
__all__ = [
    "READERS",
    "Options",
    "Reader",
    "Reading",
    "Scan",
    "get_reader",
    "ingest",
    "preview",
    "read_cohort",
]


def get_reader(name: str) -> Reader:
    """The reader of that name."""
    cls = READERS[one_of("format", name, list(READERS))]
    return getattr(import_module(f"nerve.data.readers.{name}"), cls)()


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"nerve.data.readers.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
