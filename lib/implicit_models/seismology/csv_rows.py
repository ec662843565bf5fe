"""CSV files of picks and of station lists: their text, header and rows, with the file and the row in every error."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from pathlib import Path


def content(path: Path) -> bytes:
    """The file's bytes, unpacked if its name ends in .gz.

    Raises:
        ValueError: not a whole gzip file.
    """
    raw = path.read_bytes()
    if path.suffix.lower() != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}") from error


def decoded(path: Path, raw: bytes) -> str:
    """The text of a file.

    Raises:
        ValueError: not UTF-8, with the row.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, row {line}: the text is not UTF-8 (byte 0x{raw[error.start]:02x})") from error


def records(path: Path, raw: bytes) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """Column names, and (line, column -> value) of every row that is not blank; values are stripped.

    Raises:
        ValueError: not UTF-8, columns not separated by commas, a row with more or fewer values than columns, or one
            that is no CSV.
    """
    reader = csv.reader(io.StringIO(decoded(path, raw), newline=""))
    header = [name.strip() for name in next(_lines(reader, path), [])]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise ValueError(f"{path}: columns must be separated by commas, got {header[0]!r}")
    return header, _rows(reader, header, path)


def _lines(reader, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(f"{path}, row {reader.line_num}: {error}") from error


def _rows(reader, header: list[str], path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    for values in _lines(reader, path):
        if not any(value.strip() for value in values):
            continue
        if len(values) != len(header):
            raise ValueError(f"{path}, row {reader.line_num}: {len(values)} values for {len(header)} columns")
        yield reader.line_num, {name: value.strip() for name, value in zip(header, values, strict=True)}


def check_doubled(header: list[str], known: tuple[str, ...], path: Path) -> None:
    """Refuse a header that has one of the known columns twice.

    Raises:
        ValueError: naming the column.
    """
    doubled = sorted({name for name in header if header.count(name) > 1 and name in known})
    if doubled:
        raise ValueError(f"{path}: column {doubled[0]} appears twice")


def number(text: str | float | None, name: str, where: str) -> float:
    """A number, finite or not; Python's digit grouping (1_000) is none.

    Raises:
        ValueError: not a number; the message starts with `where`.
    """
    try:
        if isinstance(text, str) and "_" in text:
            raise ValueError
        return float(text if text is not None else "")
    except ValueError:
        raise ValueError(f"{where}: {name} = {text!r} is not a number") from None


def finite(text: str, name: str, where: str) -> float:
    """`number`, refused if it is not finite."""
    value = number(text, name, where)
    if not math.isfinite(value):
        raise ValueError(f"{where}: {name} = {text!r} is not finite")
    return value
