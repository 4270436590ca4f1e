"""Random bad input: a right result, or one sentence; never a traceback, nothing left behind.

Hypothesis damages files and values, few times in `make test` and many times in `make torture` (its profile
`torture`). Each command runs in a process of its own, which `torture._sandbox` watches.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torture._commands import (
    LARGE,
    OUTPUTS,
    WORDS,
    command_line,
    commands,
    make_odd_places,
    working_arguments,
)
from torture._damage import changed_settings, damages
from torture._layouts import LAYOUTS, files_of, put, regions_table
from torture._sandbox import Case, preload, run_cases
from torture._sound_files import put_here, sound_files

from nerve.data.cohort import Cohort
from torture import bad_input

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("made")]

IN_TORTURE = settings.get_current_profile_name() == "torture"


def tried(few: int, many: int):
    """So many examples in `make test` and in `make torture`; only the latter differ from run to run."""
    if IN_TORTURE:
        phases = (Phase.explicit, Phase.generate)
        return settings(max_examples=many, phases=phases, database=None)
    return settings(
        max_examples=few, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )


@pytest.fixture(scope="module", autouse=True)
def everything_imported():
    preload()


def run(case: Case) -> None:
    """Run a command in a watched process; fails with what the process did wrong."""
    with tempfile.TemporaryDirectory() as folder:
        [outcome] = run_cases([case], [0], Path(folder).resolve(), jobs=1)
    assert not outcome.fault, f"{outcome.fault}\n{outcome.command}\n{outcome.output}"


def filled_in(words: str | list[str], folder: Path) -> list[str]:
    """A command line with the folders of a case."""
    words = words.split() if isinstance(words, str) else words
    places = {"{in}": str(folder / "in"), "{out}": str(folder / "out")}
    for mark, place in places.items():
        words = [word.replace(mark, place) for word in words]
    return words


# ---- layouts of `nerve ingest`


@cache
def layout_files(name: str) -> dict[str, bytes]:
    return files_of(LAYOUTS[name].write)


def damaged_name(name: str) -> str:
    return next(path for path in sorted(layout_files(name)) if path.endswith(LAYOUTS[name].damaged))


def cohort_is_usable(folder: Path) -> str:
    """What is wrong with the cohort that was written, if there is one."""
    place = folder / "out" / "cohort"
    if not place.exists():
        return ""
    fc = np.asarray(Cohort.load(place).connectivity, float)
    if not np.isfinite(fc).all():
        return "the cohort has FC that is not finite"
    if not np.allclose(fc, fc.transpose(0, 2, 1), atol=1e-6):
        return "the cohort has FC that is not symmetric"
    if np.abs(fc).max() > 1 + 1e-6:
        return "the cohort has correlations above 1"
    return ""


def ingest_case(name: str, damage) -> Case:
    def prepare(folder: Path) -> list[str]:
        source = folder / "in" / "source"
        put(source, layout_files(name))
        damage(source / damaged_name(name))
        (folder / "in" / "regions.tsv").write_bytes(regions_table())
        options = [word.format(source=source) for word in LAYOUTS[name].options]
        words = "ingest {in}/source {out}/cohort --parcellation {in}/regions.tsv"
        return [*filled_in(words, folder), *options]

    return Case(name, prepare, check=cohort_is_usable)


@pytest.mark.parametrize("name", LAYOUTS)
@tried(few=2, many=12)
@given(data=st.data())
def test_a_damaged_source_is_read_right_or_refused(name, data):
    file = damaged_name(name)
    content, file_type = layout_files(name)[file], LAYOUTS[name].file_type
    strategy = damages(content, file_type, Path(file).name, not_files=True)
    run(ingest_case(name, data.draw(strategy, label="damage")))


# ---- files that nerve wrote: tables, cohorts, models, results

INGEST = "ingest {in}/source {out}/new --parcellation {in}/cohort/regions.tsv"
EVALUATE = "evaluate {in}/cohort --targets age --out {out}/new --n-folds 2 --n-bootstrap 10"
EMBED = "embed {in}/run {in}/cohort {out}/new.tsv"
RESUME = "pretrain {in}/cohort --out {out}/run --resume"
PREDICT = "predict {in}/probe {in}/cohort {out}/new.tsv"

# the damaged file, its type, and the command that reads it; folders below {out} are moved there first
OWN_FILES = [
    ("table.csv", "text", f"{INGEST} --participants {{in}}/table.csv"),
    ("cohort/participants.tsv", "text", f"{INGEST} --participants {{in}}/cohort/participants.tsv"),
    ("cohort/regions.tsv", "text", INGEST),
    ("cohort/regions.tsv", "text", "atlas show {in}/cohort/regions.tsv"),
    ("cohort/regions.tsv", "text", EMBED),
    ("features.tsv", "text", f"{EVALUATE} --features {{in}}/features.tsv"),
    ("cohort/cohort.json", "json", "check {in}/cohort"),
    ("cohort/participants.tsv", "text", "check {in}/cohort --out {out}/check.tsv"),
    ("cohort/participants.tsv", "text", f"{EVALUATE} --covariates site --groups family"),
    ("cohort/connectivity.npy", "npy", "check {in}/cohort"),
    ("cohort/connectivity.npy", "npy", f"{EVALUATE} --features raw,pca"),
    ("cohort/timeseries.npy", "npy", "check {in}/cohort"),
    ("cohort/timeseries.tsv", "text", "check {in}/cohort"),
    ("cohort/exclusions.tsv", "text", "check {in}/cohort"),
    ("run/config.json", "json", EMBED),
    ("run/model.safetensors", "safetensors", EMBED),
    ("run/history.tsv", "text", EMBED),
    ("run/last.safetensors", "safetensors", RESUME),
    ("run/config.yaml", "json", RESUME),
    ("run/history.tsv", "text", RESUME),
    ("probe/probe.json", "json", PREDICT),
    ("probe/probe.safetensors", "safetensors", PREDICT),
    ("study/experiment.yaml", "json", "experiment --status {in}/study"),
    ("study/inputs.json", "json", "experiment --status {in}/study"),
    ("results/rows.tsv", "text", "report {out}/results"),
    ("results/scores.tsv", "text", "report {out}/results"),
    ("results/predictions.tsv", "text", "report {out}/results"),
    ("results/comparisons.tsv", "text", "report {out}/results"),
    ("results/folds.tsv", "text", "report {out}/results"),
    ("results/protocol.json", "json", "report {out}/results"),
    ("study/scores.tsv", "text", "report {out}/study"),
    ("study/runs.tsv", "text", "report {out}/study"),
    ("run/config.json", "json", "report {out}/run"),
    ("run/history.tsv", "text", "report {out}/run"),
]


def own_case(file: str, command: str, change) -> Case:
    files = sound_files()

    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", files, "")
        put(folder / "in" / "source", layout_files("npy"))
        change(folder / "in" / file)
        top = file.split("/")[0]
        if f"{{out}}/{top}" in command:
            shutil.move(folder / "in" / top, folder / "out" / top)
        return filled_in(command, folder)

    return Case(file, prepare, may_work=command.startswith(("pretrain", "experiment")))


@pytest.mark.parametrize(
    ("file", "file_type", "command"), OWN_FILES, ids=lambda value: value.split()[0]
)
@tried(few=2, many=10)
@given(data=st.data())
def test_a_damaged_file_of_ours_is_refused(file, file_type, command, data):
    strategy = damages(sound_files()[file], file_type, Path(file).name)
    run(own_case(file, command, data.draw(strategy, label="damage")))


# ---- settings

COLUMNS = f"{INGEST} --participants {{in}}/table.csv --columns {{in}}/columns.yaml"
SETTINGS = {
    "small.yaml": "pretrain {in}/cohort --out {out}/run --preset small --config {in}/small.yaml",
    "study.yaml": "experiment {in}/study.yaml --out {out}/study --dry-run",
    "columns.yaml": COLUMNS,
    "run/config.json": EMBED,
    "cohort/cohort.json": EVALUATE,
    "results/protocol.json": "report {out}/results",
}


@pytest.mark.parametrize("file", SETTINGS)
@tried(few=4, many=30)
@given(data=st.data())
def test_changed_settings_are_refused(file, data):
    content = sound_files().get(file, b"age: age\nsite: site\n")
    change = data.draw(changed_settings(content, file), label="change")

    def write_and_change(path: Path) -> None:
        path.write_bytes(path.read_bytes() if path.exists() else content)
        change(path)

    run(own_case(file, SETTINGS[file], write_and_change))


# ---- options of the command line

COMMANDS = dict(commands())


def option_case(name: str, words: list[str], may_work: bool) -> Case:
    def prepare(folder: Path) -> list[str]:
        put_here(folder / "in", sound_files(), "cohort", "run", "probe", "small.yaml", "study.yaml")
        put(folder / "in" / "source", layout_files("npy"))
        make_odd_places(folder)
        return filled_in(words, folder)

    return Case(name, prepare, may_work)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sound_command_line_works(name):
    parameters = COMMANDS[name].params
    run(option_case(name, command_line(name, parameters, working_arguments(name)), name == "demo"))


@pytest.mark.parametrize("name", COMMANDS)
@tried(few=3, many=20)
@given(data=st.data())
def test_odd_values_of_options_are_refused(name, data):
    """Parameters are found by walking the command line: a new one is tried without being listed."""
    parameters = [parameter for parameter in COMMANDS[name].params if parameter.name != "help"]
    values = dict(working_arguments(name))
    may_work = name in ("demo", "pretrain")
    extra = data.draw(st.sampled_from([[], [], [], ["--no-such-option", "1"], ["word"] * 50]))
    if parameters:
        parameter = data.draw(st.sampled_from(parameters), label="parameter")
        may_work = may_work or parameter.name in LARGE
        # An option that is left out falls back on a folder of the user, or on a long demo.
        may_be_missing = name not in ("demo", "interpret") and parameter.name != "dry_run"
        if may_be_missing and data.draw(st.integers(0, 9)) == 0:
            values.pop(parameter.name, None)
        else:
            words = OUTPUTS if parameter.name == "out" else WORDS
            # No command line can hold NUL, and only a sampled word stays inside the output folder.
            printable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"))
            value = st.sampled_from(words)
            value = value if parameter.name == "out" else value | printable
            values[parameter.name] = data.draw(value, label="value")
    run(option_case(name, [*command_line(name, parameters, values), *extra], may_work))


# ---- the judges


def test_an_unusable_cohort_is_noticed(tmp_path):
    cohort = tmp_path / "out" / "cohort"
    put_here(tmp_path / "out", sound_files(), "cohort")
    assert cohort_is_usable(tmp_path) == ""
    matrices = np.load(cohort / "connectivity.npy")
    matrices[0, 0, 1] = 0.9
    np.save(cohort / "connectivity.npy", matrices)
    assert "not symmetric" in cohort_is_usable(tmp_path)
    matrices[0, 1, 0] = 0.9
    matrices[1, 2, 3] = matrices[1, 3, 2] = 1.5
    np.save(cohort / "connectivity.npy", matrices)
    assert "above 1" in cohort_is_usable(tmp_path)


def test_examples_and_failures_are_counted():
    header = "tests/torture/test_bad_input.py::test_changed_settings_are_refused[study.yaml]:"
    lines = [header, "    - 28 passing, 1 failing, and 0 invalid test cases"]
    kept = bad_input.make_promise("\n".join(lines), exit_code=0)
    assert kept.kept
    assert kept.measured == "29 random examples (29 of settings): 0 tests failed"
    failure = "FAILED tests/torture/test_bad_input.py::test_changed_settings_are_refused[x] - Error"
    broken = bad_input.make_promise("\n".join([*lines, failure]), exit_code=1)
    assert not broken.kept
    assert "1 tests failed: test_changed_settings_are_refused[x]" in broken.measured
    assert not bad_input.make_promise("no tests ran", exit_code=0).kept


def test_every_test_with_examples_is_counted():
    with_examples = {name for name, test in globals().items() if hasattr(test, "hypothesis")}
    assert with_examples == set(bad_input.NAMES)
