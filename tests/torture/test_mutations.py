"""The mutation check itself: its list is up to date, and a few of its mutations are tried."""

import shutil

import pytest

from torture import mutations


def test_each_of_the_ten_lines_stands_once_in_the_source():
    assert mutations.missing_lines() == []
    assert len({mutation.name.partition(":")[0] for mutation in mutations.MUTATIONS}) == 10


def test_a_line_that_is_gone_is_said_and_nothing_is_tried(tmp_path, monkeypatch):
    gone = mutations.MUTATIONS[0]._replace(old="return self.pairs_as_they_were")
    monkeypatch.setattr(mutations, "MUTATIONS", (gone,))
    (promise,) = mutations.run(tmp_path, short=False, seed=0)
    assert not promise.kept
    assert "return self.pairs_as_they_were" in promise.measured


def test_tests_that_would_import_another_copy_are_not_believed(tmp_path):
    tree = mutations.copied_tree(tmp_path / "tree")
    shutil.move(tree / "src", tmp_path / "elsewhere")  # the installed one is imported instead
    code, said = mutations.run_tests(tree, ["tests/test_files.py"])
    assert code != 0
    assert "expected the copy" in said


@pytest.mark.slow
def test_a_harmless_change_counts_as_unnoticed(tmp_path):
    harmless = mutations.MUTATIONS[5]._replace(new="best = np.max(self.inner_scores_, axis=0)")
    assert "NOT NOTICED" in mutations.tried(tmp_path / "mutant", harmless)


@pytest.mark.slow
def test_short_form(tmp_path):
    assert [promise for promise in mutations.run(tmp_path, short=True, seed=0) if not promise.kept] == []
