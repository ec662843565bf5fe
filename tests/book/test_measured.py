"""The page's roles: numbers come from the committed runs and the claims, what is missing is said or stops the build."""

import importlib.util
from pathlib import Path

import pytest

from reproduction.book.claims import load_claims
from reproduction.book.results import RESULTS, load, summary

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def measured():
    spec = importlib.util.spec_from_file_location("measured", ROOT / "book" / "_ext" / "measured.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_quoted_number_is_the_recorded_one(measured):
    recorded = load(RESULTS / "ch5_identity.json")["values"]["growth_implicit_40"]
    assert measured.quoted("ch5_identity", "growth_implicit_40").removesuffix(" (of an earlier version)") == summary(
        recorded
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.7e6, 1.68e7, 2.95e8], "1.7 × 10⁷"),
        ([8e-18, 1.21e-16, 2.57e-15], "1.2 × 10⁻¹⁶"),
        (81, "81"),
        ([5.47, 5.5, 5.52], "5.5"),
        (80.26, "80"),
        ([1234.4, 1234.6, 99999.0], "1235"),
        ("inf", "inf"),
        ("yes", "yes"),
    ],
)
def test_a_median_is_short(measured, values, text):
    assert measured.typical(values) == text


def test_powers_of_ten_are_written_out(measured):
    assert measured.scientific("1.68e+07 [1.7e-06, 2e+00] s") == "1.68 × 10⁷ [1.7 × 10⁻⁶, 2 × 10⁰] s"


def test_what_is_not_there_is_said_or_refused(measured, monkeypatch):
    with pytest.raises(KeyError, match="growth_of_nothing"):
        measured.quoted("ch5_identity", "growth_of_nothing")
    monkeypatch.setattr(measured, "committed", lambda name: (None, False))
    assert measured.quoted("ch5_identity", "anything") == "no committed run yet"


def test_a_stale_run_is_marked(measured, monkeypatch):
    monkeypatch.setattr(measured, "committed", lambda name: ({"values": {"k": [1.0, 3.0]}, "units": {"k": "s"}}, True))
    assert measured.quoted("any", "k") == "2 [1, 3] s (of an earlier version)"
    # On the notebook's own page the head says it once.
    assert measured.quoted("any", "k", own=True) == "2 [1, 3] s"


def test_a_verdict_is_that_of_the_scoreboard(measured):
    assert measured.verdict_of("ch5-identity-x10-at-45").verdict == "not reproduced"
    with pytest.raises(KeyError, match="ch5-nothing"):
        measured.verdict_of("ch5-nothing")


@pytest.mark.parametrize(("stale", "mark"), [(True, " (of an earlier version)"), (False, "")])
def test_the_verdict_of_a_stale_run_is_marked(measured, monkeypatch, stale, mark):
    content = measured.committed("ch5_identity")[0]
    monkeypatch.setattr(measured, "committed", lambda name: (content, stale))
    text, verdict = measured.verdict_text("ch5-identity-x10-at-45")
    assert (text, verdict) == ("not reproduced" + mark, "not reproduced")


@pytest.mark.parametrize(
    ("published", "name", "text"),
    [
        (0.0159, "", "0.0159"),
        ("41 %", "", "41 %"),
        ("x < 5 & y", "", "x < 5 & y"),
        ([3, 2.5], "", "3, 2.5"),
        ({"accuracy, %": 91.0, "sparsity, %": 90.1}, "", "accuracy, %: 91; sparsity, %: 90.1"),
        ({"accuracy, %": 91.0, "sparsity, %": 90.1}, "accuracy", "91 %"),
        ({"accuracy, %": 91.0}, "accuracy, %", "91 %"),
        ({"002": 92.1, "004": 75.8}, "004", "75.8"),
        ({"002": 92.1}, "", "Tsai 2024: 92.1"),
        ({"001, 003": "n=20"}, "001, 003", "n=20"),
        ({"acc at 0.004, %": 78.7}, "acc at 0.004", "78.7 %"),
        ({"cifar": [2.2, 2.0]}, "cifar", "2.2, 2"),
        ({"002": "$x < 002$"}, "", "Tsai 2024: $x < 002$"),
    ],
)
def test_a_published_number_is_that_of_the_scoreboard(measured, monkeypatch, published, name, text):
    monkeypatch.setattr(measured, "claims", lambda: {"a": {"published": published}})
    assert measured.published_text("a", name) == text


@pytest.mark.parametrize(
    ("identifier", "name", "message"),
    [
        ("ch5-nothing", "", "no claim 'ch5-nothing'"),
        ("ch3-t31-cifar-k0p99", "error", "'ch3-t31-cifar-k0p99' publishes no 'error'"),
        ("ch5-quake-gain-k9", "0", "'ch5-quake-gain-k9' publishes no '0'"),
    ],
)
def test_what_is_not_published_is_refused(measured, identifier, name, message):
    with pytest.raises(KeyError, match=message):
        measured.published_text(identifier, name)


@pytest.mark.extended
def test_a_page_is_built_with_number_verdict_and_figure(tmp_path):
    from sphinx.application import Sphinx

    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\nextensions = ['myst_parser', 'measured']\n"
    )
    (tmp_path / "index.md").write_text(
        "# Page\n\nThe ratio is {measured}`ch5_identity:highest_shift`, {verdict}`ch5-identity-x10-at-45`.\n\nPublished"
        " are **{published}`ch5-quake-gain-k9`**, {published}`ch3-t31-cifar-k0p99:accuracy` and"
        " {published}`ms-elim-fashion-50`.\n\n```{drawn} reproduction.core.figures:identity_figure ch5_identity\n:alt:"
        " two panels of errors\n:name: fig-test\nErrors against *width*.\n```\n\n```{claims} ch5_identity\n```\n"
    )
    (tmp_path / "_generated").symlink_to(ROOT / "book" / "_generated")
    warnings = (tmp_path / "warnings.txt").open("w+")
    app = Sphinx(tmp_path, tmp_path, tmp_path / "out", tmp_path / "doctrees", "html", status=None, warning=warnings)
    app.build()
    warnings.seek(0)
    assert not warnings.read()
    page = (tmp_path / "out" / "index.html").read_text()
    assert '<span class="measured">200' in page and 'href="scoreboard.html#ch5-identity-x10-at-45"' in page
    judged = [c for c in load_claims() if c.get("measure", c)["notebook"] == "ch5_identity"]
    assert page.count('data-label="came out"') == len(judged) > 20
    assert (
        'scoreboard.html#ch5-quake-gain-k9">0.0159</a></strong>' in page
        and 'scoreboard.html#ch3-t31-cifar-k0p99">91 %</a>' in page
    )
    assert '<a class="published reference external" href="scoreboard.html#ms-elim-fashion-50">&lt; 1 %</a>' in page
    assert (
        'alt="two panels of errors"' in page
        and "<em>width</em>" in page
        and list((tmp_path / "out" / "_images").glob("ch5_identity_*.png"))
    )


@pytest.mark.extended
def test_formulas_of_a_role_and_of_raw_html_are_set(tmp_path):
    from sphinx.application import Sphinx

    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\nextensions = ['myst_parser',"
        " 'sphinx.ext.mathjax', 'measured']\nmathjax_path = 'mathjax.js'\n"
    )
    pages = {
        "index": "{published}`ch2-picard-converges-from-zero` beside a number.\n\n```{toctree}\nraw\nplain\n```",
        "raw": '```{raw} html\n<p><span class="math notranslate nohighlight">\\(x\\)</span></p>\n```',
        "plain": "{published}`ch5-quake-gain-k9`\n\n```{raw} html\n<p>no formula</p>\n```",
    }
    for name, text in pages.items():
        (tmp_path / f"{name}.md").write_text(f"# Page\n\n{text}\n")
    (tmp_path / "_generated").symlink_to(ROOT / "book" / "_generated")
    Sphinx(tmp_path, tmp_path, tmp_path / "out", tmp_path / "doctrees", "html", status=None).build()
    built = {name: (tmp_path / "out" / f"{name}.html").read_text() for name in pages}
    assert {name: "mathjax.js" in html for name, html in built.items()} == {"index": True, "raw": True, "plain": False}
    assert (
        '#ch2-picard-converges-from-zero"><span class="math notranslate nohighlight">\\(x(t) \\to x^*\\)</span></a>'
        in built["index"]
    )


@pytest.mark.extended
@pytest.mark.parametrize("role", ["ch5-nothing", "ch3-t31-cifar-k0p99:error"])
def test_a_page_that_quotes_what_is_not_published_is_warned_of(tmp_path, role):
    from sphinx.application import Sphinx

    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\nextensions = ['myst_parser', 'measured']\n"
    )
    (tmp_path / "index.md").write_text(f"# Page\n\nThe number is {{published}}`{role}`.\n")
    with (tmp_path / "warnings.txt").open("w+") as warnings:
        Sphinx(
            tmp_path, tmp_path, tmp_path / "out", tmp_path / "doctrees", "html", status=None, warning=warnings
        ).build()
        warnings.seek(0)
        assert "published: " in (text := warnings.read()) and role.partition(":")[0] in text
