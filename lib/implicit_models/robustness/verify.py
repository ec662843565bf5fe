"""The command that answers as tools of the verification of neural networks competition (VNN-COMP) do.

    python -m implicit_models.robustness.verify network.onnx property.vnnlib --timeout 120 [--json FILE] [--progress]

| answer | exit status | meaning |
|---|---|---|
| `unsat` | 0 | proved: no input has an unsafe output |
| `sat` and the witness | 1 | an input of the box, and its outputs, which are unsafe |
| `unknown` | 3 | neither was proved; standard error says why |
| `timeout` | 4 | nor was it in time |

The status is 2, and nothing is printed to standard output, for arguments and files that cannot be read. The time counts
from the start of the command. Of several boxes in a file the first unsafe one is the answer, and all must be safe.

Networks are evaluated in double precision, and a witness is printed only if the file's network itself, evaluated once
more, gives it unsafe outputs; strict comparisons count as strict there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from implicit_models.robustness.properties import Property

EXIT = {"unsat": 0, "sat": 1, "unknown": 3, "timeout": 4}
UNREADABLE = 2


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    start = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m implicit_models.robustness.verify",
        description="Prints unsat, sat with a witness, unknown or timeout, as in VNN-COMP.",
    )
    parser.add_argument("network", type=Path, help="ONNX file, or its gzip")
    parser.add_argument("property", type=Path, help="VNN-LIB file, or its gzip")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds from the start; no limit by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the answer, the witness and figures there")
    parser.add_argument("--progress", action="store_true", help="say on standard error how far the search is")
    options = parser.parse_args(arguments)
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        parser.error(f"--timeout must be a positive number of seconds, got {options.timeout}")
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.parent}")
    left = lambda: None if options.timeout is None else options.timeout - (time.monotonic() - start)
    try:
        report = answered(options.network, options.property, left, progress=options.progress)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"verify: {error}", file=sys.stderr)
        return UNREADABLE
    except Exception as error:  # Python's own status for it is that of `sat`
        print("unknown")
        print(f"verify: {type(error).__name__}: {error}", file=sys.stderr)
        return EXIT["unknown"]
    print(report["answer"])
    if report["witness"] is not None:
        print(as_text(report["witness"]["input"], report["witness"]["output"]))
    for reason in report["reasons"]:
        print(f"verify: {reason}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(report | {"seconds": time.monotonic() - start}, indent=2) + "\n")
    return EXIT[report["answer"]]


def answered(
    network: Path, conditions: Path, left: Callable[[], float | None], *, progress: bool = False
) -> dict[str, Any]:
    """What is said of a network and a file of properties.

    Args:
        network: ONNX file.
        conditions: VNN-LIB file.
        left: seconds that are left; None for no limit.
        progress: on standard error.

    Returns:
        answer, witness (input and output as lists, or None), reasons in words, and the figures of each box that was
        looked at.

    Raises:
        ImportError, OSError, TypeError, ValueError: for files that cannot be read or do not fit each other.
    """
    import torch

    from implicit_models.compose import from_network, network_from_onnx
    from implicit_models.robustness.verification.search import verify_property
    from implicit_models.robustness.vnnlib import read_vnnlib

    wanted = read_vnnlib(conditions)
    own = network_from_onnx(network).double()
    shape: Any = own.input_shape
    model = from_network(own, shape, dtype=torch.float64)
    for each in wanted:
        _check_sizes(each, model.in_features, model.out_features)
    out: dict[str, Any] = {"answer": "unsat", "witness": None, "network": str(network), "property": str(conditions)}
    out |= {"reasons": [], "boxes": []}
    for number, each in enumerate(wanted):
        where = f"box {number}: " if len(wanted) > 1 else ""
        rest = left()
        if rest is not None and rest <= 0:
            out["answer"] = "timeout"
            break
        found = verify_property(model, each, timeout=rest, progress=progress)
        out["boxes"].append(
            {
                "status": str(found.status),
                "bound": float(found.bound) if math.isfinite(found.bound) else None,
                "nodes": int(found.nodes),
                "seconds": float(found.seconds),
                "reason": found.reason,
            }
        )
        u = found.witness
        if u is not None:
            y = own(torch.from_numpy(u).reshape(1, *shape)).flatten().numpy()
            if is_witness(each, u, y):
                out["witness"] = {"input": u.tolist(), "output": y.tolist()}
                out["answer"] = "sat"
                break
            reason = "the network's own outputs of the witness are on the edge of the unsafe set"
        else:
            reason = found.reason or "neither safe nor unsafe was proved"
        if found.status != "safe":
            late = reason == "timeout"
            if not late:
                out["reasons"].append(where + reason)
            if out["answer"] != "timeout":
                out["answer"] = "timeout" if late else "unknown"
    return out


def _check_sizes(wanted: Property, p: int, q: int) -> None:
    given = (len(wanted.lower), wanted.unsafe[0].A.shape[1])
    if given != (p, q):
        raise ValueError(f"the property is of {given[0]} inputs and {given[1]} outputs, the network has {p} and {q}")


def is_witness(wanted: Property, u: np.ndarray, y: np.ndarray) -> bool:
    """Whether an input (p,) is in the box and its outputs (q,) are unsafe."""
    inside = bool(((wanted.lower <= u) & (u <= wanted.upper)).all())
    return inside and any(part.holds(y) for part in wanted.unsafe)


def as_text(u: list[float], y: list[float]) -> str:
    """A witness as the competition wants it: ((X_0 0.5) ... (Y_0 1.25) ...), numbers that read back exactly."""
    pairs = [f"({name}_{i} {number!r})" for name, numbers in (("X", u), ("Y", y)) for i, number in enumerate(numbers)]
    return f"({chr(10).join(pairs)})"


if __name__ == "__main__":
    sys.exit(main())
