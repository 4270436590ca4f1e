"""Versions are pinned, licences are listed, and an audit that looked nothing up does not pass for a clean one."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name
from tools import audit, sbom

ROOT = Path(__file__).parents[2]


def pinned_versions():
    versions = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.strip().partition("==")
            versions[canonicalize_name(name)] = version
    return versions


PINNED = pinned_versions()


@pytest.mark.slow
def test_everything_that_the_extras_pull_is_pinned():
    everything = sbom.closure(extras=(*sbom.EXTRAS, "docs", "dev"))
    installed = {
        name: sbom.version(package) for name, package in everything.items() if name != sbom.ROOT
    }
    assert len(installed) > 60
    missing = sorted(set(installed) - set(PINNED))
    assert missing == [], f"not in constraints.txt: {missing}"
    assert {name: PINNED[name] for name in installed} == installed


def test_make_installs_nothing_but_pinned_versions():
    """Also torch, which comes first."""
    makefile = (ROOT / "Makefile").read_text()
    assert "--constraint constraints.txt" in re.search(r"^PIP := (.+)$", makefile, re.MULTILINE)[1]
    recipes = [line for line in makefile.splitlines() if line.startswith("\t")]
    assert [line for line in recipes if "pip" in line and "install" in line] == []
    assert sum("$(PIP)" in line for line in recipes) >= 4
    assert "torch" in PINNED


@pytest.mark.slow
def test_the_page_of_licences_is_that_of_the_pinned_versions():
    page = (ROOT / "docs" / "licences.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (.+) \| (?:nerve|an extra) \|$", page, re.MULTILINE)
    listed = {canonicalize_name(name): version for name, version, _ in rows}
    assert listed == {name: PINNED[name] for name in sbom.closure() if name != sbom.ROOT}, (
        "run `make sbom`"
    )
    assert all(licence.strip() and licence != "not stated" for *_, licence in rows)


@pytest.mark.slow
def test_no_licence_forbids_use_under_ours():
    licences = {name: sbom.licence(package) for name, package in sbom.closure().items()}
    forbidden = r"GPL|Commercial|Proprietary"
    assert {name: text for name, text in licences.items() if re.search(forbidden, text)} == {}


@pytest.mark.slow
def test_the_bill_is_the_same_in_another_process_and_every_reference_leads_somewhere(
    tmp_path, monkeypatch
):
    command = ["tools/sbom.py", "--out"]
    subprocess.run(
        [sys.executable, *command, str(tmp_path / "a.json")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    monkeypatch.setattr(sys, "argv", [*command, str(tmp_path / "b.json")])
    sbom.main()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    bill = json.loads((tmp_path / "a.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    known = {
        bill["metadata"]["component"]["bom-ref"],
        *(part["bom-ref"] for part in bill["components"]),
    }
    assert len(known) == len(bill["components"]) + 1
    assert {edge["ref"] for edge in bill["dependencies"]} == known
    assert {end for edge in bill["dependencies"] for end in edge["dependsOn"]} <= known
    assert any(
        part["name"] == "torch" and "+" not in part["version"] for part in bill["components"]
    )


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], audit.CLEAN),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}],
            audit.VULNERABLE,
        ),
        (
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}],
            audit.PARTLY,
        ),
        ([{"name": "b", "skip_reason": "?"}], audit.NOT_RUN),
        ([], audit.NOT_RUN),
    ],
)
def test_an_audit_that_looked_nothing_up_is_not_a_clean_one(packages, code):
    assert audit.verdict(packages)[0] == code


def test_an_audit_without_its_tool_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda name: None)
    code, message = audit.audit("constraints.txt")
    assert code == audit.NOT_RUN
    assert "not installed" in message


def test_the_security_page_names_no_address_and_its_promises_are_kept_in_the_source():
    page = (ROOT / "SECURITY.md").read_text()
    assert not re.search(r"https?://|\S+@\S+\.\w+", page)
    source = {path: path.read_text() for path in (ROOT / "src" / "nerve").rglob("*.py")}
    imports = r"^\s*(?:import|from) (?:requests|urllib\.request|http\.client|aiohttp|ftplib|pickle|dill|marshal)\b"
    calls = r"socket\.(?:socket|create_connection)|allow_pickle=True|torch\.load\(|joblib\.load|yaml\.load\("
    forbidden = re.compile(f"{imports}|{calls}", re.MULTILINE)
    assert [path.name for path, text in source.items() if forbidden.search(text)] == []


# Set-up


def test_actions_are_pinned_by_commit_and_no_code_of_a_pull_request_runs_by_sudo():
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for path in workflows:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
                if "sudo" in step.get("run", ""):
                    assert step.get("if") == "github.event_name == 'push'", step["run"]


def test_the_image_runs_as_an_ordinary_user():
    lines = (ROOT / "containers" / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert lines.index(f"USER {users[-1]}") < lines.index('ENTRYPOINT ["nerve-bids"]')
    assert "ARG PYTHON_IMAGE=python:3.11-slim" in lines  # where a digest is given


def test_the_build_requirement_is_pinned_to_the_version_of_the_constraints():
    with open(ROOT / "pyproject.toml", "rb") as stream:
        requires = tomllib.load(stream)["build-system"]["requires"]
    assert requires == [f"setuptools=={PINNED['setuptools']}"]


def test_make_clean_leaves_results(tmp_path):
    """The README puts results into out/."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("out/demo", "build", "docs/_build"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "out/demo/report.html").write_text("results")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out/demo/report.html").read_text() == "results"
    assert not (tmp_path / "build").exists()


def test_a_slurm_configuration_of_others_is_not_replaced(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=hospital\n")
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")  # no SLURM that runs already
    (tmp_path / "sinfo").chmod(0o755)
    environment = os.environ | {
        "NERVE_SLURM_CONF": str(conf),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ROOT / "tools" / "slurm.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "not replaced" in done.stderr
    assert conf.read_text() == "ClusterName=hospital\n"
