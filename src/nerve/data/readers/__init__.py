"""Readers: from the files that labs really have to one `Cohort`.

How to add one is written at the top of `nerve.data.readers.base`.
"""

from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.ingesting import IngestReport, ingest, read_cohort
from nerve.data.readers.plan_lines import PlanLine
from nerve.data.readers.planning import Plan, make_plan
from nerve.data.readers.previewing import Preview, preview
from nerve.data.readers.registry import READERS, get_reader

__all__ = [
    "READERS",
    "IngestReport",
    "Options",
    "Plan",
    "PlanLine",
    "Preview",
    "Reader",
    "ScanData",
    "ScanFile",
    "get_reader",
    "ingest",
    "make_plan",
    "preview",
    "read_cohort",
]
