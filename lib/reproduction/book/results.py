"""Measured values of a notebook: recorded once, quoted by pages, compared with the committed full run.

A notebook records every value that a page or a claim quotes. `publish` puts them into the executed notebook as one
structured output, from which the runner writes `book/_executed/NAME.json` and, for the full profile,
`results/NAME.json` with its provenance.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduction.book.graph import ROOT

MIME = "application/vnd.implicit-models.results+json"
RESULTS = ROOT / "results"
EXECUTED = ROOT / "book" / "_executed"


def plain(value: Any) -> Any:
    """NumPy and torch scalars and arrays as JSON values; infinities and NaN as the texts 'inf', '-inf', 'nan'.

    Raises:
        TypeError: when the value has no JSON form, or two keys have the same text.
    """
    if isinstance(value, (str, bool, type(None))):
        return value
    if isinstance(value, Mapping):
        found = {str(key): plain(item) for key, item in value.items()}
        if len(found) < len(value):
            raise TypeError(f"two keys of a mapping have one text, so that a value would be lost: {list(value)!r}")
        return found
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}: {value!r}")


def numbers(values: Any) -> list[float]:
    """A recorded entry as a flat list of floats ('inf' and 'nan' read back)."""
    if isinstance(values, (list, tuple)):
        return [number for item in values for number in numbers(item)]
    return [float(values)]


@dataclass
class Results:
    """Values that one run of a notebook measured.

    Args:
        notebook: name without suffix.
        profile: "quick" or "full".
        seeds: the seeds that the run used; a recorded list holds one number a seed.
    """

    notebook: str
    profile: str
    seeds: Sequence[int]
    values: dict[str, Any] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)
    withheld: str = ""

    def withhold(self, reason: str) -> None:
        """Publish no value of this run, since it does not measure what the papers measured (a stand-in data set,
        say)."""
        self.withheld = reason

    def record(self, key: str, values: Any, unit: str = "") -> None:
        """Record a value (a number, a text, or one number a seed) under a key.

        Raises:
            ValueError: when the key is taken, since one of the two values would be lost.
        """
        if key in self.values:
            raise ValueError(f"{self.notebook}: {key!r} is recorded twice")
        self.values[key] = plain(values)
        self.units[key] = unit

    def record_all(self, values: Mapping[str, Any], unit: str = "") -> None:
        """Record several values, in the order in which they are given.

        Args:
            values: key -> what `record` takes, or a pair (value, unit).
            unit: of the values that are given without one.

        Raises:
            ValueError: when a key is taken.
        """
        for key, value in values.items():
            # two texts are a value, since a text has no unit
            paired = isinstance(value, tuple) and [isinstance(part, str) for part in value] == [False, True]
            self.record(key, *(value if paired else (value, unit)))

    def record_curve(self, key: str, curve: Any) -> None:
        """Record the data behind a figure (any nesting of mappings, lists and numbers)."""
        if key in self.curves:
            raise ValueError(f"{self.notebook}: curve {key!r} is recorded twice")
        self.curves[key] = plain(curve)

    def record_curves(self, curves: Mapping[str, Any]) -> None:
        """Record the data behind several figures, key -> what `record_curve` takes."""
        for key, curve in curves.items():
            self.record_curve(key, curve)

    def content(self, *, withheld: bool = False) -> dict[str, Any]:
        """All that was recorded, as it stands in a results file.

        Args:
            withheld: include values that are withheld (for a figure of this run, never for a verdict).
        """
        hidden = bool(self.withheld) and not withheld
        return {
            "notebook": self.notebook,
            "profile": self.profile,
            "seeds": list(self.seeds),
            "values": {} if hidden else self.values,
            "units": {} if hidden else {key: unit for key, unit in self.units.items() if unit},
            "curves": {} if hidden else self.curves,
            "withheld": self.withheld,
        }

    def publish(self) -> None:
        """Emit the recorded values as one output of the current cell, for the runner to read (needs IPython)."""
        from IPython.display import publish_display_data

        payload = self.content()
        json.dumps(payload, allow_nan=False)
        publish_display_data({MIME: payload, "text/plain": f"{len(payload['values'])} values of {self.notebook}"})

    def full(self) -> dict[str, Any] | None:
        """The committed full run of this notebook, or None when there is none yet."""
        return load(RESULTS / f"{self.notebook}.json")

    def cost(self) -> str:
        """What the trainings of this run and of the committed full run took, as one sentence each."""
        lines = []
        for label, source in (("this run", self.content(withheld=True)), ("committed full run", self.full())):
            seconds = (source or {"values": {}})["values"].get("training_cpu_seconds")
            if seconds is None:
                lines.append(f"{label}: none")
            else:
                lines.append(
                    f"{label}: {source['profile']} profile, {len(source['seeds'])} seeds, {float(seconds):.0f} CPU"
                    " seconds of training"
                )
        return "\n".join(lines)

    def table(self):
        """Median and range of every value in this run beside the committed full run, as a DataFrame."""
        import pandas as pd

        # A stand-in data set is not comparable with the committed run.
        full = {"values": {}} if self.withheld else self.full() or {"values": {}}
        rows = {}
        for key in self.values:
            rows[key] = {
                f"this run ({self.profile}, {len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''})": summary(
                    self.values[key]
                ),
                "committed full run": summary(full["values"][key]) if key in full["values"] else "none",
                "unit": self.units[key],
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def rows(
        self,
        parts: Mapping[Any, str],
        columns: Mapping[str, str],
        *,
        corner: str | Sequence[str] = "",
        texts: Mapping[Any, Mapping[str, Any]] | None = None,
        digits: int = 3,
    ):
        """Median and range of recorded values as a DataFrame, one key a cell.

        It only shows: labels and texts enter no key of the notebook's results.

        Args:
            parts: label of a row -> its part of the keys; labels that are tuples make an index of several levels. No
                rows are an empty table.
            columns: label of a column -> its keys, with `{}` where the row's part stands; a cell without a value is
                empty.
            corner: what the rows are, above their labels; one text a level where these are tuples.
            texts: label of a row -> label of a column -> what stands there instead. Rows and columns that only occur
                here come last.
            digits: of a number that is not whole.

        Raises:
            KeyError: when no row has a recorded value in a column, naming the column's key.
        """
        import pandas as pd

        table: dict[Any, dict[str, Any]] = {row: {} for row in parts}
        for column, pattern in columns.items():
            keys = {row: pattern.format(part) for row, part in parts.items()}
            if keys and not any(key in self.values for key in keys.values()):
                raise KeyError(
                    f"{self.notebook}: no value is recorded under {pattern!r} for {', '.join(parts.values())}"
                )
            for row, key in keys.items():
                table[row][column] = summary(self.values[key], digits) if key in self.values else ""
        for row, cells in (texts or {}).items():
            table.setdefault(row, {}).update(cells)
        if not table:
            return pd.DataFrame(columns=list(columns))
        return pd.DataFrame.from_dict(table, orient="index").fillna("").rename_axis(corner or None)


def summary(values: Any, digits: int = 3) -> str:
    """Median and, for several numbers, their range as text: '1.2e-07 [1.0e-07, 3.1e-07]'."""
    if isinstance(values, (str, bool, type(None))) and values not in ("inf", "-inf", "nan"):
        return str(values)
    sample = numbers(values)

    def text(value: float) -> str:
        # Counts are shown whole: 43498 parameters, not 4.35e+04.
        return (
            f"{value:.0f}"
            if math.isfinite(value) and value == round(value) and abs(value) < 1e6
            else f"{value:.{digits}g}"
        )

    if len(sample) == 1:
        return text(sample[0])
    return f"{text(statistics.median(sample))} [{text(min(sample))}, {text(max(sample))}]"


def load(path: Path) -> dict[str, Any] | None:
    """A results file, or None when it does not exist.

    Raises:
        ValueError: when the file is no JSON object, naming it.
    """
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name}: not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: holds {type(content).__name__}, wanted an object")
    return content


def measured(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a run measured: its content without where, when and at which commit that was."""
    return {key: value for key, value in content.items() if key not in ("provenance", "confirmed")}


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a results file in one step, so that a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(part, path)
