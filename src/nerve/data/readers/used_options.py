"""Every option is used or refused: one that the source has no use for stops the ingest."""

from __future__ import annotations

from collections.abc import Sequence

from nerve._utils.errors import NerveError, listed
from nerve.data.readers.base import Options, Reader, SampledScans, ScanFile
from nerve.data.readers.opening import TEXT

_CONTAINERS = (".mat", ".npz", ".h5", ".hdf5")
# options that only some readers know → what they are about
_OF_READERS = {
    "atlas": "chooses among several atlases of a source",
    "variable": "names an array in .mat, .npz or HDF5 files",
    "atlas_image": "is a label image for voxels",
    "denoise": "is for voxels",
    "unfolding": "is for vectors",
    "header": "is for text files of numbers",
    "index": "is for text files of numbers",
}
_OF_TABLE = ("columns", "sheet", "na_values", "visit", "sessions", "id_map")


def refuse_unused_options(options: Options, reader: Reader, scans: Sequence[ScanFile]) -> None:
    """Refuse options that do not apply to the files that were found.

    Parameters
    ----------
    options : Options
    reader : Reader
    scans : sequence of ScanFile
        Those that are read.
    """
    for name in sorted(options.typed & set(_OF_READERS)):
        if name not in reader.uses:
            raise _refusal(name, _OF_READERS[name], f"the source is read as {reader.name}")
    paths = [scan.path for scan in scans]
    endings = listed(sorted({path.suffix or "no ending" for path in paths}))
    if "variable" in options.typed and not any(path.suffix in _CONTAINERS for path in paths):
        raise _refusal("variable", _OF_READERS["variable"], f"the files are {endings}")
    for name in ("header", "index"):
        if name in options.typed and not any(path.name.endswith(TEXT) for path in paths):
            raise _refusal(name, _OF_READERS[name], f"the files are {endings}")
    has_vectors = any(scan.extra.get("unfolding") is not None for scan in scans)
    if "unfolding" in options.typed and not has_vectors:
        raise _refusal("unfolding", _OF_READERS["unfolding"], "the files hold none")
    has_files = any(scan.key is None for scan in scans)
    if "id_pattern" in options.typed and not has_files:
        about = "takes ids from the names of files"
        raise _refusal("id_pattern", about, "one file holds all participants")
    participants = {scan.participant for scan in scans}
    if "ids" in options.typed and not participants & set(options.ids or ()):
        about = "names the participants of one array, or recognises them in names of files"
        reason = f"none of its ids is among {listed(sorted(participants), most=3)}"
        raise _refusal("ids", about, reason)
    for name in sorted(options.typed & set(_OF_TABLE)):
        if options.participants is None:
            about = "is about the participants table"
            raise _refusal(name, about, "there is none (--participants FILE)")


def refuse_options_of_content(options: Options, sampled: SampledScans, match: str) -> None:
    """Refuse options that do not apply to what the files hold.

    Parameters
    ----------
    options : Options
    sampled : list of (ScanFile, ScanData)
        Scans that were read.
    match : str
        How it is known which region a row is, as in `Regions`.
    """
    contents = [data for _, data in sampled]
    all_matrices = all(data.series is None for data in contents)
    all_series = all(data.series is not None for data in contents)
    typed = options.typed
    if all_matrices:
        for name, about in (
            ("kind", "says how FC is made of time series"),
            ("fd_threshold", "leaves volumes out of time series"),
            ("timeseries", "keeps time series"),
        ):
            if name in typed:
                raise _refusal(name, about, "the files hold matrices")
        if options.data == "series":
            raise _refusal("data", "asks for time series", "the files hold matrices")
    if all_series and "values" in typed:
        raise _refusal("values", "says what matrices hold", "the files hold time series")
    if all_series and options.data == "fc":
        raise _refusal("data", "asks for matrices", "the files hold time series")
    if "fd_threshold" in typed and all(data.motion is None for data in contents):
        about = "leaves out volumes by their framewise displacement"
        raise _refusal("fd_threshold", about, "there are no motion files")
    by_format = {data.values for data in contents if data.values is not None}
    if "values" in typed and by_format and by_format != {options.values}:
        reason = f"the format says that these are {listed(sorted(by_format))}"
        raise _refusal("values", f"says that matrices hold {options.values}", reason)
    if "order" in typed and match == "label":
        about = "is the order of files without labels"
        raise _refusal("order", about, "the files have labels, by which regions are matched")


def _refusal(name: str, about: str, reason: str) -> NerveError:
    return NerveError(
        f"--{name.replace('_', '-')} {about}, and {reason}: it would change nothing. Leave it out."
    )
