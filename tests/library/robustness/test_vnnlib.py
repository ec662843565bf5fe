"""VNN-LIB files: the competition's properties written out in small, membership of points by brute force, hard cases."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.robustness.vnnlib import read_vnnlib


def declared(p, q):
    return "".join(f"(declare-const {k}_{i} Real)\n" for k, n in (("X", p), ("Y", q)) for i in range(n))


def made(folder, text, name="some.vnnlib"):
    path = folder / name
    path.write_text(text)
    return path


def box_of(*ends):
    return "".join(f"(assert (<= X_{i} {hi}))\n(assert (>= X_{i} {lo}))\n" for i, (lo, hi) in enumerate(ends))


BOX = box_of((-0.5, 0.5), (0, 1))


def rows(part):
    return part.A.tolist(), part.b.tolist()


def test_acas_property_1_is_a_bound_of_one_output(tmp_path):
    text = (
        "; ACAS Xu property 1\n\n"
        + declared(2, 3)
        + "; Unscaled (1, 2)\n"
        + BOX
        + "(assert (>= Y_0 3.991125645861615))"
    )
    (one,) = read_vnnlib(made(tmp_path, text))
    assert one.lower.tolist() == [-0.5, 0.0] and one.upper.tolist() == [0.5, 1.0]
    (part,) = one.unsafe
    assert rows(part) == ([[-1.0, 0.0, 0.0]], [-3.991125645861615])


@pytest.mark.parametrize(("sign", "factor"), [("<=", 1.0), (">=", -1.0)])
def test_acas_properties_2_to_4_are_one_polyhedron(tmp_path, sign, factor):
    conditions = "".join(f"(assert ({sign} Y_0 Y_{j}))\n" for j in (1, 2))
    (one,) = read_vnnlib(made(tmp_path, declared(2, 3) + BOX + conditions))
    (part,) = one.unsafe
    assert rows(part) == ([[factor, -factor, 0.0], [factor, 0.0, -factor]], [0.0, 0.0])


def test_the_mnist_property_is_a_union(tmp_path):
    others = "\n".join(f"    (and (>= Y_{j} Y_1))" for j in (0, 2))
    (one,) = read_vnnlib(made(tmp_path, declared(2, 3) + BOX + f"(assert (or\n{others}\n))\n"))
    assert [rows(part) for part in one.unsafe] == [([[-1.0, 1.0, 0.0]], [0.0]), ([[0.0, 1.0, -1.0]], [0.0])]


def test_boxes_in_a_disjunction_are_properties(tmp_path):
    text = (
        declared(1, 2)
        + """(assert (or
        (and (>= X_0 0) (<= X_0 1) (>= Y_0 2))
        (and (>= X_0 5) (<= X_0 6) (>= Y_1 3))
        (and (>= X_0 0) (<= X_0 1) (<= Y_1 -4))
        (and (>= X_0 1) (<= X_0 0) (<= Y_1 -4))
    ))"""
    )
    first, second = read_vnnlib(made(tmp_path, text))
    assert (first.lower.tolist(), first.upper.tolist()) == ([0.0], [1.0])
    assert [rows(part) for part in first.unsafe] == [([[-1.0, 0.0]], [-2.0]), ([[0.0, 1.0]], [-4.0])]
    assert (second.lower.tolist(), second.upper.tolist()) == ([5.0], [6.0])
    assert [rows(part) for part in second.unsafe] == [([[0.0, -1.0]], [-3.0])]
    # boxes and outputs in disjunctions of their own: each box with each output
    text = (
        declared(1, 2)
        + """(assert (or (and (>= X_0 0) (<= X_0 1)) (and (>= X_0 5) (<= X_0 6))))
    (assert (or (>= Y_0 2) (>= Y_1 3)))"""
    )
    found = read_vnnlib(made(tmp_path, text))
    assert [len(each.unsafe) for each in found] == [2, 2]


def test_linear_terms(tmp_path):
    text = (
        declared(1, 2)
        + """
    (set-logic QF_LRA)
    (assert (<= (* 2 X_0) (- 3)))
    (assert (>= X_0 (+ -4.5 (* 0.5 1) (/ 1 4))))
    (assert (<= (+ (* 2.0 Y_0) (- Y_1) 1e1 Y_0) (- Y_0 (* Y_1 -3) .5 (- 2))))
    (check-sat)
    """
    )
    (one,) = read_vnnlib(made(tmp_path, text))
    assert (one.lower[0], one.upper[0]) == (-3.75, -1.5)
    # 3 y0 - y1 + 10 <= y0 + 3 y1 - 0.5 + 2
    assert rows(one.unsafe[0]) == ([[2.0, -4.0]], [-8.5])


def test_equations_and_chains(tmp_path):
    text = declared(2, 2) + "(assert (= X_0 0.25)) (assert (<= 0 X_1 1)) (assert (= Y_0 Y_1)) (assert (<= 1 2))"
    (one,) = read_vnnlib(made(tmp_path, text))
    assert one.lower.tolist() == [0.25, 0.0] and one.upper.tolist() == [0.25, 1.0]
    assert rows(one.unsafe[0]) == ([[1.0, -1.0], [-1.0, 1.0]], [0.0, 0.0])


def test_numbers_are_rounded_once(tmp_path):
    """0.1 + 0.2 is 0.3 here, the double nearest to it, which floats do not give."""
    text = declared(1, 1) + "(assert (<= X_0 (+ 0.1 0.2))) (assert (>= (* 3 X_0) 0.1)) (assert (>= Y_0 (* 10 0.1)))"
    (one,) = read_vnnlib(made(tmp_path, text))
    assert one.upper[0] == 0.3 and one.lower[0] == 1 / 30 and one.unsafe[0].b[0] == -1.0


def test_strict_comparisons(tmp_path):
    text = declared(1, 2) + "(assert (< X_0 1)) (assert (> X_0 0)) (assert (< Y_0 2)) (assert (<= Y_1 3))"
    (one,) = read_vnnlib(made(tmp_path, text))
    assert one.upper[0] == np.nextafter(1.0, 0) and one.lower[0] == np.nextafter(0.0, 1)
    (part,) = one.unsafe
    assert part.strict.tolist() == [True, False]
    assert part.holds([1.0, 3.0]) and not part.holds([2.0, 3.0]) and not part.holds([1.0, 3.5])
    # a third is no double: the nearest one below it is less than a third
    text = declared(1, 1) + "(assert (< (* 3 X_0) 1)) (assert (>= X_0 0)) (assert (<= Y_0 0))"
    (one,) = read_vnnlib(made(tmp_path, text))
    assert one.upper[0] == 1 / 3


def test_gzip_and_one_line_say_the_same(tmp_path):
    text = declared(2, 3) + BOX + "(assert (or (<= Y_0 Y_1) (<= Y_0 Y_2)))"
    (tmp_path / "a.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    (one,) = read_vnnlib(tmp_path / "a.vnnlib.gz")
    (two,) = read_vnnlib(made(tmp_path, text.replace("\n", " ")))
    assert np.array_equal(one.lower, two.lower) and [rows(a) for a in one.unsafe] == [rows(b) for b in two.unsafe]


@st.composite
def conditions(draw, depth=3):
    """A condition as text and as a Python expression of x and y."""
    if depth == 0 or draw(st.booleans()):
        sign = draw(st.sampled_from(["<=", ">=", "<", ">"]))
        c = draw(st.integers(-2, 2))
        if draw(st.booleans()):
            return f"({sign} X_0 {c})", f"(x {sign} {c})"
        a, b = draw(st.integers(-2, 2)), draw(st.integers(1, 2))
        return f"({sign} (+ (* {a} Y_0) (* {b} Y_1)) {c})", f"({a} * y[0] + {b} * y[1] {sign} {c})"
    word = draw(st.sampled_from(["and", "or"]))
    each = draw(st.lists(conditions(depth=depth - 1), min_size=1, max_size=3))
    return f"({word} {' '.join(t for t, _ in each)})", f"({f' {word} '.join(e for _, e in each)})"


@settings(max_examples=200, deadline=None)
@given(conditions())
def test_points_satisfy_the_properties_and_the_file_alike(tmp_path_factory, condition):
    text, expression = condition
    tail = "(assert (<= X_0 3)) (assert (>= X_0 -3)) (assert (<= Y_0 5))"
    path = made(tmp_path_factory.mktemp("conditions"), f"{declared(1, 2)}(assert {text}){tail}")
    grid = [
        (x, (y0, y1)) for x in np.arange(-3, 3.5, 0.5) for y0 in np.arange(-3, 3.5, 0.5) for y1 in (-1.5, 0, 1, 2.5)
    ]
    wanted = [bool(eval(expression, {"x": x, "y": y})) for x, y in grid]
    try:
        found = read_vnnlib(path)
    except ValueError as error:
        assert "nothing can satisfy" in str(error) and not any(wanted)
        return
    mine = [
        any(p.lower[0] <= x <= p.upper[0] and any(part.holds(y) for part in p.unsafe) for p in found) for x, y in grid
    ]
    assert mine == wanted


OUT = "(assert (<= Y_0 0))"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (declared(2, 1) + BOX + "\n(assert (<= Y_0 X_0))", "line 9: a condition on inputs and outputs at once"),
        (declared(2, 1) + BOX + "(assert (<= (+ X_0 X_1) 1))", "line 8: .*several inputs is no box: X_0, X_1"),
        (declared(2, 2) + BOX + "(assert (<= (* Y_0 Y_1) 1))", r"line 9: '\*' of what is not linear"),
        (declared(2, 2) + BOX + "(assert (<= (/ 1 Y_1) 1))", "line 9: '/' of what is not linear"),
        (declared(2, 2) + BOX + "(assert (<= (/ Y_1 0) 1))", "line 9: '/' of what is not linear, or by zero"),
        (declared(2, 1) + BOX + "(assert (<= Y_1 1))", "line 8: Y_1 is not declared"),
        (declared(2, 1) + BOX + "(assert (<= Y_0 one))", "line 8: 'one' is no number"),
        (declared(2, 1) + BOX + "(assert (<= Y_0 1e999))", "line 8: '1e999' is no number"),
        (declared(2, 1) + BOX + "(assert (<= Y_0 nan))", "line 8: 'nan' is no number"),
        (declared(2, 1) + BOX + "(assert (not (<= Y_0 1)))", "line 8: 'not' is no condition"),
        (declared(2, 1) + BOX + "(assert (<= Y_0))", "line 8: '<=' compares two terms or more"),
        (declared(2, 1) + BOX + "(assert (<= (abs Y_0) 1))", "line 8: 'abs' is no linear term"),
        (declared(2, 1) + BOX + "(assert (or))", "line 8: 'or' is no condition"),
        (declared(2, 1) + BOX + "(assert Y_0)", "line 8: an expression must begin with a word"),
        (declared(2, 1) + BOX + "(assert (<= Y_0 0)", "line 8: a parenthesis opens that is not closed"),
        (declared(2, 1) + BOX + "(assert (<= Y_0 0)))", "line 8: a parenthesis closes that was not opened"),
        (declared(2, 1) + BOX + "Y_0", "line 8: 'Y_0' stands outside of parentheses"),
        (declared(2, 1) + BOX + "(define-fun f () Real 1)", "line 8: 'define-fun' is not read"),
        ("(declare-const X_0 Int)", "line 1: a declaration reads"),
        ("(declare-const Z_0 Real)", "line 1: a declaration reads"),
        ("(declare-const X_0 Real)\n(declare-const X_0 Real)", "line 2: X_0 was declared in line 1"),
        ("(declare-const X_0 Real)(declare-const X_2 Real)", "declares X_2, but not X_1"),
        ("(declare-const X_0 Real)(assert (<= X_0 1))", "declares no Y_0"),
        ("", "declares no X_0"),
        (declared(2, 1) + "(assert (<= 0 X_1 1)) (assert (<= X_0 1))" + OUT, "the input X_0 has no lower end"),
        (declared(2, 1) + "(assert (<= 0 X_0 1)) (assert (<= 0 X_1))" + OUT, "the input X_1 has no upper end"),
        (declared(1, 1) + "(assert (<= 0 X_0 1))", "no condition on their outputs"),
        (declared(1, 1) + "(assert (<= 1 X_0 0))" + OUT, "nothing can satisfy .*: X_0 would lie between 1.0 and 0.0"),
        (declared(1, 1) + "(assert (<= 0 X_0 1)) (assert (<= 2 1))" + OUT, "nothing can satisfy"),
    ],
)
def test_what_is_refused_is_named(tmp_path, text, match):
    with pytest.raises(ValueError, match=match):
        read_vnnlib(made(tmp_path, text))


def test_too_many_alternatives_are_refused(tmp_path):
    each = "(or (<= Y_0 0) (<= Y_1 0))"
    with pytest.raises(ValueError, match="alternatives, more than 100000"):
        read_vnnlib(made(tmp_path, declared(1, 2) + "(assert (<= 0 X_0 1))" + f"(assert {each})" * 20))


def test_files_that_are_no_text(tmp_path):
    for data in (b"\xff\xfe\x00", b"\x1f\x8b broken"):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(ValueError, match="is no text"):
            read_vnnlib(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        read_vnnlib(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "parts", "p", "q"),
    [
        ("acas_prop_1", [1], 5, 5),
        ("acas_prop_2", [4], 5, 5),
        ("acas_prop_3", [4], 5, 5),
        ("acas_prop_4", [4], 5, 5),
        ("mnist_prop_0_0.03", [1] * 9, 784, 10),
    ],
)
def test_properties_of_vnn_comp(name, parts, p, q):
    path = Path(os.environ.get("IMPLICIT_DATA") or "none") / "vnncomp" / f"{name}.vnnlib"
    if not path.is_file():
        pytest.skip("IMPLICIT_DATA names no folder with networks of VNN-COMP")
    (one,) = read_vnnlib(path)
    assert one.lower.shape == (p,) and [part.A.shape for part in one.unsafe] == [(k, q) for k in parts]
    if name == "acas_prop_3":
        assert one.unsafe[0].A[:, 0].tolist() == [1.0] * 4
