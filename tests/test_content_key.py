"""Content keys change with what can change a result, and with nothing else."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction import content_key as ck


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A first-party package 'pkg': a -> b (lazy and relative), c unrelated."""
    folder = tmp_path / "pkg"
    (folder / "sub").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "a.py": "def f():\n    from .sub import b\n    return b.VALUE\n",
        "sub/__init__.py": "",
        "sub/b.py": "VALUE = 1\n",
        "c.py": "OTHER = 1\n",
        "lazy/__init__.py": "_WHERE = {'Thing': '.thing'}\ndef __getattr__(name):\n    return name\n",
        "lazy/thing.py": "Thing = 1\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setitem(ck.PACKAGES, "pkg", folder)
    return folder


def key(**changes):
    arguments = {"modules": ["pkg.a"], "parameters": {"seed": 1}, "data": {}, "source": "x = 1", "lock": None}
    return ck.content_key(**(arguments | changes))


def test_closure_follows_imports_inside_functions_and_relative_ones(package):
    assert ck.import_closure(["pkg.a"]) == ["pkg", "pkg.a", "pkg.sub", "pkg.sub.b"]


def test_lazy_init_is_no_part_of_a_closure(package):
    """A name added to a lazy package changes no result."""
    (package / "user.py").write_text("from pkg.lazy.thing import Thing\n")
    closure = ck.import_closure(["pkg.user"])
    assert "pkg.lazy.thing" in closure and "pkg.lazy" not in closure


def test_lazy_package_counts_only_when_an_attribute_is_taken(package):
    assert "pkg.lazy.thing" in ck.imported_modules("from pkg.lazy import Thing")
    assert "pkg.lazy.thing" in ck.imported_modules("import pkg.lazy")
    assert ck.imported_modules("from pkg.lazy import thing") == {"pkg.lazy", "pkg.lazy.thing"}
    assert ck.imported_modules("import pkg.c") == {"pkg.c"}


def test_library_attribute_reaches_its_module():
    assert "implicit_models.layers" in ck.imported_modules("from implicit_models import ImplicitModel")


@pytest.mark.parametrize(
    "file, text, same",
    [
        ("sub/b.py", "VALUE = 2\n", False),
        ("sub/__init__.py", "SET_UP = 1\n", False),
        ("c.py", "OTHER = 2\n", True),
        ("sub/b.py", '"""Docstring."""\n# why\nVALUE = 1   \n', True),
        ("sub/b.py", 'VALUE = """\n# inside a text\n"""\n', False),
    ],
)
def test_edit_of_a_module(package, file, text, same):
    before = key()
    path = package / file
    path.write_text(text)
    assert (key() == before) is same


@pytest.mark.parametrize(
    "change", [{"parameters": {"seed": 2}}, {"data": {"mnist": "ab"}}, {"source": "x = 2"}, {"modules": []}]
)
def test_every_part_counts(package, change):
    assert key(**change) != key()


def test_lock_file_counts(package, tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==1\n")
    before = key(lock=lock)
    lock.write_text("torch==2\n")
    assert key(lock=lock) != before


def test_order_of_parameters_does_not_count():
    assert key(modules=[], parameters={"a": 1, "b": 2}) == key(modules=[], parameters={"b": 2, "a": 1})


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=8), st.text(max_size=8))
def test_neighbouring_fields_do_not_run_together(left, right):
    split = key(modules=[], source=left, parameters={"p": right})
    if right:
        assert split != key(modules=[], source=left + right[0], parameters={"p": right[1:]})


def test_code_text_keeps_text_that_only_looks_like_a_docstring():
    assert "'''keep\n# this'''" in ck.code_text("x = '''keep\n# this'''\n")
    assert ck.code_text("def f():\n    '''only'''\n") == "def f():\n    '''only'''"
    assert ck.code_text("def f():\n    '''gone'''\n    return 1\n") == "def f():\n    return 1"


def test_unknown_module_is_named():
    with pytest.raises(ModuleNotFoundError, match="implicit_models.nothing"):
        ck.import_closure(["implicit_models.nothing"])


def test_parameter_without_json_form_is_refused():
    with pytest.raises(TypeError, match="set"):
        key(modules=[], parameters={"a": {1}})


def test_key_is_the_same_in_another_process():
    import subprocess

    script = (
        "from reproduction.content_key import content_key;"
        "print(content_key(modules=['reproduction.claims'], parameters={'a': [1, 2]}, data={}))"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert other == ck.content_key(modules=["reproduction.claims"], parameters={"a": [1, 2]}, data={})
