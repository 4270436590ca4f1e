"""The participants table is joined by id, in the names that the user and the big releases give."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.readers import Options, ScanFile
from nerve.data.readers.joining import join_participants
from nerve.data.readers.participants_table import (
    load_table,
    parse_columns,
    parse_na_values,
    rename_columns,
    table_ids,
)


def joined_with(table, ids, sessions=("",), **options):
    scans = {
        one: [ScanFile(one, Path("x"), session=session) for session in sessions] for one in ids
    }
    return join_participants(scans, Options(participants=table, **options))


def people_of(joined):
    """Participant → age."""
    return dict(zip(joined.table["participant_id"], joined.table["age"], strict=True))


def table(**columns):
    return pd.DataFrame(columns)


def test_rows_follow_the_data_and_the_rest_is_told():
    people = table(participant_id=["sub-b", "sub-a", "sub-x"], age=[2, 1, 9])
    joined = joined_with(people, ["a", "b", "y"], allow_exclusions=True)
    assert people_of(joined) == {"a": 1, "b": 2}
    assert list(joined.excluded) == ["x", "y"]


def test_the_id_column_is_the_one_that_matches():
    people = table(
        SUB_ID=[50642, 50646],
        FILE_ID=["CMU_a", "CMU_b"],
        SITE_ID=["CMU", "CMU"],
        func_mean_fd=[0.1, 0.2],
    )
    joined = joined_with(people, ["CMU_a", "CMU_b"])
    assert set(joined.table.columns) == {"participant_id", "SUB_ID", "site", "mean_fd"}
    assert joined.table["mean_fd"].tolist() == [0.1, 0.2]
    assert any("SITE_ID as site" in note for note in joined.row_notes)
    assert any("FILE_ID" in note for note in joined.row_notes)
    assert joined_with(people, ["50642"]).table["participant_id"].tolist() == ["50642"]


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
    assert joined.table["age"].isna().tolist() == [True, False, True]
    assert joined.table["FIQ"].isna().tolist() == [False, True, True]
    assert not joined.excluded


def test_ids_keep_their_leading_zeros(tmp_path):
    file = tmp_path / "p.tsv"
    file.write_text("participant_id\tage\n0010\t3\n0011\t4\n")
    assert load_table(file)["participant_id"].tolist() == ["0010", "0011"]
    assert table_ids(file) == ("0010", "0011")
    file.write_text("who\tage\n0010\t3\n0011\t4\n")
    joined = joined_with(file, ["0011"], columns={"participant_id": "who"})
    assert joined.table["age"].tolist() == [4]
    gap = table(participant_id=[10.0, None, 11.0])
    assert joined_with(gap, ["10", "11"]).table["participant_id"].tolist() == ["10", "11"]


VISITS = table(
    participant_id=["a", "a", "b", "b"],
    session_id=["1", "2", "1", "2"],
    age=[10.0, 12.0, 9.0, 11.0],
    sex=["F", "F", "M", "M"],
)


def test_the_row_is_that_of_the_session_of_the_scan():
    joined = joined_with(VISITS, ["a", "b"], sessions=["2"])
    assert people_of(joined) == {"a": 12.0, "b": 11.0}
    assert joined.rows == "the row of the same participant and session"
    only_first = VISITS[VISITS["session_id"] == "1"]
    with pytest.raises(NerveError, match=r"sessions \(1\) are not those of the scans \(2\)"):
        joined_with(only_first, ["a", "b"], sessions=["2"])
    joined = joined_with(only_first, ["a", "b"], sessions=["2"], visit="1")
    assert people_of(joined) == {"a": 10.0, "b": 9.0}


def test_a_participant_without_a_row_of_the_session_is_left_out_by_name():
    joined = joined_with(VISITS.iloc[:3], ["a", "b"], sessions=["2"])
    assert people_of(joined) == {"a": 12.0}
    assert joined.excluded == {"b": "no row of session 2 in the participants table"}
    crossed = {
        "a": [ScanFile("a", Path("x"), session="2")],
        "b": [ScanFile("b", Path("y"), session="1")],
    }
    rows = Options(participants=VISITS.iloc[[0, 3]])
    with pytest.raises(NerveError, match=r"no participant has a row of the session .*\(1, 2\)"):
        join_participants(crossed, rows)
    joined = join_participants(crossed, replace(rows, visit="1"))
    assert people_of(joined) == {"a": 10.0}


def test_rows_of_several_visits_are_never_averaged_nor_the_first_taken():
    with pytest.raises(NerveError, match=r"several rows \(a, b\).*--visit VALUE \(1, 2\)"):
        joined_with(VISITS, ["a", "b"])
    with pytest.raises(NerveError, match=r"several sessions .*--visit VALUE"):
        joined_with(VISITS, ["a", "b"], sessions=["1", "2"])
    for sessions in ([""], ["1", "2"]):
        joined = joined_with(VISITS, ["a", "b"], sessions=sessions, visit="2")
        assert people_of(joined) == {"a": 12.0, "b": 11.0}
        assert "visit 2" in joined.rows
    with pytest.raises(NerveError, match=r"no row is of visit '3', expected one of 1, 2"):
        joined_with(VISITS, ["a", "b"], visit="3")


def test_a_column_that_tells_the_rows_apart_is_named_in_the_remedy():
    waves = VISITS.rename(columns={"session_id": "wave"})
    with pytest.raises(NerveError, match=r"--columns session_id=wave, and --visit VALUE .*1, 2"):
        joined_with(waves, ["a", "b"])
    joined = joined_with(waves, ["a", "b"], columns={"session_id": "wave"}, visit="1")
    assert people_of(joined) == {"a": 10.0, "b": 9.0}


def test_names_of_sessions_match_once_normalised_and_one_to_one():
    events = table(
        subjectkey=["a", "a"],
        eventname=["baseline_year_1_arm_1", "2_year_follow_up_y_arm_1"],
        age=[9, 11],
    )
    for session, age in (("baselineYear1Arm1", 9), ("2YearFollowUpYArm1", 11)):
        joined = joined_with(events, ["a"], sessions=[session])
        assert people_of(joined) == {"a": age}
        assert any("match once normalised" in note for note in joined.row_notes)
    # two names of the table that become one are not guessed between
    doubled = table(participant_id=["a", "a"], session_id=["base_line", "baseline"], age=[9, 11])
    with pytest.raises(NerveError, match=r"--visit base_line.*--sessions FILE"):
        joined_with(doubled, ["a"], sessions=["Baseline"])
    joined = joined_with(doubled, ["a"], sessions=["Baseline"], visit="base_line")
    assert people_of(joined) == {"a": 9}


def test_a_map_of_sessions_joins_what_no_spelling_does():
    events = table(record_id=["a", "a"], redcap_event_name=["enrol_arm_1", "fu_arm_1"], age=[9, 11])
    columns = {"participant_id": "record_id"}
    with pytest.raises(
        NerveError, match=r"\(enrol_arm_1, fu_arm_1\) are not those of the scans \(pre\)"
    ):
        joined_with(events, ["a"], sessions=["pre"], columns=columns)
    options = Options(participants=events, columns=columns, sessions={"pre": "enrol_arm_1"})
    joined = join_participants({"a": [ScanFile("a", Path("x"), session="pre")]}, options)
    assert people_of(joined) == {"a": 9}
    wrong = Options(participants=events, columns=columns, sessions={"pre": "enrol"})
    with pytest.raises(NerveError, match=r"--sessions maps .*enrol_arm_1, fu_arm_1"):
        join_participants({"a": [ScanFile("a", Path("x"), session="pre")]}, wrong)


def test_the_second_header_row_of_nda_is_dropped_and_said(tmp_path):
    file = tmp_path / "abcd.txt"
    file.write_text(
        "subjectkey\teventname\tinterview_age\n"
        "The NDAR Global Unique Identifier\tThe event name\tAge in months at the interview\n"
        "NDAR_INV1\tbaseline\t120\nNDAR_INV2\tbaseline\t131\n"
    )
    joined = joined_with(file, ["NDARINV1", "NDARINV2"], sessions=["baseline"])
    assert joined.table["interview_age"].tolist() == [120, 131]
    assert any("second header row" in note for note in joined.row_notes)
    assert table_ids(file) == ("NDARINV1", "NDARINV2")
    # a table of names of several words keeps its first row
    words = table(participant_id=["first of all", "the other one"], age=[1, 2])
    assert len(load_table(words)) == 2


@pytest.mark.parametrize(
    ("data", "ids", "change"),
    [
        (["001", "002"], ["1", "2"], "without leading zeros"),
        (["1", "2"], ["1.0", "2.0"], "without .0 at the end"),
        (["s1", "s2"], ["S1", "S2"], "without regard to case"),
        (["S_1", "S_2"], ["S-1", "S-2"], "without separators"),
        (["01", "02"], ["sub01", "sub02"], "without sub- and ses-"),
        (["01", "02"], ["sub_01_ses-1", "sub_02_ses-1"], "without sub- and ses-"),
        (["A_001", "A_002"], ["a1", "a2"], "without regard to case and without separators"),
    ],
)
def test_ids_in_another_spelling_are_matched_one_to_one_and_said(data, ids, change):
    joined = joined_with(table(participant_id=ids, age=[7, 8]), data)
    assert people_of(joined) == {data[0]: 7, data[1]: 8}
    assert any(change in note for note in joined.row_notes)


def test_a_change_that_makes_two_ids_one_is_not_used():
    people = table(participant_id=["1", "01", "2"], age=[7, 8, 9])
    with pytest.raises(NerveError, match=r"0 of the 2 participants.*--id-map FILE"):
        joined_with(people, ["001", "002"])
    joined = joined_with(people, ["001", "002"], id_map={"001": "01", "002": "2"})
    assert people_of(joined) == {"001": 8, "002": 9}


def test_few_matches_show_three_ids_of_each_side_and_the_commonest_difference():
    data = [f"X{number}" for number in range(100, 140)]
    people = table(participant_id=[word[1:] for word in data], age=range(40))
    message = (
        r"0 of the 40 participants with data have a row among its 40 ids; without a partner are "
        r"X100, X101, X102 and 37 more of the data and 100, 101, 102 and 37 more of the table: the ids "
        r"of the data have 'X' before those of the table"
    )
    with pytest.raises(NerveError, match=message):
        joined_with(people, data)
    joined = joined_with(people, data, id_map={word: word[1:] for word in data})
    assert people_of(joined)["X139"] == 39
    some = table(participant_id=data[:20], age=range(20))
    with pytest.raises(NerveError, match=r"20 of the 40 .*--allow-exclusions"):
        joined_with(some, data)
    assert len(joined_with(some, data, allow_exclusions=True).table) == 20
    with pytest.raises(NerveError, match=r"--id-map names .*no pair is an id of the data"):
        joined_with(people, data, id_map={"Y": "Z"})


def test_no_column_of_ids_names_the_one_that_holds_them():
    with pytest.raises(NerveError, match=r"participant_id=THEIRS. Column who holds 1 of the ids"):
        joined_with(table(who=["p1"]), ["p1"])
    joined = joined_with(table(who=["p1"], age=[3]), ["p1"], columns={"participant_id": "who"})
    assert people_of(joined) == {"p1": 3}


def test_codes_for_missing_are_emptied_by_column_and_counted():
    people = table(
        participant_id=["9", "b", "c"], age=[9, 999, 11], sex=[1, 9, 2], iq=["-9", "x", 1]
    )
    joined = joined_with(people, ["9", "b", "c"], na_values={"": ("999", "-9"), "sex": ("9",)})
    assert joined.table["age"].isna().tolist() == [False, True, False]
    assert joined.table["sex"].isna().tolist() == [False, True, False]
    assert joined.table["iq"].isna().tolist() == [True, False, False]
    assert joined.table["participant_id"].tolist() == ["9", "b", "c"]
    assert joined.code_notes == ["cells emptied: 1 of age, 1 of sex, 1 of iq"]
    assert joined.codes.startswith("999, -9, sex=9 (--na-values)")
    with pytest.raises(NerveError, match=r"no cell holds 777"):
        joined_with(people, ["9", "b", "c"], na_values={"": ("777",)})
    with pytest.raises(NerveError, match=r"there is no column 'gender'"):
        joined_with(people, ["9", "b", "c"], na_values={"gender": ("9",)})


def test_codes_are_parsed_from_text_numbers_and_mappings():
    assert parse_na_values("999, -9,sex=9") == {"": ("999", "-9"), "sex": ("9",)}
    assert parse_na_values([999, -9]) == parse_na_values("999,-9")
    assert parse_na_values({"sex": 9}) == {"sex": ("9",)}
    with pytest.raises(NerveError, match=r"for example 999,-9,sex=9"):
        parse_na_values("999,,sex=")


def test_ages_in_words_are_refused_by_name_and_kept_under_another():
    for words in (["8y1m", "9y"], ["26-30", "31-35"], ["8;1", "9;2"], ["36+", "26-30"]):
        people = table(participant_id=["a", "b"], Age=words)
        with pytest.raises(NerveError, match=r"column Age holds .*--columns age_in_words=Age"):
            joined_with(people, ["a", "b"])
        joined = joined_with(people, ["a", "b"], columns={"age_in_words": "Age"})
        assert joined.table["age_in_words"].tolist() == words
    assert len(joined_with(table(participant_id=["a"], age=["8.1"]), ["a"]).table) == 1


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
