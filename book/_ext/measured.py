"""Measured and published numbers, verdicts and figures on pages, from the committed runs and the claims: nothing of
them is typed.

    {measured}`ch5_identity:growth_implicit_40`     median and range of a recorded value, with its unit
    {median}`ch5_identity:growth_implicit_40`       the median alone, in two digits, its range as title
    {verdict}`ch5-identity-x10-at-45`               verdict of a claim, linked to its row of the scoreboard
    {published}`ch5-quake-gain-k9`                  what a claim publishes, linked to its row of the scoreboard
    {published}`ch3-t31-cifar-k0p99:accuracy`       one of the values that it publishes, with the unit in its name
    ```{drawn} reproduction.core.figures:identity_figure ch5_identity
    :alt: what a reader who does not see it must know
    :name: fig-...
    Caption.
    ```
    ```{claims}                                     the claims that this page's notebook judges, as a table
    ```

A notebook without a committed run is said to have none; a key that a committed run does not hold, a claim that there is
not, or a value that it does not publish is a warning, and so an error of the build.
"""

import re
import shutil
import statistics
from functools import cache, lru_cache
from html import escape
from importlib import import_module
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from reproduction.book.claims import CLAIMS, format_published, judge, load_claims, recorded_values
from reproduction.book.formulas import pieces
from reproduction.book.graph import ROOT
from reproduction.book.pages import gallery, records
from reproduction.book.pages.markup import MATH, plainly
from reproduction.book.results import RESULTS, numbers, summary

logger = logging.getLogger(__name__)
NONE = "no committed run yet"
EARLIER = "of an earlier version"
GENERATED = ROOT / "book" / "_generated"
FOOT = GENERATED / "foot"
DRAWN = GENERATED / "drawn"


@cache
def committed(notebook):
    """Content of a notebook's committed run (None without one) and whether it is stale."""
    found = recorded_values(notebook)
    return found.full, found.stale


def scientific(text):
    """Powers of ten as a reader writes them: 1.68e+07 becomes 1.68 × 10⁷."""
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return re.sub(
        r"(?<=\d)e([+-]?\d+)", lambda found: " × 10" + str(int(found[1])).translate(raised), text, flags=re.IGNORECASE
    )


def typical(values):
    """Median of recorded numbers in two digits; counts and texts whole."""
    if isinstance(values, (str, bool)) and values not in ("inf", "-inf", "nan"):
        return str(values)
    middle = statistics.median(numbers(values))
    if abs(middle) < 1e6 and (middle == round(middle) or 100 <= abs(middle) < 1e5):
        return f"{middle:.0f}"
    return scientific(f"{middle:.2g}")


def quoted(notebook, key, text=summary, own=False):
    """Text of a recorded value of a committed run, with its unit.

    Args:
        notebook: that recorded it.
        key: of the value.
        text: how its numbers are written.
        own: whether it is quoted on the notebook's own page, whose head says of which version all its numbers are.

    Raises:
        KeyError: when the run holds no such key, naming both.
    """
    content, stale = committed(notebook)
    if content is None:
        return NONE
    if key not in content["values"]:
        raise KeyError(f"the committed run of {notebook} holds no {key!r}")
    unit = content.get("units", {}).get(key, "")
    return scientific(f"{text(content['values'][key])} {unit}".strip()) + (f" ({EARLIER})" if stale and not own else "")


@lru_cache(maxsize=1)
def claims():
    """All claims by id."""
    return {claim["id"]: claim for claim in load_claims()}


def claim_of(identifier):
    """A claim.

    Raises:
        KeyError: when there is no such claim.
    """
    if identifier not in claims():
        raise KeyError(f"no claim {identifier!r}")
    return claims()[identifier]


def published_text(identifier, name=""):
    """What a claim publishes, as the scoreboard prints it, or the one value with this name, with or without the unit
    that ends it; formulas stand between dollars.

    Raises:
        KeyError: when there is no such claim, or it publishes no value of that name, naming both.
    """
    published = claim_of(identifier)["published"]
    if not name:
        return plainly(format_published(published))
    for full, value in published.items() if isinstance(published, dict) else ():
        unit = re.search(r", (%|[a-z]+)$", full)
        if name in (full, full[: unit.start()] if unit else full):
            return format_published(value) + (f" {unit[1]}" if unit else "")
    raise KeyError(f"claim {identifier!r} publishes no {name!r}")


def verdict_of(identifier):
    """Verdict of a claim, with its staleness, from its committed run.

    Raises:
        KeyError: when there is no such claim.
    """
    claim = claim_of(identifier)
    content, stale = committed(claim.get("measure", claim)["notebook"])
    return judge(claim, content, stale)


def verdict_text(identifier):
    """What a page says of a claim, and the bare verdict."""
    found = verdict_of(identifier)
    return found.verdict + (f" ({EARLIER})" if found.stale else ""), found.verdict


def depend(env, *paths):
    """Have a page read anew when one of the files behind what it says changes; this file is one of them."""
    for path in (*paths, __file__):
        env.note_dependency(str(path))


def depend_on_run(env, notebook):
    """Have a page read anew when a committed run changes, or how it stands to the present code."""
    depend(env, RESULTS / f"{notebook}.json", FOOT / f"{notebook}.html")


def is_own(env, notebook):
    """Whether the page that is read is the notebook's."""
    return env.docname == f"_executed/{notebook}"


def add_foot(app, doctree):
    """The foot of a notebook's page: how it was made, what its full run cost, and how to make it again; and at its
    head, if the code changed since, of which version its numbers are."""
    folder, _, name = app.env.docname.partition("/")
    path = FOOT / f"{name}.html"
    if folder == "_executed" and path.is_file():
        depend_on_run(app.env, name)
        section = next(iter(doctree.findall(nodes.section)), doctree)
        content, stale = committed(name)
        if stale:
            text = f"The committed numbers of this page are {EARLIER} of the code, of {content['provenance']['date']}."
            note = nodes.note("", nodes.paragraph(text, text), classes=["earlier-version"])
            section.insert(section.first_child_matching_class(nodes.title) + 1, note)
        section += nodes.raw("", path.read_text(encoding="utf-8"), format="html")


def load_mathjax(app, doctree):
    """Have MathJax on a page whose only formulas stand in HTML, such as a table of claims: Sphinx sees none there."""
    if any(f'class="{MATH}"' in node.astext() for node in doctree.findall(nodes.raw)):
        app.env.get_domain("math").data["has_equations"][app.env.docname] = True


def reach_tables(app, pagename, templatename, context, doctree):
    """Let the keyboard reach data frames, which scroll inside their own box."""
    if context.get("body"):
        table = '<table border="1" class="dataframe"'
        context["body"] = context["body"].replace(f"{table}>", f'{table} tabindex="0">')


def add_files(app, error):
    """Put the executed notebooks beside their pages, for a reader to take along, the scoreboard as CSV beside its page,
    and the gallery's thumbnails."""
    if error is None and app.builder.format == "html":
        if (table := GENERATED / records.CSV).is_file():
            shutil.copyfile(table, Path(app.outdir) / table.name)
        try:
            if "gallery" in app.env.found_docs:
                gallery.write_thumbnails(gallery.load(), DRAWN, Path(app.outdir) / "_gallery")
        except LookupError as problem:
            logger.warning("gallery: %s", problem)
        for page in sorted((ROOT / "book" / "_executed").glob("*.ipynb")):
            if (Path(app.outdir) / "_executed" / f"{page.stem}.html").is_file():
                shutil.copyfile(page, Path(app.outdir) / "_executed" / page.name)


class Measured(SphinxRole):
    """Role `measured`."""

    def run(self):
        notebook, _, key = self.text.partition(":")
        depend_on_run(self.env, notebook)
        try:
            return [
                nodes.inline(self.text, quoted(notebook, key, own=is_own(self.env, notebook)), classes=["measured"])
            ], []
        except (KeyError, FileNotFoundError, ValueError) as error:
            logger.warning("measured: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []


class Median(SphinxRole):
    """Role `median`."""

    def run(self):
        notebook, _, key = self.text.partition(":")
        depend_on_run(self.env, notebook)
        try:
            own = is_own(self.env, notebook)
            whole, short = quoted(notebook, key, own=own), quoted(notebook, key, typical, own)
        except (KeyError, FileNotFoundError, ValueError) as error:
            logger.warning("median: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []
        title = escape(f"median over the seeds; {whole}", quote=True)
        return [nodes.raw("", f'<span class="measured" title="{title}">{escape(short)}</span>', format="html")], []


class ScoreboardRole(SphinxRole):
    """A text with a link to a claim's row of the scoreboard."""

    def row(self, identifier, text, classes):
        up = "../" * self.env.docname.count("/")
        parts = [nodes.math(part, part) if formula else nodes.Text(part) for part, formula in pieces(text)]
        return nodes.reference(self.text, "", *parts, refuri=f"{up}scoreboard.html#{identifier}", classes=classes)


class Published(ScoreboardRole):
    """Role `published`."""

    def run(self):
        depend(self.env, CLAIMS)
        identifier, _, name = self.text.partition(":")
        try:
            return [self.row(identifier, published_text(identifier, name), ["published"])], []
        except (KeyError, ValueError) as error:
            logger.warning("published: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []


class VerdictRole(ScoreboardRole):
    """Role `verdict`."""

    def run(self):
        try:
            text, kind = verdict_text(self.text)
        except (KeyError, FileNotFoundError, ValueError) as error:
            logger.warning("verdict: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []
        claim = claims()[self.text]
        notebook = claim.get("measure", claim)["notebook"]
        if is_own(self.env, notebook):
            text = kind  # the head of the page says of which version its numbers are
        depend(self.env, CLAIMS)
        depend_on_run(self.env, notebook)
        return [self.row(self.text, text, ["verdict", kind.replace(" ", "-")])], []


class Claims(SphinxDirective):
    """Directive `claims`: the claims that a notebook judges, of this page or of the notebook that is named."""

    optional_arguments = 1

    def run(self):
        notebook = self.arguments[0] if self.arguments else self.env.docname.rpartition("/")[2]
        path = GENERATED / "claims" / f"{notebook}.html"
        depend(self.env, CLAIMS, path)
        depend_on_run(self.env, notebook)
        if not path.is_file():
            logger.warning("claims: no notebook %r", notebook, location=self.get_location())
            return []
        return [nodes.raw("", path.read_text(encoding="utf-8"), format="html")]


class Explore(SphinxDirective):
    """Directive `explore`: weights and script of the page that a reader moves, inside the page itself."""

    def run(self):
        weights, script = (ROOT / "book" / "_static" / name for name in ("interactive.json", "explore.js"))
        depend(self.env, weights, script)
        text = weights.read_text(encoding="utf-8").strip()
        data = f'<script type="application/json" id="explore-data">{text}</script>'
        return [nodes.raw("", f'{data}<script src="_static/explore.js"></script>', format="html")]


class Drawn(SphinxDirective):
    """Directive `drawn`: a function of a module draws a committed run's content."""

    required_arguments = 2
    has_content = True
    option_spec = {"alt": directives.unchanged_required, "name": directives.unchanged}

    def run(self):
        function, notebook = self.arguments
        module, _, name = function.partition(":")
        depend_on_run(self.env, notebook)
        depend(self.env, import_module(module).__file__)
        content, _ = committed(notebook)
        if content is None:
            return [nodes.paragraph("", f"The figure needs a committed run of {notebook}: {NONE}.")]
        import matplotlib

        matplotlib.use("Agg")
        from reproduction.core.plots import use_style

        use_style()
        path = DRAWN / f"{notebook}_{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure = getattr(import_module(module), name)(content)
        figure.savefig(path, dpi=144)
        matplotlib.pyplot.close(figure)
        picture = nodes.figure("", nodes.image(uri=f"/_generated/drawn/{path.name}", alt=self.options["alt"]))
        caption = nodes.caption()
        caption += self.parse_inline(" ".join(self.content))[0]
        picture += caption
        self.add_name(picture)
        return [picture]


def setup(app):
    """Sphinx entry point."""
    app.add_role("measured", Measured())
    app.add_role("median", Median())
    app.add_role("published", Published())
    app.add_role("verdict", VerdictRole())
    app.add_directive("drawn", Drawn)
    app.add_directive("claims", Claims)
    app.add_directive("explore", Explore)
    app.connect("doctree-read", add_foot)
    app.connect("doctree-read", load_mathjax)
    app.connect("html-page-context", reach_tables)
    app.connect("build-finished", add_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
