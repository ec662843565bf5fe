"""Keys change with what can change a result, and with nothing else."""

import ast
import functools
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.book.definitions import Node, Ref
from reproduction.book.graph import Graph, iterate_functions
from reproduction.book.keys import code_key, content_key, notebook_refs
from reproduction.book.run import NOTEBOOKS, code_of, read_notebook
from reproduction.book.slices import computing

FILES = {
    "__init__.py": "",
    "a.py": "def f(x):\n    from .sub import b\n    return b.g(x) + b.VALUE\n\ndef other():\n    return 0\n",
    "sub/__init__.py": "",
    "sub/b.py": "VALUE = 1\nUNUSED = 2\ndef g(x):\n    return h(x)\ndef h(x):\n    return g(x - 1) if x else 0\n",
    "c.py": "def g(x):\n    return 7\n",
    "lazy/__init__.py": "_WHERE = {'Thing': '.thing'}\ndef __getattr__(name):\n    return name\n",
    "lazy/thing.py": "Thing = 1\n",
    "shown.py": "def draw(x):\n    return x\n",
    "registry.py": "KNOWN = {}\nKNOWN['b'] = 'pkg.sub.b:g'\n",
}
NOTEBOOK = (
    "from pkg.a import f\nfrom pkg.shown import draw\ntotal = f(3)\ndraw(total)\nresults.record('total', total)\n"
)


@pytest.fixture
def package(tmp_path):
    """A first-party package: a.f -> sub.b.g <-> sub.b.h, and others that only exist."""
    for name, text in FILES.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def graph(root):
    return Graph(root, folders={"pkg": "pkg"}, shown=("pkg.shown",))


def key(root, code=NOTEBOOK, **parameters):
    return code_key(code, parameters, graph=graph(root))


def edit(root, file, old, new):
    path = root / "pkg" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("sub/b.py", "VALUE = 1", "VALUE = 2", False),
        ("sub/b.py", "x - 1", "x - 2", False),
        ("sub/__init__.py", "", "print('imported')\n", False),
        ("sub/b.py", "UNUSED = 2", "UNUSED = 3", True),
        ("a.py", "return 0", "return 1", True),
        ("c.py", "return 7", "return 8", True),
        ("shown.py", "return x", "return 2 * x", True),
        ("sub/b.py", "def g(x):\n", 'def g(x: "int") -> int:\n    """Docstring."""\n    # why\n\n', True),
        ("sub/b.py", "return h(x)", "return (\n        h(x)  # so\n    )", True),
    ],
)
def test_edit_of_a_module(package, file, old, new, same):
    before = key(package)
    edit(package, file, old, new)
    assert (key(package) == before) is same


def test_moving_and_renaming_a_module_changes_no_key(package):
    """Definitions count by what they are, wherever they stand and however they are imported."""
    before = key(package)
    (package / "pkg" / "sub" / "b.py").rename(package / "pkg" / "moved.py")
    edit(
        package,
        "a.py",
        "from .sub import b\n    return b.g(x) + b.VALUE",
        "from .moved import VALUE, g\n    return g(x) + VALUE",
    )
    assert key(package) == before
    # one of its functions goes to a file of its own
    edit(package, "moved.py", "def h(x):\n    return g(x - 1) if x else 0\n", "from pkg.alone import h\n")
    (package / "pkg" / "alone.py").write_text(
        "import pkg.moved\ndef h(x):\n    return pkg.moved.g(x - 1) if x else 0\n"
    )
    assert key(package) == before


def test_the_same_name_from_another_module_is_another_definition(package):
    before = key(package)
    edit(
        package,
        "a.py",
        "from .sub import b\n    return b.g(x) + b.VALUE",
        "from .sub.b import VALUE\n    from .c import g\n    return g(x) + VALUE",
    )
    assert key(package) != before
    # even where both stay within reach: swapping two functions swaps what their callers mean
    (package / "pkg" / "two.py").write_text(
        "from pkg.c import g as one\nfrom pkg.sub.b import g as two\ndef f(x):\n    return one(x) - two(x)\n"
    )
    code = NOTEBOOK.replace("pkg.a", "pkg.two")
    straight = key(package, code)
    edit(package, "two.py", "one(x) - two(x)", "two(x) - one(x)")
    assert key(package, code) != straight


TABLES = """
from pkg.a import f
from pkg.sub.show import tabulate
found = f(3)
results.record_all({"total": found})
results.record_curves({"curve": found})
results.rows({"A": "total"}, {"value": "{}"}, corner="a label")
tabulate(found, results.values)
print(found)
"""


def test_what_feeds_record_all_counts_and_what_shows_it_does_not(package):
    (package / "pkg" / "sub" / "show.py").write_text("def tabulate(x, values):\n    return x\n")
    code = f"{TABLES}results.record('later', found)\n"
    before = key(package, code)
    edit(package, "sub/show.py", "return x", "return [x]")
    assert key(package, code.replace("a label", "another label")) == before
    edit(package, "sub/b.py", "x - 1", "x - 2")
    assert key(package, code) != before


def test_a_show_file_that_is_handed_the_recorder_counts(package):
    (package / "pkg" / "sub" / "show.py").write_text("def tabulate(x, values):\n    values.record('x', x)\n")
    code = TABLES.replace("results.values", "results")
    before = key(package, code)
    edit(package, "sub/show.py", "('x', x)", "('x', -x)")
    assert key(package, code) != before


def test_lazy_names_lead_to_their_modules(package):
    code = "from pkg.lazy import Thing\nresults.record('t', Thing)\n"
    before = key(package, code)
    edit(package, "lazy/__init__.py", "return name", "return name.upper()")
    assert key(package, code) == before, "a lazy package only names modules"
    edit(package, "lazy/thing.py", "Thing = 1", "Thing = 2")
    assert key(package, code) != before


def test_a_stub_names_what_a_lazy_package_gives(package):
    (package / "pkg" / "lazy" / "__init__.py").write_text(
        "import lazy_loader as lazy\n__getattr__, *_ = lazy.attach_stub(__name__, __file__)\n"
    )
    (package / "pkg" / "lazy" / "__init__.pyi").write_text("from .thing import Thing as Thing\n")
    assert graph(package).closure([Ref("pkg.lazy", "Thing")]) == ["pkg.lazy.thing"]


def test_a_text_that_names_a_definition_counts(package):
    assert graph(package).closure([Ref("pkg.registry", "KNOWN")]) == ["pkg.registry", "pkg.sub.b"]


def test_statements_that_run_on_import_count(package):
    (package / "pkg" / "a.py").write_text("import pkg.registry\n" + FILES["a.py"])
    before = key(package)
    edit(package, "registry.py", "KNOWN['b']", "KNOWN['c']")
    assert key(package) != before


def sliced(code):
    found = Graph(Path("nowhere"), folders={"pkg": "pkg"}, shown=("pkg.shown",))
    notebook = found.parsed("notebook", "", Path("n"), code)
    return [ast.unparse(s) for s in computing(found, notebook)]


@pytest.mark.parametrize(
    "code",
    [
        "def fill(d):\n    d['a'] = work(1)\nout = {}\nfill(out)\nresults.record('a', out['a'])",
        "out = []\ndef step():\n    out.append(work(1))\nstep()\nresults.record('a', out)",
        "x = work(1)\nf = lambda x=x: x\nresults.record('a', f())",
        "x = work(1)\ndef f(x=x):\n    return x\nresults.record('a', f())",
        "x = work(1)\nx = [x for x in x]\nresults.record('a', x)",
        "x = work(1)\ny = [a for b in [1] for a in x]\nresults.record('a', y)",
        "ms = {}\nfor k, m in ms.items():\n    m.append(work(1))\nresults.record('a', ms)",
        "ms = {}\nfor m in ms.values():\n    m.append(work(1))\nresults.record('a', ms)",
        "ms = []\nfor m, k in zip(ms, [2]):\n    m.append(work(1))\nresults.record('a', ms)",
        "a = b = []\nb.append(work(1))\nresults.record('a', a)",
        "pair = [], []\nx, y = pair\nx.append(work(1))\nresults.record('a', pair)",
        "if (n := work(1)) > 3:\n    print(n)\nresults.record('a', n)",
        "rows = [(n := work(k)) for k in [1]]\nresults.record('a', n)",
        "record = results.record\nrecord('a', work(1))",
        "out = []\nadd = out.append\nadd(work(1))\nresults.record('a', out)",
    ],
)
def test_a_slice_keeps_what_reaches_a_recorded_value_by_another_name(code):
    assert "work(" in "\n".join(sliced("from pkg.a import work\n" + code))


def test_slice_keeps_what_a_recorded_value_depends_on():
    code = """
import torch
import matplotlib.pyplot as plt
torch.manual_seed(0)
rows, table = [], {}
for k in range(3):
    value = k * 2
    rows.append(value)
    table[k] = f"{value:.1f}"
part = rows
part.pop()
results.record('rows', rows)
figure, axes = plt.subplots()
axes.plot(rows)
rows = [1]
print(rows)
"""
    assert sliced(code) == [
        "torch.manual_seed(0)",
        "rows, table = ([], {})",
        "for k in range(3):\n    value = k * 2\n    rows.append(value)",
        "part = rows",
        "part.pop()",
        "results.record('rows', rows)",
    ]


def test_slice_follows_loops_branches_and_functions():
    code = """
        state, best, other = 0, None, 1
        def step(value):
            return value + shift
        shift = 2
        for _ in range(4):
            if state > 3:
                best = state
                other = 5
            state = step(state)
        results.record('best', best)
    """
    text = "\n".join(sliced(textwrap.dedent(code)))
    assert "state = step(state)" in text and "return value + shift" in text and "shift = 2" in text
    assert "other = 5" not in text


@pytest.mark.parametrize(
    "around", ["pd.DataFrame(results.record_all(values))", "shown = results.record_curves(values)"]
)
def test_slice_keeps_what_records_whatever_stands_around_it(around):
    code = f"import pandas as pd\nvalues = {{'a': 1}}\n{around}\n"
    assert sliced(code) == ["values = {'a': 1}", around]


@pytest.mark.parametrize(
    "change", [{"parameters": {"seed": 2}}, {"data": {"mnist": "ab"}}, {"source": "x"}, {"modules": []}]
)
def test_every_part_counts(package, change):
    given = {"modules": ["pkg.a"], "parameters": {"seed": 1}, "data": {}, "lock": None, "graph": graph(package)}
    assert content_key(**(given | change)) != content_key(**given)


def test_lock_file_counts(package):
    lock = package / "lock.txt"
    of = functools.partial(content_key, modules=[], parameters={}, data={}, lock=lock)
    lock.write_text("torch==1\n")
    before = of()
    lock.write_text("torch==2\n")
    assert of() != before


def test_order_of_parameters_does_not_count():
    of = functools.partial(content_key, modules=[], data={}, lock=None)
    assert of(parameters={"a": 1, "b": 2}) == of(parameters={"b": 2, "a": 1})


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=8), st.text(min_size=1, max_size=8))
def test_neighbouring_fields_do_not_run_together(left, right):
    of = functools.partial(content_key, modules=[], data={}, lock=None)
    assert of(source=left, parameters={"p": right}) != of(source=left + right[0], parameters={"p": right[1:]})


def test_unknown_module_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"implicit_models\.nothing"):
        content_key(modules=["implicit_models.nothing"], parameters={}, data={})


def test_parameter_without_json_form_is_refused():
    with pytest.raises(TypeError, match="set"):
        content_key(modules=[], parameters={"a": {1}}, data={})


def test_key_is_the_same_in_another_process():
    script = (
        "from reproduction.book.keys import content_key\n"
        "print(content_key(modules=['data_gen.synthetic.rolling'], parameters={}, data={}))"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert other == content_key(modules=["data_gen.synthetic.rolling"], parameters={}, data={})


NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def test_an_edit_in_any_module_of_a_closure_reaches_the_keys():
    """A statement planted in one definition of each first-party module that some notebook depends on."""
    whole = Graph()
    refs = {name: notebook_refs(code_of(read_notebook(name)), whole)[1] for name in NAMES}
    reached = {name: whole.reached(found) for name, found in refs.items()}
    modules = {module for name in NAMES for module in {node.module for node in reached[name]}}
    assert len(modules) > 100
    for module in sorted(modules):
        nodes = {node for name in NAMES for node in reached[name] if node.module == module}
        node = min(nodes, key=lambda n: (not list(iterate_functions(whole.module(module).statements[n.place])), n))
        statement = whole.module(module).statements[node.place]
        body = getattr(statement, "body", None)
        planted = ast.parse("planted = 1").body[0]
        if body:
            body.append(planted)
        else:
            whole.module(module).statements[node.place] = planted
        text = whole._texts.pop(node)
        users = [name for name in NAMES if node in reached[name]]
        assert users and whole.text(node).digest != text.digest, f"an edit of {module} is not seen"
        if body:
            body.pop()
        whole.module(module).statements[node.place] = statement
        whole._texts[node] = text


@pytest.mark.parametrize("name", NAMES)
def test_what_draws_or_builds_pages_is_in_no_key(name):
    found = Graph()
    closure = found.closure(notebook_refs(code_of(read_notebook(name)), found)[1])
    assert not [module for module in closure if module.endswith(".show")]
    assert not [
        module for module in closure if module.startswith("reproduction.book") or module == "reproduction.core.plots"
    ]


def test_the_earthquakes_do_not_depend_on_images():
    found = Graph()
    closure = found.closure(notebook_refs(code_of(read_notebook("ch5_earthquake")), found)[1])
    assert "data_gen.earthquakes" in closure
    assert not {"data_gen.images.vision", "reproduction.classifiers.fashion"} & set(closure)


def test_functions_have_their_qualified_names():
    tree = ast.parse("class A:\n    def f(self):\n        def g(): pass\nif True:\n    def h(): pass\n")
    assert [name for name, _ in iterate_functions(tree)] == ["A.f", "A.f.g", "h"]
    assert Node("m", 0) < Node("m", 1)
