"""Each page about a kind of source shows the plan that its command really prints."""

import pytest
from tests.promises.plans import PAGES_WITH_PLAN, printed_plan, shown_plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PAGES_WITH_PLAN)
def test_the_plan_of_the_page_is_the_one_that_is_printed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_plan(name) == printed_plan(name, tmp_path), "python -m tests.promises.plans"
