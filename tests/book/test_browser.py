"""The built book in a real browser: no error, no outside request, nothing missing, mathematics set, fits a phone."""

import functools
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
PAGES = (
    sorted(
        path.relative_to(HTML).as_posix()
        for path in HTML.rglob("*.html")
        # Sources and indices are made by Sphinx, one like the other.
        if not {"_static", "mathjax", "_modules"} & set(path.parts) and "index" not in path.stem.removeprefix("index")
    )
    if HTML.is_dir()
    else []
)
WIDTHS = (1280, 768, 390)
WIDER_THAN = """w => [...document.querySelectorAll('article *')]
    .filter(e => e.getBoundingClientRect().right > w + 1 && getComputedStyle(e).position !== 'absolute')
    .slice(0, 3).map(e => e.outerHTML.slice(0, 120))"""
# Alt text that names no content: what tools put in when the author wrote none.
EMPTY_ALT = ("", "image", "figure", "_images")

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not PAGES, reason="the book is not built (make book)"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on the path (Debian: apt install chromium; or set CHROMIUM)"
    ),
]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    handler = functools.partial(QuietHandler, directory=str(HTML))
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def open_page(browser, server, name, width, scheme="light"):
    """A page that has loaded, and what went wrong on the way."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    faults = []
    page.on("console", lambda message: faults.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
    page.on(
        "response", lambda answer: faults.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
    )
    page.on(
        "request",
        lambda request: (
            faults.append(f"outside: {request.url}") if not request.url.startswith((server, "data:", "blob:")) else None
        ),
    )
    page.goto(f"{server}/{name}", wait_until="networkidle")
    return context, page, faults


@pytest.mark.parametrize("name", PAGES)
def test_page_is_whole_and_fits_every_width(browser, server, name):
    """One load a page: nothing missing or from outside; no width, light or dark, scrolls sideways."""
    context, page, faults = open_page(browser, server, name, 1280)
    page.evaluate(
        "Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode().catch(() => {}) }))"
    )
    images = page.evaluate("[...document.images].map(i => [i.src, i.naturalWidth, i.alt])")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # sets the formulas of tables out of sight too
    mathematics = page.evaluate(
        "[document.querySelectorAll('.math').length, document.querySelectorAll('mjx-container').length,"
        " document.querySelectorAll('mjx-merror').length]"
    )
    sideways = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                sideways[width, scheme] = page.evaluate(WIDER_THAN, width)
    context.close()
    assert faults == [] and sideways == {}
    for source, width, alt in images:
        assert width > 0, f"{source} did not load"
        assert alt.strip().lower() not in EMPTY_ALT and len(alt.split()) >= 3, (
            f"{source}: alt text {alt!r} says nothing"
        )
    assert mathematics[2] == 0, "mathematics with an error"
    assert mathematics[1] >= mathematics[0], f"{mathematics[0]} formulas, {mathematics[1]} set"


def test_scoreboard_filters_and_sorts(browser, server):
    import yaml

    claims = yaml.safe_load((HTML.parents[1] / "claims.yml").read_text())
    context, page, faults = open_page(browser, server, "scoreboard.html", 1280)
    visible = "[...document.querySelectorAll('.scoreboard tbody tr')].filter(r => !r.hidden).map(r => r.id)"
    assert len(page.evaluate(visible)) == len(claims)
    page.select_option("select[data-filter=notebook]", "ch5_identity")
    expected = {claim["id"] for claim in claims if claim["notebook"] == "ch5_identity"}
    assert set(page.evaluate(visible)) == expected
    page.fill("input[data-filter=text]", "no such words anywhere")
    assert page.evaluate(visible) == []
    page.select_option("select[data-filter=notebook]", "")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # formulas that are set are found by their words
    page.fill("input[data-filter=text]", "kappa 0.005 cifar")
    assert "ch3-t31-cifar-k0p005" in page.evaluate(visible) and len(page.evaluate(visible)) < 10
    page.fill("input[data-filter=text]", "")
    page.click("th:nth-child(1) button")
    first = page.evaluate(
        "[...document.querySelectorAll('.scoreboard tbody tr')].filter(r => !r.cells[0].querySelector('.math'))"
        ".map(r => r.cells[0].textContent.trim())"
    )
    ordered = page.evaluate("rows => [...rows].sort((a, b) => a.localeCompare(b, 'en', {numeric: true}))", first)
    assert first == ordered and len(first) > 100
    page.click("th:nth-child(2) button")
    published = page.evaluate(
        "[...document.querySelectorAll('.scoreboard tbody tr')].map(r => r.cells[1].textContent.trim())"
    )
    plain = [bool(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", text, flags=re.IGNORECASE)) for text in published]
    assert plain == sorted(plain, reverse=True), "numbers come first"
    values = [float(text) for text, number in zip(published, plain) if number]
    assert values == sorted(values) and len(values) > 20
    context.close()
    assert faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["index.html", "explore.html", "scoreboard.html", "gallery.html", "_executed/ch5_identity.html"]
)
def test_nothing_serious_stands_in_the_way_of_a_reader(browser, server, name, scheme):
    """axe-core: contrast, labels, names of controls, order of headings. One page of each kind."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context, page, _ = open_page(browser, server, name, 1280, scheme)
    found = axe.run(page).response["violations"]
    context.close()
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in serious] == []


def test_moved_page_computes_what_numpy_computes(browser, server):
    """Iterations and errors of the page that a reader moves, against NumPy on the same weights, by keyboard."""
    import json

    import numpy as np

    context, page, faults = open_page(browser, server, "explore.html", 1280)
    made = json.loads(page.evaluate("document.getElementById('explore-data').textContent"))
    shift = page.locator('[data-part="shift"]')
    shift.focus()
    shift.press("End")  # the largest shift
    half = made["half_width"] + float(page.evaluate("document.querySelector('[data-part=shift]').value"))
    u = half * 0.8 * np.asarray(made["direction"])
    weights = {name: np.asarray(made["implicit"][-1][name]) for name in "ABCD"}
    x, moved = np.zeros(len(weights["A"])), []
    while not moved or moved[-1] > 1e-12 * np.abs(x).max():
        new = np.maximum(weights["A"] @ x + weights["B"] @ u, 0)
        moved.append(np.abs(new - x).max())
        x = new
    count = 1 + int(np.flatnonzero(np.asarray(moved) <= 3e-6)[0])
    error = np.abs(weights["C"] @ x + weights["D"] @ u - u).max()
    depth = page.locator('[data-part="depth"]').inner_text()
    cells = page.locator('[data-part="table"] td').all_inner_texts()
    page.locator('[data-part="radius"]').press("End")
    widths = [float(text) for text in page.locator('[data-part="widths"] td').all_inner_texts()]
    context.close()
    assert faults == []
    assert re.search(r"3e-6: (\d+)", depth)[1] == str(count)
    assert float(cells[0]) == pytest.approx((u + 0)[0], rel=5e-3)
    assert float(cells[1]) == pytest.approx(error, rel=5e-3)
    for method, pair in zip(made["bounds"]["boxes"], zip(widths[::2], widths[1::2]), strict=True):
        low, high = made["bounds"]["boxes"][method][-1]
        assert pair == pytest.approx(np.subtract(high, low), rel=6e-3), method


def test_moved_page_is_readable_without_javascript(browser, server):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 800, "height": 900})
    page = context.new_page()
    page.goto(f"{server}/explore.html")
    assert page.locator(".explore-still img").is_visible() and not page.locator(".explore").is_visible()
    context.close()
