"""Result folders compared and checked: is every visible file whole, and are two folders the same?

Files are compared byte for byte, except for what tells the time: `seconds` and `samples_per_second` of history.tsv,
`seconds` of runs.tsv, rows.tsv, manifests and checkpoints, and the cells of report.html that show the same numbers.
"""

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from safetensors.numpy import load_file

from nerve._utils.files import MARK
from nerve._utils.locks import is_lock_file

TIMES = ("seconds", "cpu_seconds", "samples_per_second")
OF_THIS_RUN = (
    "id",
    "files",
    "command",
)  # of protocol.json: digests of tables with times, and where it was typed


def visible_files(folder: Path) -> Iterator[Path]:
    """Files that a reader would take for results: no part of their name, below the folder, starts with a dot."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(
            part.startswith(".") for part in file.relative_to(folder).parts
        ):
            yield file


def compared(folder: Path) -> dict[str, Any]:
    """What must be the same in two runs, by the name of the file."""
    return {str(file.relative_to(folder)): _content(file) for file in visible_files(folder)}


def debris(folder: Path) -> list[str]:
    """Temporary files and folders, drafts and locks, anywhere below a folder."""
    return [
        str(entry.relative_to(folder)) for entry in sorted(folder.rglob(".*")) if entry.name != MARK
    ]


def unreadable(folder: Path) -> Iterator[tuple[str, str]]:
    """Visible files that are not whole, and why."""
    for file in visible_files(folder) if folder.is_dir() else ():
        if is_lock_file(
            file
        ):  # also an empty one: its process was killed before it wrote its number
            continue
        try:
            _check(file)
        except Exception as error:
            yield str(file.relative_to(folder)), f"{type(error).__name__}: {error}"


def _check(file: Path) -> None:
    if file.suffix == ".json":
        json.loads(file.read_text())
    elif file.suffix == ".yaml":
        yaml.safe_load(file.read_text())
    elif file.suffix == ".safetensors":
        load_file(file)
    elif file.suffix in (".npy", ".npz"):
        found = np.load(file, allow_pickle=False)
        _ = [found[name] for name in found] if file.suffix == ".npz" else found
    elif file.suffix == ".tsv":
        lines = file.read_text()
        if not lines.endswith("\n") or len({line.count("\t") for line in lines.splitlines()}) != 1:
            raise ValueError("the table is cut short")
    elif file.suffix == ".html":
        if not file.read_text().rstrip().endswith("</html>"):
            raise ValueError("the page is cut short")
    elif not file.read_text().endswith("\n"):
        raise ValueError("the last line is cut short")


def _content(file: Path) -> Any:
    if file.name in ("history.tsv", "runs.tsv", "rows.tsv"):
        return pd.read_csv(file, sep="\t").drop(columns=list(TIMES), errors="ignore").to_csv()
    if file.name == "manifest.json":
        return {
            key: value for key, value in json.loads(file.read_text()).items() if key not in TIMES
        }
    if file.name == "protocol.json":
        return {
            key: value
            for key, value in json.loads(file.read_text()).items()
            if key not in OF_THIS_RUN
        }
    if file.name == "last.safetensors":
        return _checkpoint(file)
    if file.name == "report.html":
        return _page(file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _page(file: Path) -> str:
    """The page without the cells that hold the seconds of runs.tsv or the minutes of a history."""
    times: set[float] = set()
    for table in (*file.parent.glob("r*s.tsv"), *file.parent.glob("runs/*/history.tsv")):
        seconds = pd.read_csv(table, sep="\t")["seconds"].dropna()
        times |= {round(value, 9) for value in (*seconds, *(seconds / 60))}

    def without_time(cell: re.Match[str]) -> str:
        return "" if round(float(cell[1]), 9) in times else cell[0]

    text, about = file.read_text(), file.with_name("protocol.json")
    if about.is_file():
        text = text.replace(json.loads(about.read_text())["id"], "")  # of tables that hold times
    text = re.sub(
        r"&#39;(\[…\][^&]*)&#39;", r"\1", text
    )  # a folder with blanks in its name was quoted
    return re.sub(r'<td data-sort="([\d.e-]+)" class="number">[^<]*</td>', without_time, text)


def _checkpoint(file: Path) -> tuple[Any, ...]:
    with open(file, "rb") as stream:
        header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
    state = json.loads(header["__metadata__"]["state"])
    for times in (state, *state["history"]):
        times.pop("seconds")
        times.pop("samples_per_second", None)
    tensors = {
        name: hashlib.sha256(tensor.tobytes()).hexdigest()
        for name, tensor in load_file(file).items()
    }
    return json.dumps(state, sort_keys=True), json.dumps(tensors, sort_keys=True)
