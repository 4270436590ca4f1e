"""Every command in README, documentation and `--help` exists, with the options that it is given."""

import re

import pytest
import typer
from tests.promises.documents import PAGES, ROOT, nerve_commands

from nerve.cli import app

PROGRAM = typer.main.get_command(app)
UsageError = typer.BadParameter.__base__  # click's, which newer versions of typer carry inside


def runnable(command, path=()):
    nested = getattr(command, "commands", None)
    if nested is None:
        return {path: command}
    return {
        key: one
        for name, inner in nested.items()
        for key, one in runnable(inner, (*path, name)).items()
    }


COMMANDS = runnable(PROGRAM)


def parse(words):
    """Parse a command line without running it; raises what the user would see."""
    path = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
    if path not in COMMANDS:
        if words and words[0].startswith("-"):
            return  # nerve --help, nerve --version
        raise UsageError(f"there is no command {' '.join(words[:2])}")
    COMMANDS[path].make_context(" ".join(path), list(words[len(path) :]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_page_exist(page):
    for words in nerve_commands(page.read_text(encoding="utf-8")):
        if "…" in words or "COMMAND" in words:
            continue
        try:
            parse(words)
        except typer.Exit:
            pass
        except UsageError as error:
            pytest.fail(f"nerve {' '.join(words)}: {error.format_message()}")


def test_the_check_itself_sees_a_mistake():
    for wrong in (
        ["pretrian", "cohort"],
        ["pretrain", "cohort"],
        ["pretrain", "cohort", "--out", "x", "--epochs", "3"],
    ):
        with pytest.raises(UsageError):
            parse(wrong)
    assert sum(len(nerve_commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 30


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_parses(path):
    command = COMMANDS[path]
    examples = re.findall(r"Example: `nerve ([^`]+)`", " ".join((command.help or "").split()))
    assert examples, f"nerve {' '.join(path)} --help shows no example"
    for example in examples:
        parse(example.partition(" > ")[0].split())
    for parameter in command.params:
        assert parameter.help or parameter.name == "help", (
            f"{' '.join(path)}: {parameter.name} has no help"
        )


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            generated = "gallery/" in path  # made by `make docs`
            if path and "://" not in path and not generated:
                assert (page.parent / path).exists(), f"{page.relative_to(ROOT)} links to {target}"
