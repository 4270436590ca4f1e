"""Bad input: every reader, file of settings and option of the command line is given what it does not expect.

python -m torture.fuzz --seed 0 --case 123 --keep FOLDER      writes the files of one case and says the command
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nerve._utils.cores import usable_cores
from torture._commands import odd_lines, odd_places
from torture._made import made, put_here
from torture._mutations import BYTES, INSTEAD, LYING_NPY, NUMPY_ONLY, TEXT, arrays, replaced
from torture._sandbox import EXTRA_BYTES, Case, Outcome, run_cases
from torture._settings import TEXTS, as_json, as_yaml, changes
from torture._sources import FC, SOURCES, Files, Source, encoded, files_of, put, regions_table
from torture.promise import Promise

ODD_VALUES = 7  # values for every option
SOURCE_FILES = files_of(SOURCES["npy"].write)
BESIDE = (
    "xcpd motion",
    "xcpd quality",
    "4S table",
    "cpac motion",
    "confounds",
)  # tables beside the data: every other
SHARE = 4  # one torture runs every fourth case
SHORT = 24  # cases of the short form, spread evenly over all of them
Generator = np.random.Generator
Prepare = Callable[[Path, Generator], Sequence[str]]
Maker = tuple[
    str, Prepare, bool
]  # name, what writes the files and gives the arguments, whether it may work for long
Write = Callable[[Path, Generator], None]


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Every fourth case, beginning with the first to the fourth as the seed says; the short form: few."""
    preload()
    cases = all_cases(seed)
    numbers = range(seed % SHARE, len(cases), max(1, len(cases) // SHORT) if short else SHARE)
    outcomes = run_cases(cases, numbers, folder, jobs=usable_cores())
    return [_promise(outcomes, seed)]


def _promise(outcomes: Sequence[Outcome], seed: int) -> Promise:
    faults = [outcome for outcome in outcomes if outcome.fault]
    kinds = Counter(outcome.name.split(" · ")[0] for outcome in outcomes)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    hungriest = max(outcomes, key=lambda outcome: outcome.memory)
    measured = (
        f"{len(outcomes):,} cases ({', '.join(f'{n} of {kind}' for kind, n in kinds.items())}): {len(faults)} failed; "
        f"slowest {slowest.seconds:.1f} s ({slowest.name}), most memory {max(hungriest.memory, 0) / 2**20:.0f} MB "
        f"beyond twice the files ({hungriest.name})"
    )
    for outcome in faults[:10]:
        measured += f"; case {outcome.case} ({outcome.name}): {outcome.fault}"
    if faults:
        measured += f"; again with `python -m torture.fuzz --seed {seed} --case {faults[0].case} --keep FOLDER`"
    return Promise(
        f"bad input gives one sentence: no traceback, nothing that hangs, no memory beyond twice the files "
        f"plus {EXTRA_BYTES // 2**20} MB, no file outside the output folder",
        re.sub(r"\s+", " ", measured).replace("|", "/"),
        not faults,
    )


def preload() -> None:
    """Import what the commands import, once for all processes; one thread, since a fork waits for its parent's."""
    import nilearn.maskers  # noqa: F401
    import scipy.io  # noqa: F401
    import torch

    import nerve.cli
    import nerve.data.readers.ingesting
    import nerve.interpret
    import nerve.methods.runs
    import nerve.report.page  # noqa: F401

    torch.set_num_threads(1)


def all_cases(seed: int) -> list[Case]:
    """Every case, in an order that does not depend on the seed; each has a generator of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        makers = [*_reader_cases(), *_own_cases(), *_settings_cases(), *_option_cases()]
    return [
        Case(name, _seeded(prepare, seed, number), may)
        for number, (name, prepare, may) in enumerate(makers)
    ]


def _seeded(prepare: Prepare, seed: int, number: int) -> Callable[[Path], Sequence[str]]:
    return lambda folder: prepare(folder, np.random.default_rng([seed, number]))


def damages(kind: str, name: str) -> Iterator[tuple[str, Callable[..., bytes]]]:
    """Everything that can be done to a file of a kind: names, and functions of its bytes and a generator."""
    yield from BYTES.items()
    if kind in ("text", "gz"):
        yield from TEXT.items()
    if kind == "npy":
        yield from (
            (f"header: {what}", lambda c, r, content=content: content)
            for what, content in LYING_NPY.items()
        )
    if kind not in ("npy", "npz", "mat5", "hdf5", "nifti", "cifti"):
        return
    ending = "corrMat" if "corrMat" in name else "." + name.partition(".")[2]
    for what in _other_arrays(
        kind
    ):  # where a format cannot hold such an array, the sound one stays
        yield f"array: {what}", lambda c, r, what=what: _holding(kind, ending, what) or c


@cache
def _other_arrays(kind: str) -> dict[str, Any]:
    """Arrays that a file of a kind may hold instead of its own."""
    return arrays(FC[2], np.random.default_rng(0)) | (NUMPY_ONLY if kind in ("npy", "npz") else {})


@cache
def _holding(kind: str, ending: str, what: str) -> bytes:
    """A file of a kind with one of those arrays; made when a case needs it, since few of all cases are run."""
    with contextlib.suppress(Exception):
        return encoded(kind, _other_arrays(kind)[what], f"x{ending}")
    return b""


def damaged_files(files: Files, ending: str, kind: str) -> Iterator[tuple[str, Write]]:
    """Names of damages, and functions that write the files of a source with one of them damaged."""
    name = next(name for name in sorted(files) if name.endswith(ending))

    def changed(change: Callable[..., bytes]) -> Write:
        return lambda folder, rng: put(folder, files | {name: change(files[name], rng)})

    def taken(how: str) -> Write:
        return lambda folder, rng: (put(folder, files), replaced(folder / name, how))[0]

    for what, change in damages(kind, name):
        yield what, changed(change)
    for how in INSTEAD:
        yield f"instead: {how}", taken(how)


def _reader_cases() -> Iterator[Maker]:
    for layout, source in SOURCES.items():
        found = list(damaged_files(files_of(source.write), source.damaged, source.kind))
        for what, write in found[:: 2 if layout in BESIDE else 1]:
            yield f"readers · {layout} · {what}", _ingest(write, source), False


def _ingest(write: Write, source: Source) -> Prepare:
    regions = regions_table()

    def prepare(folder: Path, rng: Generator) -> list[str]:
        write(folder / "in/source", rng)
        (folder / "in/regions.tsv").write_bytes(regions)
        options = [word.format(source=folder / "in/source") for word in source.options]
        places = [
            folder / "in/source",
            folder / "out/cohort",
            "--parcellation",
            folder / "in/regions.tsv",
        ]
        return ["ingest", *map(str, places), *options]

    return prepare


# file to damage, its kind, which parts of `made` the command needs, and the command
OWN_FILES: list[tuple[str, str, str, tuple[str, ...], str]] = [
    ("tables", "table.csv", "text", ("table.csv", "cohort"), "ingest {in}/source {out}/new --parcellation "
     "{in}/cohort/regions.tsv --participants {in}/table.csv"),
    ("tables", "cohort/participants.tsv", "text", ("cohort",), "ingest {in}/source {out}/new --parcellation "
     "{in}/cohort/regions.tsv --participants {in}/cohort/participants.tsv --columns age=age,site=site"),
    ("tables", "cohort/regions.tsv", "text", ("cohort",), "ingest {in}/source {out}/new --parcellation "
     "{in}/cohort/regions.tsv"),
    ("tables", "cohort/regions.tsv", "text", ("cohort",), "atlas show {in}/cohort/regions.tsv"),
    ("tables", "features.tsv", "text", ("features.tsv", "cohort"), "evaluate {in}/cohort --targets age --out {out}/new "
     "--n-folds 2 --n-bootstrap 10 --features {in}/features.tsv"),
    ("stores", "cohort/cohort.json", "json", ("cohort",), "check {in}/cohort"),
    ("stores", "cohort/participants.tsv", "text", ("cohort",), "check {in}/cohort --out {out}/check.tsv"),
    ("stores", "cohort/participants.tsv", "text", ("cohort",), "evaluate {in}/cohort --targets age,sex --covariates "
     "site --groups family --out {out}/new --n-folds 2 --n-bootstrap 10"),
    ("stores", "cohort/regions.tsv", "text", ("cohort", "run"), "embed {in}/run {in}/cohort {out}/new.tsv"),
    ("stores", "cohort/connectivity.npy", "npy", ("cohort",), "check {in}/cohort"),
    ("stores", "cohort/connectivity.npy", "npy", ("cohort",), "evaluate {in}/cohort --targets age --out {out}/new "
     "--n-folds 2 --n-bootstrap 10 --features raw,pca"),
    ("stores", "cohort/timeseries.npy", "npy", ("cohort",), "check {in}/cohort"),
    ("stores", "cohort/timeseries.tsv", "text", ("cohort",), "check {in}/cohort"),
    ("stores", "cohort/exclusions.tsv", "text", ("cohort",), "check {in}/cohort"),
    ("models", "run/config.json", "json", ("cohort", "run"), "embed {in}/run {in}/cohort {out}/new.tsv"),
    ("models", "run/model.safetensors", "safetensors", ("cohort", "run"), "embed {in}/run {in}/cohort {out}/new.npy"),
    ("models", "run/history.tsv", "text", ("cohort", "run"), "embed {in}/run {in}/cohort {out}/new.tsv"),
    ("models", "run/last.safetensors", "safetensors", ("cohort", "out", "run"), "pretrain {in}/cohort --out {out}/run "
     "--resume"),
    ("models", "run/config.yaml", "json", ("cohort", "out", "run"), "pretrain {in}/cohort --out {out}/run --resume"),
    ("models", "run/history.tsv", "text", ("cohort", "out", "run"), "pretrain {in}/cohort --out {out}/run --resume"),
    ("models", "probe/probe.json", "json", ("cohort", "probe"), "predict {in}/probe {in}/cohort {out}/new.tsv"),
    ("models", "probe/probe.safetensors", "safetensors", ("cohort", "probe"), "predict {in}/probe {in}/cohort "
     "{out}/new.tsv"),
    ("results", "study/experiment.yaml", "json", ("study", "cohort"), "experiment --status {in}/study"),
    ("results", "study/inputs.json", "json", ("study", "cohort"), "experiment --status {in}/study"),
    ("results", "manifest.json", "json", ("study", "cohort"), "experiment --status {in}/study"),
]  # fmt: skip
REPORTED = {  # a report draws figures for a second: fewer cases
    "results/": ("rows.tsv", "scores.tsv", "predictions.tsv", "comparisons.tsv", "folds.tsv", "protocol.json"),
    "study/": ("scores.tsv", "predictions.tsv", "runs.tsv", "manifest.json", "history.tsv", "reconstruction.npz",
               "reconstruction.json"),
    "run/": ("config.json", "history.tsv"),
}  # fmt: skip


def _own_cases() -> Iterator[Maker]:
    """Damaged files of our own: tables, stores, models and results."""
    files = made()
    for family, ending, kind, parts, command in OWN_FILES:
        label = f"{family} · {command.split()[0]} {ending}"
        for what, change in damages(kind, ending):
            yield (
                f"{label} · {what}",
                _command(files, ending, change, parts, command),
                "pretrain" in command,
            )
    for folder, endings in REPORTED.items():
        for ending in endings:
            if not any(name.startswith(folder) and name.endswith(ending) for name in files):
                continue  # so few participants leave no example of a reconstruction
            kind = "text" if ending.endswith(".tsv") else "json"
            for what, change in list(damages(kind, ending))[:: 13 if kind == "json" else 29]:
                prepare = _command(
                    files, ending, change, (folder, "cohort", "copy"), "report {out}/" + folder
                )
                yield f"results · report {folder}{ending} · {what}", prepare, False
    for name, written in (("results/protocol.json", as_json), ("study/protocol.json", as_json)):
        folder = name.split("/")[0] + "/"
        for what, change in list(changes(yaml.safe_load(files[name]), 1))[::11]:
            rewritten = partial(_rewritten, change, written)
            prepare = _command(
                files, name, rewritten, (folder, "cohort", "copy"), "report {out}/" + folder
            )
            yield f"results · report {name} · {what}", prepare, False


def _rewritten(
    change: Callable[[Generator], Any], written: Callable[[Any], bytes], _: bytes, rng: Generator
) -> bytes:
    """Settings with something changed, as a file."""
    return written(change(rng))


def _command(
    files: Files, ending: str, change: Callable[..., bytes], parts: tuple[str, ...], command: str
) -> Prepare:
    """Write what a command needs, one file damaged; a run or report that is written to lies in the output folder."""
    inside = {name: text for name, text in files.items() if name.startswith(parts)}
    first = tuple(part for part in parts if part not in ("out", "copy", "cohort"))
    name = next(
        name
        for name in inside
        if name.endswith(ending) and (name.startswith(first) or not first or "cohort" in ending)
    )

    def prepare(folder: Path, rng: Generator) -> list[str]:
        put_here(folder / "in", inside | {name: change(inside[name], rng)}, "")
        for place in first if {"out", "copy"} & set(parts) else ():
            shutil.move(folder / "in" / place, folder / "out" / place)
        if "source" in command:
            put(folder / "in/source", SOURCE_FILES)
        return _words(command, folder)

    return prepare


def _words(command: str | Sequence[str], folder: Path) -> list[str]:
    words = command.split() if isinstance(command, str) else command
    return [
        word.replace("{in}", str(folder / "in")).replace("{out}", str(folder / "out"))
        for word in words
    ]


SETTINGS = {
    "small.yaml": ("pretrain {in}/cohort --out {out}/run --preset small --config {in}/small.yaml", as_yaml, 3),
    "study.yaml": ("experiment {in}/study.yaml --out {out}/study --dry-run", as_yaml, 2),
    "run/config.json": ("embed {in}/run {in}/cohort {out}/new.tsv", as_json, 1),
    "cohort/cohort.json": ("evaluate {in}/cohort --targets age --out {out}/new --n-folds 2 --n-bootstrap 9",
                           as_json, 4),
    "columns.yaml": ("ingest {in}/source {out}/new --parcellation {in}/cohort/regions.tsv --participants "
                     "{in}/table.csv --columns {in}/columns.yaml", as_yaml, 5),
}  # fmt: skip


def _settings_cases() -> Iterator[Maker]:
    """Settings with every value changed, and YAML at its worst."""
    files = made() | {"columns.yaml": as_yaml({"age": "age", "site": "site"})}
    for name, (command, written, each) in SETTINGS.items():
        content = yaml.safe_load(files[name])
        may_work = command.startswith(("pretrain", "experiment"))
        for what, change in changes(content, each):
            prepare = _with_settings(
                files,
                name,
                command,
                lambda rng, change=change, written=written: written(change(rng)),
            )
            yield f"settings · {name} · {what}", prepare, may_work
        key = next(iter(content))
        texts = {
            what: text.replace("{{", "{").replace("}}", "}").replace("{key}", key)
            for what, text in TEXTS.items()
        }
        for what, text in texts.items():
            prepare = _with_settings(files, name, command, lambda rng, text=text: text.encode())
            yield f"settings · {name} · {what}", prepare, may_work
        for what, damage in BYTES.items():
            prepare = _with_settings(
                files, name, command, lambda rng, damage=damage, name=name: damage(files[name], rng)
            )
            yield f"settings · {name} · {what}", prepare, may_work


def _with_settings(
    files: Files, name: str, command: str, text: Callable[[Generator], bytes]
) -> Prepare:
    def prepare(folder: Path, rng: Generator) -> list[str]:
        put_here(folder / "in", files | {name: text(rng)}, "cohort", "run", "table.csv", name)
        put(folder / "in/source", SOURCE_FILES)
        return _words(command, folder)

    return prepare


def _option_cases() -> Iterator[Maker]:
    """Every option of every command with values that it does not expect."""
    files = made()
    for name, words, may_work in odd_lines(ODD_VALUES):

        def prepare(folder: Path, rng: Generator, words: list[str] = words) -> list[str]:
            put_here(folder / "in", files, "cohort", "run", "probe", "small.yaml", "study.yaml")
            put(folder / "in/source", SOURCE_FILES)
            odd_places(folder)
            return _words(words, folder)

        yield f"options · {name}", prepare, may_work


def main() -> None:
    """Run some cases again and say what became of them, or write the files of one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, nargs="*", help="numbers")
    parser.add_argument("--some", default="", help="the cases whose name holds this")
    parser.add_argument(
        "--keep", type=Path, help="only write the files of the case here, and say the command"
    )
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    preload()
    cases = all_cases(arguments.seed)
    numbers = arguments.case or [i for i, case in enumerate(cases) if arguments.some in case.name]
    if arguments.keep:
        folder = arguments.keep.resolve() / f"case-{numbers[0]}"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("in", "out"):
            (folder / name).mkdir(parents=True)
        print("nerve", *map(repr, cases[numbers[0]].prepare(folder)))
        return

    def tell(outcome: Outcome) -> None:
        if outcome.fault or len(numbers) < 20:
            said = outcome.said if len(numbers) < 20 else ""
            print(
                f"{outcome.case} {outcome.name}\n    {outcome.fault or 'passed'}\n    {outcome.command[:300]}\n{said}"
            )

    with tempfile.TemporaryDirectory() as temporary:
        outcomes = run_cases(cases, numbers, Path(temporary), arguments.jobs, tell)
    print(_promise(outcomes, arguments.seed))


if __name__ == "__main__":
    main()
