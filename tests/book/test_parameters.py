"""Notebook parameters: literal, typed, known by name."""

import pytest

from reproduction.book.parameters import assigned_names, check_names, check_parameters, coerce

CELL = 'profile = "quick"  # or full\nseeds = [0]\nshifts = [5, 50]\nlr = 0.01\nepochs = None\n'


def session(*injected, cell=CELL):
    """A notebook's namespace after its parameters cell and injected ones, in the guard's cell."""
    namespace = {}
    cells = [cell, *injected, "check_parameters(globals())"]
    for text in cells[:-1]:
        exec(text, namespace)
    namespace["In"] = ["", *cells]
    return namespace


def test_literals_are_read():
    assert assigned_names(CELL) == {"profile": "quick", "seeds": [0], "shifts": [5, 50], "lr": 0.01, "epochs": None}


@pytest.mark.parametrize(
    "cell, part",
    [
        ("a = 1\nb = a + 1", "derived"),
        ("import os", "name = literal"),
        ("a = b = 1", "name = literal"),
        ("a += 1", "name = literal"),
        ("n = len([1])", "derived"),
    ],
)
def test_anything_but_literals_is_refused(cell, part):
    with pytest.raises(ValueError, match=part):
        assigned_names(cell)


def test_injected_text_becomes_its_type():
    namespace = session('# Parameters\nseeds = "[7]"\nlr = 1\nepochs = 3\n')
    values = check_parameters(namespace)
    assert values["seeds"] == namespace["seeds"] == [7]
    assert values["lr"] == 1.0 and type(values["lr"]) is float
    assert values["epochs"] == 3


def test_misspelt_name_is_an_error_with_a_suggestion():
    with pytest.raises(ValueError, match="'seedz'; did you mean 'seeds'"):
        check_parameters(session("# Parameters\nseedz = [7]\n"))


@pytest.mark.parametrize(
    "name, value, default",
    [
        ("seeds", "seven", [0]),
        ("seeds", 7, [0]),
        ("lr", [1], 0.1),
        ("flag", 1, True),
        ("n", 1.5, 1),
        ("n", True, 1),
        ("name", 3, "auto"),
    ],
)
def test_wrong_type_names_parameter_and_value(name, value, default):
    with pytest.raises(TypeError, match=name):
        coerce(name, value, default)


def test_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="'fast'"):
        check_parameters(session('profile = "fast"'))


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="known: alpha, beta"):
        check_names(["zzz"], ["alpha", "beta"])


def test_guard_may_run_again_after_other_cells():
    namespace = session("import math\nx = math.pi", "seeds = [3]")
    assert check_parameters(namespace)["seeds"] == [3]


def test_broken_injection_is_not_passed_over():
    with pytest.raises(ValueError, match="derived"):
        check_parameters(session("# Parameters\nseeds = [1] + [2]"))
