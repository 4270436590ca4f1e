"""Plain arrays in any file type, one a person or all in one, give the same matrices."""

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from tests.data.readers.write_formats import write_numbers

from nerve._utils.errors import NerveError
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import Options, get_reader, read_cohort

REGIONS = 100
PARCELLATION = load_parcellation("schaefer100-17")


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    return {name: np.corrcoef(rng.normal(size=(REGIONS, 150))) for name in ("p1", "p2", "p3")}


@pytest.fixture
def series():
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=(130, REGIONS)) for name in ("p1", "p2", "p3")}


def save(path, array):
    kind = path.suffix
    if kind == ".npy":
        np.save(path, array)
    elif kind == ".npz":
        np.savez(path, fc=array)
    elif kind == ".mat":
        savemat(path, {"anything": array})
    elif kind == ".csv":
        pd.DataFrame(array).to_csv(path, float_format="%.8f", header=False, index=False)
    elif kind == ".tsv":
        write_numbers(path, array, PARCELLATION.labels)
    else:
        np.savetxt(path, array, fmt="%.8f")


def read(source, **settings):
    return read_cohort(source, format="plain", **({"parcellation": PARCELLATION} | settings))


@pytest.mark.parametrize("ending", [".npy", ".npz", ".mat", ".csv", ".tsv", ".txt"])
def test_a_matrix_a_person_in_every_file_type(tmp_path, people, ending):
    for name, matrix in people.items():
        save(tmp_path / f"sub-{name}_fc{ending}", matrix)
    cohort = read(tmp_path)
    assert cohort.participants["participant_id"].tolist() == list(people)
    np.testing.assert_allclose(cohort.connectivity, np.stack(list(people.values())), atol=1e-6)


@pytest.mark.parametrize("ending", [".npz", ".mat", ".tsv"])
def test_a_time_series_a_person_in_every_file_type(tmp_path, series, ending):
    for name, one in series.items():
        save(tmp_path / f"sub-{name}_timeseries{ending}", one)
    cohort = read(tmp_path, timeseries=True)
    np.testing.assert_allclose(cohort.connectivity[1], np.corrcoef(series["p2"].T), atol=1e-6)
    np.testing.assert_allclose(cohort.timeseries[1], series["p2"], atol=1e-6)


def test_a_matrix_with_row_and_column_labels_is_matched_by_label(tmp_path, people):
    seven = load_parcellation("schaefer100-7")
    index = PARCELLATION.reordering_to(seven)
    for name, matrix in people.items():
        shuffled = pd.DataFrame(
            matrix[np.ix_(index, index)], index=list(seven.labels), columns=list(seven.labels)
        )
        shuffled.to_csv(tmp_path / f"{name}.csv")
    np.testing.assert_allclose(read(tmp_path).connectivity[2], people["p3"], atol=1e-6)


@pytest.mark.parametrize("layout", ["square", "upper"])
def test_one_array_of_all_people_with_ids_from_the_table(tmp_path, people, layout):
    stack = np.stack(list(people.values()))
    stack = stack if layout == "square" else stack[:, *np.triu_indices(REGIONS, 1)]
    np.save(tmp_path / "all.npy", stack.astype(np.float32))
    table = pd.DataFrame({"participant_id": ["p3", "p1", "p2"], "age": [3, 1, 2]})
    cohort = read(tmp_path / "all.npy", participants=table)
    assert cohort.participants["participant_id"].tolist() == ["p1", "p2", "p3"]
    assert cohort.participants["age"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(
        cohort.connectivity[2], people["p1"], atol=1e-6
    )  # p3 stands in the first row


@pytest.mark.parametrize(
    "text",
    ["S 1\nS 2\nS 3\n", "\n S 1 \n\nS 2\nS 3", "S 1\nS 2,x\nS 3\ty\n", "id\nS 1\nS 2\nS 3\n"],
)
def test_a_file_of_ids_has_one_per_line_whatever_is_in_it(tmp_path, people, text):
    np.save(tmp_path / "all.npy", np.stack(list(people.values())))
    (tmp_path / "ids.txt").write_text(text)
    cohort = read(tmp_path / "all.npy", ids=tmp_path / "ids.txt")
    assert cohort.participants["participant_id"].tolist() == ["S 1", "S 2", "S 3"]


def test_ids_of_a_stack_from_a_file_and_refused_when_they_do_not_fit(tmp_path, people):
    np.save(tmp_path / "all.npy", np.stack(list(people.values())))
    (tmp_path / "ids.txt").write_text("a\nb\nc\n")
    assert read(tmp_path / "all.npy", ids=tmp_path / "ids.txt").participants[
        "participant_id"
    ].tolist() == [
        "a",
        "b",
        "c",
    ]
    with pytest.raises(NerveError, match="holds 3 participants and there are 2 ids"):
        read(tmp_path / "all.npy", ids=["a", "b"])
    with pytest.raises(
        NerveError, match=r"holds 3 participants and no ids are known\. Give the ids"
    ):
        read(tmp_path / "all.npy")


def test_an_archive_with_one_series_a_person_turned_round(tmp_path, series):
    np.savez(
        tmp_path / "timeseries_ses-1.npz", **{f"sub-{name}": one.T for name, one in series.items()}
    )
    cohort = read(tmp_path / "timeseries_ses-1.npz")
    assert cohort.participants["participant_id"].tolist() == list(series)
    np.testing.assert_allclose(cohort.connectivity[0], np.corrcoef(series["p1"].T), atol=1e-6)


def test_an_archive_with_one_stack(tmp_path, people):
    np.savez(tmp_path / "all.npz", stack=np.stack(list(people.values())))
    cohort = read(tmp_path / "all.npz", ids=["a", "b", "c"])
    np.testing.assert_allclose(cohort.connectivity[2], people["p3"], atol=1e-6)


def test_a_damaged_matrix_is_never_taken_for_a_time_series(tmp_path, people):
    for name, matrix in people.items():
        np.save(tmp_path / f"{name}.npy", matrix[:99] if name == "p2" else matrix)
    cohort = read(tmp_path, allow_exclusions=True)
    assert cohort.participants["participant_id"].tolist() == ["p1", "p3"]
    assert "p2.npy (participant p2): the matrix is 99 x 100" in cohort.exclusions["reason"].item()
    with pytest.raises(NerveError, match="the matrix is 99 x 100, expected a square matrix"):
        read(tmp_path / "p2.npy")


def test_tables_beside_the_data_are_not_data(tmp_path, people):
    for name, matrix in people.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    pd.DataFrame({"participant_id": ["p1", "p2"], "age": [1, 2]}).to_csv(
        tmp_path / "participants.tsv", sep="\t"
    )
    (tmp_path / "scores.txt").write_text("a b\n1 2\n")
    cohort = read(tmp_path, allow_exclusions=True)
    assert cohort.participants["participant_id"].tolist() == ["p1", "p2"]
    assert cohort.participants["age"].tolist() == [1, 2]
    assert cohort.exclusions["participant_id"].tolist() == ["p3"]


def test_the_variable_is_chosen_or_asked_for(tmp_path, people):
    savemat(tmp_path / "p1.mat", {"one": people["p1"], "two": people["p2"]})
    with pytest.raises(NerveError, match=r"it holds one, two, expected one matrix .*variable"):
        read(tmp_path)
    np.testing.assert_allclose(
        read(tmp_path, variable="two").connectivity[0], people["p2"], atol=1e-6
    )
    with pytest.raises(NerveError, match=r"no variable 'three', expected one of one, two"):
        read(tmp_path, variable="three")


def test_pickles_are_never_opened(tmp_path):
    np.save(tmp_path / "p1.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(NerveError, match="a pickle is never opened"):
        read(tmp_path)
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(NerveError, match="it is a pickle, which is never opened"):
        read(tmp_path / "x.pkl")


def test_plain_is_asked_last():
    assert get_reader("plain").fallback
    assert get_reader("plain").find(__import__("pathlib").Path(__file__), Options()) == []
