"""The documentation is complete and builds without a warning."""

import gc
import multiprocessing
import os
import re
import subprocess
from contextlib import redirect_stderr, redirect_stdout

import pytest
from tests.promises.documents import ROOT

import nerve
from nerve.data.readers import READERS
from nerve.methods import METHODS

DOCS = ROOT / "docs"


def test_every_method_and_reader_has_a_page():
    methods = " ".join(path.read_text(encoding="utf-8") for path in (DOCS / "methods").glob("*.md"))
    for name in METHODS:
        assert f"`{name}`" in methods, f"no page of docs/methods names {name}"
    sources = (DOCS / "howto" / "bring-your-own-cohort" / "index.md").read_text(encoding="utf-8")
    for name in READERS:
        assert f"`{name}`" in sources, f"bring-your-own-cohort does not name the format {name}"


def test_every_public_name_is_in_the_reference():
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for name in nerve.__all__:
        assert name == "__version__" or name in reference, f"docs/reference/api.md lacks {name}"


def build(words, log):
    """What `sphinx-build` does, in a process forked from this one, which has imported nerve."""
    from sphinx.cmd.build import main

    os.environ |= {"NERVE_DOCS_GALLERY": "0", "MPLCONFIGDIR": str(log.parent)}
    gc.disable()
    with open(log, "w") as stream, redirect_stdout(stream), redirect_stderr(stream):
        code = main(words)
    os._exit(code)


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    """Without running the gallery: `test_examples.py` runs the examples."""
    pytest.importorskip(
        "sphinx_gallery", reason="the documentation tools are not installed: make docs"
    )
    pytest.importorskip("furo", reason="the documentation tools are not installed: make docs")
    pytest.importorskip(
        "myst_parser", reason="the documentation tools are not installed: make docs"
    )
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in (
        "docs",
        "examples",
        "ARCHITECTURE.md",
    ):  # the gallery writes beside its source: not into the checkout
        subprocess.run(["cp", "-r", ROOT / name, copy], check=True)
    words = ["-W", "--keep-going", "-q", "-b", "html", str(copy / "docs"), str(tmp_path / "html")]
    process = multiprocessing.get_context("fork").Process(
        target=build, args=(words, tmp_path / "said")
    )
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "said").read_text()
    pages = {
        path.relative_to(tmp_path / "html").as_posix()
        for path in (tmp_path / "html").rglob("*.html")
    }
    assert {"index.html", "reference/commands.html", "gallery/plot_new_tokenizer.html"} <= pages
    formulas = (tmp_path / "html" / "methods" / "nerve.html").read_text(encoding="utf-8")
    assert "<math" in formulas  # drawn when the site is built, by no script
    assert not re.search(r'<(script|img|iframe)[^>]+src="(https?:)?//', formulas)
    notebooks = {path.stem for path in (tmp_path / "html").rglob("*.ipynb")}
    assert notebooks == {path.stem for path in (ROOT / "examples").glob("plot_*.py")}
