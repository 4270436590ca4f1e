"""Readers: from the files that labs really have to one `Cohort`. How to add one is told in `nerve.readers.base`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nerve.checks import one_of
from nerve.readers.base import Options, Reader, Reading, Scan

# name -> module and class, imported on first use; the more specific stand first (`--format auto` breaks ties by order)
READERS = {
    "xcpd": "nerve.readers.xcpd.XCPD",
    "bep017": "nerve.readers.bep017.BEP017",
    "cpac": "nerve.readers.cpac.CPAC",
    "cbig": "nerve.readers.cbig.CBIG",
    "abide": "nerve.readers.abide.ABIDE",
    "conn": "nerve.readers.conn.CONN",
    "giga_h5": "nerve.readers.giga_h5.GigaH5",
    "cifti": "nerve.readers.cifti.CIFTI",
    "nifti": "nerve.readers.nifti.NIfTI",
    "ukb": "nerve.readers.ukb.UKB",
    "edges": "nerve.readers.edges.Edges",
    "plain": "nerve.readers.plain.Plain",
}

_LATER = {"ingest": "ingesting", "read_cohort": "ingesting", "preview": "planning"}
__all__ = ["READERS", "Options", "Reader", "Reading", "Scan", "get_reader", "ingest", "preview", "read_cohort"]


def get_reader(name: str) -> Reader:
    """The reader of that name."""
    module, _, cls = READERS[one_of("format", name, list(READERS))].rpartition(".")
    return getattr(import_module(module), cls)()


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"nerve.readers.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
