"""Identifiers are taken out, other words are left alone."""

import pytest

from nerve.report.privacy import Scrubber

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
def test_clean(text, expected):
    assert Scrubber(IDS).clean(text) == expected
