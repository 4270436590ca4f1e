"""Every `nerve …` line of the documentation is run as it stands, in the order of its page, on small stand-ins.

Words are never changed. What makes commands quick is around them: presets of one epoch, few participants. A
line that is not run stands in `NOT_RUN` with the reason. Figures are drawn by tests/report.
"""

import shutil

import pytest
from tests.promises import stand_ins
from tests.promises.documents import PAGES, ROOT, nerve_commands, shell_commands
from typer.testing import CliRunner

from nerve.cli import app, bids

pytestmark = pytest.mark.slow
OWN = "docs/howto/bring-your-own-cohort/"
READERS = {
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
    assert pages <= run_here | {"docs/howto/reproduce-the-paper.md"}
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
    (folder / "mine.yaml").write_text("preset: small\n")
    return folder


def test_the_how_tos_run_one_after_another(lab, quick, monkeypatch):
    monkeypatch.chdir(lab)
    for name in HOWTO:
        run(ROOT / "docs" / "howto" / f"{name}.md")


def test_the_bids_app_runs(tmp_path, monkeypatch, undrawn):
    monkeypatch.chdir(tmp_path)
    stand_ins.bids_app(tmp_path)
    for words in shell_commands((ROOT / "docs/howto/bids-app.md").read_text(encoding="utf-8")):
        if words[0] == "nerve-bids":
            bids.main(words[1:])
    assert (tmp_path / "out/group/results/report.html").is_file()
