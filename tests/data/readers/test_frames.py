"""Headers and first columns of numbers: right, or refused with the option that chooses."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import random_fc, random_series
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.readers import preview, read_cohort

N = 12
LABELS = [f"area_{letter}" for letter in "abcdefghijkl"]
CODES = [2001, 2002, 2101, 2102, 2111, 2112, 2201, 2202, 2211, 2212, 2301, 2302]
HEADERS = {
    "from 0": list(range(N)),
    "from 1": list(range(1, N + 1)),
    "codes of an atlas": CODES,
    "with gaps": [1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 14, 15],
    "in the order of words": [1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9],
}


@pytest.fixture
def regions(tmp_path):
    path = tmp_path / "atlas.tsv"
    table = pd.DataFrame({"label": LABELS, "network": ["x"] * 6 + ["y"] * 6})
    table.to_csv(path, sep="\t", index=False)
    return path


def write(folder, tables, mark=",", ending=".csv", **how):
    """One text file per participant."""
    folder.mkdir()
    for number, table in enumerate(tables):
        frame = pd.DataFrame(table)
        frame.to_csv(folder / f"sub-{number}{ending}", sep=mark, **{"index": False, **how})
    return folder


def matrices():
    return [random_fc(N, seed) for seed in range(3)]


def series():
    return [random_series(40, N, seed) for seed in range(3)]


def correlations():
    return np.stack([np.corrcoef(values.T) for values in series()])


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_header_of_numbers_is_no_row_of_a_matrix(tmp_path, regions, header, index, mark):
    tables = [
        pd.DataFrame(matrix, columns=HEADERS[header], index=HEADERS[header])
        for matrix in matrices()
    ]
    source = write(tmp_path / "in", tables, mark, index=index)
    cohort = read_cohort(source, order=regions)
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices()), atol=1e-6)
    assert cohort.timeseries is None


def test_an_index_of_numbers_is_no_column_of_a_matrix(tmp_path, regions):
    tables = [pd.DataFrame(matrix, index=CODES) for matrix in matrices()]
    source = write(tmp_path / "in", tables, index=True, header=False)
    cohort = read_cohort(source, order=regions)
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices()), atol=1e-6)


def test_whole_numbers_below_a_header_of_numbers(tmp_path, regions):
    """Streamline counts: header and entries are all whole numbers."""
    rng = np.random.default_rng(0)
    counts = np.triu(rng.integers(0, 900, (N, N)), 1)
    counts = counts + counts.T
    source = write(tmp_path / "in", [pd.DataFrame(counts, columns=CODES)] * 2)
    cohort = read_cohort(source, order=regions, measure="streamlines")
    np.testing.assert_array_equal(cohort.connectivity[1], counts)


def test_a_triangle_below_a_header_of_numbers(tmp_path, regions):
    tables = [pd.DataFrame(np.triu(matrix), columns=CODES) for matrix in matrices()]
    cohort = read_cohort(write(tmp_path / "in", tables), order=regions)
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices()), atol=1e-6)


@pytest.mark.parametrize("header", ["codes of an atlas", "with gaps", "in the order of words"])
def test_a_series_below_a_header_of_numbers_is_refused_and_both_options_work(
    tmp_path, regions, header
):
    tables = [pd.DataFrame(values, columns=HEADERS[header]) for values in series()]
    source = write(tmp_path / "in", tables)
    command = ["ingest", str(source), str(tmp_path / "out"), "--order", str(regions)]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    sentence = str(refused.exception)
    assert "can be a header of numbers above 40 rows, or the first of 41 rows" in sentence
    choices = [shlex.split(words) for words in re.findall(r"--header (?:yes|no)", sentence)]
    assert choices == [["--header", "yes"], ["--header", "no"]]
    accepted = CliRunner().invoke(app, [*command, *choices[0]])
    assert accepted.exit_code == 0, accepted.output
    cohort = nerve.Cohort.load(tmp_path / "out")
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)
    with_header = [np.vstack([HEADERS[header], values]) for values in series()]
    expected = [np.corrcoef(values.T) for values in with_header]
    other = read_cohort(source, order=regions, header="no")
    np.testing.assert_allclose(other.connectivity, np.stack(expected), atol=1e-5)


def test_a_series_whose_first_volume_has_fractions_has_no_header(tmp_path, regions):
    source = write(tmp_path / "in", series(), header=False)
    cohort = read_cohort(source, order=regions)
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)
    shown = {line.topic: line for line in preview(source, order=regions).lines}
    assert shown["header and index"].decision == "none"


@pytest.mark.parametrize("column", ["code", "index"])
def test_codes_that_the_parcellation_lists_name_the_columns(tmp_path, column):
    """The table lists the regions in another order than the files: the codes decide."""
    order = np.random.default_rng(1).permutation(N)
    table = pd.DataFrame(
        {
            "label": np.array(LABELS)[order],
            "network": ["x"] * 6 + ["y"] * 6,
            column: np.array(CODES)[order],
        }
    )
    table.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    fc = np.stack(matrices())
    source = write(tmp_path / "fc", [pd.DataFrame(matrix, columns=CODES) for matrix in fc])
    cohort = read_cohort(source, parcellation=tmp_path / "atlas.tsv")
    np.testing.assert_allclose(cohort.connectivity, fc[:, order][:, :, order], atol=1e-6)
    assert cohort.notes["region_match"] == "label"
    tables = [pd.DataFrame(values, columns=CODES) for values in series()]
    cohort = read_cohort(write(tmp_path / "series", tables), parcellation=tmp_path / "atlas.tsv")
    expected = correlations()[:, order][:, :, order]
    np.testing.assert_allclose(cohort.connectivity, expected, atol=1e-5)


def test_a_header_that_counts_from_0_is_not_read_as_codes_from_1(tmp_path):
    table = pd.DataFrame({"label": LABELS, "network": "x", "index": range(1, N + 1)})
    table.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    source = write(tmp_path / "fc", [pd.DataFrame(matrix) for matrix in matrices()])
    cohort = read_cohort(source, order=tmp_path / "atlas.tsv")
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices()), atol=1e-6)


def test_codes_that_nobody_knows_are_not_called_missing_labels(tmp_path, regions):
    tables = [pd.DataFrame(matrix, columns=CODES) for matrix in matrices()]
    source = write(tmp_path / "in", tables)
    lines = {line.topic: line for line in preview(source, order=regions).lines}
    assert lines["labels"].decision.startswith("codes or counts in the files (2001, 2002, 2101")
    assert "the files have no labels" not in lines["labels"].evidence
    bare = write(tmp_path / "bare", matrices(), header=False)
    lines = {line.topic: line for line in preview(bare, order=regions).lines}
    assert lines["labels"].decision.startswith("not in the files")
    assert "the files have no labels" in lines["labels"].evidence


@pytest.mark.slow
def test_codes_of_a_built_in_atlas_name_the_columns(tmp_path):
    atlas = nerve.load_parcellation("aal90")
    table = nerve.data.atlas_tables.atlas_table("aal90")
    codes = [next(w for w in words.split(" ") if w.isdigit()) for words in table["aliases"]]
    order = np.random.default_rng(0).permutation(90)
    fc = random_fc(90, 0)
    frame = pd.DataFrame(fc[np.ix_(order, order)], columns=np.array(codes)[order])
    source = write(tmp_path / "in", [frame, frame])
    cohort = read_cohort(source, parcellation=atlas)
    np.testing.assert_allclose(cohort.connectivity[0], fc, atol=1e-6)


@pytest.mark.parametrize("name", ["time", "TR", "Volume", "t"])
def test_a_first_column_of_times_is_no_region(tmp_path, regions, name):
    tables = []
    for values in series():
        table = pd.DataFrame(values, columns=LABELS)
        table.insert(0, name, np.arange(40) * 0.72)
        tables.append(table)
    source = write(tmp_path / "in", tables)
    cohort = read_cohort(source, parcellation=regions)
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)
    lines = {line.topic: line for line in preview(source, parcellation=regions).lines}
    assert f"a first column {name!r}, which is left out" in lines["header and index"].decision


@pytest.mark.parametrize("step", [1.0, 0.72, 2.5])
def test_times_without_a_name_are_no_region(tmp_path, regions, step):
    tables = [np.column_stack([np.arange(40) * step, values]) for values in series()]
    cohort = read_cohort(write(tmp_path / "in", tables, header=False), order=regions)
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)


@pytest.mark.parametrize("form", ["as pandas writes it", "named", "without a header"])
def test_a_vector_with_its_index(tmp_path, regions, form):
    (tmp_path / "in").mkdir()
    upper = np.triu_indices(N, 1)
    for number, matrix in enumerate(matrices()):
        vector = pd.Series(matrix[upper], name="fc" if form == "named" else None)
        path = tmp_path / "in" / f"sub-{number}.csv"
        vector.to_csv(path, header=form != "without a header")
    cohort = read_cohort(tmp_path / "in", order=regions, unfolding="upper", values="r")
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices()), atol=1e-6)


@pytest.mark.parametrize(
    "remarks",
    [
        ["#" + " ".join(LABELS)],
        ["# ROI " + " ".join(LABELS)],
        ["# made by us", *(f"#ROI {n + 1}: {label}" for n, label in enumerate(LABELS))],
        ["#ROI\t" + "\t".join(LABELS), "# 40 volumes"],
    ],
)
def test_remarks_that_name_the_columns_are_used(tmp_path, regions, remarks):
    order = np.random.default_rng(2).permutation(N)
    names = dict(zip(LABELS, np.array(LABELS)[order], strict=True))
    (tmp_path / "in").mkdir()
    for number, values in enumerate(series()):
        lines = [re.sub(r"area_[a-l]", lambda m: names[m[0]], line) for line in remarks]
        mark = "\t" if "\t" in lines[0] else " "
        lines += [mark.join(f"{value:.8f}" for value in row) for row in values[:, order]]
        (tmp_path / "in" / f"sub-{number}.txt").write_text("\n".join(lines) + "\n")
    cohort = read_cohort(tmp_path / "in", parcellation=regions)
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)
    assert cohort.notes["region_match"] == "label"


@pytest.mark.parametrize(
    ("option", "words"),
    [("header", "its first line holds words"), ("index", "its first column holds words")],
)
def test_words_are_no_numbers_whatever_the_user_says(tmp_path, regions, option, words):
    tables = [pd.DataFrame(matrix, columns=LABELS, index=LABELS) for matrix in matrices()]
    source = write(tmp_path / "in", tables, index=True)
    with pytest.raises(NerveError, match=f"{option} is no, and {words}.*Leave {option} out"):
        read_cohort(source, parcellation=regions, **{option: "no"})
    assert len(read_cohort(source, parcellation=regions)) == 3


def test_header_and_index_that_the_user_names_are_cut_off(tmp_path, regions):
    rng = np.random.default_rng(5)
    framed = [rng.normal(size=(41, N + 1)) for _ in range(3)]
    for table, values in zip(framed, series(), strict=True):
        table[1:, 1:] = values
    source = write(tmp_path / "in", framed, header=False)
    cohort = read_cohort(source, order=regions, header="yes", index="yes")
    np.testing.assert_allclose(cohort.connectivity, correlations(), atol=1e-5)
