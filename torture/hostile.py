"""Hostile files: made to run code, fill the memory, read other files or harm a spreadsheet.

Each attack is a file and a command. It is repelled when the command ends with a sentence, the mark
that the attacker's code would make does not appear, and memory and files stay within the limits of
`torture._sandbox`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import safetensors.numpy
from scipy import sparse
from scipy.io import savemat

from nerve._utils.cores import usable_cores
from torture._layouts import FC, LAYOUTS, files_of, put, regions_table, sign_as_matlab
from torture._sandbox import Case, Outcome, preload, run_cases
from torture._sound_files import put_here, sound_files
from torture.promise import Promise

MARK = "attacked"  # the file that hostile code would make in the current folder
TEXT_BOMB = "gzip bomb of text"
SECRET_WORD = "TOPSECRET"  # in a file that a hostile model names
SECRET = "secret.h5"  # a file beside the source, of which nothing may be read
Write = Callable[[Path], None]  # writes a hostile file at a path


class Malice:
    """An object that makes the mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {MARK}",))


PICKLED = pickle.dumps(Malice())


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Run all attacks; the short form leaves out the one that takes as long as all others together."""
    preload()
    left_out = (TEXT_BOMB,) if short else ()  # tests/_utils/test_archives.py has its cells
    cases_by_promise = {}
    all_cases: list[Case] = []
    for promise, cases in attacks().items():
        chosen = [case for case in cases if case.name not in left_out]
        cases_by_promise[promise] = chosen
        all_cases += chosen
    outcomes = iter(run_cases(all_cases, range(len(all_cases)), folder, jobs=usable_cores()))
    return [
        _make_promise(promise, [next(outcomes) for _ in cases])
        for promise, cases in cases_by_promise.items()
    ]


def _make_promise(name: str, outcomes: list[Outcome]) -> Promise:
    most_memory = max(outcome.memory for outcome in outcomes)
    measured = f"{len(outcomes)} files, most memory {max(most_memory, 0) / 2**20:.0f} MB"
    failures = [outcome for outcome in outcomes if outcome.fault or not _is_refused(outcome)]
    for outcome in failures:
        fault = outcome.fault or f"it was not refused: {outcome.output[-200:]}"
        measured += f"; {outcome.name}: {fault}"
    return Promise(name, " ".join(measured.split()).replace("|", "/"), not failures)


def _is_refused(outcome: Outcome) -> bool:
    """Whether the command failed with a sentence, or left the hostile file out and reported that."""
    if SECRET_WORD in outcome.output:
        return False
    return (
        "nerve: " in outcome.output
        or "1 left out" in outcome.output
        or outcome.name.startswith("harmless")
    )


def attacks() -> dict[str, Iterator[Case]]:
    """The attacks by the promise that they test."""
    return {
        "a file with Python objects is refused and no code in it runs": _arrays_of_objects(),
        "settings cannot run code": _settings(),
        "a model folder runs no code, and one that is newer, incomplete or changed is refused by name": _models(),
        "a file that lies about its size, or unpacks to far more than it holds, is refused": _bombs(),
        "a file cannot make a command read other files": _links(),
        "a model with a path, or with an entry or a tensor of the wrong type, is refused": _typed_models(),
        "a pipe or a device in the place of a file is not opened": _pipes(),
        "no file of the user is replaced without being asked for": _replacing(),
    }


# ---- files of data


def _ingested(name: str, ending: str, write: Write) -> Case:
    """A hostile file between two sound ones."""
    layout_name = {".nii.gz": "bold", ".tsv.gz": "tsv.gz"}.get(ending, "npy")
    layout = LAYOUTS[layout_name]
    files = files_of(layout.write)
    regions = regions_table()

    def prepare(folder: Path) -> list[str]:
        source = folder / "in/source"
        if layout_name == "npy":
            _write_sound_file(source, ending)
            hostile_file = source / f"S01{ending}"
        else:
            put(source, files)
            hostile_file = min(source.rglob(f"*{layout.damaged}"))
        write(hostile_file)
        (folder / "in/regions.tsv").write_bytes(regions)
        words = ["ingest", source, folder / "out/new", "--parcellation", folder / "in/regions.tsv"]
        return [*map(str, words), *(word.format(source=source) for word in layout.options)]

    return Case(name, prepare)


def _write_sound_file(folder: Path, ending: str) -> None:
    """Write the file of another participant, which the hostile file lies beside."""
    folder.mkdir(parents=True)
    if ending == ".npy":
        np.save(folder / "S02.npy", FC[1])
    elif ending == ".npz":
        np.savez(folder / "S02.npz", fc=FC[1])
    else:
        savemat(folder / "S02.mat", {"fc": FC[1]})


def _bytes(content: bytes) -> Write:
    """A function that writes these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def _made_when_written(make: Callable[[], bytes]) -> Write:
    """A function that makes its bytes only when it writes them: they are many."""

    def write(path: Path) -> None:
        path.write_bytes(make())

    return write


def _arrays_of_objects() -> Iterator[Case]:
    objects = np.empty((21, 21), object)
    objects[0, 0] = Malice()
    npy = io.BytesIO()
    np.save(npy, objects, allow_pickle=True)
    npz = io.BytesIO()
    np.savez(npz, allow_pickle=True, fc=objects)
    yield _ingested("npy of objects", ".npy", _bytes(npy.getvalue()))
    yield _ingested("pickle called npy", ".npy", _bytes(PICKLED))
    yield _ingested(
        "npy header, then a pickle", ".npy", _bytes(npy_header("(1,)", "'|O'", data=PICKLED))
    )
    yield _ingested("npz of objects", ".npz", _bytes(npz.getvalue()))
    yield _ingested("pickle called npz", ".npz", _bytes(PICKLED))
    yield _ingested(
        "pickle in a zip called npz",
        ".npz",
        _bytes(_zipped({"fc.npy": PICKLED, "fc.pkl": PICKLED})),
    )
    yield _ingested("pickle called mat", ".mat", _bytes(PICKLED))
    for array_class in (3, 16, 17):
        yield _ingested(
            f"mat v5 of class {array_class}", ".mat", _bytes(mat5_of_class(array_class))
        )
    yield _ingested("mat v7.3 object", ".mat", _matlab_object)
    yield _ingested(
        "mat v7.3 function",
        ".mat",
        lambda path: _hdf5(path, FC[0], MATLAB_class=np.bytes_("function_handle")),
    )
    yield _ingested("pickle called tsv.gz", ".tsv.gz", _bytes(gzip.compress(PICKLED)))
    yield _ingested("pickle called nii.gz", ".nii.gz", _bytes(gzip.compress(PICKLED)))


MAT5_HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


def mat5_of_class(array_class: int) -> bytes:
    """A MAT v5 file whose variable `fc` is an object (3), a function (16) or opaque (17)."""
    flags = struct.pack("<IIII", 6, 8, array_class, 0)
    name = struct.pack("<II", 1, 2) + b"fc" + bytes(6)
    if array_class == 17:
        body = flags + name
        body += struct.pack("<II", 1, 4) + b"MCOS" + bytes(4)
        body += struct.pack("<II", 1, 6) + b"string\0\0"
    else:
        body = flags + struct.pack("<IIii", 5, 8, 1, 1) + name
        body += struct.pack("<II", 1, 8) + b"evilclas"
        body += struct.pack("<HHI", 5, 4, 8) + struct.pack("<II", 1, 0)
    return MAT5_HEADER + struct.pack("<II", 14, len(body)) + body


def _hdf5(path: Path, array: np.ndarray, **attributes: Any) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file["fc"] = array
        file["fc"].attrs.update(attributes)
    sign_as_matlab(path)


def _matlab_object(path: Path) -> None:
    _hdf5(path, FC[0], MATLAB_class=np.bytes_("table"), MATLAB_object_decode=np.int32(3))


# ---- settings


def _settings() -> Iterator[Case]:
    code = f"!!python/object/apply:os.system ['touch {MARK}']"
    tags = {
        "apply": code,
        "name": "!!python/name:os.system",
        "new": code.replace("apply", "new"),
        "tuple": "!!python/tuple [1]",
    }
    for kind, tag in tags.items():
        yield _with_file(
            f"pretrain settings, {kind}", "small.yaml", f"epochs: {tag}\n".encode(), PRETRAIN
        )
        yield _with_file(
            f"experiment, {kind}",
            "study.yaml",
            f"name: {tag}\ncohorts: {tag}\n".encode(),
            EXPERIMENT,
        )
        yield _with_file(f"columns, {kind}", "columns.yaml", f"age: {tag}\n".encode(), COLUMNS)
        yield _with_setting(f"--set, {kind}", f"device={tag}")
    cohort = "  '../../../escaped': {simulate: {n: 12, timepoints: 20}, targets: [p_factor]}"
    yield _with_file(
        "cohort called by a path",
        "study.yaml",
        f"cohorts:\n{cohort}\nmethods: [{{method: raw}}]\n".encode(),
        EXPERIMENT,
    )
    yield _with_file(
        "method called by a module", "study.yaml", _experiment_with("os.system"), EXPERIMENT
    )


PRETRAIN = "pretrain {in}/cohort --out {out}/run --config {in}/small.yaml"
EXPERIMENT = "experiment {in}/study.yaml --out {out}/study --dry-run"
COLUMNS = (
    "ingest {in}/source {out}/new --parcellation {in}/cohort/regions.tsv --participants {in}/table.csv "
    "--columns {in}/columns.yaml"
)
EMBED = "embed {in}/run {in}/cohort {out}/new.tsv"
PREDICT = "predict {in}/probe {in}/cohort {out}/new.tsv"
PARTS = ("cohort", "run", "probe", "results", "features.tsv", "small.yaml", "study.yaml")


def _experiment_with(name: str) -> bytes:
    """A file of an experiment with this method."""
    cohorts = "cohorts: {a: {path: cohort, targets: [age]}}"
    return f"parcellation: schaefer100-7\n{cohorts}\nmethods: [{{method: {name}}}]\n".encode()


def _with_setting(name: str, text: str) -> Case:
    """A training with this text after --set."""

    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", sound_files(), "cohort", "small.yaml")
        return [*_words(PRETRAIN, folder), "--set", text]

    return Case(name, prepare)


def _with_file(name: str, file: str, content: bytes | None, command: str) -> Case:
    """The sound files with one of them replaced, or removed."""

    def prepare(folder: Path) -> list[str]:
        put_here(
            folder / "in", sound_files(), "cohort", "run", "table.csv", "small.yaml", "study.yaml"
        )
        put(folder / "in/source", files_of(LAYOUTS["npy"].write))
        if content is None:
            (folder / "in" / file).unlink()
        else:
            (folder / "in" / file).write_bytes(content)
        return _words(command, folder)

    return Case(name, prepare)


def _words(command: str, folder: Path) -> list[str]:
    """The words of a command, with the folders of the case."""
    return [
        word.replace("{in}", str(folder / "in")).replace("{out}", str(folder / "out"))
        for word in command.split()
    ]


# ---- models


def _models() -> Iterator[Case]:
    files = sound_files()
    config = json.loads(files["run/config.json"])
    weights = files["run/model.safetensors"]

    def changed(**changes: Any) -> bytes:
        return json.dumps(config | changes).encode()

    yield _with_file("pickle called model.safetensors", "run/model.safetensors", PICKLED, EMBED)
    yield _with_file(
        "torch archive called model.safetensors",
        "run/model.safetensors",
        _zipped({"archive/data.pkl": PICKLED}),
        EMBED,
    )
    yield _with_file("harmless: a pickle beside the model", "run/model.pkl", PICKLED, EMBED)
    for name in ("os.system", "builtins.eval", "../evil", "Malice", ""):
        yield _with_file(f"class {name!r}", "run/config.json", changed(method=name), EMBED)
    yield _with_file(
        "newer format", "run/config.json", changed(format_version=99, nerve_version="9.9"), EMBED
    )
    for dim, depth in ((65536, 100), (2048, 50)):  # 5·10¹² and 2·10⁹ numbers
        larger = config["parameters"] | {"dim": dim, "depth": depth}
        yield _with_file(
            f"parameters of a giant, {dim} wide",
            "run/config.json",
            changed(parameters=larger),
            EMBED,
        )
    unknown = config["parameters"] | {"__class__": "os.system"}
    yield _with_file("unknown parameter", "run/config.json", changed(parameters=unknown), EMBED)
    for file in ("run/model.safetensors", "run/config.json", "run/history.tsv"):
        yield _with_file(f"without {file}", file, None, EMBED)
    for lie, content in lying_safetensors(weights).items():
        yield _with_file(f"weights: {lie}", "run/model.safetensors", content, EMBED)


def lying_safetensors(weights: bytes) -> dict[str, bytes]:
    """Safetensors files whose header is false: lie → content."""
    length = struct.unpack("<Q", weights[:8])[0]
    header = json.loads(weights[8 : 8 + length])
    data = weights[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    first, second = names[:2]

    def file(changes: dict[str, Any]) -> bytes:
        """The file with other entries in its header; an entry that is None is removed."""
        entries = {key: value for key, value in (header | changes).items() if value is not None}
        text = json.dumps(entries).encode()
        return struct.pack("<Q", len(text)) + text + data

    entry = header[first]
    begin, end = entry["data_offsets"]
    n_values = int(np.prod(entry["shape"]))
    return {
        "header longer than the file": struct.pack("<Q", 2**40) + weights[8:],
        "header of 2^64 bytes": struct.pack("<Q", 2**64 - 1) + weights[8:],
        "no header": weights[:8],
        "deep header": struct.pack("<Q", 100_000) + b"[" * 100_000,
        "cut off": weights[: len(weights) // 2],
        "offsets beyond the file": file({first: entry | {"data_offsets": [begin, end + 10**12]}}),
        "offsets that overlap": file(
            {second: header[second] | {"data_offsets": entry["data_offsets"]}}
        ),
        "offsets backwards": file({first: entry | {"data_offsets": [end, begin]}}),
        "negative shape": file({first: entry | {"shape": [-1, 8]}}),
        "huge shape": file({first: entry | {"shape": [2**62, 2**62]}}),
        "another shape": file({first: entry | {"shape": [n_values, 1]}}),
        "unknown type": file({first: entry | {"dtype": "PICKLE"}}),
        "a tensor renamed": file({first: None, f"{first}s": entry}),
        "words for tensors": file({first: "os.system"}),
    }


def _typed_models() -> Iterator[Case]:
    """Models whose entries are paths or of another type, and whose tensors are of another type."""
    files = sound_files()
    config = json.loads(files["run/config.json"])
    weights = files["run/model.safetensors"]
    for name in ("patching", "parcellation", "recentre", "view", "tokenizer"):
        yield _with_secret(f"{name} is a path", ("parameters", name), config)
    for place in (("parcellation", "name"), ("preset",), ("method",), ("data",), ("adapted",)):
        for value in (["/etc/passwd"], {"path": "/etc/passwd"}, 7, None, True):
            content = _changed(config, place, value)
            name = f"{'.'.join(place)} is {value!r}"
            yield _with_file(name, "run/config.json", content, EMBED)
    tensors = safetensors.numpy.load(weights)
    for name in tensors:
        # A buffer of integers may be of a smaller type.
        if tensors[name].dtype.kind != "f":
            continue
        changed_tensors = tensors | {name: tensors[name].astype(np.int8)}
        content = safetensors.numpy.save(changed_tensors)
        yield _with_file(f"int8: {name}", "run/model.safetensors", content, EMBED)


def _changed(config: dict[str, Any], place: tuple[str, ...], value: Any) -> bytes:
    """A config.json with another value in one place."""
    copy = json.loads(json.dumps(config))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return json.dumps(copy).encode()


def _with_secret(name: str, place: tuple[str, ...], config: dict[str, Any]) -> Case:
    """A model that names a table of the user, of which nothing may be printed."""

    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", sound_files(), "cohort", "run")
        secret = folder / "in/secret.tsv"
        secret.write_text(f"label\tnetwork\n{SECRET_WORD}\t{SECRET_WORD}\n")
        (folder / "in/run/config.json").write_bytes(_changed(config, place, str(secret)))
        return _words(EMBED, folder)

    return Case(name, prepare)


# ---- pipes and devices


def _pipes() -> Iterator[Case]:
    commands = {
        "run.zip": "embed {in}/run.zip {in}/cohort {out}/new.tsv",
        "run/model.safetensors": EMBED,
        "run/config.json": EMBED,
        "run/history.tsv": EMBED,
        "cohort/connectivity.npy": EMBED,
        "cohort/participants.tsv": EMBED,
        "cohort/cohort.json": EMBED,
        "probe/probe.json": PREDICT,
        "probe/probe.safetensors": PREDICT,
        "small.yaml": PRETRAIN,
        "study.yaml": EXPERIMENT,
        "features.tsv": "evaluate {in}/cohort --features {in}/features.tsv --targets age --out {out}/e",
    }
    for file, command in commands.items():
        yield _in_place(f"pipe: {file}", file, command, os.mkfifo)
        yield _in_place(f"device: {file}", file, command, lambda path: path.symlink_to("/dev/zero"))


def _in_place(name: str, file: str, command: str, make: Callable[[Path], Any]) -> Case:
    """The sound files with something else in the place of one of them."""

    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", sound_files(), *PARTS)
        place = folder / "in" / file
        place.unlink(missing_ok=True)
        make(place)
        return _words(command, folder)

    return Case(name, prepare)


# ---- files of the user


def _replacing() -> Iterator[Case]:
    """Commands that are asked to write where a file of the user is, which must not change."""
    precious = b"precious\n"
    yield _over_user_file(
        "check --out", "mine.tsv", precious, "check {in}/cohort --out {in}/mine.tsv"
    )
    yield _over_user_file("embed", "mine.tsv", precious, "embed {in}/run {in}/cohort {in}/mine.tsv")
    yield _over_user_file(
        "embed .npy, its .json", "mine.json", precious, "embed {in}/run {in}/cohort {in}/mine.npy"
    )
    yield _over_user_file("pack", "mine.zip", precious, "pack {in}/run {in}/mine.zip")
    yield _over_user_file(
        "predict", "mine.tsv", precious, "predict {in}/probe {in}/cohort {in}/mine.tsv"
    )
    yield _over_user_file("report", "results/report.html", precious, "report {in}/results")
    simulate = "simulate {in}/cohort --subjects 12 --overwrite"
    table = sound_files()["cohort/participants.tsv"] + b"\n"
    yield _over_user_file("an edited table", "cohort/participants.tsv", table, simulate)
    for name in ("cohort/locks/mine", "cohort/.x.lock", "cohort/.x.0123abcd.tmp", ".cohort.lock"):
        yield _over_user_file(name, name, precious, simulate)
    yield _over_user_file(
        "a folder of locks", "new/locks", precious, "pretrain {in}/cohort --out {in}/new"
    )
    yield _over_user_file("a lock", "new/.lock", precious, "pretrain {in}/cohort --out {in}/new")


def _over_user_file(name: str, file: str, content: bytes, command: str) -> Case:
    """The sound files and a file of the user."""

    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", sound_files(), *PARTS)
        place = folder / "in" / file
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
        return _words(command, folder)

    return Case(name, prepare)


# ---- sizes


def _bombs() -> Iterator[Case]:
    row = b"\t".join([b"0"] * 2000) + b"\n"
    yield _ingested(TEXT_BOMB, ".tsv.gz", _made_when_written(lambda: _gzipped(row, 2**30)))
    yield _ingested(
        "gzip bomb of one line", ".tsv.gz", _made_when_written(lambda: _gzipped(b"0\t", 2**30))
    )
    yield _ingested("gzip bomb called nii.gz", ".nii.gz", _made_when_written(_nifti_bomb))
    yield _ingested("zip bomb called npz", ".npz", _made_when_written(_npz_bomb))
    yield _ingested("zip that lies about its size", ".npz", _made_when_written(_npz_lie))
    shapes = {"2 GB": "(16384, 16384)", "exabytes": "(2000000000, 2000000000)"}
    for size, shape in shapes.items():
        yield _ingested(
            f"npz header of {size}",
            ".npz",
            _bytes(_zipped({"fc.npy": npy_header(shape, data=bytes(800))})),
        )
        yield _ingested(f"npy header of {size}", ".npy", _bytes(npy_header(shape, data=bytes(800))))
    yield _ingested("mat v5 bomb", ".mat", _made_when_written(_mat_bomb))
    yield _ingested(
        "mat v5 sparse giant",
        ".mat",
        lambda path: savemat(path, {"fc": sparse.csc_matrix((60_000, 60_000))}),
    )
    yield _ingested("mat v7.3 of nothing but zeros", ".mat", lambda path: _hdf5_giant(path, None))
    yield _ingested("mat v7.3 bomb", ".mat", lambda path: _hdf5_giant(path, "gzip"))


def _gzipped(part: bytes, size: int) -> bytes:
    """A gzip file of `part` again and again.

    Members of a gzip file may follow one another, so that one is packed and repeated.
    """
    block = part * (2**24 // len(part))
    return gzip.compress(block, 1) * (size // len(block))


def _nifti_bomb() -> bytes:
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2, 2), np.float32), np.eye(4))
    header = image.header.copy()
    header.set_data_shape((512, 512, 512, 8))
    return gzip.compress(bytes(header.binaryblock) + bytes(4)) + _gzipped(bytes(2**16), 2**30)


def _npz_bomb(size: int = 3 * 2**27) -> bytes:
    stream = io.BytesIO()
    packed = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed, packed.open("fc.npy", "w") as member:
        member.write(npy_header(f"({size // 2**13}, {2**10})").ljust(2**20, b" "))
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    return stream.getvalue()


def _npz_lie() -> bytes:
    """The zip bomb with a small size in the archive's own list."""
    size = 3 * 2**27 + 2**20
    return _npz_bomb().replace(struct.pack("<I", size), struct.pack("<I", 4000))


def _mat_bomb() -> bytes:
    size = 2**28
    head = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 8192, 4096)
    head += struct.pack("<HH", 1, 2) + b"fc\0\0" + struct.pack("<II", 9, size)
    packer = zlib.compressobj(1)
    packed = packer.compress(struct.pack("<II", 14, len(head) + size) + head)
    for _ in range(size // 2**20):
        packed += packer.compress(bytes(2**20))
    packed += packer.flush()
    return MAT5_HEADER + struct.pack("<II", 15, len(packed)) + packed


def _hdf5_giant(path: Path, compression: str | None) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        giant = file.create_dataset(
            "fc", (30_000, 30_000), "f8", chunks=(3000, 3000), compression=compression
        )
        if compression:
            giant[:3000, :3000] = 0.0
    sign_as_matlab(path)


# ---- links


def _links() -> Iterator[Case]:
    yield _ingested(
        "mat v7.3 external link",
        ".mat",
        _linked(lambda secret: h5py.ExternalLink(str(secret), "fc")),
    )
    yield _ingested(
        "mat v7.3 soft link to itself", ".mat", _linked(lambda secret: h5py.SoftLink("/fc"))
    )
    yield _ingested(
        "mat v7.3 soft link to nothing",
        ".mat",
        _linked(lambda secret: h5py.SoftLink("/nothing")),
    )
    yield _ingested("mat v7.3 external storage", ".mat", _external_storage)
    yield _ingested("mat v7.3 virtual dataset", ".mat", _virtual)
    yield _ingested(
        "harmless: npy linked to a device", ".npy", lambda path: path.symlink_to("/dev/zero")
    )
    yield _ingested("npy linked to itself", ".npy", lambda path: path.symlink_to(path.name))


def _linked(link: Callable[[Path], Any]) -> Write:
    """A function that writes a MATLAB v7.3 file whose `fc` is a link, made from a secret file."""

    def write(path: Path) -> None:
        with h5py.File(path, "w", userblock_size=512) as file:
            file["fc"] = link(_secret(path))
        sign_as_matlab(path)

    return write


def _secret(path: Path) -> Path:
    """Write a matrix beside the source, of which nothing may be read."""
    secret = path.parent.parent / SECRET
    with h5py.File(secret, "w") as file:
        file["fc"] = FC[0]
    return secret


def _external_storage(path: Path) -> None:
    secret = path.parent.parent / "secret.raw"
    secret.write_bytes(FC[0].tobytes())
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("fc", FC[0].shape, "f8", external=[(str(secret), 0, FC[0].nbytes)])
    sign_as_matlab(path)


def _virtual(path: Path) -> None:
    layout = h5py.VirtualLayout(FC[0].shape, "f8")
    layout[:] = h5py.VirtualSource(str(_secret(path)), "fc", FC[0].shape)
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_virtual_dataset("fc", layout)
    sign_as_matlab(path)


def _zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def npy_header(
    shape: str, descr: str = "'<f8'", *, version: tuple[int, int] = (1, 0), data: bytes = b""
) -> bytes:
    """An `.npy` file with this text as the shape and type in its header."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    n_bytes_of_length = 2 if version == (1, 0) else 4
    length = len(text).to_bytes(n_bytes_of_length, "little")
    return b"\x93NUMPY" + bytes(version) + length + text + data
