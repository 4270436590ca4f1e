"""The plan that each page of bring-your-own-cohort shows: what `nerve ingest … --dry-run` prints of its stand-in.

`python -m tests.promises.plans` writes the plans into the pages again.
"""

import os
import re
import tempfile
from pathlib import Path

from tests.promises.documents import ROOT, nerve_commands
from tests.promises.test_docs_run import OWN, READERS
from typer.testing import CliRunner

from nerve.cli import app

#: Pages that show a plan: each kind of source, without those about names, text and the whole.
PAGES_WITH_PLAN = sorted(set(READERS) - {"index", "names", "text", "fisher-z"})
_PLAN = re.compile(r"^```text\nPlan:\n.*?^```\n", re.MULTILINE | re.DOTALL)
_INTRODUCTION = "With `--dry-run` the first command prints this plan (here of {} participants):\n\n"


def page_of(name):
    """The path of a page."""
    return ROOT / OWN / f"{name}.md"


def printed_plan(name, folder):
    """The plan that the first command of a page prints with `--dry-run`, in a folder with its stand-in."""
    READERS[name](folder)
    commands = nerve_commands(page_of(name).read_text(encoding="utf-8"))
    words = next(words for words in commands if words[0] == "ingest")
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception}"
    lines = done.output[done.output.index("Plan:") :].splitlines()
    return "\n".join(line.rstrip() for line in lines[:-1])  # the last counts rows and participants


def shown_plan(name):
    """The plan that a page shows."""
    block = _PLAN.search(page_of(name).read_text(encoding="utf-8"))
    return block[0].removeprefix("```text\n").removesuffix("\n```\n") if block else ""


def write_plan(name):
    """Put the plan into its page, after the first block of commands where there is none yet."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            plan = printed_plan(name, Path(folder))
        finally:
            os.chdir(here)
    page = page_of(name)
    text = page.read_text(encoding="utf-8")
    block = f"```text\n{plan}\n```\n"
    if _PLAN.search(text):
        text = _PLAN.sub(lambda _: block, text, count=1)
    else:
        n_participants = re.search(r"ids: .*\[(\d+) participants\]", plan)[1]
        end = text.index("\n```\n", text.index("```")) + len("\n```\n")
        introduction = _INTRODUCTION.format(n_participants)
        text = f"{text[:end]}\n{introduction}{block}{text[end:]}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page_name in PAGES_WITH_PLAN:
        write_plan(page_name)
