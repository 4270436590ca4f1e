"""UK Biobank netmats: the triangle is unfolded column by column, and nobody is told that it is r."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import random_fc, write_ukb, write_ukb_bulk

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation
from nerve.data.readers import Options, get_reader, read_cohort


@pytest.fixture
def groups(tmp_path):
    def write(n_nodes: int):
        path = tmp_path / f"groups{n_nodes}.tsv"
        table = pd.DataFrame(
            {
                "label": [f"IC{i}" for i in range(n_nodes)],
                "network": ["A", "B", "C"] * (n_nodes // 3) + ["A"] * (n_nodes % 3),
            }
        )
        table.to_csv(path, sep="\t", index=False)
        return str(path)

    return write


def netmat(n_nodes: int, seed: int) -> np.ndarray:
    matrix = 12 * random_fc(n_nodes, seed)  # far outside [-1, 1], as z statistics are
    np.fill_diagonal(matrix, 1)
    return matrix


def test_the_documented_example_of_the_biobank(tmp_path):
    square = np.array([[0, 1, 2, 4], [1, 0, 3, 5], [2, 3, 0, 6], [4, 5, 6, 0]])
    (tmp_path / "1000001_25750_2_0.txt").write_text("1 2 3 4 5 6\n")
    reader = get_reader("ukb")
    reading = reader.read(reader.find(tmp_path, Options())[0], Options())
    np.testing.assert_array_equal(reading.matrix - np.eye(4), square)


@pytest.mark.parametrize("n_nodes", [21, 55])
@pytest.mark.parametrize("ids", [True, False], ids=["ids inside", "ids in a file"])
def test_rows_of_a_table_come_back(tmp_path, groups, n_nodes, ids):
    people = {f"100000{i}": netmat(n_nodes, i) for i in range(3)}
    source = write_ukb(tmp_path / "source" / "netmats.txt", people, ids=ids)
    listing = tmp_path / "ids.txt"
    listing.write_text("eid\n" + "\n".join(people))
    cohort = read_cohort(source, parcellation=groups(n_nodes), ids=None if ids else listing)
    assert cohort.notes["format"] == "ukb"
    assert list(cohort.participants["participant_id"]) == list(people)
    np.testing.assert_allclose(cohort.connectivity, np.stack(list(people.values())), rtol=1e-5)
    assert any("not r" in note for note in cohort.notes["log"])


def test_bulk_files_of_one_field(tmp_path, groups):
    for i in range(2):
        write_ukb_bulk(tmp_path / "bulk", f"100000{i}", netmat(21, i))
    write_ukb_bulk(tmp_path / "bulk", "1000000", netmat(55, 9), field=25751)
    with pytest.raises(NerveError, match="25750, 25751"):
        read_cohort(tmp_path / "bulk", parcellation=groups(21))
    cohort = read_cohort(tmp_path / "bulk", parcellation=groups(21), atlas="25750")
    np.testing.assert_allclose(cohort.connectivity, [netmat(21, 0), netmat(21, 1)], rtol=1e-5)


def test_of_several_visits_the_first_is_read_unless_another_is_named(tmp_path, groups):
    for instance in (2, 3):
        write_ukb_bulk(tmp_path / "bulk", "1000000", netmat(21, instance), instance=instance)
    first = read_cohort(tmp_path / "bulk", parcellation=groups(21))
    np.testing.assert_allclose(first.connectivity[0], netmat(21, 2), rtol=1e-5)
    assert any("reduced to the first one by session" in note for note in first.notes["log"])
    second = read_cohort(tmp_path / "bulk", parcellation=groups(21), session="3")
    np.testing.assert_allclose(second.connectivity[0], netmat(21, 3), rtol=1e-5)


def test_fishers_z_becomes_r_when_the_user_says_so(tmp_path, groups):
    fc = random_fc(21, 0)
    source = write_ukb(tmp_path / "netmats.txt", {"1": np.arctanh(fc * (1 - np.eye(21)))})
    cohort = read_cohort(source, parcellation=groups(21), values="z")
    np.testing.assert_allclose(cohort.connectivity[0], fc, atol=1e-6)


def test_groups_are_asked_for(tmp_path):
    source = write_ukb(tmp_path / "netmats.txt", {"1": netmat(21, 0)})
    with pytest.raises(
        NerveError, match=r"21 regions.*parcellation=TSV with columns label and network"
    ):
        read_cohort(source)


def test_ids_are_asked_for(tmp_path, groups):
    source = write_ukb(tmp_path / "netmats.txt", {"1": netmat(21, 0)}, ids=False)
    with pytest.raises(NerveError, match=r"no ids.*ids=FILE"):
        read_cohort(source, parcellation=groups(21))
    with pytest.raises(NerveError, match="it holds 1 participant and there are 2 ids"):
        read_cohort(source, parcellation=groups(21), ids=["1", "2"])


def test_an_id_that_occurs_twice_is_refused(tmp_path, groups):
    source = write_ukb(tmp_path / "netmats.txt", {"1": netmat(21, 0)})
    source.write_text(source.read_text() * 2)
    with pytest.raises(NerveError, match=r"ids occur twice \(1\)"):
        read_cohort(source, parcellation=groups(21))


def test_a_table_that_was_cut_off_is_refused(tmp_path, groups):
    source = write_ukb(tmp_path / "netmats.txt", {"1": netmat(21, 0), "2": netmat(21, 1)})
    source.write_text(source.read_text()[:-300])
    with pytest.raises(
        NerveError, match=r"the last line has 183 of 211 values: the file was cut off\. Fetch"
    ):
        read_cohort(source, parcellation=groups(21))


def test_other_tables_are_not_netmats(tmp_path):
    (tmp_path / "participants.tsv").write_text("participant_id\tage\n1\t20\n")
    np.savetxt(tmp_path / "matrix.txt", random_fc(21, 0))
    assert get_reader("ukb").find(tmp_path, Options()) == []


@pytest.mark.parametrize("n_rows", [2, 4000])
def test_a_bulk_file_of_several_rows_is_not_of_one_participant(tmp_path, n_rows):
    row = " ".join(["0.5"] * 210)
    (tmp_path / "1000001_25750_2_0.txt").write_text(f"{row}\n" * n_rows)
    regions = Parcellation(tuple(f"n{i}" for i in range(21)), ("A",) * 21)
    with pytest.raises(NerveError, match=r"expected one row of values"):
        read_cohort(tmp_path, parcellation=regions, format="ukb")
