"""A results table as Markdown, LaTeX (as the paper typesets it), CSV, plain text and DataFrame."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from nerve._utils.files import write_text, write_tsv
from nerve._utils.formulas import guarded_table
from nerve._utils.privacy import printable
from nerve.report.load import load_tables
from nerve.report.tables import Cell, ResultsTable, extended_table, number, paper_table

_PLAIN_LEGEND = "*: best method (bold on paper), +: next (underlined), s: shaded."


def write_tables(folder: str | os.PathLike[str]) -> None:
    """Write tables/table.md, .tex, .csv and tables/extended.tsv from a results folder."""
    results = load_tables(folder)
    table = paper_table(results)
    if table is None:
        return
    tables = Path(folder) / "tables"
    write_text(tables / "table.md", to_markdown(table))
    write_text(tables / "table.tex", to_latex(table))
    write_text(tables / "table.csv", to_csv(table))
    write_tsv(tables / "extended.tsv", extended_table(results))


def to_frame(table: ResultsTable) -> pd.DataFrame:
    """Plain text cells, one column per (cohort, target); marks as in `_PLAIN_LEGEND` and the notes."""
    cells = [[cell.word or _plain_cell(cell) for cell in row.cells] for row in table.rows]
    lead = pd.DataFrame([table.lead(row) for row in table.rows], columns=table.lead_header)
    frame = pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(table.headers))
    return frame.set_index([lead[name] for name in lead])


def to_text(table: ResultsTable) -> str:
    """The table for a terminal or a log, as wide as it is, with what its marks mean."""
    has_ranks = any(cell.rank for cell in table.cells)
    legend = [_PLAIN_LEGEND] if has_ranks and not table.signed else []
    lines = [table.title, to_frame(table).to_string(), *legend, *table.notes]
    return printable("\n".join(lines)) + "\n"


def to_csv(table: ResultsTable) -> str:
    """One header `cohort: target`, one row per method."""
    frame = to_frame(table)
    frame.columns = pd.Index([f"{cohort}: {target}" for cohort, target in table.headers])
    return guarded_table(frame.reset_index()).to_csv(index=False, lineterminator="\n")


def to_markdown(table: ResultsTable) -> str:
    """A table for a page on the web, with its notes."""
    header = [*table.lead_header, *(f"{cohort} {target}" for cohort, target in table.headers)]
    rule = ["---"] * len(table.lead_header) + [":-:"] * len(table.columns)
    lines = [_markdown_row(_escape_markdown(word) for word in header), _markdown_row(rule)]
    for row in table.rows:
        lead = [_escape_markdown(word) for word in table.lead(row)]
        cells = [cell.word_in_paper or _markdown_cell(cell) for cell in row.cells]
        lines.append(_markdown_row([*lead, *cells]))
    title = f"**{_escape_markdown(table.title)}**\n\n" if table.title else ""
    notes = "  \n".join(_escape_markdown(note) for note in _notes_of_paper(table))
    return title + "\n".join(lines) + "\n\n" + notes + "\n"


def to_latex(table: ResultsTable) -> str:
    """A `table*` as in the paper: needs booktabs, adjustbox and xcolor with the option `table`."""
    n_lead = len(table.lead_header)
    n_columns = n_lead + len(table.columns)
    alignment = "l" * n_lead + "|" + "|".join("c" * count for _, count in table.cohorts)
    # The first header row names cohorts over their columns, with a rule below each.
    first = [r"\textbf{Dataset $\rightarrow$}"] + [""] * (n_lead - 1)
    for name, count in table.cohorts:
        first.append(rf"\multicolumn{{{count}}}{{c}}{{\textbf{{{_escape_latex(name)}}}}}")
    ends = accumulate((count for _, count in table.cohorts), initial=n_lead)
    rules = [rf"\cmidrule(lr){{{start + 1}-{end}}}" for start, end in pairwise(ends)]
    # The second one names targets.
    second = [rf"\textbf{{{_escape_latex(word)} $\downarrow$}}" for word in table.lead_header]
    second += [rf"\textit{{{_escape_latex(target)}}}" for _, target in table.headers]
    notes = [
        rf"\multicolumn{{{n_columns}}}{{l}}{{{_escape_latex(note)}}} \\"
        for note in _notes_of_paper(table)
    ]
    lines = [
        r"% needs \usepackage{booktabs,adjustbox} and \usepackage[table]{xcolor}",
        r"\providecolor{lightgray}{gray}{0.9}",
        r"\begin{table*}[!t]",
        r"\centering",
        rf"\caption{{{_escape_latex(table.title)}}}",
        r"\begin{adjustbox}{width=1.0\textwidth}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(first) + r" \\",
        " ".join(rules),
        " & ".join(second) + r" \\",
        r"\midrule",
        *_latex_rows(table),
        r"\bottomrule",
        *notes,
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _notes_of_paper(table: ResultsTable) -> list[str]:
    """The notes, with one on "n." where the table prints it for a negative r."""
    has_negative = any(cell.word_in_paper == "n." for cell in table.cells)
    return [*table.notes, "n.: negative r."] if has_negative else list(table.notes)


def _latex_rows(table: ResultsTable) -> list[str]:
    """The rows, with a rule between blocks."""
    lines = []
    block = table.rows[0].block if table.rows else ()
    for row in table.rows:
        if row.block != block:
            lines.append(r"\midrule")
            block = row.block
        lead = [_escape_latex(word) for word in table.lead(row)]
        cells = [cell.word_in_paper or _latex_cell(cell) for cell in row.cells]
        lines.append(" & ".join([*lead, *cells]) + r" \\")
    return lines


def _plain_cell(cell: Cell) -> str:
    text = number(cell.r)
    if cell.margin:
        text += f" ±{cell.margin}"
    if not cell.signed:
        text += ["", "*", "+"][cell.rank]
    if cell.shaded:
        text += "s"
    return text + cell.marks


def _markdown_cell(cell: Cell) -> str:
    text = number(cell.r)
    if cell.dagger:
        text += "†"
    if cell.rank == 1:
        text = f"**{text}**"
    elif cell.rank == 2:
        text = f"<u>{text}</u>"
    if cell.margin:
        text += f"<sub>±{cell.margin}</sub>"
    text += cell.marks.replace("†", "")
    return f"<mark>{text}</mark>" if cell.shaded else text


def _latex_cell(cell: Cell) -> str:
    value = number(cell.r)
    dagger = r"$^{\dagger}$" if cell.dagger else ""
    margin = rf"_{{\pm {cell.margin}}}" if cell.margin else ""
    if cell.of_models:
        text = rf"{value}$\pm${cell.margin}"
    elif cell.rank:
        command = "textbf" if cell.rank == 1 else "underline"
        text = rf"\{command}{{{value}{dagger}}}"
        if margin:
            text += f"${margin}$"
    else:
        text = f"${value}{margin}$" + dagger
    for sign in cell.marks.replace("†", ""):
        text += f"$^{{{_MATH_SIGNS[sign]}}}$"
    return rf"\cellcolor{{lightgray}}{text}" if cell.shaded else text


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape_markdown(text: str) -> str:
    """Escape what would end the cell, or begin a link, a picture, code or HTML."""
    one_line = re.sub(r"\s+", " ", text)
    plain = re.sub(r"([\\`|\[\]*])", r"\\\1", one_line).replace("&", "&amp;")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", plain)  # p < 0.05 opens no tag


_MATH_SIGNS = {
    "†": r"\dagger",
    "‡": r"\ddagger",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "±": r"\pm",
    "×": r"\times",
    "²": "^2",
    "<": "<",
    ">": ">",
}
_LATEX = {
    **{sign: f"${command}$" for sign, command in _MATH_SIGNS.items()},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\n": " ",
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
