"""Tables print what the paper prints, cell by cell."""

import subprocess
from shutil import which

import numpy as np
import pandas as pd
import pytest

from nerve.report.table_formats import to_csv, to_frame, to_latex, to_markdown
from nerve.report.tables import extended_table, results_table

# three columns of the paper's Table 1: method -> (r, half-width) for ABCD internalizing, externalizing, PNC p-factor
PAPER = {
    "BrainNetCNN": [(0.05, 0.04), (0.08, 0.04), (0.05, 0.03)],
    "BrainNetTF": [None, None, (0.05, 0.04)],
    "GraphMAE": [(0.06, 0.05), (0.06, 0.04), (0.09, 0.05)],
    "BrainMass": [(0.06, 0.05), (0.08, 0.05), (0.10, 0.05)],
    "NERVE": [(0.11, 0.06), (0.09, 0.05), (0.12, 0.05)],
}
COLUMNS = [("ABCD", "Int."), ("ABCD", "Ext."), ("PNC", "p-factor")]


def scores(values=PAPER):
    rows = [
        {"cohort": c, "target": t, "method": method, "r": cell[0], "r_half_width": cell[1]}
        for method, cells in values.items()
        for (c, t), cell in zip(COLUMNS, cells, strict=True)
        if cell is not None
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def table():
    shading = pd.DataFrame({"cohort": ["ABCD", "ABCD"], "target": ["Int.", "Ext."], "p": [0.01, 0.2]})
    return results_table(scores(), shading, rows=list(PAPER), columns=COLUMNS, title="Behavioural prediction")


def test_latex_cells_are_the_papers(table):
    lines = to_latex(table).splitlines()
    best = [r"\cellcolor{lightgray}\textbf{.11}$_{\pm .06}$", r"\textbf{.09}$_{\pm .05}$", r"\textbf{.12}$_{\pm .05}$"]
    assert " & ".join(["NERVE", *best]) + r" \\" in lines
    assert r"BrainNetCNN & $.05_{\pm .04}$ & \underline{.08}$_{\pm .04}$ & $.05_{\pm .03}$ \\" in lines
    assert r"BrainNetTF & -- & -- & $.05_{\pm .04}$ \\" in lines
    assert (
        r"BrainMass & \underline{.06}$_{\pm .05}$ & \underline{.08}$_{\pm .05}$ & \underline{.10}$_{\pm .05}$ \\"
        in lines
    )


def test_markdown_carries_the_same_marks(table):
    text = to_markdown(table)
    assert "| NERVE | <mark>**.11**<sub>±.06</sub></mark> | **.09**<sub>±.05</sub> |" in text
    assert "| BrainNetTF | -- | -- |" in text
    assert "--: not available" in text


def test_a_tie_at_the_top_is_seen_and_never_shaded():
    values = {"A": [(0.134, 0.1)] * 3, "B": [(0.131, 0.1)] * 3, "C": [(0.10, 0.1)] * 3}
    shading = pd.DataFrame({"cohort": ["ABCD"], "target": ["Int."], "p": [0.001]})
    table = results_table(scores(values), shading, columns=COLUMNS)
    assert [row.cells[0].rank for row in table.rows] == [1, 1, 0]
    assert not any(cell.shaded for row in table.rows for cell in row.cells)


def test_negative_r_prints_as_n_or_as_it_is():
    values = {"A": [(-0.04, 0.1)] * 3, "B": [(0.2, 0.1)] * 3}
    assert to_frame(results_table(scores(values), columns=COLUMNS)).iloc[0, 0] == "n."
    assert to_frame(results_table(scores(values), columns=COLUMNS, signed=True)).iloc[0, 0] == "-.04"


def test_permuted_models_print_mean_and_spread_and_daggers():
    values = {"Permutation": [(0.04, 0.0)] * 3, "17-network": [(0.11, 0.1)] * 3}
    keys = pd.DataFrame(COLUMNS, columns=["cohort", "target"])
    table = results_table(
        scores(values),
        columns=COLUMNS,
        signed=True,
        spreads=keys.assign(method="Permutation", spread=0.02),
        daggers=keys.assign(method="17-network", p=0.01),
        groups={"Permutation": "null", "17-network": "networks"},
    )
    lines = to_latex(table).splitlines()
    assert r"Permutation & .04$\pm$.02 & .04$\pm$.02 & .04$\pm$.02 \\" in lines
    assert r"17-network & \textbf{.11$^{\dagger}$} & \textbf{.11$^{\dagger}$} & \textbf{.11$^{\dagger}$} \\" in lines
    assert lines.index(r"\midrule", lines.index(r"\midrule") + 1) > 0  # a rule between the groups


def test_several_seeds_are_averaged_and_adapted_rows_marked():
    table = pd.concat([scores({"A": [(r, 0.1)] * 3}) for r in (0.1, 0.2)])
    built = results_table(table, columns=COLUMNS, adapted={("ABCD", "A"): "views drawn from a Wishart"})
    assert np.isclose(built.rows[0].cells[0].r, 0.15)
    assert to_frame(built).iloc[0, 0].endswith("‡")
    assert not to_frame(built).iloc[0, 2].endswith("‡")
    assert "views drawn from a Wishart" in to_markdown(built)


def test_labels_cannot_break_the_markup():
    values = {"A|B<script>&%_": [(0.1, 0.1)] * 3}
    table = results_table(scores(values), columns=COLUMNS)
    assert r"A|B$<$script$>$\&\%\_ & " in to_latex(table)
    assert r"A\|B&lt;script>" in to_markdown(table)


def test_the_extended_table_keeps_what_reviewers_ask_for():
    long = scores().assign(n=100, r_fold_mean=0.1, r2=0.01, mae=0.8, unknown=1)
    assert list(extended_table(long).columns) == ["cohort", "target", "method", "n", "r", "r_fold_mean", "r2", "mae"]


@pytest.mark.slow
@pytest.mark.skipif(which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_with_the_papers_packages(table, tmp_path):
    document = (
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,adjustbox}\usepackage[table]{xcolor}"
        r"\begin{document}" + to_latex(table) + r"\end{document}"
    )
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True
    )
    assert run.returncode == 0, run.stdout.decode()[-2000:]


def test_a_swept_setting_has_a_column_of_its_own():
    parts = [scores({"NERVE": [(r, 0.1)] * 3}).assign(variant=f"mask_ratio={m}") for r, m in ((0.1, 0.25), (0.2, 0.5))]
    table = results_table(pd.concat(parts), rows=["NERVE", "absent"], columns=COLUMNS)
    assert to_csv(table).splitlines()[0].startswith("Method,Setting,ABCD: Int.")
    assert [row.variant for row in table.rows] == ["mask_ratio=0.25", "mask_ratio=0.5", ""]
    assert to_frame(table).iloc[2, 0] == "--"
    assert r"NERVE & mask\_ratio=0.5 & \textbf{.20}" in to_latex(table)
