"""What a release needs: archives that install, addresses in one place, docs of several versions."""

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from tests.promises.documents import ROOT
from tools import check_release, publish_docs

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# Wheel and source archive


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """What is built from: a copy, so that nothing is written beside the source."""
    copy = tmp_path_factory.mktemp("release") / "nerve"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, copy)
    return copy


@pytest.fixture(scope="module")
def archives(checkout):
    """The wheel and the source archive, built as docs/releasing.md says, with what is installed."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*words, str(checkout)], check=True, capture_output=True)
    (wheel,) = (checkout / "dist").glob("*.whl")
    (source,) = (checkout / "dist").glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_an_index_would_take_both_archives(archives):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, archives)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(archives, checkout):
    with zipfile.ZipFile(archives[0]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = checkout / "src"
    files = {
        str(path.relative_to(package))
        for path in (package / "nerve").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    # no __init__.py: it would hide Brainmarks' own files
    plugin = {"brainmarks/models/nerve_wrapper.py"}
    assert held == files | plugin


@pytest.mark.slow
def test_the_source_archive_holds_the_package_and_its_papers_but_not_half_of_the_tests(archives):
    with tarfile.open(archives[1]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "pyproject.toml"} <= names
    assert "src/nerve/core/patching.py" in names
    assert not any(name.startswith("tests") for name in names)


@pytest.fixture(scope="module", params=["wheel", "source archive"])
def installed(request, archives, tmp_path_factory):
    """A fresh environment with nerve from one archive; the packages it needs are lent from here."""
    archive = archives[request.param == "source archive"]
    environment = tmp_path_factory.mktemp("fresh") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    (library,) = (environment / "lib").glob("python*/site-packages")
    lent = [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")]
    (library / "lent.pth").write_text("\n".join(lent) + "\n")
    words = ["install", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--python", python, *words, archive],
        check=True,
        capture_output=True,
    )
    return environment


def run(environment, *words):
    done = subprocess.run(
        [environment / "bin" / words[0], *words[1:]],
        cwd=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_archive_does_what_a_user_does_first(installed):
    place = run(installed, "python", "-c", "import nerve; print(nerve.__file__)")
    assert Path(place.strip()).is_relative_to(installed)
    assert run(installed, "nerve", "--version").strip() == f"nerve {PROJECT['version']}"
    assert "nerve-small-419" in run(installed, "nerve", "models", "list")
    assert "schaefer400-17" in run(installed, "nerve", "atlas", "list")
    size = ["--subjects", "20", "--timepoints", "60"]
    run(installed, "nerve", "simulate", "cohort", *size)
    evaluation = ["--targets", "age", "--n-folds", "3", "--n-bootstrap", "10"]
    run(installed, "nerve", "evaluate", "cohort", *evaluation, "--out", "results")
    assert (installed / "results" / "report.html").is_file()
    assert "usage" in run(installed, "nerve-bids", "--help").lower()


# Addresses, versions, placeholders


def test_the_owner_is_a_placeholder_in_the_files_that_releasing_names_and_nowhere_else():
    page = (ROOT / "docs" / "releasing.md").read_text()
    (files,) = re.findall(r"sed -i '[^']+' (.+)", page)
    named = set(files.split())
    found = set()
    for pattern in ("*.toml", "*.cff", "*.md", "docs/**/*.md", "src/**/*.py", ".github/**/*.yml"):
        for path in ROOT.glob(pattern):
            if check_release.OWNER.search(path.read_text(encoding="utf-8")):
                found.add(str(path.relative_to(ROOT)))
    assert found == named
    assert set(PROJECT["urls"]) >= {"Documentation", "Source", "Issues", "Changelog"}
    for address in PROJECT["urls"].values():
        assert check_release.OWNER.search(address), "one address is known: so are the others"


def test_placeholders_stop_a_release_and_nothing_else_does(tmp_path):
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    sentences = " ".join(check_release.problems(tmp_path))
    assert "OWNER is a placeholder" in sentences
    assert "the DOI 10.5281/zenodo.0000000 is a placeholder" in sentences

    (command,) = re.findall(r"sed -i .+", (ROOT / "docs" / "releasing.md").read_text())
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    citation = (tmp_path / "CITATION.cff").read_text()
    assert "github.com/the-account/nerve" in citation
    (tmp_path / "CITATION.cff").write_text(citation.replace("zenodo.0000000", "zenodo.1234567"))
    changelog = (ROOT / "CHANGELOG.md").read_text().replace("(unreleased)", "(2027-01-31)", 1)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    assert check_release.problems(tmp_path) == []

    citation = (tmp_path / "CITATION.cff").read_text()
    version = f"version: {PROJECT['version']}"
    (tmp_path / "CITATION.cff").write_text(citation.replace(version, "version: 9.9.9"))
    (sentence,) = check_release.problems(tmp_path)
    assert "the version is 9.9.9" in sentence


def test_the_citation_file_has_the_version_and_a_doi():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert re.fullmatch(r"10\.\d{4,9}/\S+", citation["doi"])


# Docs of several versions


@pytest.fixture
def built(tmp_path):
    """What stands for a built site: one page of furo's shape, with the script of the versions."""
    folder = tmp_path / "html"
    (folder / "howto").mkdir(parents=True)
    script = (ROOT / "docs" / "_static" / "versions.js").read_text()
    page = (
        '<!doctype html><html data-content_root="{}"><title>x</title>'
        '<body><a class="sidebar-brand">nerve</a><script>{}</script></body></html>'
    )
    (folder / "index.html").write_text(page.format("./", script))
    (folder / "howto" / "run.html").write_text(page.format("../", script))
    return folder


def test_every_version_has_its_folder_and_the_front_page_leads_to_the_newest(built, tmp_path):
    site = tmp_path / "site"
    assert publish_docs.publish(built, site, "main") == ["dev"]
    assert 'url=dev/index.html"' in (site / "index.html").read_text()
    for tag in ("v0.2.0", "v0.10.0", "v0.1.0"):
        publish_docs.publish(built, site, tag)
    assert json.loads((site / "versions.json").read_text()) == ["0.10.0", "0.2.0", "0.1.0", "dev"]
    assert 'url=0.10.0/index.html"' in (site / "index.html").read_text()
    assert (site / "0.2.0" / "howto" / "run.html").is_file()


def test_a_version_that_is_published_again_keeps_nothing_of_before(built, tmp_path):
    site = tmp_path / "site"
    publish_docs.publish(built, site, "main")
    (built / "howto" / "run.html").unlink()
    publish_docs.publish(built, site, "main")
    assert not (site / "dev" / "howto" / "run.html").exists()


def test_a_branch_of_another_name_and_a_site_that_was_not_built_are_refused(built, tmp_path):
    with pytest.raises(SystemExit, match="expected main, dev or a version"):
        publish_docs.publish(built, tmp_path / "site", "feature")
    with pytest.raises(SystemExit, match="make docs"):
        publish_docs.publish(tmp_path / "nothing", tmp_path / "site", "main")


def test_the_workflow_publishes_what_the_tool_takes():
    text = (ROOT / ".github" / "workflows" / "docs.yml").read_text()
    assert 'publish_docs.py docs/_build/html site "$GITHUB_REF_NAME"' in text
    events = yaml.safe_load(text)[True]["push"]  # YAML reads `on` as true
    assert events == {"branches": ["main"], "tags": ["v*"]}


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_reader_goes_from_one_version_to_another(built, tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.support.ui import Select, WebDriverWait

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Chromium is not installed (tools/chromium.sh installs it)")
    site = tmp_path / "site"
    for ref in ("main", "v0.1.0"):
        publish_docs.publish(built, site, ref)
    handler = functools.partial(QuietHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        top = f"http://127.0.0.1:{server.server_port}"
        browser.get(f"{top}/dev/howto/run.html")
        wait = WebDriverWait(browser, 120)
        versions = wait.until(lambda page: page.find_element("id", "versions"))
        assert [option.text for option in Select(versions).options] == ["0.1.0", "dev"]
        assert Select(versions).first_selected_option.text == "dev"
        Select(versions).select_by_visible_text("0.1.0")
        wait.until(lambda page: page.current_url == f"{top}/0.1.0/index.html")
    finally:
        browser.quit()
        server.shutdown()
        server.server_close()
