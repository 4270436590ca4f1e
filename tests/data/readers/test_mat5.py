"""Damaged MAT v5 files are refused before scipy's parser, which they can make end the whole process."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

from nerve._utils.errors import NerveError
from nerve.data.readers.mat5 import refuse_unsound


def written(compressed: bool, **variables: object) -> bytes:
    stream = io.BytesIO()
    savemat(
        stream, variables or {"corr_mat": np.eye(21), "after": np.eye(2)}, do_compression=compressed
    )
    return stream.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_whole_files_of_every_kind_of_variable_are_sound(compressed, tmp_path):
    nested = np.empty(2, object)
    nested[0], nested[1] = np.eye(2), np.array(["word", np.zeros((0, 0))], object)
    variables = {
        "fc": np.eye(300),
        "cells": nested,
        "words": np.array(["a", "bc"], object),
        "text": "é",
    }
    variables |= {
        "struct": {"x": 1.0, "y": "z"},
        "sparse": sparse.eye(4).tocsc(),
        "complex": np.eye(2) * 1j,
    }
    variables |= {
        "empty": np.zeros((0, 0)),
        "logical": np.array([True]),
        "integers": np.arange(5, dtype=np.uint8),
    }
    content = written(compressed, **variables)
    refuse_unsound(content, "file")
    (tmp_path / "file.mat").write_bytes(content)
    refuse_unsound(tmp_path / "file.mat", "file")


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (144, 5),  # a full array that says it is sparse
        (145, 8),  # an imaginary part that is not there: both of these crash scipy 1.17
        (184, 77),  # data of a type that does not exist
        (132, 255),  # a size beyond the end
        (128, 3),  # a variable that is no array
    ],
)
def test_damage_is_refused(position, value):
    content = bytearray(written(False))
    content[position] = value
    with pytest.raises(NerveError, match=r"sub-01\.mat: the MATLAB file is damaged"):
        refuse_unsound(bytes(content), "sub-01.mat")


@pytest.mark.slow
def test_no_damage_that_passes_ends_the_process():
    whole = [written(False), written(True)]
    rng = np.random.default_rng(0)
    for trial in range(60):
        content = bytearray(whole[trial % 2])
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(128, min(len(content), 260))] = rng.integers(0, 20)
        assert _survives(bytes(content))


def _survives(content: bytes) -> bool:
    """Whether a process that checks and then reads these bytes ends by itself."""
    try:
        refuse_unsound(content, "file")
    except NerveError:
        return True
    child = os.fork()
    if child == 0:
        try:
            loadmat(io.BytesIO(content))
        except Exception:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) >= 0
