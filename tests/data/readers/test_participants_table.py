"""The participants table is joined by id, in the names that the user and the big releases give."""

from pathlib import Path

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.readers import Options, ScanFile
from nerve.data.readers.participants_table import (
    join_participants,
    load_table,
    parse_columns,
    rename_columns,
    table_ids,
)


def joined_with(table, ids, sessions=("",), **options):
    scans = {
        one: [ScanFile(one, Path("x"), session=session) for session in sessions] for one in ids
    }
    return join_participants(scans, Options(participants=table, **options))


def table(**columns):
    return pd.DataFrame(columns)


def test_rows_follow_the_data_and_the_rest_is_told():
    joined = joined_with(
        table(participant_id=["sub-b", "sub-a", "sub-x"], age=[2, 1, 9]), ["a", "b", "y"]
    )
    assert joined[0]["participant_id"].tolist() == ["a", "b"]
    assert joined[0]["age"].tolist() == [1, 2]
    assert list(joined[1]) == ["x", "y"]


def test_the_id_column_is_the_one_that_matches():
    people = table(
        SUB_ID=[50642, 50646],
        FILE_ID=["CMU_a", "CMU_b"],
        SITE_ID=["CMU", "CMU"],
        func_mean_fd=[0.1, 0.2],
    )
    joined = joined_with(people, ["CMU_a", "CMU_b"])
    assert set(joined[0].columns) == {"participant_id", "SUB_ID", "site", "mean_fd"}
    assert joined[0]["mean_fd"].tolist() == [0.1, 0.2]
    assert any("SITE_ID as site" in note for note in joined[2])
    assert any("FILE_ID" in note for note in joined[2])
    assert joined_with(people, ["50642"])[0]["participant_id"].tolist() == ["50642"]


def test_the_users_names_win_and_nothing_is_overwritten():
    renamed, notes = rename_columns(table(age=[1], AGE_AT_SCAN=[2], SEX=[1]), {}, "x")
    assert renamed.columns.tolist() == ["age", "AGE_AT_SCAN", "sex"]
    assert "AGE_AT_SCAN" not in " ".join(notes)
    renamed, _ = rename_columns(table(age=[1], AGE_AT_SCAN=[2]), {"age": "AGE_AT_SCAN"}, "x")
    assert renamed["age"].tolist() == [2]
    with pytest.raises(NerveError, match=r"there is no column 'AGE'.*Did you mean 'age'"):
        rename_columns(table(age=[1]), {"x": "AGE"}, "x")


def test_marks_of_missing_values_are_missing(tmp_path):
    file = tmp_path / "p.csv"
    file.write_text(
        "FILE_ID,AGE_AT_SCAN,FIQ\nA,-9999,100\nB,12,-9999.0\nC,n/a,.\nno_filename,3,4\n"
    )
    joined = joined_with(file, ["A", "B", "C"])
    assert joined[0]["age"].isna().tolist() == [True, False, True]
    assert joined[0]["FIQ"].isna().tolist() == [False, True, True]
    assert not joined[1]


def test_ids_keep_their_leading_zeros(tmp_path):
    file = tmp_path / "p.tsv"
    file.write_text("participant_id\tage\n0010\t3\n0011\t4\n")
    assert load_table(file)["participant_id"].tolist() == ["0010", "0011"]
    assert table_ids(file) == ("0010", "0011")
    file.write_text("who\tage\n0010\t3\n0011\t4\n")
    assert joined_with(file, ["0011"], columns={"participant_id": "who"})[0]["age"].tolist() == [4]
    gap = table(participant_id=[10.0, None, 11.0])
    assert joined_with(gap, ["10", "11"])[0]["participant_id"].tolist() == ["10", "11"]


def test_several_rows_of_a_person_need_sessions_to_tell_them_apart():
    rows = table(
        participant_id=["a", "a", "b"],
        session_id=["1", "2", "1"],
        age=[10.0, 12.0, 9.0],
        sex=["F", "F", "M"],
    )
    with pytest.raises(NerveError, match=r"several rows \(a\)"):
        joined_with(rows.drop(columns="session_id"), ["a", "b"])
    one = joined_with(rows, ["a", "b"], sessions=["2"])
    assert one[0]["age"].tolist() == [12.0, 9.0]
    both = joined_with(rows, ["a", "b"], sessions=["1", "2"])
    assert both[0]["age"].tolist() == [11.0, 9.0]
    assert both[0]["sex"].tolist() == ["F", "M"]
    first = joined_with(rows, ["a", "b"], repeats="first")
    assert first[0]["age"].tolist() == [10.0, 9.0]
    with pytest.raises(NerveError, match="several rows"):
        joined_with(rows, ["a", "b"], repeats="refuse")


def test_no_match_at_all_shows_both_sides():
    with pytest.raises(
        NerveError, match=r"none of its 2 ids \(p1, p2\) is among the 1 of the data \(q1\)"
    ):
        joined_with(table(participant_id=["p1", "p2"]), ["q1"])
    with pytest.raises(NerveError, match=r"no column of ids .*--columns participant_id=THEIRS"):
        joined_with(table(who=["p1"]), ["p1"])


def test_columns_as_words_yaml_or_mapping(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("columns:\n  age: AGE_AT_SCAN\n  site: SITE_ID\n")
    expected = {"age": "AGE_AT_SCAN", "site": "SITE_ID"}
    assert (
        parse_columns("age=AGE_AT_SCAN,site=SITE_ID")
        == parse_columns(file)
        == parse_columns(expected)
        == expected
    )
    for wrong in ("age", "age=,x=y"):
        with pytest.raises(NerveError, match="expected name=THEIRS"):
            parse_columns(wrong)
    file.write_text("- a\n")
    with pytest.raises(NerveError, match="no settings"):
        parse_columns(file)


TABLE = pd.DataFrame(
    {"participant_id": ["007", "b"], "site": ["Zürich", "Málaga"], "age": [12.5, 13.25]}
)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("p.tsv", {"sep": ","}),
        ("p.csv", {"sep": ";", "decimal": ","}),
        ("p.csv", {"sep": ";", "decimal": ",", "encoding": "latin-1"}),
        ("p.txt", {"sep": "\t", "encoding": "utf-16"}),
        ("p.csv", {"sep": "\t", "encoding": "cp1252"}),
        ("p.tsv", {"sep": "\t", "encoding": "utf-8-sig"}),
        ("p.csv.gz", {"sep": ","}),
    ],
)
def test_tables_of_any_separator_decimal_mark_and_encoding(tmp_path, name, how):
    TABLE.to_csv(tmp_path / name, index=False, **how)
    pd.testing.assert_frame_equal(load_table(tmp_path / name), TABLE, check_dtype=False)


def test_a_workbook_is_a_table(tmp_path):
    pytest.importorskip("openpyxl")
    TABLE.to_excel(tmp_path / "p.xlsx", index=False)
    pd.testing.assert_frame_equal(load_table(tmp_path / "p.xlsx"), TABLE, check_dtype=False)
    (tmp_path / "q.xlsx").write_bytes((tmp_path / "p.xlsx").read_bytes()[:500])
    with pytest.raises(NerveError, match=r"expected a whole \.xlsx file"):
        load_table(tmp_path / "q.xlsx")
    (tmp_path / "p.xls").write_bytes(b"a workbook of old")
    with pytest.raises(NerveError, match=r"Save it as \.xlsx or \.csv"):
        load_table(tmp_path / "p.xls")
