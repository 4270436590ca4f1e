"""The row of the table is made of what the tests of random layouts recorded."""

from collections import Counter

from torture.random_layouts import make_promise, read_outcomes

RECORD = """<testsuites><testsuite>
<testcase><properties>
  <property name="right" value="5"/><property name="refused: no labels | no ids" value="2"/>
</properties></testcase>
<testcase><properties>
  <property name="right" value="1"/>
  <property name="right once the advice is typed" value="3"/>
</properties></testcase>
</testsuite></testsuites>"""


def test_outcomes_of_all_tests_are_added_up(tmp_path):
    (tmp_path / "outcomes.xml").write_text(RECORD)
    outcomes = read_outcomes(tmp_path / "outcomes.xml")
    assert outcomes["right"] == 6
    promise = make_promise(outcomes, exit_code=0)
    assert promise.kept
    assert promise.measured == (
        "11 layouts: 9 right (3 of them once what the message says was typed), 2 refused, "
        "most often (2) because no labels / no ids"
    )


def test_no_layout_at_all_is_no_success():
    assert not make_promise(Counter(), exit_code=0).kept
    assert not make_promise(Counter(right=5), exit_code=1).kept
