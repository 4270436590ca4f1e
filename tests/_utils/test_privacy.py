"""Only texts of users that may be shared appear in files: no ids, no paths, no rare values."""

import json

import pandas as pd
import pytest

from nerve._utils.files import write_json, write_text
from nerve._utils.privacy import (
    Identifiers,
    Note,
    for_screen,
    is_date,
    printable_name,
    printable_table,
    shared_command,
    shared_counts,
    shared_levels,
)

IDS = ["sub-01", "1234", "12", "5", "ab", "NDAR_INV7KX", "Ada Lovelace", "x7", "B 2", "sub-zoe"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sub-01 moved", "[participant] moved"),
        ("file sub-01_fc.tsv", "file [participant]_fc.tsv"),
        ("1234 resamples of 12345", "[participant] resamples of 12345"),
        ("12 people and/or families", "12 people and/or families"),
        ("/home/ada/study/fc.npy: empty", "[…]/fc.npy: empty"),
        ("p < 0.05", "p < 0.05"),
        ("sub-unknown7_task-rest.tsv", "[participant]_task-rest.tsv"),
        ("/home/ada l/my study 2/fc matrix.npy: empty", "[…]/fc matrix.npy: empty"),
        (r"C:\Users\ada\my study\fc.mat: empty", "[…]/fc.mat: empty"),
        (r"\\server\share\ada\fc.mat: empty", "[…]/fc.mat: empty"),
        ("C:/Users/ada/fc.mat: empty", "[…]/fc.mat: empty"),
        ("data/ada/fc.npy: empty", "[…]/fc.npy: empty"),
        ("~/ada/study: empty", "[…]/study: empty"),
        ("/data/x/NDARINV9999_fc.mat: empty", "[…]/[file].mat: empty"),
        ("could not read 'ndarinv7kx_fc.mat'", "could not read '[participant]_fc.mat'"),
        ("Ada Lovelace has no age", "[participant] has no age"),
        ("nothing to learn from participants 5, 12 and 3 more", "nothing to learn from participants "
         "[participant], [participant] and 3 more"),
        ("12: the matrix is 4 x 5", "[participant]: the matrix is 4 x 5"),
        ("it is ab.", "it is [participant]."),
        ("ab_fc.tsv and 12_fc.tsv", "[participant]_fc.tsv and [participant]_fc.tsv"),
        ("5 of 12 folds, r/z and true/false", "5 of 12 folds, r/z and true/false"),
        ("/data/Li, Ann (old copy of the first)/fc.npy: empty", "[…]/fc.npy: empty"),
        ("/home/o'neil/fc.npy has no rows and/or columns", "[…]/fc.npy has no rows and/or columns"),
        ("'/a/b.npy', '/c/d.npy' differ in r/z", "'[…]/b.npy', '[…]/d.npy' differ in r/z"),
        ("B 2 has no age", "[participant] has no age"),
        ("sub_zoe and zoe", "sub_[participant] and [participant]"),
        ("the file x7.npy", "the file [participant].npy"),
    ],
)  # fmt: skip
def test_identifiers_are_taken_out_and_other_words_left_alone(text, expected):
    assert Identifiers(IDS).removed_from(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in cohorts/ann_smith there is none", "in […]/ann_smith there is none"),
        ("in cohorts/ann_smith/ there is none", "in […]/ there is none"),
        ("scanned 1987-06-05 or 5.6.1987", "scanned [date] or [date]"),
        ("p = 0.05, 3 and/or 4, r/z, n/a.", "p = 0.05, 3 and/or 4, r/z, n/a."),
        ("red \x1b[31m", "red \\x1b[31m"),
    ],
)
def test_relative_folders_dates_and_escapes_are_taken_out(text, expected):
    assert Identifiers([]).removed_from(text) == expected


def test_a_note_names_participants_only_on_the_screen():
    note = Note.about("a table: 2 have no features", ["ann", "bob"])
    assert json.dumps([note]) == '["a table: 2 have no features."]'
    assert f"{note}" == "a table: 2 have no features."
    assert for_screen(note) == "a table: 2 have no features: ann, bob."
    assert for_screen("plain") == "plain"


def test_a_command_keeps_options_and_loses_paths():
    typed = "nerve evaluate ann/cohort --targets age,sex --features raw,tangent:recentre=site,runs/ann --n-folds 3"
    command = shared_command(
        f"{typed} --out=ann/out --test 'ann b/c'", ["--targets", "--n-folds"], ["raw", "tangent"]
    )
    assert command == (
        "nerve evaluate PATH --targets age,sex --features raw,tangent:recentre=site,PATH --n-folds 3 "
        "--out=PATH --test PATH"
    )


@pytest.mark.parametrize(
    "text", ["1987-06-05", "19870605", "5.6.87", "06/05/1987", "5 June 1987", "at 2020-01-01T10"]
)
def test_dates_are_recognised(text):
    assert is_date(text)


@pytest.mark.parametrize("text", ["site 12", "3.14", "12-34", "v1.2", "control", "2020"])
def test_other_words_are_no_dates(text):
    assert not is_date(text)


def test_levels_of_few_participants_and_dates_are_not_passed_on():
    column = pd.Series(["F"] * 6 + ["M"] * 5 + ["Ann"] * 4 + ["1987-06-05"] * 7 + [None])
    assert shared_levels(column) == ["F", "M"]
    assert shared_counts(column).to_dict() == {"other": 11, "F": 6, "M": 5}


ESCAPES = "a\x1b[31m\x07\x9b2J\u202eb"


def test_no_control_character_is_written(tmp_path):
    write_text(tmp_path / "a.txt", f"{ESCAPES}\n")
    write_json(tmp_path / "a.json", {ESCAPES: 1})
    for file in tmp_path.iterdir():
        assert not [
            letter
            for letter in file.read_text("utf-8")
            if not letter.isprintable() and letter != "\n"
        ]
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {ESCAPES: 1}
    table = printable_table(pd.DataFrame({ESCAPES: [ESCAPES, None], "n": [1, 2]}))
    assert all(text.isprintable() for text in [table.columns[0], table.iloc[0, 0]])
    assert printable_name(f"{ESCAPES}\n{ESCAPES}").isprintable()
