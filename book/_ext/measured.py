"""Measured numbers, verdicts and figures on pages, from the committed runs: nothing of them is typed.

    {measured}`ch5_identity:growth_implicit_40`     median and range of a recorded value, with its unit
    {verdict}`ch5-identity-x10-at-45`               verdict of a claim, linked to its row of the scoreboard
    ```{drawn} reproduction.figures:identity_figure ch5_identity
    :alt: what a reader who does not see it must know
    :name: fig-...
    Caption.
    ```

A notebook without a committed run is said to have none; a key that a committed run does not hold is a warning, and so an
error of the build.
"""

from functools import lru_cache
from importlib import import_module

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from reproduction.claims import CLAIMS, judge, load_claims, recorded_values
from reproduction.content_key import ROOT
from reproduction.results import RESULTS, summary

logger = logging.getLogger(__name__)
NONE = "no committed run yet"
DRAWN = ROOT / "book" / "_generated" / "drawn"


@lru_cache(maxsize=None)
def committed(notebook):
    """Content of a notebook's committed run (None without one) and whether it is stale."""
    content, _, stale = recorded_values(notebook)
    return content, stale


def quoted(notebook, key):
    """Text of a recorded value of a committed run.

    Raises:
        KeyError: when the run holds no such key, naming both.
    """
    content, stale = committed(notebook)
    if content is None:
        return NONE
    if key not in content["values"]:
        raise KeyError(f"the committed run of {notebook} holds no {key!r}")
    unit = content.get("units", {}).get(key, "")
    return f"{summary(content['values'][key])} {unit}".strip() + (" (stale)" if stale else "")


@lru_cache(maxsize=1)
def claims():
    """All claims by id."""
    return {claim["id"]: claim for claim in load_claims()}


def verdict_of(identifier):
    """Verdict of a claim, with its staleness, from its committed run.

    Raises:
        KeyError: when there is no such claim.
    """
    if identifier not in claims():
        raise KeyError(f"no claim {identifier!r}")
    claim = claims()[identifier]
    content, stale = committed(claim.get("measure", claim)["notebook"])
    return judge(claim, content, stale)


def verdict_text(identifier):
    """What a page says of a claim, and the bare verdict."""
    found = verdict_of(identifier)
    return found.verdict + (" (stale)" if found.stale else ""), found.verdict


class Measured(SphinxRole):
    """Role `measured`."""

    def run(self):
        notebook, _, key = self.text.partition(":")
        self.env.note_dependency(str(RESULTS / f"{notebook}.json"))
        try:
            return [nodes.inline(self.text, quoted(notebook, key), classes=["measured"])], []
        except (KeyError, FileNotFoundError, ValueError) as error:
            logger.warning("measured: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []


class VerdictRole(SphinxRole):
    """Role `verdict`."""

    def run(self):
        try:
            text, kind = verdict_text(self.text)
        except (KeyError, FileNotFoundError, ValueError) as error:
            logger.warning("verdict: %s", error, location=self.get_location())
            return [nodes.problematic(self.text, self.text)], []
        claim = claims()[self.text]
        notebook = claim.get("measure", claim)["notebook"]
        for path in (CLAIMS, RESULTS / f"{notebook}.json"):
            self.env.note_dependency(str(path))
        up = "../" * self.env.docname.count("/")
        target = f"{up}scoreboard.html#{self.text}"
        return [nodes.reference(self.text, text, refuri=target, classes=["verdict", kind.replace(" ", "-")])], []


class Drawn(SphinxDirective):
    """Directive `drawn`: a function of a module draws a committed run's content."""

    required_arguments = 2
    has_content = True
    option_spec = {"alt": directives.unchanged_required, "name": directives.unchanged}

    def run(self):
        function, notebook = self.arguments
        module, _, name = function.partition(":")
        self.env.note_dependency(str(RESULTS / f"{notebook}.json"))
        content, _ = committed(notebook)
        if content is None:
            return [nodes.paragraph("", f"The figure needs a committed run of {notebook}: {NONE}.")]
        import matplotlib

        matplotlib.use("Agg")
        from reproduction.plotting import use_style

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
    app.add_role("verdict", VerdictRole())
    app.add_directive("drawn", Drawn)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
