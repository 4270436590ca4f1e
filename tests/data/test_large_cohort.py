"""A store of 40,000 people × 400 regions opens, subsets, aligns and yields batches in less than 1 GB of memory.

The 12.8 GB of matrices are a sparse file: all the reading and mapping of a full one, none of the disk. A few rows
hold known matrices, so that what comes out can be told.
"""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from nerve.data.cohort_files import writing_cohort
from nerve.data.parcellation import load_parcellation

N_PEOPLE, N_REGIONS, BATCH = 40_000, 400, 32
GIGABYTE = 1e9

WORK = """
import json, re, sys
from pathlib import Path
import numpy as np
import psutil
from nerve import Cohort

peak = 0

def resident():
    status = Path("/proc/self/status")
    if status.is_file():  # the highest so far, kept by the system
        return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1])
    return psutil.Process().memory_info().rss

before = resident()  # what imports take depends on the build of the libraries
cohort = Cohort.load(sys.argv[1])
marked = np.array(json.loads(sys.argv[2]))
rng = np.random.default_rng(0)
others = np.setdiff1d(np.arange(len(cohort)), marked)
half = np.sort(np.concatenate([marked, rng.choice(others, len(cohort) // 2 - len(marked), replace=False)]))
aligned = cohort.subset(half).align("schaefer400-7")
sums = []
for _ in range(3):
    batch = aligned.inputs("fc", rng.choice(len(aligned), 32, replace=False))
    peak = max(peak, resident())
    sums.append(batch.shape)
places = np.searchsorted(half, marked)
found = aligned.inputs("fc", places)
whole = cohort.inputs("fc", rng.choice(len(cohort), 32, replace=False)).shape
direct = cohort.inputs("fc", marked)
np.savez(sys.argv[3], aligned=found, direct=direct)
print(json.dumps({"peak": max(peak, resident()) - before, "batches": sums + [whole], "half": len(aligned)}))
"""


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory):
    """The store, and the positions and contents of the rows that are not zero."""
    folder = tmp_path_factory.mktemp("large") / "store"
    people = pd.DataFrame({"participant_id": [f"sub-{i:05d}" for i in range(N_PEOPLE)]})
    with writing_cohort(folder, "schaefer400-17", dtype="float16") as writer:
        writer.finish(people, name="large")
    rng = np.random.default_rng(1)
    marked = np.sort(rng.choice(N_PEOPLE, 5, replace=False))
    matrices = rng.standard_normal((5, N_REGIONS, N_REGIONS)).astype(np.float16)
    file = folder / "connectivity.npy"
    header = {"descr": "<f2", "fortran_order": False, "shape": (N_PEOPLE, N_REGIONS, N_REGIONS)}
    with open(file, "wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        start = stream.tell()
        for row, matrix in zip(marked, matrices, strict=True):
            stream.seek(start + int(row) * matrix.nbytes)
            stream.write(matrix.tobytes())
        stream.truncate(start + N_PEOPLE * matrices[0].nbytes)
    used = file.stat().st_blocks * 512
    if used > GIGABYTE:
        file.unlink()
        pytest.skip(f"this file system has no sparse files ({used / 1e9:.1f} GB were used)")
    yield folder, marked, matrices
    file.unlink()


@pytest.mark.slow
def test_a_cohort_of_forty_thousand_participants_is_read_in_less_than_a_gigabyte(
    large_folder, tmp_path
):
    folder, marked, matrices = large_folder
    out = tmp_path / "rows.npz"
    command = [sys.executable, "-c", WORK, str(folder), json.dumps(marked.tolist()), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["half"] == N_PEOPLE // 2
    assert report["batches"] == [[BATCH, N_REGIONS, N_REGIONS]] * 4
    assert report["peak"] < GIGABYTE, f"{report['peak'] / 1e9:.2f} GB more were resident"
    with np.load(out) as rows:
        np.testing.assert_array_equal(rows["direct"], matrices)
        order = load_parcellation("schaefer400-17").reordering_to("schaefer400-7")
        np.testing.assert_array_equal(rows["aligned"], matrices[:, order[:, None], order])
