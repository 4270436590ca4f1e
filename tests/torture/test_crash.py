"""A few of the kills of `python -m torture crash`, and that the torture itself would notice."""

import json

import numpy as np
import pytest
from torture._results import comparable_content, incomplete_files, leftover_files

from torture import crash


@pytest.mark.slow
def test_short_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = [promise for promise in crash.run(tmp_path, short=True, seed=1) if not promise.kept]
    assert not broken


def test_files_that_are_cut_short_are_seen(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1000))
    (tmp_path / "b.json").write_text(json.dumps({"x": list(range(100))}))
    (tmp_path / "c.tsv").write_text("a\tb\n1\t2\n")
    (tmp_path / ".d.json.abcdefgh.tmp").write_text("{")
    assert list(incomplete_files(tmp_path)) == []
    assert leftover_files(tmp_path) == [".d.json.abcdefgh.tmp"]
    for name in ("a.npy", "b.json", "c.tsv"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-3])
    assert [name for name, _ in incomplete_files(tmp_path)] == ["a.npy", "b.json", "c.tsv"]


def test_only_times_may_differ_between_two_runs(tmp_path):
    def make(name: str, loss: float, seconds: float) -> dict:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "history.tsv").write_text(f"step\ttraining_loss\tseconds\n1\t{loss}\t{seconds}\n")
        return comparable_content(folder)

    first = make("a", 0.5, 1.0)
    assert make("b", 0.5, 2.0) == first
    assert make("c", 0.6, 1.0) != first


PAGE = """<table><thead><tr><th scope="col">encoder</th><th scope="col">minutes</th>
<th scope="col">p</th></tr></thead><tbody>
<tr><td data-sort="a">a</td><td data-sort="{minutes}">{minutes}</td><td data-sort="{p}">{p}</td></tr>
</tbody></table>"""


def test_a_column_of_times_is_left_out_of_a_page_and_equal_numbers_elsewhere_are_not(tmp_path):
    def make(name: str, minutes: float, p: float) -> dict:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "report.html").write_text(PAGE.format(minutes=minutes, p=p))
        return comparable_content(folder)

    first = make("a", minutes=0.02, p=0.02)
    assert make("b", minutes=0.04, p=0.02) == first
    assert make("c", minutes=0.02, p=0.04) != first
