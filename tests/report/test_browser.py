"""The page in a real Chromium: nothing fails, nothing is fetched, nothing overflows, tables sort, figures open.

Screenshots go to the folder that NERVE_ARTEFACTS names, where one is named.
"""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
WIDTHS = (400, 1400)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Chromium is not installed (tools/chromium.sh installs it)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def opened(hostile_page, browser):
    """The page whose names are an attempt to break it."""
    return open_page(browser, hostile_page, 1400)


def open_page(browser, path, width, height=900):
    browser.get_log("performance"), browser.get_log("browser")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.get(path.as_uri())
    browser.execute_script(
        "return Promise.all([...document.images].map(i => i.decode().catch(() => 0)))"
    )
    return browser


def test_no_console_message_and_no_request(opened):
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert opened.execute_script("return window.pwned") is None


def test_every_figure_is_loaded_and_described(opened):
    pictures = opened.execute_script(
        "return [...document.querySelectorAll('figure img')].map(i => [i.complete, i.naturalWidth, i.alt.length])"
    )
    assert len(pictures) >= 8
    assert all(complete and width > 0 and alt > 40 for complete, width, alt in pictures)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows(opened, width):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    opened.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    outside = opened.execute_script(
        """return [...document.querySelectorAll('body *')]
           .filter(e => !e.closest('.scroll, nav ul, .skip, dialog, pre'))
           .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    opened.execute_script("document.querySelectorAll('details').forEach(d => d.open = false)")
    screenshots(opened, f"hostile-{width}", width)


@pytest.mark.parametrize(("width", "height"), [(400, 800), (1400, 900)])
def test_the_headline_is_above_the_fold(painted, browser, width, height):
    open_page(browser, painted / "report.html", width, height)
    answer = browser.execute_script(
        """const answer = document.querySelector('#findings .answer');
           return [answer.textContent, answer.getBoundingClientRect().bottom, innerHeight]"""
    )
    screenshots(browser, f"experiment-{width}", width)
    words, bottom, fold = answer
    assert re.search(r"r = -?\d\.\d\d, 95 % interval -?\d\.\d\d to -?\d\.\d\d", words)
    assert 0 < bottom < fold == height


def test_a_term_leads_to_its_line_of_the_glossary(painted, browser):
    open_page(browser, painted / "report.html", 1400)
    browser.execute_script("document.querySelector('a.term[href=\"#term-scope\"]').click()")
    target = browser.execute_script("return document.querySelector(':target').textContent")
    assert target.startswith("scope")


def test_a_table_of_maps_is_saved_by_a_click(painted, experiment, browser, tmp_path):
    from selenium.webdriver.support.wait import WebDriverWait

    open_page(browser, painted / "report.html", 1400)
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    browser.execute_script("document.querySelector('.download a').click()")
    saved = tmp_path / "attention.tsv"
    WebDriverWait(browser, timeout=120).until(lambda _: saved.is_file())
    n_lines = len((experiment / "interpretation" / "attention.tsv").read_text().splitlines())
    assert len(saved.read_text().splitlines()) == n_lines == 129


def test_table_sorts_by_number_both_ways_and_by_name(opened):
    table = "document.querySelector('#paper-table')"
    column = opened.execute_script(
        f"return {table}.tHead.rows[{table}.tHead.rows.length - 1].cells.length - 1"
    )
    for direction in ("descending", "ascending"):
        header = f"{table}.tHead.rows[{table}.tHead.rows.length - 1].cells[{column}]"
        opened.execute_script(f"{header}.querySelector('button').click()")
        assert opened.execute_script(f"return {header}.getAttribute('aria-sort')") == direction
        keys = opened.execute_script(
            f"return [...{table}.tBodies[0].rows].map(r => r.cells[{column}].dataset.sort)"
        )
        values = [float(key) for key in keys if key]
        assert values == sorted(values, reverse=direction == "descending")
    opened.execute_script(f"{table}.querySelector('thead tr:last-child button').click()")
    names = opened.execute_script(
        f"return [...{table}.tBodies[0].rows].map(r => r.cells[0].textContent)"
    )
    assert [name.lower()[0] for name in names] == sorted(name.lower()[0] for name in names)


def test_figure_opens_by_keyboard_and_closes_by_escape(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened.execute_script("document.querySelector('button.zoom').focus()")
    ActionChains(opened).send_keys(Keys.ENTER).perform()
    assert opened.execute_script("return document.getElementById('zoomed').open")
    ActionChains(opened).send_keys(Keys.ESCAPE).perform()
    assert not opened.execute_script("return document.getElementById('zoomed').open")
    assert opened.execute_script("return document.activeElement.className") == "zoom"


def test_page_has_one_heading_a_language_and_landmarks(opened):
    counts = opened.execute_script(
        "return ['h1', 'main', 'nav', 'footer'].map(tag => document.querySelectorAll(tag).length)"
    )
    assert counts == [1, 1, 1, 1]
    assert opened.execute_script("return document.documentElement.lang") == "en"
    unnamed = "return [...document.querySelectorAll('button, a')].filter(e => !(e.textContent.trim() || e.ariaLabel)).length"
    assert opened.execute_script(unnamed) == 0


def test_a_dark_screen_gets_a_dark_page(painted, browser):
    open_page(browser, painted / "report.html", 1400)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        == "rgb(20, 23, 30)"
    )
    screenshots(browser, "experiment-dark", 1400)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_no_column_is_lost_on_paper(painted, browser):
    """A4 is 794 pixels wide, and paper does not scroll."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    open_page(browser, painted / "report.html", 794)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    outside = browser.execute_script(
        """return [...document.querySelectorAll('main table')]
           .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.id)"""
    )
    screenshots(browser, "experiment-print", 794)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert outside == []


def screenshots(browser, name, width, step=1800):
    """The whole page, in pieces that can be looked at, in the folder NERVE_ARTEFACTS, where one is named."""
    if "NERVE_ARTEFACTS" not in os.environ:
        return
    height = browser.execute_script("return document.documentElement.scrollHeight")
    for i, y in enumerate(range(0, height, step)):
        clip = {"x": 0, "y": y, "width": width, "height": min(step, height - y), "scale": 0.8}
        shot = browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
        )
        Path(os.environ["NERVE_ARTEFACTS"], f"{name}-{i}.png").write_bytes(
            base64.b64decode(shot["data"])
        )
