"""Defects that random bad input and torture.hostile once showed, each as a test of its own."""

import gzip
import os

import h5py
import nibabel
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.io import savemat
from tests.data.readers.write_formats import random_fc, random_series, write_cpac, write_ptseries

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import _columns_as_text
from nerve.data.connectivity import connectivity_from_series
from nerve.data.parcellation import Parcellation
from nerve.data.readers import ingest
from nerve.data.readers.arrays import array_shapes, read_array, read_slice
from nerve.data.readers.cifti import load_image
from nerve.data.readers.names import scan_of_file
from nerve.data.readers.opening import files_below
from nerve.data.readers.participants_table import load_table, parse_columns
from nerve.data.readers.text import column_of_numbers, read_numbers
from nerve.methods import make_method

FC = random_fc(21, 0)


def test_pipes_devices_and_sockets_are_passed_over(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "device.npy").symlink_to("/dev/zero")
    (tmp_path / "ring.npy").symlink_to("ring.npy")
    (tmp_path / "gone.npy").symlink_to("nowhere")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/b.npy").write_bytes(b"x")
    assert [path.name for path in files_below(tmp_path, ".npy") if path.parent == tmp_path] == [
        "a.npy",
        "gone.npy",
        "ring.npy",
    ]
    assert files_below(tmp_path / "device.npy") == []


@pytest.mark.parametrize("kind", ["pearson", "partial", "ledoit_wolf"])
@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e150, 1e300])
def test_the_scale_of_a_series_does_not_count(kind, scale):
    series = random_series(60, 5, 0)
    if scale > 1e-310:
        np.testing.assert_array_equal(
            connectivity_from_series(series * 2.0**900, kind),
            connectivity_from_series(series, kind),
        )
    found = connectivity_from_series(series * scale, kind)
    np.testing.assert_allclose(
        found, connectivity_from_series(series, kind), atol=1e-3 if scale < 1e-310 else 1e-12
    )


def test_remarks_are_passed_over(tmp_path):
    (tmp_path / "x.csv").write_text("# a remark\n0.1,0.2\n0.3,0.4\n")
    assert read_numbers(tmp_path / "x.csv").values.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    (tmp_path / "y.csv").write_text("# a remark\n")
    with pytest.raises(NerveError, match=r"it holds no"):
        read_numbers(tmp_path / "y.csv")


def test_a_surface_atlas_on_parcels_is_explained(tmp_path):
    func = tmp_path / "sub-01/func"
    write_ptseries(
        func / "sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii",
        random_series(60, 4, 0),
        list("abcd"),
    )
    write_ptseries(tmp_path / "atlas.dlabel.nii", random_series(60, 4, 0), list("abcd"))
    with pytest.raises(NerveError, match=r"it could not be read.*expected a whole image"):
        ingest(
            tmp_path,
            tmp_path / "out",
            atlas_image=tmp_path / "atlas.dlabel.nii",
            denoise="none",
            format="nifti",
        )


def test_ids_of_any_length_are_compared(tmp_path):
    assert (
        scan_of_file(tmp_path / "S10_fc.npy", tmp_path, ["S1", "", "x" * 10**7, "S10"]).participant
        == "S10"
    )
    assert scan_of_file(tmp_path / "S1é.npy", tmp_path, ["S1"]).participant == "S1"


def test_a_table_that_changed_is_read_again(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("participant_id\ta\nx\t1\n")
    first = load_table(path)
    first.loc[0, "a"] = 9
    assert load_table(path)["a"].tolist() == [1]
    path.write_text("participant_id\ta\nx\t2\n")
    os.utime(path, ns=(1, 1))
    assert load_table(path)["a"].tolist() == [2]


@pytest.mark.parametrize("content", ["age: [1]", "age: {a: b}", "age: null", "a: &a [x]\nage: *a"])
def test_columns_are_names(tmp_path, content):
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(NerveError, match="holds no names of columns"):
        parse_columns(tmp_path / "c.yaml")


def test_coordinates_of_hundreds_of_digits_are_no_coordinates(tmp_path):
    (tmp_path / "r.tsv").write_text(f"label\tnetwork\tx\ty\tz\na\tn\t1\t2\t{'9' * 500}\n")
    with pytest.raises(NerveError, match="a coordinate is not a number"):
        Parcellation.from_table(tmp_path / "r.tsv")


# ---- bombs and links


def matlab(path, write):
    with h5py.File(path, "w", userblock_size=512) as file:
        write(file)
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def test_hdf5_does_not_read_other_files(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["fc"] = FC
    (tmp_path / "secret.raw").write_bytes(FC.tobytes())
    virtual = h5py.VirtualLayout(FC.shape, "f8")
    virtual[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "fc", FC.shape)

    def write(file):
        file["linked"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "fc")
        file["ring"] = h5py.SoftLink("/ring")
        file.create_dataset(
            "outside", FC.shape, "f8", external=[(str(tmp_path / "secret.raw"), 0, FC.nbytes)]
        )
        file.create_virtual_dataset("composed", virtual)
        file["own"] = FC

    path = matlab(tmp_path / "x.mat", write)
    assert not {"linked", "ring"} & set(array_shapes(path))
    np.testing.assert_array_equal(read_array(path, "own"), FC.T)
    for name in ("linked", "ring", "outside", "composed"):
        with pytest.raises(NerveError, match=f"'{name}' (is a link|holds no numbers of its own)"):
            read_array(path, name)
        with pytest.raises(NerveError, match=f"'{name}' (is a link|holds no numbers of its own)"):
            read_slice(path, name, 0, 1)


def test_objects_and_functions_of_matlab_are_no_matrices(tmp_path):
    def write(file):
        for name, kind in {"f": "function_handle", "c": "char", "d": "double", "u": ""}.items():
            file[name] = FC
            if kind:
                file[name].attrs["MATLAB_class"] = np.bytes_(kind)
        file["o"] = FC
        file["o"].attrs["MATLAB_object_decode"] = 3

    assert set(array_shapes(matlab(tmp_path / "x.mat", write))) == {"d", "u"}


def test_giants_are_refused_by_what_they_claim(tmp_path):
    giant = matlab(
        tmp_path / "a.mat",
        lambda file: file.create_dataset("fc", (10**6, 10**6), "f8", chunks=(9, 9)),
    )
    with pytest.raises(NerveError, match="bytes unpack to 8,000,000,000,000 or more"):
        read_array(giant, "fc")
    savemat(tmp_path / "b.mat", {"fc": sparse.csc_matrix((10**5, 10**5))})
    with pytest.raises(NerveError, match="bytes unpack to 80,000,000,000 or more"):
        read_array(tmp_path / "b.mat", "fc")
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.float32), np.eye(4))
    image.header.set_data_shape((2000, 2000, 2000))
    (tmp_path / "c.nii.gz").write_bytes(gzip.compress(bytes(image.header.binaryblock) + bytes(100)))
    with pytest.raises(NerveError, match="bytes unpack to 32,000,000,000 or more"):
        load_image(tmp_path / "c.nii.gz")


@pytest.mark.slow
def test_the_packing_of_each_array_counts_not_that_of_an_archive(tmp_path):
    giant, people = (
        np.zeros(17_000_000),
        {f"S{i:02d}": np.eye(1000) for i in range(18)},
    )  # 144 MB in all
    np.savez_compressed(tmp_path / "x.npz", giant=giant, **people)
    assert 100 * (tmp_path / "x.npz").stat().st_size < 144e6
    assert np.array_equal(read_array(tmp_path / "x.npz", "S17"), np.eye(1000))
    with pytest.raises(NerveError, match=r"bytes unpack to 136,000,\d+ or more"):
        read_array(tmp_path / "x.npz", "giant")


def test_a_table_without_rows_is_called_so(tmp_path):
    (tmp_path / "people.csv").write_text("# nobody yet\n")
    with pytest.raises(
        NerveError, match=r"people\.csv: it holds no rows, expected a table with names of columns"
    ):
        load_table(tmp_path / "people.csv")


def test_a_first_line_without_end_is_not_read_whole(tmp_path):
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"0\t" * 2**15, 1) * 400)
    with pytest.raises(NerveError, match=r"its first line does not end|unpack to"):
        read_numbers(tmp_path / "x.tsv.gz")


# ---- stores


@pytest.fixture
def store(tmp_path):
    series = [random_series(30, 21, i) for i in range(3)]
    table = {"participant_id": ["a", "b", "c"]}
    import pandas as pd

    parcellation = Parcellation(tuple(f"r{i}" for i in range(21)), ("n",) * 21)
    exclusions = pd.DataFrame({"participant_id": ["x"], "reason": ["y"]})
    fc = np.stack([np.corrcoef(one.T) for one in series])
    Cohort(fc, pd.DataFrame(table), parcellation, series, exclusions=exclusions).save(
        tmp_path / "c"
    )
    return tmp_path / "c"


@pytest.mark.parametrize(
    ("volumes", "sentence"),
    [
        ("31", "its numbers of volumes do not fit"),
        ("x", "is not a readable table"),
        ("-0.5", "is not a readable table"),
        ("", "is not a readable table"),
    ],
)
def test_lengths_of_series_that_do_not_fit(store, volumes, sentence):
    (store / "timeseries.tsv").write_text(
        f"participant_id\tn_volumes\na\t30\nb\t30\nc\t{volumes}\n"
    )
    with pytest.raises(NerveError, match=rf"timeseries\.tsv: {sentence}"):
        Cohort.load(store)


@pytest.mark.parametrize("name", ["connectivity.tsv", "timeseries.tsv", "exclusions.tsv"])
def test_tables_without_their_columns(store, name):
    (store / name).write_text("who\nme\n")
    with pytest.raises(NerveError, match=rf"{name}: is not a readable table .*participant_id"):
        Cohort.load(store)


@pytest.mark.parametrize("wrong", ['"notes": [1]', '"name": null', '"format_version": "1"'])
def test_a_cohort_that_describes_nothing(store, wrong):
    about = store / "cohort.json"
    about.write_text(about.read_text().rstrip().removesuffix("}") + f", {wrong}}}")
    with pytest.raises(NerveError, match=r"cohort\.json: it does not describe a cohort"):
        Cohort.load(store)


def test_cpac_series_of_huge_numbers(tmp_path):
    series = random_series(60, 5, 0)
    series[::7] = 1e308
    write_cpac(tmp_path / "in", "S01", series=series, atlas="Own")
    regions = Parcellation(tuple("abcde"), ("n",) * 5)
    report = ingest(tmp_path / "in", tmp_path / "out", parcellation=regions, kind="partial")
    assert report.n_participants == 1
    assert np.isfinite(Cohort.load(tmp_path / "out").connectivity).all()


def test_an_integer_that_is_too_long_for_a_number_is_no_traceback(tmp_path):
    table = pd.DataFrame({"x": np.array([10**400, 1], object)})
    assert np.isinf(column_of_numbers(table, "x", "here")[0])


def test_an_array_without_axes_is_left_out_by_name(tmp_path):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "a.npy", np.array(1.0))
    with pytest.raises(NerveError, match=r"a\.npy"):
        ingest(tmp_path / "in", tmp_path / "out", parcellation="schaefer100-17")


def test_a_row_of_edges_without_a_region(tmp_path):
    rows, columns = np.triu_indices(4, 1)
    names = np.array(["a", "b", "c", "d"], object)
    table = pd.DataFrame(
        {"participant_id": "s1", "region_a": names[rows], "region_b": names[columns], "r": 0.1}
    )
    table.loc[2, "region_b"] = None
    (tmp_path / "edges.csv").write_text(table.to_csv(index=False))
    with pytest.raises(NerveError, match="a row names no region"):
        ingest(
            tmp_path / "edges.csv",
            tmp_path / "out",
            parcellation=Parcellation(tuple("abcd"), tuple("xxyy")),
        )


def test_a_setting_that_holds_itself():
    ring = []
    ring.append(ring)
    with pytest.raises(NerveError, match="a setting holds itself"):
        make_method("braingnn", "small", {"hidden": ring})


def test_columns_are_hashed_as_files_of_their_own():
    """Together, since pandas takes long for each of ten thousand columns, and with the same text."""
    odd = ["", "n/a", None, "a\rb", 'c"d', "e\nf", "g,h"]
    table = pd.DataFrame(
        {"word": odd, "x": [1.5, np.nan, 1 / 3, 1e300, 0, -1, 2], "n": range(7), "e": [None] * 7}
    )
    expected = [
        (name, column.to_csv(index=False, float_format="%.12g")) for name, column in table.items()
    ]
    assert list(_columns_as_text(table)) == expected
