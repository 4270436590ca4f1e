"""Tables of participants that are not text: Parquet, Feather, SPSS, Stata, workbooks, REDCap, ABCD."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve import Cohort
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.readers import table_files
from nerve.data.readers.participants_table import load_table, table_ids

pyreadstat = pytest.importorskip("pyreadstat")
pytest.importorskip("pyarrow")
openpyxl = pytest.importorskip("openpyxl")

IDS = ["007", "012", "105"]
TABLE = pd.DataFrame(
    {
        "participant_id": IDS,
        "age": [12.5, np.nan, 0.1],
        "sex": [1, 2, 2],
        "site": ["Zürich", "Málaga", None],
        "score": [-9999, 7, 8],
    }
)
# what every form of the table must become: -9999 is one of the usual marks of missing values
EXPECTED = TABLE.assign(score=[np.nan, 7, 8])


def write_feather(table, path):
    table.to_feather(path)


def write_parquet(table, path):
    table.to_parquet(path)


def write_indexed_parquet(table, path):
    table.set_index("participant_id").to_parquet(path)


def write_spss(table, path, **facts):
    pyreadstat.write_sav(table, path, **facts)


def write_stata(table, path, **facts):
    pyreadstat.write_dta(table, path, **facts)


WRITERS = {
    "p.parquet": write_parquet,
    "indexed.parquet": write_indexed_parquet,
    "p.feather": write_feather,
    "p.sav": write_spss,
    "p.zsav": lambda table, path: write_spss(table, path, compress=True),
    "p.dta": write_stata,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_form_of_a_table_has_the_cells_of_its_text(tmp_path, name):
    WRITERS[name](TABLE, tmp_path / name)
    TABLE.to_csv(tmp_path / "p.csv", index=False)
    table = load_table(tmp_path / name)
    pd.testing.assert_frame_equal(table, load_table(tmp_path / "p.csv"))
    pd.testing.assert_frame_equal(table, EXPECTED, check_dtype=False)
    assert table_ids(tmp_path / name) == tuple(IDS)


@pytest.mark.parametrize("name", ["p.parquet", "p.feather", "p.sav", "p.dta"])
def test_numeric_ids_are_whole_numbers(tmp_path, name):
    table = pd.DataFrame({"id": [50642.0, 50646.0, 50647.0], "age": [1.5, 2.5, 3.0]})
    WRITERS[name](table, tmp_path / name)
    assert table_ids(tmp_path / name) == ("50642", "50646", "50647")
    assert load_table(tmp_path / name)["age"].tolist() == [1.5, 2.5, 3.0]


@pytest.mark.parametrize("name", ["p.parquet", "p.feather", "p.sav", "p.dta"])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path, name):
    WRITERS[name](TABLE, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NerveError, match=rf"expected a whole {name[1:]} file"):
        load_table(tmp_path / name)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(NerveError, match="the file is empty"):
        load_table(tmp_path / name)


@pytest.mark.parametrize("name", ["p.parquet", "p.feather", "p.sav", "p.dta"])
def test_a_missing_package_is_named_with_its_remedy(tmp_path, monkeypatch, name):
    WRITERS[name](TABLE, tmp_path / name)

    monkeypatch.setattr(table_files, "find_spec", lambda package: None)
    with pytest.raises(
        NerveError, match=r"need the package py\w+. .*pip install 'nerve-fc\[tables"
    ):
        load_table(tmp_path / name)


def test_a_table_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    table = pd.DataFrame({f"c{number}": np.zeros(1_000_000, np.int8) for number in range(20)})
    table.to_parquet(path, compression="zstd")
    with pytest.raises(NerveError, match="bytes unpack to 160,000,000 or more"):
        load_table(path)


@pytest.mark.parametrize(("name", "write"), [("p.sav", write_spss), ("p.dta", write_stata)])
def test_columns_keep_their_codes_and_the_plan_says_their_labels(tmp_path, name, write):
    labels = {"sex": {1: "male", 2: "female"}, "mood": {0: "never", 1: "often", 2: "always"}}
    table = pd.DataFrame({"id": IDS, "sex": [1, 2, 2], "mood": [0, 2, 1]})
    write(table, tmp_path / name, variable_value_labels=labels)
    read = load_table(tmp_path / name)
    assert read["sex"].tolist() == [1, 2, 2]
    assert read["mood"].tolist() == [0, 2, 1]
    [note] = read.attrs["notes"]
    assert note.startswith("columns keep their codes, which the file calls: ")
    assert "sex 1 = male, 2 = female" in note
    assert "mood 0 = never, 1 = often, 2 = always" in note


def test_what_spss_declares_as_missing_is_missing(tmp_path):
    table = pd.DataFrame({"id": IDS, "age": [9.0, 99.0, 11.0], "score": [1.0, 99.0, 3.0]})
    write_spss(table, tmp_path / "p.sav", missing_ranges={"age": [99]})
    read = load_table(tmp_path / "p.sav")
    assert read["age"].isna().tolist() == [False, True, False]
    assert read["score"].tolist() == [1.0, 99.0, 3.0]
    assert read.attrs["notes"] == [
        "codes that the file declares as missing are missing (columns age)"
    ]


# ---- workbooks


def write_workbook(path, **sheets):
    """A workbook of sheets, each a list of rows."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


HEADER = ["participant_id", "age", "sex"]
ROWS = [["007", 12.5, 1], ["012", 8, 2], ["105", 9.5, 2]]


def test_the_only_sheet_with_ids_is_read_and_said(tmp_path):
    path = write_workbook(
        tmp_path / "p.xlsx", README=[["How the data were made"], ["by us"]], data=[HEADER, *ROWS]
    )
    table = load_table(path)
    assert table["age"].tolist() == [12.5, 8, 9.5]
    assert table.attrs["notes"] == ["sheet 'data' of 2 is read"]


def test_two_sheets_with_ids_are_refused_and_sheet_chooses(tmp_path):
    later = [["007", 20, 1], ["012", 21, 2], ["105", 22, 2]]
    path = write_workbook(tmp_path / "p.xlsx", baseline=[HEADER, *ROWS], followup=[HEADER, *later])
    with pytest.raises(NerveError, match=r"2 of its sheets .*\(baseline, followup\).*--sheet NAME"):
        load_table(path)
    assert load_table(path, sheet="followup")["age"].tolist() == [20, 21, 22]
    assert load_table(path, sheet="1")["age"].tolist() == [12.5, 8, 9.5]
    with pytest.raises(NerveError, match=r"no sheet 'folowup'.*baseline, followup.*Did you mean"):
        load_table(path, sheet="folowup")


@pytest.mark.parametrize(
    "above",
    [
        [["Participants of the study, March 2024"]],
        [["Participants"], [], ["n = 3", "locked"]],
        [["", "Demographics", ""]],
        [["Subject"]],
    ],
)
def test_a_header_below_titles_is_recognised_and_said(tmp_path, above):
    path = write_workbook(tmp_path / "p.xlsx", data=[*above, HEADER, *ROWS])
    table = load_table(path)
    assert table.columns.tolist() == HEADER
    assert table["participant_id"].tolist() == IDS
    assert table["sex"].tolist() == [1, 2, 2]
    assert table.attrs["notes"] == [f"the columns are named in row {len(above) + 1}"]


def test_a_header_of_unknown_names_is_the_first_full_row_of_words(tmp_path):
    rows = [["Our study"], ["who", "years", "gender"], *ROWS]
    path = write_workbook(tmp_path / "p.xlsx", data=rows)
    table = load_table(path, words=["who"])
    assert table["who"].tolist() == IDS
    # a header in the first row stays where it is
    path = write_workbook(tmp_path / "q.xlsx", data=[["who", "word", "x"], ["a", "z", "b"]])
    assert load_table(path).columns.tolist() == ["who", "word", "x"]


def test_sheet_is_refused_where_there_is_no_workbook(tmp_path):
    TABLE.to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(NerveError, match=r"--sheet names a sheet of an Excel workbook.*p\.csv"):
        load_table(tmp_path / "p.csv", sheet="data")
    assert len(load_table(tmp_path / "p.csv")) == 3


# ---- exports of REDCap and of ABCD, from file to cohort


@pytest.fixture
def matrices(tmp_path):
    """A function that writes matrices of participants, with a session or without."""

    def write(participants, session=""):
        folder = tmp_path / "matrices"
        folder.mkdir(exist_ok=True)
        for seed, participant in enumerate(participants):
            series = np.random.default_rng(seed).normal(size=(90, 20))
            ending = f"_ses-{session}" if session else ""
            np.save(folder / f"sub-{participant}{ending}_fc.npy", np.corrcoef(series.T))
        labels = [f"region {number}" for number in range(20)]
        networks = ["x"] * 10 + ["y"] * 10
        atlas = pd.DataFrame({"label": labels, "network": networks})
        atlas.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
        return folder

    return write


def ingested(source, table, *options):
    """The result of `nerve ingest` with a table of participants."""
    out = source.parent / "out"
    command = ["ingest", str(source), str(out), "--order", str(source.parent / "atlas.tsv")]
    command += ["--participants", str(table), "--overwrite", *options]
    return CliRunner().invoke(app, command)


REDCAP = """\
record_id,redcap_event_name,redcap_repeat_instrument,redcap_repeat_instance,age,sex,mood,drug
1,baseline_arm_1,,,9,1,4,
1,baseline_arm_1,medication,1,,,,aspirin
1,baseline_arm_1,medication,2,,,,ibuprofen
1,year_2_arm_1,,,11,,6,
2,baseline_arm_1,,,10,2,5,
2,year_2_arm_1,,,12,,7,
3,baseline_arm_1,,,8,2,3,
3,baseline_arm_1,medication,1,,,,aspirin
3,year_2_arm_1,,,10,,5,
"""


def test_an_export_of_redcap_is_read_by_event_and_without_repeated_forms(tmp_path, matrices):
    (tmp_path / "redcap.csv").write_text(REDCAP)
    source = matrices(["1", "2", "3"])
    refused = ingested(source, tmp_path / "redcap.csv")
    assert "have several rows (1, 2, 3)" in str(refused.exception)
    assert "--visit VALUE (baseline_arm_1, year_2_arm_1)" in str(refused.exception)
    done = ingested(source, tmp_path / "redcap.csv", "--visit", "baseline_arm_1")
    assert done.exit_code == 0, done.exception
    assert "redcap_event_name as session_id" in done.output
    assert "3 rows of forms that REDCap repeats (medication) dropped" in done.output
    participants = Cohort.load(tmp_path / "out").participants
    assert participants["age"].tolist() == [9, 10, 8]
    assert participants["mood"].tolist() == [4, 5, 3]
    assert "drug" not in participants.columns


def test_events_of_redcap_match_the_sessions_of_scans(tmp_path, matrices):
    (tmp_path / "redcap.csv").write_text(REDCAP)
    source = matrices(["1", "2", "3"], "year2Arm1")
    done = ingested(source, tmp_path / "redcap.csv")
    assert done.exit_code == 0, done.exception
    assert "year2Arm1 is year_2_arm_1" in done.output
    assert Cohort.load(tmp_path / "out").participants["age"].tolist() == [11, 12, 10]


def test_an_event_that_redcap_repeats_is_refused_with_the_column_that_tells(tmp_path, matrices):
    (tmp_path / "redcap.csv").write_text(
        "record_id,redcap_event_name,redcap_repeat_instance,age\n"
        "1,visit_arm_1,1,9\n1,visit_arm_1,2,10\n2,visit_arm_1,1,8\n2,visit_arm_1,2,9\n"
    )
    source = matrices(["1", "2"])
    refused = ingested(source, tmp_path / "redcap.csv")
    assert "--columns session_id=redcap_repeat_instance" in str(refused.exception)
    options = ["--columns", "session_id=redcap_repeat_instance", "--visit", "2"]
    done = ingested(source, tmp_path / "redcap.csv", *options)
    assert done.exit_code == 0, done.exception
    assert Cohort.load(tmp_path / "out").participants["age"].tolist() == [10, 9]


ABCD = """\
"collection_id"\t"subjectkey"\t"src_subject_id"\t"interview_age"\t"sex"\t"eventname"\t"score"
"collection_id"\t"The NDAR Global Unique Identifier (GUID)"\t"Subject ID how it's defined in lab"\t"Age in months"\t"Sex of subject at birth"\t"The event name"\t"Sum of all items"
"2573"\t"NDAR_INV01"\t"NDAR_INV01"\t"120"\t"F"\t"baseline_year_1_arm_1"\t"1.5"
"2573"\t"NDAR_INV01"\t"NDAR_INV01"\t"144"\t"F"\t"2_year_follow_up_y_arm_1"\t"2.5"
"2573"\t"NDAR_INV02"\t"NDAR_INV02"\t"122"\t"M"\t"baseline_year_1_arm_1"\t"3.5"
"2573"\t"NDAR_INV02"\t"NDAR_INV02"\t"147"\t"M"\t"2_year_follow_up_y_arm_1"\t"4.5"
"""


@pytest.mark.parametrize(
    ("session", "scores"),
    [("baselineYear1Arm1", [1.5, 3.5]), ("2YearFollowUpYArm1", [2.5, 4.5])],
)
def test_an_export_of_abcd_joins_by_event_without_its_descriptions(
    tmp_path, matrices, session, scores
):
    (tmp_path / "abcd.txt").write_text(ABCD)
    source = matrices(["NDARINV01", "NDARINV02"], session)
    done = ingested(source, tmp_path / "abcd.txt")
    assert done.exit_code == 0, done.exception
    assert "a second header row, as NDA writes, describes the columns: dropped" in done.output
    participants = Cohort.load(tmp_path / "out").participants
    assert participants["score"].tolist() == scores
    assert participants["sex"].tolist() == ["F", "M"]


def test_abcd_as_parquet_joins_by_src_subject_id_and_event(tmp_path, matrices):
    table = pd.DataFrame(
        {
            "src_subject_id": ["NDAR_INV01", "NDAR_INV01", "NDAR_INV02"],
            "eventname": [
                "baseline_year_1_arm_1",
                "2_year_follow_up_y_arm_1",
                "baseline_year_1_arm_1",
            ],
            "score": [1.5, 9.5, 3.5],
        }
    )
    table.to_parquet(tmp_path / "abcd.parquet")
    source = matrices(["NDARINV01", "NDARINV02"], "baselineYear1Arm1")
    done = ingested(source, tmp_path / "abcd.parquet")
    assert done.exit_code == 0, done.exception
    assert Cohort.load(tmp_path / "out").participants["score"].tolist() == [1.5, 3.5]


def test_the_plan_says_what_a_table_of_spss_calls_its_codes(tmp_path, matrices):
    table = pd.DataFrame({"id": [1.0, 2.0, 3.0], "sex": [1.0, 2.0, 2.0], "age": [9.5, 8.0, 7.0]})
    labels = {"sex": {1: "male", 2: "female"}}
    write_spss(table, tmp_path / "p.sav", variable_value_labels=labels)
    source = matrices(["01", "02", "03"])
    done = ingested(source, tmp_path / "p.sav")
    assert done.exit_code == 0, done.exception
    assert "sex 1 = male, 2 = female" in done.output
    assert "ids are matched without leading zeros, one to one" in done.output
    assert Cohort.load(tmp_path / "out").participants["sex"].tolist() == [1, 2, 2]


@pytest.mark.slow
def test_text_tables_are_read_where_the_packages_are_not_installed(tmp_path):
    (tmp_path / "p.csv").write_text("participant_id,age\n007,9\n")
    (tmp_path / "p.sav").write_bytes(b"$FL2")
    program = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pyreadstat'] = None\n"
        "from nerve.data.readers.participants_table import load_table\n"
        "print(load_table('p.csv')['participant_id'].tolist())\n"
        "try:\n    load_table('p.sav')\nexcept Exception as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "['007']" in done.stdout
    assert "pip install 'nerve-fc[tables]'" in done.stdout
