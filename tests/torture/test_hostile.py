"""Files that somebody made to do harm: refused or neutralised. And the package holds nothing that would run them."""

import ast
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from tests.report.folders import Made, line, write_folder
from torture._sound_files import put_here, sound_files

import nerve
from nerve._utils.errors import NerveError
from nerve.evaluation.rows import rows_table
from nerve.experiments.config import ExperimentConfig, validate
from nerve.methods.nerve import NERVE
from nerve.report.page import write_report
from nerve.report.report_data import ReportData
from nerve.report.table_formats import to_csv, to_latex, to_markdown
from nerve.report.tables import paper_table
from torture import hostile

SOURCE = Path(nerve.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

pytestmark = pytest.mark.xdist_group("made")


@pytest.mark.slow
def test_every_attack_fails(tmp_path):
    broken = [promise for promise in hostile.run(tmp_path, short=True, seed=0) if not promise.kept]
    assert not broken


# ---- the source


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_source_never_runs_code_from_a_file(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in imported}
    assert not roots & {
        "pickle",
        "cPickle",
        "dill",
        "cloudpickle",
        "shelve",
        "marshal",
        "subprocess",
        "code",
    }
    from_joblib = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "joblib"
    ]
    assert "joblib" not in {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    assert {alias.name for node in from_joblib for alias in node.names} <= {
        "Parallel",
        "delayed",
    }  # its load unpickles
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name, keywords = (
            ast.unparse(call.func),
            {keyword.arg: keyword.value for keyword in call.keywords},
        )
        assert name not in (
            "eval",
            "exec",
            "compile",
            "__import__",
            "os.system",
            "os.popen",
            "torch.load",
        ), name
        assert not name.endswith((".read_pickle", ".to_pickle", ".set_default_tensor_type")), name
        assert not re.fullmatch(r"yaml\.(load|load_all|full_load|unsafe_load|dump)", name), name
        assert "shell" not in keywords, name
        if name in ("np.load", "numpy.load"):
            assert ast.unparse(keywords.get("allow_pickle", call)) == "False", ast.unparse(call)
        if name in (
            "import_module",
            "importlib.import_module",
        ):  # names of our own tables, never those of a file
            assert ast.unparse(call.args[0]) in IMPORTED, ast.unparse(call)


# what may be imported by a name that is computed: entries of tables in the source, never what a file says
IMPORTED = {"FIGURES[name]", "place", "module"}
IMPORTED |= {"FIGURES[one_of('figure', name, list(FIGURES))]"}


# ---- models


@pytest.fixture
def folder(tmp_path):
    put_here(tmp_path, sound_files(), "run", "cohort")
    return tmp_path / "run"


def edited(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.slow
def test_a_sound_model_is_read(folder):
    assert NERVE.load(folder).parcellation_.n_regions == 21


@pytest.mark.slow
def test_a_newer_model_is_refused_by_its_version(folder):
    edited(folder, format_version=7, nerve_version="3.2.1")
    with pytest.raises(
        NerveError, match=r"format 7 by nerve 3\.2\.1, expected format 2\. Update nerve"
    ):
        NERVE.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "history.tsv"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(NerveError, match=re.escape(name)):
        NERVE.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (
            "another shape",
            r"model\.safetensors: (the weights do not fit the model: \S+ is \(\d+, 1\), expected \(|its arrays are )",
        ),
        (
            "a tensor renamed",
            r"model\.safetensors: (the weights do not fit the model: \S+ is missing, .*expected none|its arrays are )",
        ),
        ("offsets beyond the file", r"model\.safetensors: is not a readable safetensors file"),
        ("header of 2^64 bytes", r"model\.safetensors: is not a readable safetensors file"),
    ],
)
def test_changed_weights_are_named(folder, lie, sentence):
    weights = folder / "model.safetensors"
    weights.write_bytes(hostile.lying_safetensors(weights.read_bytes())[lie])
    with pytest.raises(NerveError, match=sentence):
        NERVE.load(folder)


@pytest.mark.slow
def test_a_class_is_never_looked_up(folder):
    edited(folder, method="os.system")
    with pytest.raises(NerveError, match=r"it holds a os\.system, expected a NERVE"):
        NERVE.load(folder)


# ---- settings


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "../up", "a/b", "a\\b", "a\0b", "a\nb", "x" * 200]
)
def test_a_cohort_is_not_called_by_a_path(name):
    content = {"cohorts": {name: {"path": "c", "targets": ["age"]}}, "methods": [{"method": "raw"}]}
    with pytest.raises(NerveError, match="expected a short name without slashes"):
        validate(ExperimentConfig, content, "x.yaml")


# ---- what people open


EVIL_TEXT = (
    "=cmd|'/c calc'!A1 [x](javascript:alert(1)) `code` \\input{/etc/passwd} \\write18{id} <b>"
)


@pytest.fixture
def table():
    rows = rows_table(
        [*line("a", "nerve", EVIL_TEXT, "self-supervised"), *line("b", "raw", "Raw", "reference")]
    )
    place = {"cohort": EVIL_TEXT, "target": EVIL_TEXT, "line": ["a", "b"], "row": ["a-0", "b-0"]}
    scores = pd.DataFrame(place | {"r": [0.3, 0.1], "r_half_width": 0.2})
    return paper_table(ReportData(title=EVIL_TEXT, rows=rows, scores=scores))


def test_tables_for_spreadsheets_hold_no_formula(table):
    assert not [line for line in to_csv(table).splitlines() if line.lstrip('"')[:1] in "=+-@"]
    assert "'=cmd" in to_csv(table)


def test_tables_in_markdown_hold_only_text(table):
    text = to_markdown(table)
    assert "<b>" not in text
    assert not re.search(r"(?<!\\)\[x", text)
    assert not re.search(r"(?<!\\)`", text)
    cells = [
        len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")
    ]
    assert len(set(cells)) == 1


def test_tables_in_latex_hold_no_command_of_others(table):
    text = to_latex(table)
    assert "\\input" not in text
    assert "\\write18" not in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text


@pytest.mark.slow
def test_regions_and_networks_cannot_write_the_page(tmp_path, unpainted, monkeypatch):
    evil = "<img src=x onerror=alert(1)>"
    # Figures whose captions name regions and networks.
    figures = ("interpretation_weights", "interpretation_importance")
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {"interpretation": figures})
    folder = write_folder(tmp_path, Made(interpretation=True))
    for path in folder.rglob("*.tsv"):
        if path.name in ("regions.tsv", "importance.tsv", "network_weights.tsv"):
            text = path.read_text().replace("Default", evil.replace('"', ""))
            path.write_text(text.replace("17Networks", "<script>"))
    page = Path(write_report(folder)).read_text()
    assert "<img src=x" not in page
    assert "<script>_" not in page
