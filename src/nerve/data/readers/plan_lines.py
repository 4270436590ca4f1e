"""The plan of an ingest in words: each decision about the source, with what shows it.

`nerve ingest --dry-run` prints these lines, `nerve ingest` follows them, and they are kept with the
cohort (`Cohort.notes["plan"]`). They count participants and name none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nerve._utils.errors import listed
from nerve.data.connectivity import in_words
from nerve.data.readers.base import Options, Reader, SampledScans, ScanFile
from nerve.data.readers.ids import counted
from nerve.data.readers.matrices import infer_values
from nerve.data.readers.opening import TEXT, files_below, is_data
from nerve.data.readers.regions import Regions

DATA_ENDINGS = (
    *TEXT, ".npy", ".npz", ".mat", ".h5", ".hdf5", ".nii", ".nii.gz", ".netcc", ".gii", ".zip",
)  # fmt: skip


@dataclass(frozen=True)
class PlanLine:  # numpydoc ignore=PR02
    """One decision.

    Parameters
    ----------
    topic : str
        What is decided: "files", "labels", "ids" …
    decision : str
    evidence : str
        What shows it, empty where the decision says all.
    """

    topic: str
    decision: str
    evidence: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        return {"topic": self.topic, "decision": self.decision, "evidence": self.evidence}


def state_files(
    source: Path,
    reader: Reader,
    files: Sequence[ScanFile],
    candidates: Sequence[ScanFile],
    options: Options,
) -> PlanLine:
    """Say which files are taken, and how many are left for which reason."""
    taken = {scan.path for scan in candidates}
    reasons = Counter(scan.left_out for scan in files if scan.left_out)
    n_other = len({scan.path for scan in files if not scan.left_out} - taken)
    if n_other:
        reasons["of another session or task"] += n_other
    known = {scan.path for scan in files}
    for path in files_below(source, *DATA_ENDINGS):
        if path not in known:
            reasons[reason_of_unread(path, reader)] += 1
    n_files = counted(len(taken), "file")
    n_scans = counted(len(candidates), "scan")
    decision = f"{n_files} taken: {n_scans} (--format {reader.name}, {reader.describe})"
    if not reasons:
        return PlanLine("files", decision, "no other file of data lies there")
    left = [f"{n_left} ({reason})" for reason, n_left in reasons.most_common()]
    return PlanLine("files", decision, f"left: {listed(left, most=12)}")


def reason_of_unread(path: Path, reader: Reader) -> str:
    """Why a file that the reader passed over is not read."""
    if is_data(path):
        return f"not read by --format {reader.name}"
    return "a table or list beside the data"


def state_content(sampled: SampledScans) -> PlanLine:
    """Say what one scan is: a matrix or a time series, and how many were looked at."""
    topic = "one scan is"
    if not sampled:
        return PlanLine(topic, "not known: no scan could be read")
    words = []
    for scan, data in sampled:
        shape = " x ".join(str(size) for size in data.array.shape)
        if data.series is not None:
            words.append(f"a time series, volumes x regions = {shape}")
        elif scan.extra.get("unfolding") is not None:
            words.append(f"a vector that becomes a matrix of {shape}")
        else:
            words.append(f"a matrix of {shape}")
    counts = Counter(words)
    # names of files are not given: they hold ids and dates
    evidence = [f"{counted(len(sampled), 'scan')} looked at"]
    _, first_data = sampled[0]
    evidence += [note for note in first_data.notes if note.startswith("vectors")]
    return PlanLine(topic, listed(counts, most=3), "; ".join(evidence))


def state_header(sampled: SampledScans) -> PlanLine:
    """Say what stands above the columns and before the rows."""
    headers = Counter(data.header for _, data in sampled if data.header)
    if headers:
        return PlanLine("header and index", listed(headers, most=2))
    if sampled and sampled[0][0].path.name.endswith(TEXT):
        return PlanLine("header and index", "as the format says")
    return PlanLine("header and index", "none: not a text file")


def state_labels(regions: Regions | None, notes: Sequence[str]) -> PlanLine:
    """Say where the labels of the regions come from."""
    if regions is None:
        return PlanLine("labels", "not known", "; ".join(notes))
    decisions = {
        "label": "from the files, matched by label",
        "stated": "not in the files: as the user or the name of the atlas states",
        "size": "not in the files: taken from the number of regions, not confirmed",
    }
    decision = decisions[regions.match]
    if regions.unknown_labels:
        shown = listed(regions.unknown_labels, most=3)
        decision = decision.replace("not in the files", f"codes or counts in the files ({shown})")
    return PlanLine("labels", decision, "; ".join(notes))


def state_ids(scans: Sequence[ScanFile], options: Options) -> PlanLine:
    """Say where the ids of the participants come from."""
    n_participants = len({scan.participant for scan in scans})
    decision = "names of files and folders"
    if "id_pattern" in options.typed:
        decision = f"names of files, by --id-pattern {options.id_pattern}"
    elif all(scan.key is not None for scan in scans):
        from_options = {scan.participant for scan in scans} <= set(options.ids or ())
        decision = "the file itself"
        if from_options and "ids" in options.typed:
            decision = "--ids, in the order of the file"
        elif from_options:
            decision = "the participants table: its rows are in the order of the file"
    return PlanLine("ids", decision, counted(n_participants))


def state_repeats(scans: Mapping[str, Sequence[ScanFile]], notes: Sequence[str]) -> PlanLine:
    """Say what becomes of several scans of a participant."""
    if notes:
        return PlanLine("several scans", notes[0])
    return PlanLine("several scans", "none: one scan per participant", counted(len(scans)))


def state_measure(
    sampled: SampledScans, options: Options, values: str, notes: Sequence[str]
) -> PlanLine:
    """Say what the numbers are."""
    topic = "measure and unit"
    if not sampled:
        return PlanLine(topic, "not known: no scan could be read")
    _, data = sampled[0]
    if data.series is not None:
        return PlanLine(topic, f"FC made here: {in_words(options.kind)}", "from time series")
    values = data.values or values
    measure = in_words(data.measure or ("other" if values == "other" else "pearson"))
    units = {"r": "", "z": ", from Fisher z", "other": ", kept as they are"}
    evidence = list(notes)
    if options.measure is not None:
        evidence.append(f"--measure {options.measure}")
    elif data.values is not None:
        evidence.append("the format says so")
    elif options.values != "auto":
        evidence.append(f"--values {options.values}")
    elif not notes and all(infer_values(data.array) == "r" for _, data in sampled):
        evidence.append("a diagonal of ones and no value beyond 1")
    elif not notes:
        evidence.append("nothing in the matrices looked at says otherwise")
    return PlanLine(topic, f"{measure}{units[values]}", "; ".join(evidence))
