"""A grid of runs of one notebook: papermill on every point, the recorded values in one table and one picture.

    python -m reproduction.book.sweep ch5_identity "seeds=[[1],[2],[3]] epochs_scale=[.5,1.]" --workers 2

A point's file is named by the key of what it computes (code, parameters, data), so that a killed sweep goes on where it
stopped, and a changed notebook runs its points anew. A point that fails does not stop the others; it is listed, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.book.conditions import is_text
from reproduction.book.graph import ROOT
from reproduction.book.results import numbers, save
from reproduction.book.run import effective_parameters, keys_of, published

SWEEPS = ROOT / "sweeps"
DRAWN = 4  # values that the picture shows unless others are named


@dataclass(frozen=True)
class Point:
    """One run of the grid.

    Args:
        notebook: that is run.
        profile: "quick" or "full".
        given: parameters of the point.
        key: of what the run computes.
    """

    notebook: str
    profile: str
    given: Mapping[str, Any]
    key: str

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.given.items())


def parse_grid(text: str) -> dict[str, list[Any]]:
    """Parameters and their values from `name=[value, ...] name=[...]`.

    Raises:
        ValueError: naming the part that is no list of literals, a name that stands twice, or an empty list.
    """
    grid: dict[str, list[Any]] = {}
    for part in filter(None, re.split(r"\s+(?=[A-Za-z_]\w*\s*=)", text.strip())):
        name, equals, values = part.partition("=")
        name = name.strip()
        try:
            found = ast.literal_eval(values.strip()) if equals else None
        except (ValueError, SyntaxError):
            found = None
        if not isinstance(found, list) or not found:
            raise ValueError(f"grid: {part!r} is no `name=[value, ...]` with at least one value")
        if name in grid:
            raise ValueError(f"grid: {name!r} stands twice")
        grid[name] = found
    if not grid:
        raise ValueError("grid: no `name=[value, ...]` is given")
    return grid


def points_of(notebook: str, profile: str, grid: Mapping[str, Sequence[Any]]) -> list[Point]:
    """All combinations of a grid's values, each once, with the key of what it computes.

    Raises:
        FileNotFoundError, ValueError, TypeError: on a notebook that is not there, an unknown name, a value of the wrong
            type.
    """
    points: dict[str, Point] = {}
    for values in itertools.product(*grid.values()):
        given = dict(zip(grid, values, strict=True))
        effective = effective_parameters(notebook, profile, given)
        named = {name: effective[name] for name in given}
        keys = keys_of(notebook, effective)
        key = hashlib.sha256((keys["code_key"] + keys["data_key"]).encode()).hexdigest()
        points.setdefault(key, Point(notebook, profile, named, key))
    return list(points.values())


def run_point(point: Point) -> dict[str, Any]:
    """Run a notebook with a point's parameters in a process of its own; what it published, and its seconds.

    Raises:
        RuntimeError: when a cell raises or the process dies, with its last words.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sweep") as folder:
        target = Path(folder) / "executed.ipynb"
        command = [sys.executable, "-m", "reproduction.book.run", point.notebook, "--profile", point.profile]
        for name, value in point.given.items():
            command += ["-p", name, value if isinstance(value, str) else repr(value)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        done = subprocess.run(
            [*command, "--to", str(target)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            raise RuntimeError(last[-1])
        found = published(json.loads(target.read_text(encoding="utf-8")))
    return {
        "notebook": point.notebook,
        "profile": point.profile,
        "parameters": dict(point.given),
        "seconds": round(time.perf_counter() - start, 1),
        "values": found["values"],
        "units": found["units"],
        "withheld": found.get("withheld", ""),
    }


def finished(
    points: Sequence[Point], workers: int, address: str | None, run: Callable[[Point], dict[str, Any]] = run_point
) -> Iterator[tuple[Point, dict[str, Any] | Exception]]:
    """Points with what they gave or what went wrong, as they finish: on processes of this machine, or on a Ray cluster
    whose machines have this repository at the same place."""
    if address is not None:
        import ray

        ray.init(address=address, ignore_reinit_error=True)
        remote = ray.remote(max_retries=2)(run)
        left = {remote.remote(point): point for point in points}
        while left:
            ready, _ = ray.wait(list(left), num_returns=1)
            point = left.pop(ready[0])
            try:
                yield point, ray.get(ready[0])
            except Exception as error:  # whatever the task raised belongs to its point
                yield point, error
        return
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(run, point): point for point in points}
        try:
            for future in as_completed(running):
                yield running[future], future.exception() or future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def table(contents: Sequence[Mapping[str, Any]]):
    """One row for each point and recorded number: parameters, key, median, least and greatest value, count, unit."""
    import pandas as pd

    rows = []
    for content in contents:
        shown = {
            name: value if isinstance(value, (int, float, str)) else json.dumps(value)
            for name, value in content["parameters"].items()
        }
        for key, value in content["values"].items():
            try:
                sample = pd.Series([] if is_text(value) else numbers(value), dtype=float)
            except (TypeError, ValueError):
                continue  # texts and mappings are no numbers
            if sample.empty:
                continue
            rows.append(
                shown
                | {"key": key, "median": sample.median(), "min": sample.min(), "max": sample.max()}
                | {"n_values": len(sample), "unit": content["units"].get(key, "")}
            )
    return pd.DataFrame(rows)


def figure(frame, grid: Mapping[str, Sequence[Any]], keys: Sequence[str] = ()):
    """Medians of some recorded values, a panel each, against the first parameter of the grid; a line for each
    combination of the others.

    Args:
        keys: which values; without any, the first that differ over the grid.

    Raises:
        KeyError: when a key was not recorded.
    """
    import matplotlib.pyplot as plt
    import pandas as pd

    names = list(grid)
    for key in keys:
        if key not in set(frame["key"]):
            raise KeyError(f"no value is recorded under {key!r}; there are: {', '.join(frame['key'].unique())}")
    spread = frame.groupby("key", sort=False)["median"].nunique()
    shown = list(keys) or list(spread[spread > 1].index[:DRAWN]) or list(spread.index[:DRAWN])
    picture, axes = plt.subplots(len(shown), 1, figsize=(6.2, 2.6 * len(shown)), squeeze=False, layout="constrained")
    for axis, key in zip(axes[:, 0], shown, strict=True):
        part = frame[frame["key"] == key]
        groups = part.groupby(names[1:], sort=False) if len(names) > 1 else [((), part)]
        for labels, rows in groups:
            label = ", ".join(f"{n} = {v}" for n, v in zip(names[1:], labels, strict=True))
            places = rows[names[0]] if pd.api.types.is_numeric_dtype(frame[names[0]]) else rows[names[0]].astype(str)
            errors = [rows["median"] - rows["min"], rows["max"] - rows["median"]]
            axis.errorbar(places, rows["median"], errors, marker="o", capsize=3, label=label or None)
        unit = part["unit"].iloc[0]
        axis.set(xlabel=names[0], ylabel=f"{key} ({unit})" if unit else key)
        if len(names) > 1:
            axis.legend(fontsize="small")
    return picture


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing of a grid, then write its table and picture."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.book.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("notebook")
    parser.add_argument("grid", help='such as "seeds=[[1],[2]] epochs_scale=[.5,1.]"')
    parser.add_argument("--profile", default="quick", choices=("quick", "full"))
    parser.add_argument("--workers", type=int, default=2, help="processes of this machine")
    parser.add_argument("--address", help="of a Ray cluster instead")
    parser.add_argument("--keys", nargs="*", default=[], help="recorded values that the picture shows")
    parser.add_argument("--out", type=Path, help="folder (default: sweeps/NOTEBOOK)")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error(f"--workers {options.workers}: at least 1 is needed")
    try:
        grid = parse_grid(options.grid)
        points = points_of(options.notebook, options.profile, grid)
    except (FileNotFoundError, ValueError, TypeError) as error:
        parser.error(str(error))
    folder = options.out or SWEEPS / options.notebook
    paths = {point.key: folder / "points" / f"{point.key[:20]}.json" for point in points}
    missing = [point for point in points if not paths[point.key].is_file()]
    print(f"{options.notebook}: {len(points)} points, {len(points) - len(missing)} of them are there", flush=True)
    failed = []
    for count, (point, outcome) in enumerate(finished(missing, options.workers, options.address), 1):
        if isinstance(outcome, Exception):
            failed.append(point)
            print(f"[{count}/{len(missing)}] FAILED {point}: {outcome}", flush=True)
        else:
            save(paths[point.key], outcome)
            print(f"[{count}/{len(missing)}] {point}: {outcome['seconds']:.0f} s", flush=True)
    contents = [json.loads(paths[p.key].read_text(encoding="utf-8")) for p in points if paths[p.key].is_file()]
    write(folder, contents, functools.partial(figure, grid=grid, keys=options.keys))
    return 1 if failed else 0


def write(folder: Path, contents: Sequence[Mapping[str, Any]], draw: Callable[[Any], Any]) -> None:
    """Write table and picture of the points that are there, and say which."""
    if withheld := sorted({content["withheld"] for content in contents} - {""}):
        print(f"no values: {'; '.join(withheld)}")
    frame = table(contents)
    if frame.empty:
        print("no numbers were recorded: neither table nor picture")
        return
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "table.csv", index=False)
    written = ["table.csv"]
    try:
        frame.to_parquet(folder / "table.parquet", index=False)
        written.append("table.parquet")
    except ImportError:
        print("table.parquet needs pyarrow: pip install 'implicit-models[parquet]'")
    import matplotlib

    matplotlib.use("Agg")
    try:
        draw(frame).savefig(folder / "plot.png", dpi=144)
        written.append("plot.png")
    except KeyError as error:
        print(f"no picture: {error.args[0]}")
    print(f"{folder}: {', '.join(written)}")


if __name__ == "__main__":
    sys.exit(main())
