"""Properties in VNN-LIB files, the format of the verification of neural networks competition (VNN-COMP).

A file declares inputs X_0, ..., X_{p-1} and outputs Y_0, ..., Y_{q-1}, and asserts conditions on them in SMT-LIB's
syntax. What satisfies them all is a counterexample. Read are comparisons (<=, >=, <, >, =) of linear terms
(+, -, *, and / by numbers), joined by `and` and `or` in any depth:

    (declare-const X_0 Real)
    (declare-const Y_0 Real)
    (declare-const Y_1 Real)
    (assert (>= X_0 -0.5))
    (assert (<= X_0 0.5))
    (assert (or (<= Y_0 Y_1) (>= Y_0 3.25)))

The conditions are put into disjunctive normal form. Inputs of each part must form a box; parts of one box make one
property, whose unsafe set is the union of their polyhedra.

Source:
    Demarchi, Guidotti, Pulina and Tacchella, "Supporting standardization of neural networks verification with VNNLIB
    and CoCoNet", FoMLAS (2023); Barrett, Fontaine and Tinelli, "The SMT-LIB Standard 2.6".
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from implicit_models.robustness.properties import Polyhedron, Property

LARGEST = 100_000  # parts of the disjunctive normal form
NOT_ASKED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
COMPARISONS = ("<=", ">=", "<", ">", "=")
_TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+|\s+")  # a comment, a parenthesis, a word, or space
_VARIABLE = re.compile(r"([XY])_(0|[1-9]\d*)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def read_vnnlib(path: str | Path) -> list[Property]:
    """The properties of a VNN-LIB file: no input of a box has an output in its unsafe set.

    Numbers are exact fractions until the end, then rounded to the nearest double. A strict comparison of an input moves
    its end to the next double; of outputs it makes a strict row. A part whose box is empty is left out.

    Args:
        path: of the file, or of its gzip.

    Returns:
        one property for each box, in the file's order.

    Raises:
        OSError: for a file that cannot be read.
        ValueError: naming the line of what is no VNN-LIB, of a condition that is not linear, on inputs and outputs at
            once, or on several inputs; naming an input without one of its ends; if no condition is on the outputs; and
            if nothing can satisfy the conditions.
    """
    data = Path(path).read_bytes()
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no text, and no gzip of one: {error}") from error
    return _Reader(str(path)).properties(text)


@dataclass(frozen=True)
class _List:
    """An expression in parentheses, and the line where it begins."""

    line: int
    items: tuple[Any, ...]


@dataclass(frozen=True)
class _Word:
    line: int
    text: str


_Variable: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class _Atom:
    """sum of coefficients times variables + constant <= 0, or < 0."""

    line: int
    coefficients: dict[_Variable, Fraction]
    constant: Fraction
    strict: bool

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.coefficients}


_Part: TypeAlias = tuple[_Atom, ...]  # of which all hold


class _Box:
    """Ends of the inputs, as far as they are known."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray):
        self.lower, self.upper = lower, upper

    def within(self, atoms: list[_Atom]) -> _Box:
        """With the conditions of atoms on one input each."""
        out = _Box(self.lower.copy(), self.upper.copy()) if atoms else self
        for atom in atoms:
            (((_, i), factor),) = atom.coefficients.items()
            exact = -atom.constant / factor
            end = _double(exact)
            if factor > 0:
                beyond = atom.strict and end >= exact
                out.upper[i] = min(out.upper[i], np.nextafter(end, -np.inf) if beyond else end)
            else:
                beyond = atom.strict and end <= exact
                out.lower[i] = max(out.lower[i], np.nextafter(end, np.inf) if beyond else end)
        return out


class _Reader:
    def __init__(self, path: str):
        self.path = path
        self.declared: dict[_Variable, int] = {}

    def wrong(self, line: int, what: str) -> ValueError:
        return ValueError(f"{self.path}, line {line}: {what}")

    def properties(self, text: str) -> list[Property]:
        conditions = []
        for expression in self.expressions(text):
            head = self.head(expression)
            if head in ("declare-const", "declare-fun"):
                self.declare(expression)
            elif head == "assert":
                if len(expression.items) != 2:
                    raise self.wrong(expression.line, "assert takes one condition")
                conditions.append(self.parts(expression.items[1]))
            elif head not in NOT_ASKED:
                raise self.wrong(expression.line, f"{head!r} is not read, only declare-const and assert")
        p, q = (self.count(kind) for kind in "XY")
        common = [atom for parts in conditions if len(parts) == 1 for atom in parts[0]]
        choices = [parts for parts in conditions if len(parts) != 1]
        alternatives: list[_Part] = [()]
        for parts in choices:
            alternatives = self.joined(alternatives, parts)
        base = _Box(np.full(p, -np.inf), np.full(p, np.inf)).within([a for a in common if a.kinds == {"X"}])
        shared = [a for a in common if a.kinds != {"X"}]
        found: dict[bytes, tuple[_Box, list[Polyhedron]]] = {}
        empty = ""
        for alternative in alternatives:
            box = base.within([a for a in alternative if a.kinds == {"X"}])
            for i in np.flatnonzero(~(np.isfinite(box.lower) & np.isfinite(box.upper)))[:1]:
                end = "lower" if not np.isfinite(box.lower[i]) else "upper"
                raise ValueError(f"{self.path}: the input X_{i} has no {end} end: boxes must be bounded")
            if (box.lower > box.upper).any():
                i = int(np.argmax(box.lower > box.upper))
                empty = f": X_{i} would lie between {float(box.lower[i])} and {float(box.upper[i])}"
                continue
            of_outputs = [a for a in (*shared, *alternative) if a.kinds != {"X"}]
            key = box.lower.tobytes() + box.upper.tobytes()
            found.setdefault(key, (box, []))[1].append(self.polyhedron(of_outputs, q))
        if not found:
            raise ValueError(f"{self.path}: nothing can satisfy the conditions{empty}")
        return [Property(box.lower, box.upper, tuple(unsafe)) for box, unsafe in found.values()]

    def expressions(self, text: str) -> Iterator[_List]:
        """The expressions of a text in parentheses, one after the other."""
        line, open_ = 1, []  # type: int, list[tuple[int, list[Any]]]
        for token in _TOKEN.findall(text):
            if token == "(":
                open_.append((line, []))
            elif token == ")":
                if not open_:
                    raise self.wrong(line, "a parenthesis closes that was not opened")
                begun, items = open_.pop()
                done = _List(begun, tuple(items))
                if open_:
                    open_[-1][1].append(done)
                else:
                    yield done
            elif not token.isspace() and not token.startswith(";"):
                if not open_:
                    raise self.wrong(line, f"{token!r} stands outside of parentheses")
                open_[-1][1].append(_Word(line, token))
            line += token.count("\n")
        if open_:
            raise self.wrong(open_[0][0], "a parenthesis opens that is not closed")

    def head(self, expression: Any) -> str:
        if not isinstance(expression, _List) or not expression.items or not isinstance(expression.items[0], _Word):
            raise self.wrong(expression.line, "an expression must begin with a word")
        return expression.items[0].text

    def declare(self, expression: _List) -> None:
        words = [item.text if isinstance(item, _Word) else "()" for item in expression.items[1:]]
        words = [word for word in words if word != "()"]  # declare-fun X_0 () Real
        found = _VARIABLE.fullmatch(words[0]) if words else None
        if len(words) != 2 or found is None or words[1] != "Real":
            raise self.wrong(expression.line, f"a declaration reads (declare-const X_0 Real), got {' '.join(words)!r}")
        variable = (found[1], int(found[2]))
        if variable in self.declared:
            raise self.wrong(expression.line, f"{words[0]} was declared in line {self.declared[variable]}")
        self.declared[variable] = expression.line

    def count(self, kind: str) -> int:
        """How many inputs or outputs there are, numbered from zero."""
        numbers = sorted(i for k, i in self.declared if k == kind)
        if not numbers:
            raise ValueError(f"{self.path} declares no {kind}_0")
        if numbers != list(range(len(numbers))):
            missing = next(i for i, n in enumerate(numbers) if i != n)
            raise ValueError(f"{self.path} declares {kind}_{numbers[-1]}, but not {kind}_{missing}")
        return len(numbers)

    def parts(self, condition: Any) -> list[_Part]:
        """The disjunctive normal form of a condition."""
        head = self.head(condition)
        rest = condition.items[1:]
        if head in COMPARISONS:
            return self.comparison(condition, head)
        if head not in ("and", "or") or not rest:
            raise self.wrong(
                condition.line, f"{head!r} is no condition that is read: and, or, {', '.join(COMPARISONS)}"
            )
        each = [self.parts(item) for item in rest]
        if head == "or":
            return self.limited([part for parts in each for part in parts])
        out: list[_Part] = [()]
        for parts in each:
            out = self.joined(out, parts)
        return out

    def joined(self, first: list[_Part], second: list[_Part]) -> list[_Part]:
        """Both of two conditions."""
        if len(first) * len(second) > LARGEST:
            self.limited(range(len(first) * len(second)))
        return [(*a, *b) for a in first for b in second]

    def limited(self, parts: Any) -> Any:
        if len(parts) > LARGEST:
            raise ValueError(f"{self.path}: the conditions have {len(parts)} alternatives, more than {LARGEST}")
        return parts

    def comparison(self, condition: _List, sign: str) -> list[_Part]:
        terms = [self.term(item) for item in condition.items[1:]]
        if len(terms) < 2:
            raise self.wrong(condition.line, f"{sign!r} compares two terms or more")
        atoms = []
        for left, right in zip(terms, terms[1:]):
            for low, high in {"<": [(left, right)], ">": [(right, left)]}.get(sign[0], [(left, right), (right, left)]):
                coefficients, constant = _sum([(1, low), (-1, high)])
                atom = _Atom(condition.line, coefficients, constant, sign in ("<", ">"))
                if len(atom.kinds) == 2:
                    raise self.wrong(condition.line, "a condition on inputs and outputs at once is not read")
                if atom.kinds == {"X"} and len(coefficients) > 1:
                    names = ", ".join(f"X_{i}" for _, i in sorted(coefficients))
                    raise self.wrong(condition.line, f"a condition on several inputs is no box: {names}")
                if atom.kinds:
                    atoms.append(atom)
                elif constant > 0 or (atom.strict and constant == 0):
                    return []  # never true
        return [tuple(atoms)]

    def term(self, item: Any) -> tuple[dict[_Variable, Fraction], Fraction]:
        """Coefficients and constant of a linear term."""
        if isinstance(item, _Word):
            if found := _VARIABLE.fullmatch(item.text):
                variable = (found[1], int(found[2]))
                if variable not in self.declared:
                    raise self.wrong(item.line, f"{item.text} is not declared")
                return {variable: Fraction(1)}, Fraction(0)
            if _NUMBER.fullmatch(item.text) and np.isfinite(nearest := float(item.text)):
                return {}, Fraction(item.text) if nearest else Fraction(0)
            raise self.wrong(item.line, f"{item.text!r} is no number, and no variable X_i or Y_i")
        head, terms = self.head(item), [self.term(each) for each in item.items[1:]]
        if head == "+" and terms:
            return _sum([(1, term) for term in terms])
        if head == "-" and terms:
            return _sum([(-1 if i or len(terms) == 1 else 1, term) for i, term in enumerate(terms)])
        if head in ("*", "/") and len(terms) > 1:
            out = terms[0]
            for term in terms[1:]:
                factor, of = (term[1], out) if not term[0] else (out[1], term)
                if (of is term and out[0]) or (head == "/" and (of is term or factor == 0)):
                    raise self.wrong(item.line, f"{head!r} of what is not linear, or by zero")
                out = _sum([(1 / factor if head == "/" else factor, of)])
            return out
        raise self.wrong(item.line, f"{head!r} is no linear term")

    def polyhedron(self, atoms: list[_Atom], q: int) -> Polyhedron:
        """Outputs that satisfy conditions."""
        if not atoms:
            raise ValueError(f"{self.path}: inputs of a box have no condition on their outputs")
        A, b = np.zeros((len(atoms), q)), np.zeros(len(atoms))
        for row, atom in enumerate(atoms):
            for (_, i), factor in atom.coefficients.items():
                A[row, i] = _double(factor)
            b[row] = _double(-atom.constant)
        return Polyhedron(A, b, np.array([atom.strict for atom in atoms]))


def _sum(
    terms: list[tuple[Any, tuple[dict[_Variable, Fraction], Fraction]]],
) -> tuple[dict[_Variable, Fraction], Fraction]:
    """Factors times linear terms, without variables that cancel."""
    out: dict[_Variable, Fraction] = {}
    constant = Fraction(0)
    for factor, (coefficients, shift) in terms:
        constant += factor * shift
        for variable, coefficient in coefficients.items():
            out[variable] = out.get(variable, Fraction(0)) + factor * coefficient
    return {variable: coefficient for variable, coefficient in out.items() if coefficient}, constant


def _double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
