"""Run one notebook: checked parameters, content key, atomic result.

    python -m reproduction.book.run ch5_identity --profile quick

The copy is run as `NAME.running.ipynb`, gets its key and seconds into its metadata, and only then takes the name
`book/_executed/NAME.ipynb`: a kill at any moment leaves nothing that looks finished.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from reproduction.book.definitions import Ref
from reproduction.book.graph import ROOT
from reproduction.book.keys import code_key, notebook_refs, page_key, present
from reproduction.book.parameters import assigned_names, check_names, coerce
from reproduction.book.prose import cell_text, with_prose
from reproduction.book.results import EXECUTED, MIME, RESULTS, load, measured, save

NOTEBOOKS = ROOT / "notebooks"
METADATA = "implicit_models"
# Versions that can move a number; they go into a result's provenance.
VERSIONS = ("torch", "numpy", "scipy", "numba", "scikit-learn", "pandas")


def read_notebook(name: str) -> dict[str, Any]:
    """A committed notebook as JSON.

    Raises:
        FileNotFoundError: when there is none of that name, listing those there are.
    """
    path = NOTEBOOKS / f"{name}.ipynb"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in NOTEBOOKS.glob("*.ipynb")))
        raise FileNotFoundError(f"no notebook {name!r}; there are: {known}")
    return json.loads(path.read_text(encoding="utf-8"))


def parameters_of(notebook: dict[str, Any]) -> dict[str, Any]:
    """Names and default values of the one cell tagged `parameters`.

    Raises:
        ValueError: when there is not exactly one such cell, or it holds anything but literals.
    """
    tagged = [c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise ValueError(f"{len(tagged)} cells are tagged `parameters`, one is wanted")
    return assigned_names(cell_text(tagged[0]))


def code_of(notebook: dict[str, Any]) -> str:
    """All code cells as one Python text, without IPython magics."""
    cells = [cell_text(c) for c in notebook["cells"] if c["cell_type"] == "code"]
    return "\n".join(re.sub(r"^\s*[%!].*$", "", text, flags=re.MULTILINE) for text in cells)


def data_checksums(notebook: dict[str, Any], parameters: dict[str, Any]) -> dict[str, str]:
    """Name -> checksum of the data set that a notebook with a `dataset` parameter would resolve now."""
    if "dataset" not in parameters:
        return {}
    from data_gen.images.vision import fingerprint

    name, _, checksum = fingerprint(parameters["dataset"]).partition(":")
    return {name: checksum}


def keys_of(name: str, parameters: dict[str, Any]) -> dict[str, str]:
    """Content key (whether the page is the present one), run key (whether its run is) and code key (whether a committed
    result is stale)."""
    notebook = read_notebook(name)
    code = code_of(notebook)
    # Captions and tags of code cells must reach the built page, though they do not make a committed number stale.
    cells = [[c["cell_type"], cell_text(c), c["metadata"]] for c in notebook["cells"]]
    sources = json.dumps([cell for cell in cells if cell[0] == "code"], sort_keys=True)
    if "published_value" in code:
        sources += (ROOT / "book" / "claims.yml").read_text(encoding="utf-8")
    data = data_checksums(notebook, parameters)
    committed = load(RESULTS / f"{name}.json")
    if committed is not None:
        # The page shows the committed full run beside its own, so a new one reruns the page; a confirmation does not.
        sources += json.dumps(measured(committed), sort_keys=True)
    run_key = page_key(code, sources, parameters, data)
    return {
        "content_key": hashlib.sha256(json.dumps([run_key, cells], sort_keys=True).encode()).hexdigest(),
        "run_key": run_key,
        "code_key": code_key_of(name, parameters),
        "data_key": json.dumps(data, sort_keys=True),
    }


def code_key_of(name: str, parameters: dict[str, Any]) -> str:
    """Key of the code and parameters of a run, without data, installed versions, comments and prose.

    A committed result whose code key is another one is stale.
    """
    return code_key(code_of(read_notebook(name)), parameters)


def commit_of(name: str) -> str | None:
    """The commit that holds the code of a notebook's recorded values, or None where a file of it is not committed."""
    return commit_holding(notebook_refs(code_of(read_notebook(name)), present())[1], f"notebooks/{name}.ipynb")


def commit_holding(refs: list[Ref], *files: str) -> str | None:
    """The present commit if it holds files and all code that names depend on as they are, else None."""
    graph = present()
    closure = [str(graph.module(module).path.relative_to(ROOT)) for module in graph.closure(refs)]
    git = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    try:
        if git(["git", "status", "--porcelain", "--", *files, *closure]).stdout:
            return None
        return git(["git", "rev-parse", "HEAD"]).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def effective_parameters(name: str, profile: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Defaults of a notebook with the profile and the given values put in.

    Raises:
        ValueError, TypeError: on unknown names and wrong types (see `reproduction.book.parameters`).
    """
    defaults = parameters_of(read_notebook(name))
    given = {"profile": profile, **(given or {})}
    check_names(list(given), list(defaults))
    return defaults | {key: coerce(key, value, defaults[key]) for key, value in given.items()}


def executed_key(path: Path) -> str | None:
    """Content key of an executed copy, or None when there is no finished one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["metadata"][METADATA]["content_key"]
    except (OSError, KeyError, json.JSONDecodeError):
        return None


def up_to_date(name: str, profile: str) -> bool:
    """Whether the executed copy stands for what a run would now compute."""
    wanted = keys_of(name, effective_parameters(name, profile))["content_key"]
    return executed_key(EXECUTED / f"{name}.ipynb") == wanted


def refreshed(name: str, profile: str) -> bool:
    """Put new prose into the executed copy where nothing but prose changed since it ran; whether that was done."""
    final, keys = EXECUTED / f"{name}.ipynb", keys_of(name, effective_parameters(name, profile))
    try:
        executed = json.loads(final.read_text(encoding="utf-8"))
        if executed["metadata"][METADATA]["run_key"] != keys["run_key"]:
            return False
    except (OSError, KeyError, json.JSONDecodeError):
        return False
    executed = with_prose(executed, read_notebook(name))
    executed["metadata"][METADATA] |= keys
    running = final.with_name(f"{name}.running.ipynb")
    running.write_text(json.dumps(executed, indent=1) + "\n", encoding="utf-8")
    os.replace(running, final)
    print(f"{name}: new prose around the run that is there")
    return True


def published(notebook: dict[str, Any]) -> dict[str, Any]:
    """The values that an executed notebook published."""
    found = [o["data"][MIME] for c in notebook["cells"] for o in c.get("outputs", []) if MIME in o.get("data", {})]
    return found[-1] if found else {"values": {}, "units": {}, "curves": {}, "seeds": []}


def provenance(keys: dict[str, str], seconds: float, cpu_seconds: float, commit: str | None) -> dict[str, Any]:
    """What a reader needs to judge or repeat a result: commit, keys, versions, hardware, time."""
    from importlib.metadata import version

    return {
        "commit": commit,
        "code_key": keys["code_key"],
        "data_key": json.loads(keys["data_key"]),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in VERSIONS},
        "hardware": {
            "machine": platform.machine(),
            "cpu": cpu_name(),
            "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
        },
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "date": datetime.date.today().isoformat(),
    }


def cpu_name() -> str:
    """Model name of the processor, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def execute(name: str, profile: str, given: dict[str, Any] | None = None, target: Path | None = None) -> Path:
    """Run a notebook with papermill and put the finished copy in place.

    Args:
        name: notebook without suffix.
        profile: "quick" or "full"; a full run also writes results/NAME.json.
        given: further parameters.
        target: where the copy goes instead of book/_executed/NAME.ipynb; no results are written then.

    Raises:
        papermill.PapermillExecutionError: when a cell raises; the unfinished copy stays as NAME.running.ipynb.
    """
    import resource

    import papermill

    parameters = effective_parameters(name, profile, given)
    keys, commit = keys_of(name, parameters), commit_of(name)
    if profile == "full" and target is None and not given and commit is None:
        print(f"{name}: its code is not committed; the result will name no commit and cannot be confirmed later")
    final = EXECUTED / f"{name}.ipynb" if target is None else target
    running = final.with_name(f"{final.stem}.running.ipynb")
    running.parent.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {', '.join(f'{k}={v!r}' for k, v in parameters.items())}", flush=True)
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    papermill.execute_notebook(
        str(NOTEBOOKS / f"{name}.ipynb"),
        str(running),
        parameters={"profile": profile, **(given or {})},
        kernel_name="python3",
        progress_bar=False,
        log_output=False,
        cwd=str(NOTEBOOKS),
        # Its start-up notice about local transport is no news for a reader of the build.
        extra_arguments=["--log-level=ERROR"],
    )
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    notebook = json.loads(running.read_text(encoding="utf-8"))
    # Paths and times of one machine do not belong into a page.
    notebook["metadata"].pop("papermill", None)
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)
        cell["metadata"].pop("execution", None)
        if "injected-parameters" in cell["metadata"].get("tags", []):
            cell["metadata"]["tags"].append("remove-input")  # the guard's output lists the effective values
    notebook["metadata"][METADATA] = {**keys, "profile": profile, "seconds": round(seconds, 1)}
    content = {
        **published(notebook),
        "notebook": name,
        "profile": profile,
        "parameters": parameters,
        "provenance": provenance(keys, seconds, cpu_seconds, commit),
    }
    running.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
    if target is None:
        save(EXECUTED / f"{name}.json", content)
        if profile == "full" and not given and not content.get("withheld"):
            save(RESULTS / f"{name}.json", content)
            # The key covers the committed result, which has just changed.
            notebook["metadata"][METADATA] |= keys_of(name, parameters)
            running.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
    os.replace(running, final)
    return final


def main(arguments: list[str] | None = None) -> int:
    """Command line; a cell that raises is named with its notebook, and the exit status is 1."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.book.run", description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--profile", default="quick", choices=("quick", "full"))
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--to", type=Path, help="write the executed copy here, and no results")
    parser.add_argument("--refresh", action="store_true", help="no run where nothing but prose changed since the last")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import papermill

    try:
        effective_parameters(options.name, options.profile, dict(options.p))
    except (FileNotFoundError, ValueError, TypeError) as error:
        parser.error(str(error))
    if options.refresh and not options.p and options.to is None and refreshed(options.name, options.profile):
        return 0
    try:
        execute(options.name, options.profile, dict(options.p), options.to)
    except papermill.PapermillExecutionError as error:
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback or []))
        print(
            f"\nFAILED notebooks/{options.name}.ipynb, code cell [{error.exec_count}]:\n{error.source}\n\n{text}\n"
            f"{error.ename}: {error.evalue}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
