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
        if "_static" not in path.parts and "mathjax" not in path.parts
    )
    if HTML.is_dir()
    else []
)
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
def test_page_is_whole(browser, server, name):
    context, page, faults = open_page(browser, server, name, 1280)
    page.evaluate(
        "Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode().catch(() => {}) }))"
    )
    images = page.evaluate("[...document.images].map(i => [i.src, i.naturalWidth, i.alt])")
    mathematics = page.evaluate(
        "[document.querySelectorAll('.math').length, document.querySelectorAll('mjx-container').length,"
        " document.querySelectorAll('mjx-merror').length]"
    )
    context.close()
    assert faults == []
    for source, width, alt in images:
        assert width > 0, f"{source} did not load"
        assert alt.strip().lower() not in EMPTY_ALT and len(alt.split()) >= 3, (
            f"{source}: alt text {alt!r} says nothing"
        )
    assert mathematics[2] == 0, "mathematics with an error"
    assert mathematics[1] >= mathematics[0], f"{mathematics[0]} formulas, {mathematics[1]} set"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(browser, server, name, scheme):
    context, page, faults = open_page(browser, server, name, 390, scheme)
    width = page.evaluate("document.documentElement.scrollWidth")
    wide = page.evaluate(
        "[...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > 391"
        " && getComputedStyle(e).position !== 'absolute').slice(0, 3).map(e => e.outerHTML.slice(0, 120))"
    )
    context.close()
    assert faults == []
    assert width <= 390, f"sideways scroll to {width} px: {wide}"


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
    page.fill("input[data-filter=text]", "")
    page.click("th:nth-child(1) button")
    first = page.evaluate(
        "[...document.querySelectorAll('.scoreboard tbody tr')].map(r => r.cells[0].textContent.trim())"
    )
    ordered = page.evaluate("rows => [...rows].sort((a, b) => a.localeCompare(b, 'en', {numeric: true}))", first)
    assert first == ordered and len(first) == len(claims)
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
