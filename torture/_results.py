"""Checks of result folders: is every visible file complete, and do two folders hold the same?

Files are compared byte for byte, except for times: `seconds` and `samples_per_second` of
history.tsv, `seconds` of runs.tsv, rows.tsv, manifests and checkpoints, and the columns
`seconds` and `minutes` of the tables of report.html.
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
PAGE_TIMES = ("seconds", "minutes")  # headings of report.html
# In protocol.json: digests of tables that hold times, and the command with its folders.
OF_THIS_RUN = ("id", "files", "command")


def visible_files(folder: Path) -> Iterator[Path]:
    """Files that a reader would take for results: neither they nor their folders are hidden."""
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") for part in parts):
            yield file


def comparable_content(folder: Path) -> dict[str, Any]:
    """What must be the same in two runs: file name → content without times."""
    return {str(file.relative_to(folder)): _content(file) for file in visible_files(folder)}


def leftover_files(folder: Path) -> list[str]:
    """Temporary files and folders, drafts and locks, anywhere below a folder."""
    return [
        str(entry.relative_to(folder)) for entry in sorted(folder.rglob(".*")) if entry.name != MARK
    ]


def incomplete_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Visible files that cannot be read or are cut short: name and reason."""
    if not folder.is_dir():
        return
    for file in visible_files(folder):
        # A lock may be empty: its process was killed before it wrote its number.
        if is_lock_file(file):
            continue
        try:
            _check_complete(file)
        except Exception as error:
            yield str(file.relative_to(folder)), f"{type(error).__name__}: {error}"


def _check_complete(file: Path) -> None:
    """Read a file by its type; raises an error if it is cut short."""
    if file.suffix == ".json":
        json.loads(file.read_text())
    elif file.suffix == ".yaml":
        yaml.safe_load(file.read_text())
    elif file.suffix == ".safetensors":
        load_file(file)
    elif file.suffix == ".npy":
        np.load(file, allow_pickle=False)
    elif file.suffix == ".npz":
        archive = np.load(file, allow_pickle=False)
        for name in archive:
            archive[name]  # reads the array
    elif file.suffix == ".tsv":
        text = file.read_text()
        numbers_of_tabs = {line.count("\t") for line in text.splitlines()}
        if not text.endswith("\n") or len(numbers_of_tabs) != 1:
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
        return _json_without(file, TIMES)
    if file.name == "protocol.json":
        return _json_without(file, OF_THIS_RUN)
    if file.name == "last.safetensors":
        return _checkpoint_without_times(file)
    if file.name == "report.html":
        return _page_without_times(file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _json_without(file: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    content = json.loads(file.read_text())
    return {key: value for key, value in content.items() if key not in keys}


def _page_without_times(file: Path) -> str:
    """The page without the columns of times in its tables."""
    text = re.sub(r"<table.*?</table>", _table_without_times, file.read_text(), flags=re.DOTALL)
    protocol = file.with_name("protocol.json")
    if protocol.is_file():
        # The id is a digest of tables that hold times.
        text = text.replace(json.loads(protocol.read_text())["id"], "")
    # A folder with blanks in its name was quoted.
    return re.sub(r"&#39;(\[…\][^&]*)&#39;", r"\1", text)


def _table_without_times(table: re.Match[str]) -> str:
    """A table of the page without the cells of its columns of times."""
    headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table[0])
    positions = [i for i, heading in enumerate(headings) if heading in PAGE_TIMES]
    rows = []
    for row in re.split(r"(?=<tr>)", table[0]):
        before, *cells = re.split(r"(?=<td )", row)
        rows.append(before)
        rows += [cell for i, cell in enumerate(cells) if i not in positions]
    return "".join(rows)


def _checkpoint_without_times(file: Path) -> tuple[str, str]:
    """State and digests of the tensors of a checkpoint."""
    with open(file, "rb") as stream:
        header_length = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(header_length))
    state = json.loads(header["__metadata__"]["state"])
    for record in (state, *state["history"]):
        record.pop("seconds")
        record.pop("samples_per_second", None)
    digests = {
        name: hashlib.sha256(tensor.tobytes()).hexdigest()
        for name, tensor in load_file(file).items()
    }
    return json.dumps(state, sort_keys=True), json.dumps(digests, sort_keys=True)
