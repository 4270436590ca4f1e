"""Every `nerve …` line of the documentation is run as it stands, in the order of its page, on small stand-ins.

Words are never changed. What makes commands quick is around them: presets of one epoch, few participants. A
line that is not run stands in `NOT_RUN` with the reason. Figures are drawn by tests/report.
"""

import shlex
import shutil
import warnings

import pandas as pd
import pytest
from tests.promises import stand_ins
from tests.promises.conftest import N_SIMULATED
from tests.promises.documents import (
    PAGES,
    ROOT,
    blocks,
    in_one_epoch,
    nerve_commands,
    shell_commands,
)
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveWarning
from nerve.cli import app, bids
from nerve.methods.raw import RawFC

pytestmark = pytest.mark.slow
TRAVEL = ROOT / "docs/tutorials/train-here-use-there.md"
OWN = "docs/howto/bring-your-own-cohort/"
READERS = {
    "afni": stand_ins.afni, "connectomes": stand_ins.connectomes, "inside-files": stand_ins.inside_files,
    "micapipe": stand_ins.micapipe, "series-table": stand_ins.series_table, "measures": stand_ins.measures,
    "abide": stand_ins.abide, "bep017": stand_ins.bep017, "cbig": stand_ins.cbig, "cifti": stand_ins.cifti,
    "conn": stand_ins.conn, "cpac": stand_ins.cpac, "dpabi": stand_ins.dpabi, "edges": stand_ins.edges,
    "fisher-z": stand_ins.fisher_z, "fmriprep": stand_ins.fmriprep, "index": stand_ins.xcpd,
    "names": stand_ins.one_folder_each, "plain": stand_ins.plain, "stacks": stand_ins.stacks,
    "text": stand_ins.matrices, "ukb": stand_ins.ukb, "vectors": stand_ins.vectors, "xcpd": stand_ins.xcpd,
}  # fmt: skip
HOWTO = ("pretrain", "share-a-model", "evaluate", "interpret", "check", "run", "which-features", "simulate", "sites",
         "another-cohort", "fine-tuning")  # fmt: skip
NOT_RUN = {  # (page, words that it begins with or ends in) → why
    ("README.md", ""): "run by test_readme.py, section by section",
    ("docs/tutorials/get-started.md", ""): "run by test_readme.py, section by section",
    ("docs/howto/cluster.md", ""): "needs a cluster: test_slurm.py, test_processes.py",
    (
        "docs/howto/reproduce-the-paper.md",
        "experiment",
    ): "hours; tests/experiments/test_rehearse.py runs the rehearsal",
    (
        "docs/howto/pretrain.md",
        "--out runs/both --preset small",
    ): "torchrun: tests/training/test_processes.py",
}


def commands(page):
    """The lines of a page that are run here."""
    name = str(page.relative_to(ROOT))
    for words in nerve_commands(page.read_text(encoding="utf-8")):
        line = " ".join(words)
        if not any(
            name == where and (line.startswith(part) or line.endswith(part))
            for where, part in NOT_RUN
        ):
            yield words


def run(page):
    for words in commands(page):
        done = CliRunner().invoke(app, words)
        told = f"nerve {' '.join(words)}\n{done.output}\n{done.exception}"
        assert done.exit_code == 0, told


def test_every_page_is_run_or_has_a_reason_not_to_be():
    pages = {str(page.relative_to(ROOT)) for page in PAGES if list(commands(page))}
    run_here = {f"{OWN}{name}.md" for name in READERS} | {f"docs/howto/{name}.md" for name in HOWTO}
    others = {"docs/howto/reproduce-the-paper.md", "docs/any-atlas.md"}
    assert pages <= run_here | others | {str(TRAVEL.relative_to(ROOT))}
    for name, part in NOT_RUN:
        lines = [
            " ".join(words) for words in nerve_commands((ROOT / name).read_text(encoding="utf-8"))
        ]
        assert any(part in line for line in lines), f"{name} has no {part!r} any more"


@pytest.mark.parametrize("name", READERS)
def test_a_cohort_of_your_own_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    READERS[name](tmp_path)
    for words in commands(ROOT / OWN / f"{name}.md"):
        if words[0] == "ingest" and (tmp_path / words[2]).is_dir():
            shutil.rmtree(words[2])  # another way to make the same cohort
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"nerve {' '.join(words)}\n{done.output}\n{done.exception}"


def test_the_papers_cohorts_are_read_and_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stand_ins.paper(tmp_path)
    run(ROOT / "docs/howto/reproduce-the-paper.md")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One folder, in which the pages follow each other as a reader would take them."""
    folder = tmp_path_factory.mktemp("lab")
    stand_ins.cohorts(folder / "cohorts", ("ucla", "stages", "pnc", "abide", "new"))
    stand_ins.cohorts(folder / "cohorts", ("mine",), "schaefer400-17+aseg19", n=12)
    shutil.copytree(folder / "cohorts" / "ucla", folder / "cohort")
    people = pd.read_csv(folder / "cohorts" / "new" / "participants.tsv", sep="\t")
    people[["participant_id", "age"]].head(10).to_csv(folder / "labels.tsv", sep="\t", index=False)
    (folder / "mine.yaml").write_text("preset: small\n")
    return folder


def test_the_how_tos_run_one_after_another(lab, quick, monkeypatch):
    monkeypatch.chdir(lab)
    for name in HOWTO:
        run(ROOT / "docs" / "howto" / f"{name}.md")


def test_the_tutorial_of_three_atlases_runs_from_top_to_bottom(
    tmp_path, quick, undrawn, monkeypatch
):
    """With the labels that its `head` line takes from the table of participants."""
    monkeypatch.chdir(tmp_path)
    for words in commands(TRAVEL):
        if "--calibrate" in words:
            rows = (tmp_path / "cohorts/west/participants.tsv").read_text().splitlines()
            (tmp_path / "labels.tsv").write_text("\n".join(rows[:31]))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"nerve {' '.join(words)}\n{done.output}\n{done.exception}"
    assert len(pd.read_csv("west-features.tsv", sep="\t")) == N_SIMULATED
    assert pd.read_csv("calibrated.tsv", sep="\t")["calibrated_on"].any()
    # the command that it says is refused, with the sentence that it quotes
    [refused] = blocks(TRAVEL.read_text(encoding="utf-8"), "text")
    done = CliRunner().invoke(app, shlex.split(refused)[1:])
    last = "Nothing is resampled unasked. Add `--parcellation schaefer200-17` to the command"
    assert last in str(done.exception)
    assert last in TRAVEL.read_text(encoding="utf-8")


def test_the_python_of_the_tutorial_runs():
    [code] = blocks(TRAVEL.read_text(encoding="utf-8"), "python")
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(in_one_epoch(code), names)
    assert len(names["predictions"]) == len(names["west"])


def test_the_page_on_any_atlas_runs(tmp_path, quick, undrawn, monkeypatch):
    """Three cohorts of three atlases, with the columns that the page names."""
    monkeypatch.chdir(tmp_path)
    for name, atlas in {
        "abide": "cc200",
        "ucla": "schaefer400-17",
        "stages": "schaefer400-7",
    }.items():
        stand_ins.cohorts(tmp_path / "cohorts", (name,), atlas, n=12)
    shutil.copytree(tmp_path / "cohorts" / "abide", tmp_path / "cohorts" / "new")
    protocol = nerve.Protocol(targets="age", motion="none")
    training = nerve.Cohort.load(tmp_path / "cohorts" / "stages")
    nerve.KeptModel(RawFC(), protocol).fit(training).save(tmp_path / "models" / "age")
    for words in commands(ROOT / "docs/any-atlas.md"):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"nerve {' '.join(words)}\n{done.output}\n{done.exception}"


def test_the_bids_app_runs(tmp_path, monkeypatch, undrawn):
    monkeypatch.chdir(tmp_path)
    stand_ins.bids_app(tmp_path)
    for words in shell_commands((ROOT / "docs/howto/bids-app.md").read_text(encoding="utf-8")):
        if words[0] == "nerve-bids":
            bids.main(words[1:])
    assert (tmp_path / "out/group/results/report.html").is_file()
