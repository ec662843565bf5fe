"""The library's docstrings as Sphinx reads them: formulas that stand apart become literal blocks, and the signs of
absolute values and stars are text.

The docstrings are written for a reader of the source: a formula is an indented paragraph, |A| an absolute value, x* a
solution. reStructuredText takes these for quotations, substitutions and emphasis.
"""

import ast
import re

SECTION = re.compile(
    r"(Args|Arguments|Attributes|Example|Examples|Note|Notes|Raises|Returns|Source|Warning|Warns|Yields):\s*"
)
LITERAL = re.compile(r"(``.+?``|`[^`]+`)")


def escaped(line):
    """A line of text whose bars, stars and trailing underscores mean themselves, outside of backticks."""
    parts = LITERAL.split(line)
    parts[::2] = [re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", re.sub(r"([|*])", r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def indent_of(line):
    """Blanks before a line's text."""
    return len(line) - len(line.lstrip())


def readable(lines):
    """Docstring lines with formulas as literal blocks and everything else escaped."""
    found, section, literal, base = [], False, False, 0
    for place, line in enumerate(lines):
        indent = indent_of(line)
        if not line.strip():
            found.append("")
            continue
        if indent == 0:
            section, literal = bool(SECTION.fullmatch(line)), False
            base = 4 if section else 0
        apart = place > 0 and not lines[place - 1].strip()
        if indent > base and apart and not literal and not re.match(r"\s*[-*] ", line):
            found += [" " * base + "::", ""]
            literal = True
        elif indent <= base:
            literal = False
        # A table of words beside their meaning that follows a line directly stands apart, too.
        elif indent > base and not section and not literal and place and indent_of(lines[place - 1]) == 0:
            found += ["", "::", ""]
            literal = True
        found.append(line if literal or SECTION.fullmatch(line) else escaped(line))
        if literal and place + 1 < len(lines) and lines[place + 1].strip() and indent_of(lines[place + 1]) <= base:
            found.append("")
    return found


def process(app, what, name, item, options, lines):
    """Put the readable lines in place of the docstring's."""
    lines[:] = readable(lines)


def parsed(text):
    """Whether a signature is Python that Sphinx can take apart."""
    try:
        ast.parse(f"def f{text}: pass")
    except SyntaxError:
        return False
    return True


def shorten(app, what, name, item, options, signature, returned):
    """Short names of types in a signature that Sphinx prints as it stands (a default that is no literal)."""
    if signature and not parsed(signature):
        return re.sub(r"~?(?:\w+\.)+(\w+)", r"\1", signature), returned
    return None


def setup(app):
    """Sphinx entry point."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
