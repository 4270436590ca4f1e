"""People whose ids, dates and files carry a mark, through every command: where does the mark come out?

Tables of people hold ids by design (`OF_PEOPLE`); everything else that a command writes or says may be shared.
"""

import multiprocessing
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from safetensors.numpy import load_file

from nerve.cli import main
from nerve.data.cohort import Cohort
from torture.promise import Promise

N, R = 40, 12
MARK, DATE = (
    "ZQX",
    "1987-06-05",
)  # ids and folders begin with the one, everyone was scanned on the other
NUMBER = 914270000  # every second id is a number from here on
# what holds ids by design: the cohort itself and tables with one row a person
OF_PEOPLE = (
    "cohort/*",
    "broken/*",
    "embeddings.tsv",
    "*/predictions.tsv",
    "*/folds.tsv",
    "*/parts/*",
)
# the record of a run that failed names whose data were at fault; the report of it does not
OF_PEOPLE += ("failed/runs.tsv", "failed/runs/*/manifest.json")
# records of where the cohorts are, so that work can go on and reports find them: folders, but nobody's id or date
OF_PATHS = (
    "evaluated/inputs.json",
    "evaluated/experiment.yaml",
    "experiment/experiment.yaml",
    "failed/experiment.yaml",
)
METHOD = {"epochs": 1, "dim": 16, "depth": 1, "batch_size": 16}


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Every command at its defaults, then a search of all that was written and said."""
    began = time.perf_counter()
    home = folder / f"{MARK}home of mine"  # with blanks, as many folders have them
    source, work = home / f"{MARK}study two", home / f"{MARK}work"
    work.mkdir(parents=True)
    write_people(source, seed)
    said = run_commands(commands(source, work, short), work)
    refused = run_commands(failing(work), work)  # says whose data are at fault, as it should
    found = {}
    for file in files(work):
        name = str(file.relative_to(work))
        found[name] = list(marks(readable(file), home, folders=name not in OF_PATHS))
    shared = {name: hits for name, hits in found.items() if not of_people(name)}
    leaks = [f"{name} holds {hits[0]!r}" for name, hits in shared.items() if hits]
    spoken = sorted(set(marks(said, home, folders=False)))
    failed = [line for line in said.splitlines() if line.startswith("ended with")]
    lines = len(said.splitlines())
    checked = sum(bool(hits) for name, hits in found.items() if of_people(name))
    measured = (
        f"{len(shared)} files searched in {time.perf_counter() - began:.0f} s; "
        f"{checked} tables of participants do hold ids, as they should"
    )
    return [
        Promise(
            "Reports, tables of results, figures, models and records name no participant, date or folder",
            "; ".join([measured, *leaks[:10], *failed]),
            not leaks and not failed and checked > 3 and "ended with 1" in refused,
        ),
        Promise(
            "What the commands say when all is well names no participant or date",
            f"{lines} lines" + "".join(f"; says {word!r}" for word in spoken[:5]),
            not spoken and lines > 10,
        ),
        recognised(work),
    ]


def recognised(work: Path) -> Promise:
    """Look for each participant's FC in every array of every model folder, and in what is left of two means."""
    cohort = Cohort.load(work / "cohort")
    above = np.triu_indices(cohort.n_regions, 1)
    people = np.stack([np.asarray(one)[above] for one in cohort.connectivity])
    troubles, n_arrays = [], 0
    for model in (path.parent for path in sorted(work.rglob("model.safetensors"))):
        vectors = {}
        for name, array in arrays(model):
            n_arrays += 1
            if len(cohort) in array.shape:
                troubles.append(f"{name} has a row per participant")
            square = array.shape[-2:] == (cohort.n_regions,) * 2
            flat = array[..., *above] if square else array
            if flat.shape[-1:] == above[0].shape:
                vectors |= {
                    f"{name} {i}": one for i, one in enumerate(flat.reshape(-1, len(above[0])))
                }
        pairs = [
            (f"{a} less {b}", vectors[a] - vectors[b]) for a in vectors for b in vectors if a < b
        ]
        for name, vector in [*vectors.items(), *pairs]:
            if vector.std() > 0 and np.corrcoef(vector, people)[0, 1:].max() > 0.9:
                troubles.append(f"a participant is recognised by {name}")
    return Promise(
        "No participant's FC is in a model folder, nor left when one of its means is subtracted from another",
        f"{n_arrays} arrays, {len(people)} participants"
        + "".join(f"; {trouble}" for trouble in troubles[:5]),
        not troubles and n_arrays > 20,
    )


def arrays(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every array of numbers in a folder and below."""
    for file in sorted(folder.rglob("*")):
        content: Any = {}
        if file.suffix == ".safetensors":
            content = load_file(file)
        elif file.suffix in (".npz", ".npy"):
            opened = np.load(file)
            content = opened if file.suffix == ".npz" else {"": opened}
        for name in content:
            yield (
                f"{file.parent.name}/{file.name}:{name}",
                np.nan_to_num(np.asarray(content[name], float)),
            )


def write_people(source: Path, seed: int) -> None:
    """One matrix a person, whose name and folder are marked, and a table with a date for everyone."""
    rng = np.random.default_rng(seed)
    source.mkdir(parents=True)
    ids = [f"{MARK}person{i:03}" if i % 2 else str(NUMBER + i) for i in range(N)]
    for person in ids:
        if person == ids[5]:  # cannot be read: left out, with a sentence
            (source / f"{person}_{DATE}.csv").write_text("1,2\n3\n")
            continue
        np.savetxt(
            source / f"{person}_{DATE}.csv", np.corrcoef(rng.normal(size=(R, 60))), delimiter=","
        )
    pd.DataFrame({"label": [f"r{i}" for i in range(R)], "network": list("ABC") * (R // 3)}).to_csv(
        source.parent / "regions.tsv", sep="\t", index=False
    )
    people = pd.DataFrame({"participant_id": ids, "age": rng.uniform(8, 20, N), "acq_time": DATE})
    people = people.assign(
        sex=rng.choice(["F", "M"], N), score=rng.normal(size=N), mean_fd=rng.gamma(2, 0.1, N)
    )
    people.loc[3, "score"] = np.nan
    people.to_csv(source.parent / "participants.tsv", sep="\t", index=False)


def commands(source: Path, work: Path, short: bool) -> list[list[str]]:
    """From raw files to reports."""
    sets = [word for name, value in METHOD.items() for word in ("--set", f"{name}={value}")]
    experiment = {
        "name": "marked", "parcellation": "../regions.tsv", "preset": "small", "device": "cpu", "interpret": not short,
        "cohorts": {"marked": {"path": str(work / "cohort"), "targets": ["score", "sex"], "covariates": ["age"]}},
        "methods": [{"method": "raw"}, {"method": "nerve", "settings": METHOD}],
        "protocol": {"n_folds": 3, "n_bootstrap": 50},
    }  # fmt: skip
    (work / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    cohorts = {
        name: {"path": str(work / name), "targets": ["score"]} for name in ("cohort", "broken")
    }
    failing = {"interpret": False, "cohorts": cohorts, "methods": [{"method": "raw"}]}
    (work / "failing.yaml").write_text(yaml.safe_dump(experiment | failing))
    table, regions = str(source.parent / "participants.tsv"), str(source.parent / "regions.tsv")
    found = [
        ["ingest", str(source), "cohort", "--participants", table, "--parcellation", regions, "--name", "marked"],
        ["check", "cohort", "--out", "check.tsv"],
        ["pretrain", "cohort", "--out", "model", "--preset", "small", "--device", "cpu", *sets],
        ["embed", "model", "cohort", "embeddings.tsv", "--device", "cpu"],
        ["evaluate", "cohort", "--targets", "score,sex", "--covariates", "age", "--features", "raw,model", "--out",
         "evaluated", "--n-folds", "3", "--n-bootstrap", "50"],
        ["report", "model"],
        ["experiment", "experiment.yaml", "--out", "experiment", "--jobs", "1"],
    ]  # fmt: skip
    more = [
        ["report", "evaluated"],
        ["interpret", "model", "cohort", "--targets", "score", "--n-folds", "3"],
    ]
    return found if short else [*found, *more]


def failing(work: Path) -> list[list[str]]:
    """An experiment on a cohort with a matrix that cannot be used."""
    shutil.copytree(work / "cohort", work / "broken")
    matrices = np.load(work / "broken" / "connectivity.npy")
    matrices[7, 2, 3] = np.nan
    np.save(work / "broken" / "connectivity.npy", matrices)
    return [["experiment", "failing.yaml", "--out", "failed", "--jobs", "1"]]


def run_commands(words: list[list[str]], work: Path) -> str:
    """Run them one after another in a process forked from this one; what they said on both streams."""
    log = work.parent / "said"
    process: Any = multiprocessing.get_context("fork").Process(target=_say, args=(words, work, log))
    process.start()
    process.join(300)
    if process.exitcode is None:
        process.kill()
    return log.read_text() + ("" if process.exitcode == 0 else f"\nended with {process.exitcode}")


def _say(words: list[list[str]], work: Path, log: Path) -> None:
    """The commands, in a folder, with both streams in a file."""
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1), os.dup2(stream, 2)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115  pytest has its own
    os.environ["COLUMNS"] = "200"
    os.chdir(work)
    for one in words:
        sys.argv = ["nerve", *one]
        print("$ nerve", one[0], flush=True)
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                print(f"ended with {ended.code}", flush=True)


def files(work: Path) -> Iterator[Path]:
    """All files, hidden ones too."""
    given = (work / "experiment.yaml", work / "failing.yaml")
    yield from (path for path in sorted(work.rglob("*")) if path.is_file() and path not in given)


def readable(file: Path) -> str:
    """A file as text: with its name, and with the compressed texts of a PNG opened."""
    content = file.read_bytes()
    parts = [file.name.encode(), content]
    for start in (found.end() for found in re.finditer(b"(?:zTXt|iTXt)", content)):
        for skip in range(start, min(start + 90, len(content))):
            try:
                parts.append(zlib.decompressobj().decompress(content[skip:]))
                break
            except zlib.error:
                continue
    return b"\n".join(parts).decode("utf-8", "replace")


def marks(text: str, home: Path, folders: bool = True) -> Iterator[str]:
    """Ids, dates and folders of people in a text."""
    yield from re.findall(rf"{MARK}person\d+", text, re.IGNORECASE)
    yield from re.findall(rf"\b{str(NUMBER)[:6]}\d{{3}}\b", text)
    yield from (found for found in (DATE, DATE.replace("-", "")) if found in text)
    if folders:
        yield from (
            found for found in (f"{MARK}study", f"{MARK}home", str(home.parent)) if found in text
        )


def of_people(name: str) -> bool:
    """Whether a file holds ids by design."""
    return any(Path(name).match(pattern) for pattern in OF_PEOPLE)
