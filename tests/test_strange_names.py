"""Names of others: bytes that are no UTF-8, escapes for a terminal, tags for a page. They stay text and end nothing."""

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort, Parcellation
from nerve._utils.console import Console
from nerve._utils.files import write_markdown, write_text
from nerve._utils.privacy import printable
from nerve.cli import main
from nerve.methods.nerve import NERVE
from nerve.report.load import load_results

ESCAPE = "\x1b[31mred\x1b]0;title\x07"
STRANGE = os.fsdecode(b"caf\xe9")  # Latin-1


@pytest.fixture
def here(tmp_path, monkeypatch, capfdbinary):
    """The command line in this process, in a folder of its own: exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which `main` replaces

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["nerve", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capfdbinary.readouterr()

    return run


def nerve(*words, folder, **environment):
    variables = os.environ | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "200"} | environment
    command = [sys.executable, "-m", "nerve", *map(os.fsencode, words)]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, timeout=1200, check=False
    )


@pytest.fixture
def letters(tmp_path):
    table = pd.DataFrame({"label": list("abcdef"), "network": list("XXYYZZ")})
    table.to_csv(tmp_path / "regions.tsv", sep="\t", index=False)
    return Parcellation.from_table(tmp_path / "regions.tsv")


@pytest.mark.slow
def test_a_file_and_folders_whose_names_are_no_utf8_are_read_and_written(
    tmp_path, letters, here, undrawn
):
    rng = np.random.default_rng(0)
    source = tmp_path / "source"
    source.mkdir()
    for name in [f"p{i:02}" for i in range(23)] + [STRANGE]:
        np.save(source / f"{name}.npy", np.corrcoef(rng.normal(size=(6, 50))))
    done = nerve("ingest", "source", STRANGE, "--parcellation", "regions.tsv", folder=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    cohort = Cohort.load(tmp_path / STRANGE)
    assert len(cohort) == 24
    assert r"caf\udce9" in cohort.participants["participant_id"].tolist()
    assert cohort.changes == []
    table = cohort.participants.assign(score=rng.normal(size=24))
    table.to_csv(tmp_path / STRANGE / "participants.tsv", sep="\t", index=False)
    out = f"results-{STRANGE}"
    options = ["--targets", "score", "--out", out, "--n-folds", "3", "--n-bootstrap", "10"]
    assert here("evaluate", STRANGE, *options)[0] == 0
    assert (tmp_path / out / "scores.tsv").is_file()
    options = ["--subjects", "4", "--parcellation", "schaefer100-7", "--timepoints", "20"]
    assert here("simulate", f"s{STRANGE}", *options)[0] == 0
    assert len(Cohort.load(tmp_path / f"s{STRANGE}")) == 4


@pytest.mark.slow
def test_a_model_in_a_folder_whose_name_is_no_utf8_is_read_and_reported(tmp_path):
    fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 40))])
    model = NERVE.from_preset(
        "small", patching="grid4", dim=8, heads=2, epochs=1, device="cpu"
    ).fit(fc)
    folder = model.save(tmp_path / STRANGE)
    np.testing.assert_allclose(
        NERVE.load(folder, device="cpu").transform(fc), model.transform(fc), atol=1e-5
    )
    assert load_results(folder).encoders[0].label == r"caf\udce9"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["evaluate", "--help"], ["atlas", "show", "schaefer100-7"]])
def test_help_under_an_ascii_locale(tmp_path, words):
    done = nerve(
        *words,
        folder=tmp_path,
        PYTHONIOENCODING="ascii",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_escapes_in_labels_do_not_reach_the_screen(tmp_path, letters, here):
    assert printable(ESCAPE) == r"\x1b[31mred\x1b]0;title\x07"
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=300)
    console.print(f"failed {ESCAPE} [/nothing]", style="red")
    assert ESCAPE not in stream.getvalue()
    assert r"red\x1b]0;title\x07 [/nothing]" in stream.getvalue()
    fc = np.stack([np.corrcoef(np.random.default_rng(i).normal(size=(6, 50))) for i in range(12)])
    people = pd.DataFrame(
        {"participant_id": [f"{i}{ESCAPE}" for i in range(12)], f"score{ESCAPE}": range(12)}
    )
    people.loc[3, f"score{ESCAPE}"] = np.nan
    fc[4, 1] = np.nan  # somebody to be named
    Cohort(fc, people, letters, name=ESCAPE).save(tmp_path / "c")
    _, out, error = here("check", "c")
    assert b"\x1b" not in out + error
    assert rb"\x1b[31m" in out
    code, _, error = here("evaluate", "c", "--targets", ESCAPE, "--out", "out")
    assert code == 1
    assert rb"\x1b[31mred" in error
    assert b"\x1b[31mred" not in error


def test_names_in_markdown_start_no_tag_link_or_picture(tmp_path):
    write_markdown(
        tmp_path / "a.md", "# <img src=x onerror=y> ![p](http://x) p < 0.05 [0, 1] \\[done]\n"
    )
    assert (
        tmp_path / "a.md"
    ).read_text() == "# &lt;img src=x onerror=y> !\\[p](http://x) p < 0.05 \\[0, 1] \\[done]\n"
    write_text(tmp_path / "b.txt", f"{STRANGE}\n")
    assert (tmp_path / "b.txt").read_text() == "caf\\udce9\n"
