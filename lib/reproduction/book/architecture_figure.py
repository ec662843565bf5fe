"""The picture of the architecture, drawn from the imports: folders as boxes, who imports whom as arrows.

A box knows only boxes below it. An arrow that a longer way implies is left out, so that the picture is the transitive
reduction of the imports. Boxes that import each other stand in one row, joined by an arrow with two heads.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

from reproduction.book.graph import FOLDERS, ROOT

WIDTH, BOX, HIGH, GAP, LANE = 360, 106, 40, 30, 12  # SVG units: a phone's width, so that text keeps its size there
# In the colours of the page, so that dark mode follows.
STYLE = """
svg.architecture { display: block; width: 100%; max-width: 32rem; height: auto; margin: 1rem auto; }
svg.architecture path { fill: none; stroke: currentColor; stroke-opacity: .65; }
svg.architecture marker path { fill: currentColor; stroke: none; }
svg.architecture rect { fill: var(--pst-color-surface, none); stroke: currentColor; }
svg.architecture text { fill: currentColor; text-anchor: middle; font: 600 13px sans-serif; }
svg.architecture text.package { opacity: .75; font: 11px sans-serif; }
"""
SWEEPS = 8  # of the rows by the means of their neighbours
Arrows = dict[str, set[str]]


def module_files(root: Path = ROOT) -> dict[str, Path]:
    """First-party modules by dotted name; a package is its `__init__`."""
    files = {}
    for package, folder in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = (package, *path.relative_to(root / folder).with_suffix("").parts)
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported(source: str, known: Collection[str], package: str = "") -> set[str]:
    """Known modules that a source imports, at any depth; what only type checkers read does not count.

    Args:
        source: Python source.
        known: dotted names of the modules that count.
        package: dotted name of the package that holds the source.
    """
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        todo.extend(ast.iter_child_nodes(node))
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, node.module] if node.module else parts)
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in known:
                name = name.rpartition(".")[0]
            found |= {name} - {""}
    return found


def module_arrows(root: Path = ROOT) -> Arrows:
    """Module -> first-party modules that it imports; `notebooks` stands for all of them, `book` for its extensions."""
    files = module_files(root)
    arrows = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        arrows[name] = imported(path.read_text(encoding="utf-8"), files, package) - {name}
    cells = [
        re.sub(r"^\s*[%!].*$", "", "".join(cell["source"]), flags=re.MULTILINE)
        for path in sorted((root / "notebooks").glob("*.ipynb"))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    pages = [path.read_text(encoding="utf-8") for path in sorted((root / "book" / "_ext").glob("*.py"))]
    for name, sources in (("notebooks", cells), ("book", pages)):
        arrows[name] = {module for source in sources for module in imported(source, files)}
    return arrows


def reached(arrows: Mapping[str, Collection[str]]) -> Arrows:
    """Node -> all nodes to which a way leads."""
    far = {}
    for start in arrows:
        todo, seen = list(arrows[start]), set()
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo.extend(arrows[node])
        far[start] = seen
    return far


def boxes(arrows: Arrows, root: Path = ROOT) -> dict[str, str]:
    """Module -> its box.

    The library's folders are boxes; its files outside folders are two, those that use a folder and those that do not.
    Of the papers' code the machinery of the book, the tools, what serves one notebook, and what several share are
    one box each.
    """
    files, far = module_files(root), reached(arrows)
    notebooks = {path.stem for path in (root / "notebooks").glob("*.ipynb")}
    inside = {name for name, path in files.items() if path.parent.parent == root / FOLDERS["implicit_models"]}
    found = {}
    for name in arrows:
        package, *rest = name.split(".")
        if package == "implicit_models" and rest:
            deep = (files[name].parent != root / FOLDERS[package]) or len(rest) > 1
            found[name] = f"{package}/{rest[0] if deep else 'models' if far[name] & inside else 'foundations'}"
        elif package == "reproduction" and rest:
            kind = "one notebook" if rest[0] in notebooks else rest[0] if rest[0] in ("book", "tools") else "shared"
            found[name] = f"{package}/{kind}"
        elif package not in ("implicit_models", "reproduction"):  # the two lazy packages themselves compute nothing
            found[name] = package
    return found


def box_arrows(arrows: Arrows, place: Mapping[str, str]) -> Arrows:
    """Box -> boxes that it imports."""
    between: Arrows = {box: set() for box in place.values()}
    for name, targets in arrows.items():
        if name in place:
            between[place[name]] |= {place[target] for target in targets if target in place} - {place[name]}
    return between


def levels(between: Arrows) -> dict[str, int]:
    """Box -> its row: 0 knows nothing, each box is above all that it imports; a circle shares a row."""
    far = reached(between)
    found: dict[str, int] = {}

    def level(box: str) -> int:
        if box not in found:
            ring = {other for other in far[box] if box in far[other]} | {box}
            below = {target for member in ring for target in between[member]} - ring
            row = 1 + max((level(target) for target in below), default=-1)
            found.update(dict.fromkeys(ring, row))
        return found[box]

    for box in between:
        level(box)
    return found


def reduced(between: Arrows) -> list[tuple[str, str]]:
    """The arrows that no longer way implies, and those of circles."""
    far = reached(between)
    kept = []
    for box, targets in between.items():
        for target in targets:
            ring = box in far[target]
            longer = any(
                target in far[middle] and middle not in far[target] and box not in far[middle] for middle in targets
            )
            if ring or not longer:
                kept.append((box, target))
    return sorted(kept)


def _rows(row: Mapping[str, int], arrows: list[tuple[str, str]]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Rows from the top, with a lane in every row that an arrow passes, and the ways of the arrows through them."""
    height = max(row.values())
    rows: list[list[str]] = [[] for _ in range(height + 1)]
    for box in sorted(row):
        rows[height - row[box]].append(box)
    ways = {}
    for start, end in arrows:
        lanes = [f"|{start}|{end}|{k}" for k in range(row[start] - 1, row[end], -1)]
        for lane, k in zip(lanes, range(row[start] - 1, row[end], -1), strict=True):
            rows[height - k].append(lane)
        ways[f"{start}|{end}"] = [start, *lanes, end]
    return rows, ways


def _positions(rows: list[list[str]], ways: Mapping[str, list[str]]) -> dict[str, float]:
    """Middles of boxes and lanes: sorted by the means of their neighbours, down and up, then packed around them."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for way in ways.values():
        for one, other in pairwise(way):
            below.setdefault(one, []).append(other)
            above.setdefault(other, []).append(one)
    x = {node: WIDTH * (k + 0.5) / len(row) for row in rows for k, node in enumerate(row)}
    for sweep in range(SWEEPS):
        beside = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            want = {n: sum(x[m] for m in beside[n]) / len(beside[n]) if n in beside else x[n] for n in row}
            row.sort(key=lambda n: want[n])
            half = [(LANE if n.startswith("|") else BOX + 8) / 2 for n in row]
            at = 0.0
            for n, h in zip(row, half, strict=True):  # from the left, each where it wants to be or next to the last
                x[n] = max(at + h, want[n])
                at = x[n] + h
            edge = float(WIDTH)
            for n, h in zip(row[::-1], half[::-1], strict=True):
                x[n] = min(x[n], edge - h)
                edge = x[n] - h
    shift = (WIDTH - min(x.values()) - max(x.values())) / 2
    return {node: middle + shift for node, middle in x.items()}


def architecture_svg(root: Path = ROOT) -> str:
    """The picture, as SVG in the colours of the page that holds it."""
    arrows = module_arrows(root)
    place = boxes(arrows, root)
    between = box_arrows(arrows, place)
    row, kept = levels(between), reduced(between)
    rows, ways = _rows(row, [(a, b) for a, b in kept if row[a] != row[b]])
    x = _positions(rows, ways)
    top = {node: 2 + k * (HIGH + GAP) for k, nodes in enumerate(rows) for node in nodes}
    count = {box: sum(other == box for other in place.values()) for box in row}
    parts = []
    for way in ways.values():
        points = [f"M{x[way[0]]:.0f} {top[way[0]] + HIGH}"]
        for one, other in pairwise(way):
            start, end = top[one] + HIGH, top[other] - (0 if other.startswith("|") else 5)
            bend = (end - start) / 2
            points.append(f"C{x[one]:.0f} {start + bend:.0f} {x[other]:.0f} {end - bend:.0f} {x[other]:.0f} {end}")
            if other.startswith("|"):
                points.append(f"V{top[other] + HIGH}")
        parts.append(f'<path d="{" ".join(points)}" marker-end="url(#architecture-head)"/>')
    for a, b in kept:
        if row[a] == row[b] and a < b:
            y = top[a] + HIGH / 2
            one, other = sorted((x[a], x[b]))
            parts.append(
                f'<path d="M{one + BOX / 2 + 4:.0f} {y} H{other - BOX / 2 - 4:.0f}" marker-start='
                '"url(#architecture-head)" marker-end="url(#architecture-head)"/>'
            )
    for box in sorted(row, key=lambda box: (top[box], x[box])):
        package, _, name = box.rpartition("/")
        left, middle = x[box] - BOX / 2, f"{x[box]:.0f}"
        files = "" if box in ("notebooks", "book") else f": {count[box]} files"
        parts.append(
            f"<g><title>{escape(box + files)}</title>"
            f'<rect x="{left:.0f}" y="{top[box]}" width="{BOX}" height="{HIGH}" rx="5"/>'
            f'<text x="{middle}" y="{top[box] + 15}" class="package">{escape(package)}</text>'
            f'<text x="{middle}" y="{top[box] + (30 if package else 25)}">{escape(name)}</text></g>'
        )
    high = max(top.values()) + HIGH + 2
    return (
        f'<svg class="architecture" viewBox="0 0 {WIDTH} {high}" role="img" aria-label="{escape(described(kept))}">'
        f"<style>{STYLE}</style>"
        '<defs><marker id="architecture-head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>{"".join(parts)}</svg>'
    )


def described(kept: list[tuple[str, str]]) -> str:
    """The arrows in words, for those who do not see them."""
    targets: dict[str, list[str]] = {}
    for box, target in kept:
        targets.setdefault(box, []).append(target)
    lines = (f"{box} imports {', '.join(names)}" for box, names in targets.items())
    return "Folders and their imports, without those that others imply. " + "; ".join(lines) + "."
