"""A results table as Markdown, LaTeX (as the paper typesets it), CSV, plain text and DataFrame."""

from __future__ import annotations

import os
import re
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from nerve._utils.files import write_text, write_tsv
from nerve._utils.formulas import guarded_table
from nerve._utils.privacy import printable
from nerve.report.load import load_tables
from nerve.report.tables import Cell, ResultsTable, extended_table, number, paper_table

PLAIN = "*: best method (bold on paper), +: next (underlined), s: shaded."


def write_tables(folder: str | os.PathLike[str]) -> None:
    """Write tables/table.md, .tex, .csv and tables/extended.tsv from a results folder."""
    results = load_tables(folder)
    table = paper_table(results)
    if table is None:
        return
    for ending, text in (
        ("md", to_markdown(table)),
        ("tex", to_latex(table)),
        ("csv", to_csv(table)),
    ):
        write_text(Path(folder) / "tables" / f"table.{ending}", text)
    write_tsv(Path(folder) / "tables" / "extended.tsv", extended_table(results))


def to_frame(table: ResultsTable) -> pd.DataFrame:
    """Plain text cells, one column per (cohort, target); the marks are those of `PLAIN` and of the notes."""
    cells = [[cell.word or _plain(cell) for cell in row.cells] for row in table.rows]
    lead = pd.DataFrame([table.lead(row) for row in table.rows], columns=table.lead_header)
    frame = pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(table.headers))
    return frame.set_index([lead[name] for name in lead])


def to_text(table: ResultsTable) -> str:
    """The table for a terminal or a log, as wide as it is, with what its marks mean."""
    legend = [] if table.signed else [PLAIN]
    return (
        printable("\n".join([table.title, to_frame(table).to_string(), *legend, *table.notes]))
        + "\n"
    )


def to_csv(table: ResultsTable) -> str:
    """One header line `cohort: target`, one line per method."""
    frame = to_frame(table)
    frame.columns = pd.Index([f"{cohort}: {target}" for cohort, target in table.headers])
    return guarded_table(frame.reset_index()).to_csv(index=False, lineterminator="\n")


def to_markdown(table: ResultsTable) -> str:
    """A table for a page on the web, with its notes."""
    header = [*table.lead_header, *(f"{cohort} {target}" for cohort, target in table.headers)]
    rule = ["---"] * len(table.lead_header) + [":-:"] * len(table.columns)
    lines = [_bar(map(_escaped, header)), _bar(rule)]
    for row in table.rows:
        lines.append(
            _bar(
                [
                    *map(_escaped, table.lead(row)),
                    *(cell.word or _markdown(cell) for cell in row.cells),
                ]
            )
        )
    title = f"**{_escaped(table.title)}**\n\n" if table.title else ""
    return title + "\n".join(lines) + "\n\n" + "  \n".join(map(_escaped, table.notes)) + "\n"


def to_latex(table: ResultsTable) -> str:
    """A `table*` as in the paper: needs booktabs, adjustbox and xcolor with the option `table`."""
    lead = len(table.lead_header)
    width = lead + len(table.columns)
    top = [r"\textbf{Dataset $\rightarrow$}"] + [""] * (lead - 1)
    top += [
        rf"\multicolumn{{{count}}}{{c}}{{\textbf{{{_tex(name)}}}}}" for name, count in table.cohorts
    ]
    ends = accumulate((count for _, count in table.cohorts), initial=lead)
    rules = [rf"\cmidrule(lr){{{start + 1}-{end}}}" for start, end in pairwise(ends)]
    second = [rf"\textbf{{{_tex(word)} $\downarrow$}}" for word in table.lead_header]
    second += [rf"\textit{{{_tex(target)}}}" for _, target in table.headers]
    lines = [
        r"% needs \usepackage{booktabs,adjustbox} and \usepackage[table]{xcolor}",
        r"\providecolor{lightgray}{gray}{0.9}",
        r"\begin{table*}[!t]",
        r"\centering",
        rf"\caption{{{_tex(table.title)}}}",
        r"\begin{adjustbox}{width=1.0\textwidth}",
        rf"\begin{{tabular}}{{{'l' * lead}|{'|'.join('c' * count for _, count in table.cohorts)}}}",
        r"\toprule",
        " & ".join(top) + r" \\",
        " ".join(rules),
        " & ".join(second) + r" \\",
        r"\midrule",
        *_latex_rows(table),
        r"\bottomrule",
        *(rf"\multicolumn{{{width}}}{{l}}{{{_tex(note)}}} \\" for note in table.notes),
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_rows(table: ResultsTable) -> list[str]:
    lines: list[str] = []
    for before, row in zip([None, *table.rows], table.rows, strict=False):
        if before is not None and before.block != row.block:
            lines.append(r"\midrule")
        cells = [*map(_tex, table.lead(row)), *(cell.word or _latex(cell) for cell in row.cells)]
        lines.append(" & ".join(cells) + r" \\")
    return lines


def _plain(cell: Cell) -> str:
    rank = "" if cell.signed else ["", "*", "+"][cell.rank]
    return (
        number(cell.r)
        + f" ±{cell.margin}" * bool(cell.margin)
        + rank
        + "s" * cell.shaded
        + cell.marks
    )


def _markdown(cell: Cell) -> str:
    text = number(cell.r) + "†" * cell.dagger
    text = [text, f"**{text}**", f"<u>{text}</u>"][cell.rank]
    text += f"<sub>±{cell.margin}</sub>" * bool(cell.margin) + cell.marks.replace("†", "")
    return f"<mark>{text}</mark>" if cell.shaded else text


def _latex(cell: Cell) -> str:
    value, dagger = number(cell.r), r"$^{\dagger}$" * cell.dagger
    below = rf"_{{\pm {cell.margin}}}" * bool(cell.margin)
    if cell.of_models:
        text = rf"{value}$\pm${cell.margin}"
    elif cell.rank:
        text = (
            rf"\{['textbf', 'underline'][cell.rank - 1]}{{{value}{dagger}}}"
            + f"${below}$" * bool(below)
        )
    else:
        text = f"${value}{below}$" + dagger
    text += "".join(f"$^{{{_SIGNS[sign]}}}$" for sign in cell.marks if sign != "†")
    return rf"\cellcolor{{lightgray}}{text}" if cell.shaded else text


def _bar(cells: object) -> str:
    return "| " + " | ".join(cells) + " |"  # type: ignore[arg-type]


def _escaped(text: str) -> str:
    """Text that is only text in Markdown: no cell ends in it, no link, picture, code or HTML begins in it."""
    plain = re.sub(r"([\\`|\[\]*])", r"\\\1", re.sub(r"\s+", " ", text)).replace("&", "&amp;")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", plain)  # elsewhere, as in p < 0.05, it opens nothing


_SIGNS = {
    "†": r"\dagger",
    "‡": r"\ddagger",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "±": r"\pm",
    "×": r"\times",
}
_SIGNS |= {"²": "^2", "<": "<", ">": ">"}
_TEX = {sign: f"${word}$" for sign, word in _SIGNS.items()} | {
    letter: f"\\{letter}" for letter in "&%$#_{}"
}
_TEX |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\n": " ",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)
