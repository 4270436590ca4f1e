"""Random layouts of a small cohort whose FC and phenotypes are known, for hypothesis.

`layouts()` draws a `Layout`: every choice that a lab makes when it saves matrices or time series.
`write_layout` writes it into a folder and returns the options of `nerve ingest` with the truth, and
`difference` compares a cohort with that truth.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from scipy.io import savemat

from nerve.data.cohort import Cohort
from nerve.data.connectivity import fisher_z, inverse_fisher_z
from nerve.data.readers.ids import normal_id

TOLERANCE = 2e-4  # text has six decimals, Fisher z of 0.99 magnifies the seventh


@dataclass(frozen=True)
class Layout:
    """How a cohort lies on disk, and what the user types."""

    seed: int
    n_participants: int
    n_regions: int
    content: str  # matrix, series, upper, lower
    storage: str  # a key of one of the writers
    labels: str  # none, names, shuffled, counting, codes, codes of atlas
    header: bool
    index: bool
    values: str  # r, or Fisher z by what stands on its diagonal
    n_volumes: int
    ids: str
    naming: str
    sessions: str
    chosen_session: bool
    table: str
    table_ids: str
    table_rows: str
    visit: bool
    codes: str
    typed: bool  # --values and --unfolding are typed, where they apply
    option: str  # parcellation or order names the regions


ONE_FILE_EACH = ("csv", "tsv", "semicolons", "decimal commas", "blanks", "1D", "npy", "npz", "mat")
ONE_FILE = ("npy of all", "mat of all", "npz of all", "npz by id", "rows of text", "rows after id")
TEXT = {  # ending, separator, decimal mark
    "csv": (".csv", ",", "."),
    "tsv": (".tsv", "\t", "."),
    "semicolons": (".csv", ";", "."),
    "decimal commas": (".csv", ";", ","),
    "blanks": (".txt", " ", "."),
    "1D": (".1D", "\t", "."),
}
IDS: dict[str, list[str]] = {
    "zeros": ["001", "002", "003", "010", "011", "100"],
    "numbers": ["1001", "1002", "1003", "2001", "2002", "2100"],
    "letters and numbers": ["S1", "S2", "S3", "S10", "S11", "S20"],
    "site and number": ["NYU_01", "NYU_02", "UCLA_01", "UCLA_02", "KKI_01", "KKI_02"],
    "NDAR": ["NDARINV0A", "NDARINV0B", "NDARINV1A", "NDARINV1B", "NDARINV2A", "NDARINV2B"],
    "words": ["anna", "bert", "cleo", "dora", "emil", "fred"],
}
NAMES = (
    "sub-{id}{occasion}{ending}",
    "sub-{id}{occasion}_fc{ending}",
    "{id}{occasion}{ending}",
    "{id}{occasion}_FC{ending}",
    "fc_{id}{occasion}{ending}",
    "{id}/fc_matrix{occasion}{ending}",
    "sub-{id}/func/sub-{id}{occasion}_bold{ending}",
    "{id}/{occasion}/fc{ending}",
)
SESSIONS: dict[str, tuple[tuple[str, str], ...]] = {  # as names have them, and as tables do
    "none": (("", ""),),
    "one": (("_ses-1", "1"),),
    "two": (("_ses-1", "1"), ("_ses-2", "2")),
    "two with zeros": (("_ses-01", "ses-1"), ("_ses-02", "ses-2")),
    "two in ABCD": (
        ("_ses-baselineYear1Arm1", "baseline_year_1_arm_1"),
        ("_ses-2YearFollowUpYArm1", "2_year_follow_up_y_arm_1"),
    ),
    "two unlike": (("_ses-1", "enrol"), ("_ses-2", "later")),
    "two visits": (("_visit1", "1"), ("_visit2", "2")),
    "two bare": (("_1", "1"), ("_2", "2")),
}
TABLES = ("none", "tsv", "csv", "decimal commas", "xlsx", "parquet", "sav")
TABLE_IDS: dict[str, Callable[[str], str]] = {
    "same": str,
    "sub-": "sub-{}".format,
    "without zeros": lambda word: word.lstrip("0"),
    "as floats": lambda word: f"{float(word)}" if word.isdigit() else word,
    "capitals": str.upper,
    "other separators": lambda word: word.replace("_", "-"),
    "unlike": "X{}x".format,
}
TABLE_ROWS = ("one each", "another order", "one more", "one less", "visits", "visits unnamed")
Z_DIAGONALS = {"z inf": np.inf, "z zero": 0.0, "z one": 1.0, "z large": 7.25, "z nan": np.nan}


@st.composite
def layouts(draw: Any, storages: tuple[str, ...], number_labels: bool = False) -> Layout:
    """Draw a layout of one of these storages; choices that exclude each other are never drawn together.

    With `number_labels`, headers and indices of text are numbers; otherwise they are words.
    """
    storage = draw(st.sampled_from(storages))
    in_one_file = storage in ONE_FILE
    if storage in ("rows of text", "rows after id"):
        content = draw(st.sampled_from(["upper", "lower"]))
    else:
        content = draw(st.sampled_from(["matrix", "matrix", "series", "upper", "lower"]))
    has_words = storage in TEXT and content in ("matrix", "series")
    labels = "none"
    if has_words and number_labels:
        labels = draw(st.sampled_from(["none", "codes", "codes of atlas"]))
    elif has_words:
        labels = draw(st.sampled_from(["none", "names", "shuffled", "counting"]))
    may_have_words = has_words and (number_labels or labels != "none")
    n_regions = draw(st.one_of(st.integers(4, 14), st.just(52)))
    nearly_square = st.integers(n_regions - 1, n_regions + 1).map(lambda size: max(size, 10))
    header = may_have_words and draw(st.booleans())
    # pandas numbers the rows of a series: without a header, these are a column of numbers
    may_have_index = may_have_words and (number_labels or header or content == "matrix")
    values = "r" if content == "series" else draw(st.sampled_from(["r", "r", *Z_DIAGONALS]))
    sessions = "none" if in_one_file else draw(st.sampled_from(list(SESSIONS)))
    ids = draw(st.sampled_from(list(IDS)))
    table = draw(st.sampled_from(TABLES))
    return Layout(
        seed=draw(st.integers(0, 10_000)),
        n_participants=draw(st.integers(2, 6)),
        n_regions=n_regions,
        content=content,
        storage=storage,
        labels=labels,
        header=header,
        index=may_have_index and draw(st.booleans()),
        values=values,
        n_volumes=draw(st.one_of(nearly_square, st.integers(20, 60))),
        ids=ids,
        naming=draw(st.sampled_from(NAMES)),
        sessions=sessions,
        chosen_session=SESSIONS[sessions][-1][0].startswith("_ses-2") and draw(st.booleans()),
        table=table,
        table_ids="same" if table == "none" else draw(st.sampled_from(list(TABLE_IDS))),
        table_rows="one each" if table == "none" else draw(st.sampled_from(TABLE_ROWS)),
        visit=draw(st.booleans()),
        codes="none" if table == "none" else draw(st.sampled_from(["none", "declared", "left"])),
        # Fisher z with ones on its diagonal looks like r in every respect
        typed=values == "z one" or draw(st.booleans()),
        option=draw(st.sampled_from(["parcellation", "order"])),
    )


@dataclass
class Truth:
    """What the cohort of a layout must hold."""

    labels: tuple[str, ...]
    matrices: dict[str, np.ndarray] = field(default_factory=dict)
    ages: dict[str, float] | None = field(default_factory=dict)  # None: no row can be chosen
    ages_of_last_visit: dict[str, float] = field(default_factory=dict)
    last_visit: str = ""
    ids_of_table: dict[str, str] = field(default_factory=dict)
    scan_of_file: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    has_undeclared_codes: bool = False


@dataclass
class _Population:
    """Participants with time series of each session, in the order of the atlas, and ages of each visit."""

    ids: list[str]
    labels: list[str]
    networks: list[str]
    series: dict[tuple[str, int], np.ndarray]
    ages: dict[tuple[str, int], float]

    def matrix(self, participant: str, session: int) -> np.ndarray:
        """FC of one scan."""
        return np.corrcoef(self.series[participant, session].T)


def _make_population(layout: Layout) -> _Population:
    """Random series in which regions of a network share a signal."""
    rng = np.random.default_rng(layout.seed)
    n_sessions = len(SESSIONS[layout.sessions])
    ids = IDS[layout.ids][: layout.n_participants]
    n_regions = layout.n_regions
    networks = ["A" if region < n_regions // 2 else "B" for region in range(n_regions)]
    if layout.labels == "codes of atlas":
        labels = [f"{code}" for code in np.cumsum(rng.integers(1, 90, n_regions)) + 2000]
    else:
        labels = [f"{network}_{region}x" for region, network in enumerate(networks)]
    series = {}
    ages = {}
    for participant in ids:
        for session in range(n_sessions):
            signals = rng.normal(size=(layout.n_volumes, 2))
            of_network = signals[:, [0 if network == "A" else 1 for network in networks]]
            noise = rng.normal(size=(layout.n_volumes, n_regions))
            series[participant, session] = of_network + noise * rng.uniform(0.5, 2, n_regions)
            ages[participant, session] = round(float(rng.uniform(8, 21)) + 2 * session, 2)
    return _Population(ids, labels, networks, series, ages)


def write_layout(layout: Layout, folder: Path) -> tuple[Path, dict[str, Any], Truth]:
    """Write the data, the atlas and the table of a layout.

    Returns the source, the options that a user who knows the data would type, and the truth.
    """
    population = _make_population(layout)
    rng = np.random.default_rng(layout.seed + 1)
    source = folder / "source"
    source.mkdir(parents=True)
    atlas = folder / "atlas.tsv"
    regions = pd.DataFrame({"label": population.labels, "network": population.networks})
    regions.to_csv(atlas, sep="\t", index=False)
    has_labels = _has_words(layout) and layout.labels in ("names", "shuffled", "codes of atlas")
    options: dict[str, Any] = {"parcellation" if has_labels else layout.option: atlas}

    occasions = SESSIONS[layout.sessions]
    sessions_read = list(range(len(occasions)))
    if layout.chosen_session:
        sessions_read = [1]
        options["session"] = occasions[1][0].removeprefix("_ses-")

    truth = Truth(labels=tuple(population.labels))
    if layout.storage in ONE_FILE:
        _write_one_file(layout, population, source, options, folder)
    else:
        order = np.arange(layout.n_regions)
        if layout.labels in ("shuffled", "codes of atlas") and _has_words(layout):
            order = rng.permutation(layout.n_regions)
        for participant in population.ids:
            for session, (occasion, _) in enumerate(occasions):
                path = source / _file_name(layout, participant, occasion)
                path.parent.mkdir(parents=True, exist_ok=True)
                array = _array(layout, population, participant, session, order)
                _write_array(layout, path, array, _words(layout, population, order))
                if session in sessions_read:
                    scan = (normal_id(participant), population.matrix(participant, session))
                    truth.scan_of_file[path.relative_to(source).as_posix()] = scan
    if layout.typed and layout.content != "series":
        options["values"] = layout.values[0]
        if layout.content != "matrix":
            options["unfolding"] = layout.content

    for participant in population.ids:
        matrices = [population.matrix(participant, session) for session in sessions_read]
        truth.matrices[normal_id(participant)] = average(matrices)
    if layout.table == "none":
        truth.ages = {}
    else:
        _write_table(layout, population, folder, options, truth, sessions_read, rng)
    return source, options, truth


def average(matrices: list[np.ndarray]) -> np.ndarray:
    """The mean of correlations in Fisher z."""
    if len(matrices) == 1:
        return matrices[0]
    mean = inverse_fisher_z(np.mean([fisher_z(matrix) for matrix in matrices], axis=0))
    np.fill_diagonal(mean, 1.0)
    return mean


def _file_name(layout: Layout, participant: str, occasion: str) -> str:
    ending = TEXT[layout.storage][0] if layout.storage in TEXT else f".{layout.storage}"
    name = layout.naming
    if "/{occasion}/" in name:
        occasion = occasion.lstrip("_")
        if not occasion:
            name = name.replace("/{occasion}/", "/")
    return name.format(id=participant, occasion=occasion, ending=ending)


def _array(
    layout: Layout, population: _Population, participant: str, session: int, order: np.ndarray
) -> np.ndarray:
    """What is stored of one scan, with regions in this order."""
    if layout.content == "series":
        return population.series[participant, session][:, order]
    matrix = population.matrix(participant, session)[np.ix_(order, order)]
    if layout.values != "r":
        np.fill_diagonal(matrix, 0.0)
        matrix = np.arctanh(matrix)
        np.fill_diagonal(matrix, Z_DIAGONALS[layout.values])
    if layout.content == "upper":
        return matrix[np.triu_indices(len(matrix), 1)]
    if layout.content == "lower":
        return matrix[np.tril_indices(len(matrix), -1)]
    return matrix


def _has_words(layout: Layout) -> bool:
    """Whether the files say which region a row or column is."""
    return layout.header or (layout.index and layout.content == "matrix")


def _words(layout: Layout, population: _Population, order: np.ndarray) -> list[str]:
    """What a header or an index of a file says."""
    n_regions = layout.n_regions
    if layout.labels in ("names", "shuffled", "codes of atlas"):
        return [population.labels[region] for region in order]
    if layout.labels == "counting":
        return [f"V{region + 1}" for region in range(n_regions)]
    if layout.labels == "codes":
        return [f"{2001 + 10 * region + region % 3}" for region in range(n_regions)]
    return [f"{region}" for region in range(n_regions)]


def _write_array(layout: Layout, path: Path, array: np.ndarray, words: list[str]) -> None:
    """One file of one scan."""
    if layout.storage == "npy":
        np.save(path, array)
    elif layout.storage == "npz":
        np.savez(path, fc=array)
    elif layout.storage == "mat":
        savemat(path, {"fc": array})
    else:
        _, separator, decimal = TEXT[layout.storage]
        table = pd.DataFrame(np.atleast_2d(array))
        if layout.content in ("matrix", "series"):
            table.columns = pd.Index(words)
        if layout.content == "matrix":
            table.index = pd.Index(words)
        table.to_csv(
            path,
            sep=separator,
            decimal=decimal,
            header=layout.header,
            index=layout.index,
            float_format="%.7f",
            na_rep="NaN",
        )


def _write_one_file(
    layout: Layout, population: _Population, source: Path, options: dict[str, Any], folder: Path
) -> None:
    """One array of all participants, whose ids stand in the file or are typed."""
    order = np.arange(layout.n_regions)
    arrays = [_array(layout, population, participant, 0, order) for participant in population.ids]
    stack = np.stack(arrays)
    (folder / "ids.txt").write_text("\n".join(population.ids) + "\n")
    if layout.storage == "npz by id":
        np.savez(source / "all.npz", **dict(zip(population.ids, arrays, strict=True)))
        return
    if layout.storage == "rows after id":
        rows = pd.DataFrame(stack, index=pd.Index(population.ids))
        rows.to_csv(source / "all.csv", header=False, float_format="%.7f")
        return
    options["ids"] = folder / "ids.txt"
    if layout.storage == "npy of all":
        np.save(source / "all.npy", stack)
    elif layout.storage == "npz of all":
        np.savez(source / "all.npz", fc=stack)
    elif layout.storage == "mat of all":
        savemat(source / "all.mat", {"fc": np.moveaxis(stack, 0, -1)})
    else:
        np.savetxt(source / "all.csv", stack, delimiter=",", fmt="%.7f")


def _write_table(
    layout: Layout,
    population: _Population,
    folder: Path,
    options: dict[str, Any],
    truth: Truth,
    sessions_read: list[int],
    rng: np.random.Generator,
) -> None:
    """The participants table, the options about it, and the ages that the cohort must have."""
    in_table = TABLE_IDS[layout.table_ids]
    visits = [name or "1" for _, name in SESSIONS[layout.sessions]]
    has_visits = layout.table_rows.startswith("visits")
    if has_visits and len(visits) == 1:
        visits = [*visits, "9"]
    rows = []
    for participant in population.ids:
        for number, visit in enumerate(visits if has_visits else visits[:1]):
            age = population.ages.get((participant, number), 50.0)
            rows.append({"participant_id": in_table(participant), "visit": visit, "age": age})
    table = pd.DataFrame(rows)
    table["sex"] = [1 + row % 2 for row in range(len(table))]
    if layout.table_rows == "another order":
        table = table.iloc[rng.permutation(len(table))]
    elif layout.table_rows == "one more":
        other = {"participant_id": "nobody0", "visit": visits[0], "age": 99.5, "sex": 1}
        table = pd.concat([pd.DataFrame([other]), table])
    elif layout.table_rows == "one less":
        table = table.iloc[1:]
    if layout.codes != "none" and len(table) > 3:
        first_two = table.index[:2]
        table.loc[first_two, "age"] = 999.0
        if layout.codes == "declared":
            options["na_values"] = "999"
    if not has_visits:
        table = table.drop(columns="visit")
    elif layout.table_rows == "visits unnamed":
        table = table.rename(columns={"visit": "when"})
    column = "when" if "when" in table.columns else "visit"
    if has_visits and layout.visit:
        options["visit"] = visits[-1]
        if column == "when":
            options["columns"] = {"session_id": "when"}
    of_visit = {visit: table[table[column] == visit] for visit in visits if has_visits}
    is_told_by_session = column == "visit" and len(sessions_read) == 1
    truth.last_visit = visits[-1]
    truth.ids_of_table = {participant: in_table(participant) for participant in population.ids}
    truth.ages_of_last_visit = _ages_in(of_visit.get(visits[-1], table), truth, layout)
    if not has_visits or layout.visit:
        truth.ages = truth.ages_of_last_visit
    elif is_told_by_session and layout.sessions != "none":
        truth.ages = _ages_in(of_visit[visits[sessions_read[0]]], truth, layout)
    else:
        truth.ages = None
    truth.has_undeclared_codes = layout.codes == "left" and bool((table["age"] == 999).any())
    options["participants"] = _save_table(layout, table, folder)


def _ages_in(table: pd.DataFrame, truth: Truth, layout: Layout) -> dict[str, float]:
    """The age of each participant who has a row in a table of one visit."""
    ages = {}
    for participant, theirs in truth.ids_of_table.items():
        row = table[table["participant_id"] == theirs]
        if len(row) == 1:
            age = float(row["age"].iloc[0])
            is_missing = age == 999 and layout.codes == "declared"
            ages[normal_id(participant)] = np.nan if is_missing else age
    return ages


def follow_remedy(
    sentence: str, layout: Layout, source: Path, options: dict[str, Any], truth: Truth
) -> bool:
    """Type what a refusal advises, as a user who knows the data would; False where that is not known."""
    before = dict(options)
    patterns = re.findall(r"id_pattern=r?'(.+?)'(?=;|\.)", sentence)
    if 'values="r" or values="z"' in sentence:
        options["values"] = layout.values[0]
    elif 'unfolding="upper"' in sentence:
        options["unfolding"] = layout.content
    elif "visit=" in sentence:
        options["visit"] = truth.last_visit
        if 'columns="session_id' in sentence:
            options["columns"] = {"session_id": "when"}
        truth.ages = truth.ages_of_last_visit
    elif "id_map=FILE" in sentence and "id_map" not in options:
        pairs = [f"{ours},{theirs}" for ours, theirs in truth.ids_of_table.items()]
        options["id_map"] = source.parent / "map.csv"
        options["id_map"].write_text("data,table\n" + "\n".join(pairs) + "\n")
    elif 'header="yes"' in sentence or 'index="yes"' in sentence:
        options["header"] = "yes" if layout.header else "no"
        options["index"] = "yes" if layout.index else "no"
    elif "ids=FILE" in sentence and layout.storage == "rows after id":
        options["ids"] = source.parent / "ids.txt"
    elif "allow_exclusions" in sentence:
        options["allow_exclusions"] = True
    for pattern in patterns:
        matrices = _matrices_by_pattern(pattern, truth)
        if set(matrices) == set(truth.matrices):
            options["id_pattern"] = pattern
            truth.matrices = matrices
            break
    return options != before


def _matrices_by_pattern(pattern: str, truth: Truth) -> dict[str, np.ndarray]:
    """FC of each participant of the files that an `--id-pattern` matches; nothing where it names others."""
    scans: dict[str, list[np.ndarray]] = {}
    for name, (participant, matrix) in truth.scan_of_file.items():
        match = re.search(pattern, name)
        if match and normal_id(match["id"]) != participant:
            return {}
        if match:
            scans.setdefault(participant, []).append(matrix)
    return {participant: average(matrices) for participant, matrices in scans.items()}


def _save_table(layout: Layout, table: pd.DataFrame, folder: Path) -> Path:
    endings = {"decimal commas": ".csv"}
    path = folder / f"people{endings.get(layout.table, f'.{layout.table}')}"
    if layout.table == "xlsx":
        table.to_excel(path, index=False)
    elif layout.table == "parquet":
        table.reset_index(drop=True).to_parquet(path)
    elif layout.table == "sav":
        import pyreadstat

        pyreadstat.write_sav(table.reset_index(drop=True), path)
    elif layout.table == "decimal commas":
        table.to_csv(path, sep=";", decimal=",", index=False)
    else:
        table.to_csv(path, sep="\t" if layout.table == "tsv" else ",", index=False)
    return path


def difference(cohort: Cohort, truth: Truth) -> str:
    """What is wrong with a cohort, or an empty string."""
    ids = cohort.participants["participant_id"].tolist()
    ages = truth.ages
    if ages is None:
        return "rows of the table were chosen, and nothing says which"
    expected = [word for word in truth.matrices if not ages or word in ages]
    if sorted(ids) != sorted(expected):
        return f"participants are {sorted(ids)}, expected {sorted(expected)}"
    if tuple(cohort.parcellation.labels) != truth.labels:
        return f"labels are {cohort.parcellation.labels}, expected {truth.labels}"
    for row, participant in enumerate(ids):
        error = np.abs(cohort.connectivity[row] - truth.matrices[participant]).max()
        if not error <= TOLERANCE:
            return f"FC of {participant} differs by {error:.3g}"
        if ages and not _same_number(cohort.participants["age"].iloc[row], ages[participant]):
            found = cohort.participants["age"].iloc[row]
            return f"age of {participant} is {found}, expected {ages[participant]}"
    return ""


def _same_number(value: Any, expected: float) -> bool:
    value = float(value)
    return np.isnan(value) == np.isnan(expected) and (np.isnan(value) or value == expected)
