"""Pages that ask nothing of the outside: drops sphinx-thebe, whose scripts come from a content network."""


def disconnect_thebe(app, config):
    """Remove the listeners and the style sheet that sphinx-thebe added (else each page asks for them in vain)."""
    for listeners in app.events.listeners.values():
        listeners[:] = [
            entry for entry in listeners if not getattr(entry.handler, "__module__", "").startswith("sphinx_thebe")
        ]


def drop_thebe_css(app):
    """Take sphinx-thebe.css out of every page's style sheets."""
    builder = app.builder
    for name in ("_css_files", "css_files"):
        files = getattr(builder, name, None)
        if files is not None:
            files[:] = [sheet for sheet in files if "thebe" not in str(getattr(sheet, "filename", sheet))]
    app.registry.css_files[:] = [sheet for sheet in app.registry.css_files if "thebe" not in str(sheet[0])]


def setup(app):
    """Sphinx entry point."""
    app.connect("config-inited", disconnect_thebe, priority=1)
    app.connect("builder-inited", drop_thebe_css, priority=1)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
