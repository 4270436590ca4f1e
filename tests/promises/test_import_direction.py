"""Imports go one way: the contracts in pyproject.toml are kept."""

import subprocess
import sys

import pytest
from tests.promises.documents import ROOT

pytest.importorskip("importlinter", reason="import-linter is not installed")


@pytest.mark.slow
def test_import_contracts_are_kept():
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
