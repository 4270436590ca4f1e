"""Errors name what is wrong, where and about whom."""

import ast
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import nerve
from nerve._utils import errors
from nerve._utils.errors import (
    NerveError,
    NotFitted,
    ParticipantError,
    in_python,
    known_columns,
    naming_parameters,
    naming_participants,
    one_of,
    placing,
    require,
)


def test_participants_are_named_by_row_until_a_caller_knows_their_ids():
    with pytest.raises(ParticipantError, match=r"The FC of the participant of row 2 is empty"):
        raise ParticipantError([1], "The FC of {people} is empty.")
    with pytest.raises(NerveError, match=r"^Nothing of the participants of rows 1, 3\.$"):
        raise ParticipantError([0, 2], "Nothing of {people}.")
    ids = np.array(["a", "b", "c", "d"], dtype=object)
    with (
        pytest.raises(NerveError, match=r"^Nothing of d, b\.$"),
        naming_participants(ids),
        placing(np.array([1, 3])),
    ):
        raise ParticipantError(np.array([1, 0]), "Nothing of {people}.")


def test_other_errors_pass_the_naming_unchanged():
    with pytest.raises(ZeroDivisionError), naming_participants(["a"]), placing([0]):
        1 / 0  # noqa: B018


def test_a_method_that_is_not_fitted_raises_scikit_learns_error_as_well_as_ours():
    assert issubclass(NotFitted, NotFittedError)
    assert issubclass(NotFitted, NerveError)


def test_a_wrong_word_is_answered_by_the_nearest_right_one():
    with pytest.raises(NerveError, match=r"one of 'fc', 'tangent'\. Did you mean 'tangent'\?"):
        one_of("view", "tangents", ["fc", "tangent"])
    with pytest.raises(NerveError, match=r"t\.tsv: there is no column 'agee'.*Did you mean 'age'"):
        known_columns(["sex", "agee"], ["age", "sex"], "t.tsv")
    assert known_columns(["sex"], ["age", "sex"], "t.tsv") == ["sex"]


def test_the_first_rule_that_does_not_hold_is_the_error():
    require("x", (True, "one", "two"))
    with pytest.raises(NerveError, match=r"^x: it is 3, expected 4\.$"):
        require("x", (True, "a", "b"), (False, "it is 3", "4"), (False, "c", "d"))


@pytest.mark.parametrize(
    ("on_the_command_line", "in_a_script"),
    [
        ("Say --motion none.", 'Say motion="none".'),
        (
            "Give --id-map FILE, or leave --sessions out.",
            "Give id_map=FILE, or leave sessions out.",
        ),
        ("--values is z and --measure is streamlines", "values is z and measure is streamlines"),
        ("--session is '3', and --n-folds 5 (--jobs).", "session is '3', and n_folds=5 (jobs)."),
        ("--na-values score=99.", 'na_values="score=99".'),
        ("Say --id-pattern 'S(?P<id>.+)', or", "Say id_pattern='S(?P<id>.+)', or"),
        ("with --id-pattern 'S(?P<id>\\d+)'.", "with id_pattern=r'S(?P<id>\\d+)'."),
        ("`nerve pretrain A --seed 1` takes --seed", "`nerve pretrain A --seed 1` takes seed"),
        ("rest--state is 3 -- 4 --", "rest--state is 3 -- 4 --"),
    ],
)
def test_options_become_parameters_but_not_those_of_commands(on_the_command_line, in_a_script):
    assert in_python(on_the_command_line) == in_a_script


def test_an_error_inside_names_parameters_and_keeps_its_class():
    with pytest.raises(ParticipantError, match=r"^Say seed=1$"), naming_parameters():
        raise ParticipantError([0], "Say --seed 1")


# Words that follow an option in our messages and are its value.
VALUES = {
    *("DIR", "FILE", "FILE.dlabel.nii", "NAME", "SCORE", "TSV", "VALUE"),
    *("age,sex", "age=THEIRS", "age_in_words", "auto", "average", "bids", "cpu"),
    *("drop-participant", "drop-region", "first", "keep", "local", "lower", "lr", "lr=0.001"),
    *("missing", "name", "no", "none", "participant_id=THEIRS", "participants.tsv", "r"),
    *("raw,pca,run", "results", "run", "schaefer400-17", "series", "session_id"),
    *("session_id=THEIRS", "upper", "yes", "z"),
}


def test_every_word_after_an_option_in_a_message_is_known_as_its_value_or_not():
    """A new verb after an option would be printed in Python as its value: `atlas="chooses"`."""
    unknown = []
    for path in Path(nerve.__file__).parent.rglob("*.py"):
        for sentence in _messages(ast.parse(path.read_text())):
            for outside_backticks in sentence.split("`")[::2]:
                for _, word in errors._OPTION.findall(outside_backticks):
                    is_quoted = word.startswith("'")
                    is_known = word in VALUES or word in errors._NOT_VALUES
                    if word and not is_quoted and not is_known:
                        unknown.append((path.name, word))
    assert not unknown, "add them to VALUES here, or to _NOT_VALUES in _utils/errors.py"
    assert not VALUES & set(errors._NOT_VALUES)


def _messages(tree):
    """All texts of a module but docstrings; in f-strings, {} where a value is put in."""
    docstrings = set()
    inside_f_strings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(node.value)
        if isinstance(node, ast.JoinedStr):
            inside_f_strings.update(node.values)
            pieces = [
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            ]
            yield "".join(pieces)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and node not in docstrings and node not in inside_f_strings:
            yield node.value
