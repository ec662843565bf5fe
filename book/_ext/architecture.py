"""Directive `architecture`: the folders and their imports, drawn from the sources when the page is built.

```{architecture}
:name: fig-...
Caption.
```
"""

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from reproduction.book.architecture_figure import architecture_svg


class Architecture(SphinxDirective):
    """A figure that holds the picture itself, so that it takes the page's colours."""

    has_content = True
    option_spec = {"name": directives.unchanged}

    def run(self):
        self.env.note_reread()  # it depends on every source
        picture = nodes.figure("", nodes.raw("", architecture_svg(), format="html"))
        caption = nodes.caption()
        caption += self.parse_inline(" ".join(self.content))[0]
        picture += caption
        self.add_name(picture)
        return [picture]


def setup(app):
    """Sphinx entry point."""
    app.add_directive("architecture", Architecture)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
