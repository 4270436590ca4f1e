"""One word for one thing (Plain English): what users read says participant, and per; no second word for either."""

import ast
import re

import pytest
from tests.promises.documents import PAGES, ROOT

# `Person factors` is a method that was removed after the run of the benchmark page; --subjects is
# an option; {people} stands for names that are filled in
NAMES = r"person factors|--subjects|subjects=|\{people\}|people\.(?:csv|xlsx)|`[^`\n]*`"
OTHER_WORDS = re.compile(
    r"\b(?:persons?|people|somebody|anybody|everybody|subjects)\b", re.IGNORECASE
)
MODULES = sorted((ROOT / "src" / "nerve").rglob("*.py"))


def found(text):
    """Other words for participants in a text, each with what stands around it."""
    text = re.sub(NAMES, " ", text, flags=re.IGNORECASE)
    return [
        text[max(0, hit.start() - 30) : hit.end() + 20].strip()
        for hit in OTHER_WORDS.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_speak_of_participants(page):
    prose = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert found(prose) == []


def texts(path):
    """Docstrings and sentences of a module: strings with a blank in them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value.strip()
            and "(?:" not in node.value
        ):
            # without shapes, examples, and names of parameters with their types
            yield re.sub(
                r"\((?:n_)?subjects,[^)]*\)|(?:>>>|\.\.\. ).*|^ +people : .*",
                "",
                node.value,
                flags=re.MULTILINE,
            )


@pytest.mark.slow
def test_messages_and_docstrings_speak_of_participants():
    wrong = {
        str(path.relative_to(ROOT)): hits
        for path in MODULES
        if (hits := [h for t in texts(path) for h in found(t)])
    }
    assert wrong == {}


def test_other_words_are_seen():
    assert len(found("one row per person, of 12 Subjects; `people` is a name")) == 2
