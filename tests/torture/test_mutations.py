"""The mutation check itself: its list is up to date, and one of its mutations is tried."""

import shutil

import pytest

from torture import mutations


def test_each_of_the_forty_lines_stands_once_in_the_source():
    assert mutations.missing_lines() == []
    assert len({mutation.name.partition(":")[0] for mutation in mutations.MUTATIONS}) == 40


def test_lines_are_drawn_over_all_packages():
    places = {mutation.file.partition("/")[0].removesuffix(".py") for mutation in mutations.MUTATIONS}
    packages = {"models", "training", "readers", "quality", "simulate", "evaluation", "interpret", "experiments"}
    assert packages | {"report", "patching", "views", "connectivity", "files", "store"} <= places


def test_a_line_that_is_gone_is_said_and_nothing_is_tried(tmp_path, monkeypatch):
    gone = mutations.MUTATIONS[0]._replace(old="return self.pairs_as_they_were")
    monkeypatch.setattr(mutations, "MUTATIONS", (gone,))
    (promise,) = mutations.run(tmp_path, short=False, seed=0)
    assert not promise.kept
    assert "return self.pairs_as_they_were" in promise.measured


@pytest.mark.slow
def test_broken_lines_are_noticed_harmless_changes_not_and_another_copy_is_not_believed(tmp_path):
    """In one process, which imports what nerve imports once."""
    broken = mutations.MUTATIONS[0]
    harmless = broken._replace(new="self.pairs = np.array(np.triu_indices(n_groups)).T")
    jobs = []
    for name, mutation in (("broken", broken), ("harmless", harmless), ("elsewhere", None)):
        tree = mutations.copied_tree(tmp_path / name)
        if mutation:
            mutations.mutate(tree / "src" / "nerve" / mutation.file, mutation)
        jobs.append((tree, broken.tests))
    shutil.move(tree / "src", tmp_path / "moved")  # the installed one is imported instead
    found = mutations.run_tests(jobs)
    assert mutations.verdict(broken, found[0]) == ""
    assert "NOT NOTICED" in mutations.verdict(harmless, found[1])
    assert "expected the copy" in mutations.verdict(broken, found[2])
