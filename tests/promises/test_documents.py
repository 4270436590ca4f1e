"""Documents cannot go stale: what they say of defaults, presets, names, files and counts is compared with the code."""

import importlib
import re
import shlex
import tomllib

import benchmarks.__main__ as benchmarks
import pytest
import yaml
from tests.promises.documents import PAGES, ROOT, blocks
from tests.promises.test_documented_commands import COMMANDS

from nerve.evaluation.evaluate import LARGE_KERNEL
from nerve.evaluation.protocol import FIELDS
from nerve.evaluation.results import PROTOCOL, TABLES
from nerve.experiments.config import ExperimentConfig, MethodConfig, SlurmConfig
from nerve.methods import method_table
from nerve.methods.nerve import NERVE

DOCS = ROOT / "docs"
CURRENT = [
    page for page in PAGES if page.name not in ("CHANGELOG.md", "decisions.md")
]  # those two are of their day
OPTIONS = {
    path: {word for one in command.params for word in (*one.opts, *one.secondary_opts)}
    for path, command in COMMANDS.items()
}
ANOTHER_PROGRAMS = {
    "--nnodes",
    "--rdzv-endpoint",
    "--constraint",
    "--logdir",
    "--help",
    "--version",
}  # torchrun, pip, tensorboard, every command
MENTIONED = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("src", "studies", "tools")
    for path in (ROOT / folder).rglob("*.py")
)
TYPED = "\n".join(
    block
    for page in PAGES
    for block in blocks(page.read_text(encoding="utf-8"), "", "bash", "python")
)


def text(*parts):
    return DOCS.joinpath(*parts).read_text(encoding="utf-8")


def prose(page):
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def inline(page):
    return re.findall(r"`([^`\n]+)`", prose(page))


def cells(page, first):
    """The cells after the first of the table row that begins with `first`."""
    [row] = re.findall(rf"^\| {re.escape(first)} \|(.*)\|$", page, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def every_page(pages=PAGES):
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def short(value):
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


# Defaults and presets


def test_the_table_of_presets_is_the_presets():
    page = text("methods", "nerve.md")
    default, paper, small = (NERVE.from_preset(name) for name in NERVE.presets)
    assert set(NERVE.presets["small"]) == {"dim"}, (
        "the table has one column for both: say what differs"
    )
    views = cells(page, "view, the matrix that is cut")
    schedule = cells(page, "epochs, batch, largest learning rate")
    for one, view, training in zip((paper, default), views, schedule, strict=True):
        assert view.startswith(f"`{one.view}`")
        assert training == ", ".join(short(value) for value in (one.epochs, one.batch_size, one.lr))
    assert cells(page, "encoder") == [
        f"{paper.dim} wide, {paper.depth} layers",
        f"{default.dim} or {small.dim} wide, {default.depth} layers",
    ]
    feature = cells(page, "feature (`pooling`)")
    assert feature[0].startswith(f"`{paper.pooling}`")
    assert f"{paper.dim} numbers" in feature[0]
    assert feature[1].startswith(f"`{default.pooling}`: {default.n_components} ")
    entries = cells(page, "entries")
    assert ("mean 0" in entries[1], "mean 0" in entries[0]) == (
        default.standardise,
        paper.standardise,
    )
    released, signs = cells(page, "initial weights")
    assert ("released" in released, "signs" in signs) == (
        paper.init == "released",
        default.init == "signs",
    )
    assert {one.mask_ratio for one in (paper, default, small)} == {0.5}
    assert cells(page, "masked")[0].startswith("half")


def test_defaults_of_the_protocol_are_the_protocols():
    named = re.findall(r"^\| `(\w+)` \| (\S+) \|", text("howto", "evaluate.md"), re.MULTILINE)
    assert len(named) > 8
    for name, value in named:
        assert value == short(FIELDS[name].default), f"evaluate.md: {name}"
    many = text("reliability.md").split("## Very many participants")[1].split("\n## ")[0]
    assert f"{LARGE_KERNEL:,}" in many


@every_page()
def test_lines_of_experiment_files_exist(page):
    known = {*ExperimentConfig.model_fields, *MethodConfig.model_fields}
    for block in blocks(page.read_text(encoding="utf-8"), "yaml"):
        given = yaml.safe_load(block)
        assert set(given) <= known
        assert set(given.get("protocol", {})) <= set(FIELDS)
        assert set(given.get("slurm", {})) <= set(SlurmConfig.model_fields)


@every_page()
def test_settings_given_by_set_exist(page):
    for name in re.findall(r"--set (\w+)=", page.read_text(encoding="utf-8")):
        assert name in NERVE().get_params(), name


@pytest.mark.slow
def test_parameter_counts_are_those_of_the_methods():
    counted = method_table(preset="paper").set_index("title")["parameters"]
    page = text("methods", "index.md").split("## What a step costs")[1]
    named = dict(re.findall(r"^\| ([A-Za-z]+)[^|]*\| ([\d,]+) \|", page, re.MULTILINE))
    assert len(named) == 8
    assert {name: int(count.replace(",", "")) for name, count in named.items()} == dict(
        counted[list(named)]
    )


# Names


@every_page()
def test_options_in_the_text_exist(page):
    every = set.union(*OPTIONS.values()) | ANOTHER_PROGRAMS
    for code in inline(page):
        words = code.split()
        known = every
        if words[0] == "nerve":
            path = next((tuple(words[1:k]) for k in (3, 2) if tuple(words[1:k]) in OPTIONS), None)
            known = (OPTIONS[path] if path else set()) | ANOTHER_PROGRAMS
        if words[0] not in ("python", "pip", "torchrun"):
            unknown = {word for word in words if re.fullmatch(r"--[a-z][\w-]*", word)} - known
            assert not unknown, f"`{code}`: there is no {unknown}"


@every_page(CURRENT)
def test_python_names_in_the_text_exist(page):
    whole = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"(?<![\w./-])nerve(?:\.[a-z]\w*)+(?:\.[A-Z]\w*)?", whole)):
        if not name.endswith((".md", ".py", ".yaml")):
            assert found(name), f"there is no {name}"


def found(name):
    """Whether a dotted name can be imported, or is an attribute of what can."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            here = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            if not hasattr(here, part):
                return False
            here = getattr(here, part)
        return True
    return False


@every_page(CURRENT)
def test_files_of_the_repository_in_the_text_exist(page):
    for code in inline(page):
        if re.fullmatch(
            r"(src|tests|tools|studies|configs|docs|benchmarks|torture|examples)/[\w./-]+", code
        ):
            assert (ROOT / code).exists(), code
        elif re.fullmatch(r"[\w/]+\.py", code) and "/" in code:
            assert (ROOT / code).exists() or (ROOT / "src" / "nerve" / code).exists(), code


@every_page(CURRENT)
def test_files_that_nerve_writes_have_the_names_in_the_text(page):
    """A name of a file in the text is written by the package, or given to it by the reader in a command."""
    for code in inline(page):
        if re.fullmatch(r"\w+\.(tsv|json|npz|html|safetensors)", code):
            written = code in MENTIONED or code.removesuffix(".tsv") in TABLES or code in TYPED
            assert written, (
                f"nothing writes {code}"
            )  # not in one expression: pytest would print the whole source


def test_the_files_of_a_results_folder_are_listed():
    listed = set(re.findall(r"^\| `([\w.]+)` \|", text("howto", "evaluate.md"), re.MULTILINE))
    assert {f"{name}.tsv" for name in TABLES} | {PROTOCOL} <= listed


def test_extras_that_are_named_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for path in [*PAGES, *(ROOT / "src").rglob("*.py")]:
        for name in re.findall(r"(?:nerve-fc|'\.|\"\.)\[(\w+)\]", path.read_text(encoding="utf-8")):
            assert name in extras, f"{path.name}: {name}"


def test_targets_of_make_and_modules_of_tools_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for code in [
            *inline(page),
            *"\n".join(blocks(page.read_text(encoding="utf-8"), "", "bash")).splitlines(),
        ]:
            words = (
                shlex.split(code, comments=True) if re.match(r"make |python -m ", code) else [""]
            )
            if words[0] == "make":
                assert words[1] in targets, f"{page.name}: {code}"
            elif words[0] == "python":
                parts = words[2].split(".")
                at = ROOT.joinpath(*parts)
                assert (
                    at.is_dir()
                    or at.with_suffix(".py").is_file()
                    or parts[0] in ("build", "http", "pip", "twine", "venv")
                ), code
                named = at / f"{words[3]}.py" if at.is_dir() and words[3:] else at
                assert named == at or named.is_file() or words[3].startswith("-"), (
                    f"{page.name}: {code}"
                )


# Figures


def test_figures_of_speed_and_memory_are_those_that_make_bench_wrote():
    """The text of the decisions holds constants of the code only."""
    page = text("decisions.md")
    told, table = page.split(benchmarks.BEGIN)
    constants = {"1 GiB", "32 MB", "2 GiB", "3 %"}
    assert set(re.findall(r"[\d.,]*\d (?:s|ms|seconds|MB|GB|GiB|%|times)(?!\w)", told)) <= constants
    rows = table.split(benchmarks.END)[0].removeprefix(benchmarks.HEAD).splitlines()
    assert (
        {"beside", "thousands", "views"}
        <= {row.split(" | ")[0].removeprefix("| ") for row in rows}
        <= set(benchmarks.NAMES)
    )


# Formulas


@every_page()
def test_formulas_become_mathml_without_the_network(page):
    """A command that the converter does not know would stay as text with a backslash."""
    convert = pytest.importorskip(
        "latex2mathml.converter", reason="the documentation tools are not installed"
    ).convert
    for block, line in re.findall(
        r"\$\$(.+?)\$\$|(?<!\$)\$([^$\n]+)\$(?!\$)", prose(page), re.DOTALL
    ):
        assert "\\" not in re.sub(r"<[^>]*>", "", convert(block or line)), block or line
