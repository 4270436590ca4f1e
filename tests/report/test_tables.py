"""Tables print and mark what the paper prints and marks, cell by cell, when the paper's own numbers are fed in."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from folders import COMPARED, line, with_holding_columns
from printed import COLUMNS, SLIPS, TABLE_1, TABLE_2, TABLE_3

from nerve.evaluation.rows import rows_table
from nerve.experiments.terminal import show_paper_table
from nerve.report.report_data import ReportData
from nerve.report.table_formats import (
    to_csv,
    to_frame,
    to_latex,
    to_markdown,
    to_text,
    write_tables,
)
from nerve.report.tables import extended_table, number, paper_table

REFERENCES = {"raw": "Raw FC", "covariates": "Covariates only"}


def fed(table, layout="methods", references=False, p=None):
    """Results that hold the numbers of a printed table; p of the best two is 0.01 where the paper shades."""
    rows, scores, nulls, compared = [], [], [], []
    for name, text in table.items():
        kind = (
            "null"
            if name == "Permutation"
            else "supervised"
            if name[:7] in ("BrainNe", "BrainGN")
            else "self-supervised"
        )
        rows += line(name, "nerve" if name == "NERVE" else "other", name, kind, group=kind)
        for (cohort, target), cell in zip(COLUMNS, text.split(), strict=True):
            place = {"cohort": cohort, "target": target, "line": name, "row": f"{name}-0"}
            if cell == "--":
                continue
            r, width, marks = parsed(cell)
            if kind == "null":
                nulls += [
                    place | {"r": r + side * width * np.sqrt(0.5)} for side in (-1, 1)
                ]  # their spread is width
                continue
            scores.append(
                place
                | {
                    "r": r,
                    "r_half_width": width,
                    "p_permuted_networks": 0.01 if "†" in marks else 0.5,
                }
            )
            if "b" in marks:
                values = [
                    "",
                    "",
                    "methods",
                    "r",
                    r,
                    0,
                    0,
                    0,
                    0,
                    (0.01 if "s" in marks else 0.2) if p is None else p,
                    0.3,
                ]
                compared.append(
                    dict(zip(COMPARED, [cohort, target, *values, False, 9, True], strict=True))
                )
    if references:
        rows += [
            row
            for method, name in REFERENCES.items()
            for row in line(method, method, name, "reference")
        ]
        scores += [{"cohort": c, "target": t, "line": method, "row": f"{method}-0", "r": 0.5, "r_half_width": 0.1}
                   for c, t in COLUMNS for method in REFERENCES]  # fmt: skip
        compared += [dict(zip(COMPARED, [c, t, "NERVE", "raw", "reference", "r", 0.1, 0.5, -0.4, -0.5, -0.3, 0.01, 0.01,
                                         False, 9, False], strict=True)) for c, t in COLUMNS]  # fmt: skip
    about = {"layout": layout, "protocols": {}}
    return ReportData(title="Printed", about=about, rows=rows_table(rows), scores=pd.DataFrame(scores),
                   null_scores=pd.DataFrame(nulls), comparisons=with_holding_columns(pd.DataFrame(compared, columns=COMPARED)))  # fmt: skip


def parsed(cell):
    if cell == "n.":
        return -0.02, 0.1, ""
    r, width, marks = re.fullmatch(r"(-?\.\d\d)(?:±(\.\d\d))?([bus†]*)", cell).groups()
    return float(r), float(width or 0.1), marks


def marks(cell):
    return ["", "b", "u"][cell.rank] + "s" * cell.shaded + cell.marks


def printed(table):
    """(line, column) → its marks, without the paper's slips."""
    cells = {(name, c): parsed(cell)[2] if cell not in ("--",) else "" for name, text in table.items()
             for c, cell in zip(COLUMNS, text.split(), strict=True)}  # fmt: skip
    return {place: "" if place in SLIPS else mark for place, mark in cells.items()}


@pytest.mark.parametrize(("table", "layout"), [(TABLE_1, "methods"), (TABLE_2, "tokenizers")])
@pytest.mark.parametrize("references", [False, True])
def test_bold_underline_and_shading_are_the_papers(table, layout, references):
    made = paper_table(fed(table, layout, references))
    found = {(row.line, c): marks(cell) for row in made.rows if row.line in table
             for c, cell in zip(COLUMNS, row.cells, strict=True)}  # fmt: skip
    assert found == printed(table)
    text = to_frame(made)
    latex = to_latex(made).splitlines()
    for name, cells in table.items():
        for cell, shown in zip(cells.split(), text.loc[name], strict=True):
            # the paper's tables print n. for a negative r; every other table prints the number
            expected = cell.rstrip("bus").replace("±", " ±").replace("n.", "-.02 ±.10")
            assert shown.startswith(expected)
        typeset = next(row for row in latex if row.startswith(f"{name} & "))
        assert typeset.count(" n.") == cells.split().count("n.")


def test_table_3_has_bold_with_dagger_and_nothing_else():
    made = paper_table(fed(TABLE_3, "parcellations"))
    cells = {
        (row.line, c): cell for row in made.rows for c, cell in zip(COLUMNS, row.cells, strict=True)
    }
    assert {place: cell.marks for place, cell in cells.items()} == printed(TABLE_3)
    assert all(cell.rank == bool(cell.marks) and not cell.shaded for cell in cells.values())
    assert [row.line for row in made.rows] == list(TABLE_3)
    lines = to_latex(made).splitlines()
    assert r"Permutation & .04$\pm$.02 & .07$\pm$.02 & .07$\pm$.03 & .09$\pm$.02 & .10$\pm$.03 & .09$\pm$.01 & "\
        r"-.04$\pm$.09 & .19$\pm$.05 & .00$\pm$.06 \\" in lines  # fmt: skip
    assert any(
        row.startswith(r"17-network & \textbf{.11$^{\dagger}$} & \textbf{.09$^{\dagger}$}")
        for row in lines
    )
    assert made.notes[0].startswith(
        "Bold†: p < 0.05, one-sided, against models retrained with permuted networks"
    )
    assert not any("underlined" in note or "Shaded" in note for note in made.notes)


def test_a_tie_at_the_top_is_never_shaded():
    made = paper_table(fed(TABLE_1, p=0.001))
    column = COLUMNS.index(("CCNP", "p-factor"))
    assert [(row.line, row.cells[column].rank) for row in made.rows if row.cells[column].rank] == [
        ("GraphMAE", 2), ("BrainMass", 1), ("NERVE", 1)]  # fmt: skip
    assert not any(row.cells[column].shaded for row in made.rows)
    assert [row.line for row in made.rows if row.cells[0].shaded] == ["NERVE"]


def test_table_2_has_no_shading_as_in_the_paper():
    made = paper_table(fed(TABLE_1, "tokenizers", p=0.001))
    assert not any(cell.shaded for row in made.rows for cell in row.cells)
    assert any(cell.rank == 1 for row in made.rows for cell in row.cells)
    assert not any("Shaded" in note for note in made.notes)


def test_reference_rows_are_in_a_block_with_their_own_comparison():
    made = paper_table(fed(TABLE_1, references=True))
    assert [row.line for row in made.rows][-2:] == list(REFERENCES)
    raw, covariates = made.rows[-2:]
    assert raw.block == covariates.block != made.rows[-3].block
    assert {marks(cell) for cell in raw.cells} == {"↑"}
    assert {marks(cell) for cell in covariates.cells} == {""}  # in no comparison
    assert any(note.startswith("↑, ↓: above, below the best method") for note in made.notes)
    assert r"$.50_{\pm .10}$$^{\uparrow}$" in to_latex(made)


def references_alone():
    results = fed(TABLE_1, references=True)
    rows = results.rows[results.rows["kind"] == "reference"]
    scores = results.scores[results.scores["line"].isin(REFERENCES)]
    return replace(results, rows=rows, scores=scores, comparisons=results.comparisons[:0])


def test_references_alone_are_compared_with_each_other():
    results = references_alone()
    second = rows_table(line("pca", "pca", "PCA", "reference"))
    scores = results.scores[results.scores["line"] == "raw"]
    scores = scores.assign(line="pca", row="pca-0", r=0.4)
    table = paper_table(
        replace(
            results,
            rows=pd.concat([results.rows, second], ignore_index=True),
            scores=pd.concat([results.scores, scores], ignore_index=True),
        )
    )
    assert [marks(row.cells[0]) for row in table.rows] == ["b", "u", ""]


def test_a_lone_row_is_not_marked_as_the_best():
    table = paper_table(references_alone())
    assert [marks(row.cells[0]) for row in table.rows] == ["", ""]
    assert not any("Bold" in note for note in table.notes)
    assert "best method" not in to_text(table)


def test_a_score_of_too_few_participants_per_fold_is_not_printed():
    results = fed(TABLE_1)
    column = results.scores["cohort"] == COLUMNS[0][0]
    n = results.scores["cohort"].map(lambda cohort: 24 if cohort == COLUMNS[0][0] else 2000)
    table = paper_table(replace(results, scores=results.scores.assign(n=n, n_folds=10)))
    assert column.any()
    for row in table.rows:
        words = {cell.word for cell in row.cells[:1]}
        assert words <= {"few", "--"}
    assert any(note.startswith("few: fewer than 5 participants per fold") for note in table.notes)
    assert any(cell.available for row in table.rows for cell in row.cells)


def test_latex_and_markdown_cells_are_the_papers():
    made = paper_table(fed(TABLE_1))
    lines = to_latex(made).splitlines()
    assert any(
        row.startswith(
            r"NERVE & \cellcolor{lightgray}\textbf{.11}$_{\pm .06}$ & \textbf{.09}$_{\pm .05}$"
        )
        for row in lines
    )
    assert any(row.startswith(r"BrainNetTF & -- & -- & -- & $.08_{\pm .04}$") for row in lines)
    text = to_markdown(made)
    assert "| NERVE | <mark>**.11**<sub>±.06</sub></mark> | **.09**<sub>±.05</sub> |" in text
    assert "| BrainNetTF | -- | -- |" in text
    assert "--: not available" in text
    assert "*: best method" in to_text(made)


def test_off_a_terminal_a_wide_table_is_whole_and_its_marks_are_explained(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    made = paper_table(fed(TABLE_1))
    monkeypatch.setattr("nerve.experiments.terminal.paper_table", lambda results: made)
    show_paper_table(None)
    lines = capsys.readouterr().out.splitlines()
    row = next(one for one in lines if one.startswith("NERVE"))
    assert len(row) > 80
    assert len(re.findall(r"±", row)) == len(COLUMNS)
    assert "…" not in "".join(lines)
    assert any(one.startswith("*: best method") and "+: next" in one for one in lines)


def test_failed_and_adapted_cells_are_marked():
    results = fed(TABLE_1)
    runs = pd.DataFrame(
        [{"id": "1", "kind": "train", "line": "GATE", "cohort": "ABCD", "status": "failed"}]
    )
    told = results.scores.assign(
        adapted=np.where(results.scores["line"] == "BrainMass", "drawn from a Wishart", "")
    )
    made = paper_table(replace(results, runs=runs, scores=told))
    frame = to_frame(made)
    assert frame.loc["GATE"].iloc[0] == "failed"
    assert frame.loc["BrainNetTF"].iloc[0] == "--"
    assert frame.loc["BrainMass"].iloc[0].endswith("‡")
    assert "‡: adapted. BrainMass: drawn from a Wishart." in made.notes


def test_participants_seen_by_encoders_are_reported_per_cohort(results):
    notes = " ".join(paper_table(results).notes)
    assert (
        "including those tested (scope all) in Alpha: NERVE, mask_ratio=0.25; NERVE, mask_ratio=0.5."
        in notes
    )
    assert (
        "none of the FC tested was trained on (scope other_people) in Gamma: NERVE, mask_ratio=0.25; NERVE"
        in notes
    )


def test_seeds_are_averaged_and_a_swept_setting_has_a_column_of_its_own(results):
    table = paper_table(results)
    scores = results.scores
    mine = scores[
        (scores["cohort"] == "alpha") & (scores["target"] == "iq") & (scores["line"] == "nerve0.5")
    ]
    row = next(row for row in table.rows if row.line == "nerve0.5")
    assert len(mine) == 2
    assert row.cells[table.columns.index(("alpha", "iq"))].r == pytest.approx(mine["r"].mean())
    assert table.lead(row) == ["NERVE", "mask_ratio=0.5"]
    assert to_csv(table).splitlines()[0].startswith("Method,Setting,Alpha: p_factor")


def test_labels_cannot_break_the_markup_nor_steer_a_terminal():
    evil = "A|B<script>&%_\x1b[2J"
    results = fed(TABLE_2)
    table = paper_table(replace(results, rows=results.rows.assign(label=evil), title=evil))
    assert r"A|B$<$script$>$\&\%\_" in to_latex(table)
    assert r"A\|B&lt;script>" in to_markdown(table)
    assert "\x1b" not in to_text(table)


def test_the_extended_table_keeps_what_reviewers_ask_for(results):
    columns = list(extended_table(results).columns)
    assert columns[:6] == ["cohort", "target", "method", "seed", "n", "r"]
    assert {"r_fold_mean", "r2", "mae", "p", "q", "scope"} <= set(columns)


def test_tables_of_a_folder_are_written(tmp_path, experiment):
    folder = shutil.copytree(
        experiment, tmp_path / "e", ignore=shutil.ignore_patterns("cohorts", "runs")
    )
    write_tables(folder)
    assert {path.name for path in (folder / "tables").iterdir()} == {
        "table.md",
        "table.tex",
        "table.csv",
        "extended.tsv",
    }


@pytest.mark.parametrize("r", np.linspace(-1, 1, 41))
def test_a_printed_number_is_the_rounded_one(r):
    assert float(number(r)) == pytest.approx(r, abs=0.00501)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_with_the_papers_packages(tmp_path):
    document = (
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,adjustbox}\usepackage[table]{xcolor}"
        r"\begin{document}"
        + to_latex(paper_table(fed(TABLE_1, references=True)))
        + r"\end{document}"
    )
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout.decode()[-2000:]
