"""Runs are kept under a hash of the whole package: whatever is edited, old runs are old."""

import shutil
from pathlib import Path

import pytest

import nerve
from nerve.experiments.run_key import code_version, source_hash

PACKAGE = Path(nerve.__file__).parent
FILES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / "nerve"
    return shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))


def test_a_copy_of_the_package_has_the_same_hash(copy):
    assert code_version() == f"{nerve.__version__}+{source_hash(copy)}"


def test_changing_any_file_changes_the_hash(copy):
    before = source_hash(copy)
    unnoticed = []
    for name in FILES:
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content + b"\n")
        if source_hash(copy) == before:
            unnoticed.append(name)
        (copy / name).write_bytes(content)
    assert source_hash(copy) == before
    assert {
        "_utils/linalg.py",
        "experiments/method_rows.py",
        "configs/demo.yaml",
        "report/templates/page.html",
    } <= {*FILES}
    assert unnoticed == []


def test_a_file_that_is_added_or_renamed_changes_the_hash(copy):
    before = source_hash(copy)
    (copy / "more.py").write_text("")
    added = source_hash(copy)
    (copy / "more.py").rename(copy / "other.py")
    assert len({before, added, source_hash(copy)}) == 3
    (copy / "other.py").unlink()


def test_what_python_compiled_decides_nothing(copy):
    before = source_hash(copy)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "cohort.cpython-311.pyc").write_bytes(b"compiled")
    assert source_hash(copy) == before
