"""How results show themselves: shapes, ranges and outcomes on one screen, in place of the arrays.

A summary has at most `LINES` lines of at most `COLUMNS` characters; what does not fit ends in an ellipsis.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

LINES, COLUMNS = 12, 100
KINDS = 6  # different words of an array of words that are counted one by one
READ_UP_TO = 10_000_000  # entries: the range of a larger array, perhaps a memory map, is not read for a summary


def cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: columns - 1] + "…"


def array_text(M: Any) -> str:
    """Kind, dtype, shape and range of an array, dense or sparse, NumPy, SciPy or torch."""
    if _is_tensor(M):
        return _tensor_text(M)
    if hasattr(M, "nnz"):  # SciPy
        return f"{M.format} {M.dtype} {tuple(M.shape)}, {M.nnz} stored" + _range(M.data)
    return f"{'text' if M.dtype.kind in 'USO' else M.dtype} {M.shape}" + _range(M)


def _is_tensor(M: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(M, torch.Tensor)


def _tensor_text(M: Any) -> str:
    dtype, place = str(M.dtype).removeprefix("torch."), "" if M.device.type == "cpu" else f" on {M.device}"
    text = f"{dtype} {tuple(M.shape)}{place}"
    if M.device.type == "meta":
        return text
    M = M.detach()
    if str(M.layout) == "torch.sparse_csr":
        M = M.values()
        text = f"csr {text}, {M.numel()} stored"
    if M.numel() > READ_UP_TO:
        return f"{text}, range not read"
    try:
        return text + _range((M.double() if M.dtype.is_floating_point else M).cpu().numpy())
    except RuntimeError:  # inside a transform of torch.func, say: there are no values to read
        return text


def _range(M: np.ndarray) -> str:
    if M.size == 0 or M.dtype.kind == "V":
        return ""
    if M.size > READ_UP_TO:
        return ", range not read"
    M = np.asarray(M)
    if M.dtype.kind == "b":
        return f", {np.count_nonzero(M)} true"
    if M.dtype.kind in "USO":
        words, counts = np.unique(M.astype(str), return_counts=True)
        most = np.argsort(-counts, kind="stable")[:KINDS]
        more = ", …" if words.size > KINDS else ""
        return ": " + ", ".join(f"{counts[k]} {words[k]}" for k in most) + more
    if M.dtype.kind in "mM":
        return f", {M.min()} to {M.max()}"
    lost = int(np.isnan(M).sum()) if M.dtype.kind in "fc" else 0
    if M.dtype.kind == "c":
        return f", {lost} NaN" if lost else ""
    ends = "" if lost == M.size else f", {_number(np.nanmin(M))} to {_number(np.nanmax(M))}"
    return ends + (f", {lost} NaN" if lost else "")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def value_text(value: Any) -> str:
    """One line on any value: the text of an array, counts of collections, the kind of an object."""
    if isinstance(value, np.ndarray) or _is_tensor(value) or hasattr(value, "nnz") and hasattr(value, "format"):
        return array_text(value)
    if isinstance(value, (float, np.floating)):
        return _number(value)
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {value_text(v)}" for k, v in value.items()) or "none"
    if isinstance(value, (tuple, list)):
        plain = all(isinstance(v, (str, int, float, np.number)) for v in value)
        if plain:
            return ", ".join(value_text(v) for v in value) or "none"
        kinds = ", ".join(sorted({type(v).__name__ for v in value}))
        return f"{len(value)} of {kinds}"
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return f"{len(value)} rows of {', '.join(map(str, value.columns))}"
    if hasattr(value, "named_parameters"):
        return f"{type(value).__name__}, {sum(p.numel() for p in value.parameters())} parameters"
    if dataclasses.is_dataclass(value) or not isinstance(value, (int, type(None))):
        return " ".join(repr(value).split()) if dataclasses.is_dataclass(value) else type(value).__name__
    return repr(value)


def summary(result: Any, *names: str, **more: Any) -> str:
    """Text of a result: its class, then a line for each attribute of these names (all fields of a dataclass if there
    are none), then a line for each further value."""
    if not names and dataclasses.is_dataclass(result):
        names = tuple(f.name for f in dataclasses.fields(result) if f.repr and not f.name.startswith("_"))
    parts = {name: value_text(getattr(result, name)) for name in names}
    parts |= {name: value_text(value) for name, value in more.items()}
    width = max(map(len, parts), default=0)
    lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in parts.items()]
    if len(lines) >= LINES:
        lines = [*lines[: LINES - 2], f"  … {len(lines) - LINES + 2} more"]
    return "\n".join([type(result).__name__, *(cut(line, COLUMNS) for line in lines)])
