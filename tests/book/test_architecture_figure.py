"""The picture of the architecture: arrows and rows of a small tree whose answers are counted by hand."""

import xml.etree.ElementTree as ElementTree

import pytest

from reproduction.book import architecture_figure as figure

SOURCES = {
    "lib/implicit_models/__init__.py": "",
    "lib/implicit_models/maps.py": "",
    "lib/implicit_models/model.py": "def f():\n    from implicit_models.solve.newton import newton\n",
    "lib/implicit_models/solve/__init__.py": "",
    "lib/implicit_models/solve/newton.py": "from ..maps import relu\nfrom . import trace\n",
    "lib/implicit_models/solve/trace.py": "import typing\nif typing.TYPE_CHECKING:\n    import data_gen.waves\n",
    "lib/reproduction/core/runs.py": "from implicit_models import maps, model\nimport data_gen.waves\n",
    "lib/reproduction/ch1_waves.py": "from reproduction.core.runs import run\n",
    "lib/reproduction/book/__init__.py": "",
    "data_gen/waves.py": "import numpy\n",
    "benchmarks/speed.py": "import implicit_models.solve\n",
    "book/_ext/drawn.py": "from reproduction.core import runs\n",
}
NOTEBOOK = '{"cells": [{"cell_type": "code", "source": ["%matplotlib inline\\n", "import reproduction.ch1_waves"]}]}'


@pytest.fixture
def tree(tmp_path):
    for name, source in {**SOURCES, "notebooks/ch1_waves.ipynb": NOTEBOOK}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


def test_arrows_between_boxes(tree):
    arrows = figure.module_arrows(tree)
    assert figure.box_arrows(arrows, figure.boxes(arrows, tree)) == {
        "implicit_models/foundations": set(),
        "implicit_models/models": {"implicit_models/solve"},
        "implicit_models/solve": {"implicit_models/foundations"},
        "reproduction/shared": {"implicit_models/foundations", "implicit_models/models", "data_gen"},
        "reproduction/one notebook": {"reproduction/shared"},
        "reproduction/book": set(),
        "data_gen": set(),
        "benchmarks": {"implicit_models/solve"},
        "book": {"reproduction/shared"},
        "notebooks": {"reproduction/one notebook"},
    }


def test_rows_and_the_arrows_that_no_longer_way_implies():
    between = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert figure.levels(between) == {"a": 3, "b": 2, "c": 1, "d": 0, "e": 1}
    assert figure.reduced(between) == [("a", "b"), ("b", "c"), ("c", "d"), ("e", "d")]


def test_a_circle_shares_a_row_and_keeps_both_arrows():
    between = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert figure.levels(between) == {"a": 2, "b": 1, "c": 1, "d": 0}
    assert figure.reduced(between) == [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]
    above = {"e": {"b", "c"}, "b": {"c"}, "c": {"b"}}
    assert figure.reduced(above) == [("b", "c"), ("c", "b"), ("e", "b"), ("e", "c")]


def test_picture_fits_a_phone_and_no_box_covers_another():
    """On the present sources: one box for each folder of the library, all inside the picture, in words too."""
    picture = ElementTree.fromstring(figure.architecture_svg())
    _, _, width, height = map(float, picture.get("viewBox").split())
    assert width <= 360 and picture.get("role") == "img"
    named = {group.find("title").text.partition(":")[0]: group.find("rect") for group in picture.iter("g")}
    folders = (figure.ROOT / "lib" / "implicit_models").glob("*/__init__.py")
    assert {f"implicit_models/{path.parent.name}" for path in folders} <= set(named)
    corners = sorted(tuple(float(box.get(k)) for k in ("y", "x", "height", "width")) for box in named.values())
    for y, x, h, w in corners:
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
    for (y, x, h, w), (below, right, _, _) in zip(corners, corners[1:], strict=False):
        assert below >= y + h or (below == y and right >= x + w)
    assert all(box in picture.get("aria-label") for box in named)
