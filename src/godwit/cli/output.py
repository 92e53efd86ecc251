"""Tables for people, JSON for scripts."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from godwit.errors import ConfigError


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def print_line(data: Any) -> None:
    """JSON in one line."""
    print(json.dumps(data), flush=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as they have to be; numbers to the right."""
    body = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
    numeric = [all(_is_number(row[i]) for row in body) and bool(body) for i in range(len(header))]
    for line in (list(header), ["-" * width for width in widths], *body):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def size(bytes: float) -> str:
    """
    >>> size(512), size(3 << 20)
    ('512 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if bytes < 1024 or unit == "TiB":
            return f"{bytes:.0f} B" if unit == "B" else f"{bytes:.1f} {unit}"
        bytes /= 1024
    raise AssertionError


def moment(seconds: float) -> str:
    """A time, given in seconds since 1970, as clocks here tell it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def check_directory(path: Path) -> None:
    """Refuse a path at which no directory can be."""
    for one in (path, *path.parents):
        if one.exists():
            if not one.is_dir():
                raise ConfigError(f"{one} is no directory")
            return


@contextmanager
def needs(what: str, dependency: str) -> Iterator[None]:
    """For imports that not all installations have."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what} need {dependency}: {error}") from None


def note(text: str) -> None:
    """To standard error, so that it does not disturb what is printed."""
    print(text, file=sys.stderr, flush=True)


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").lstrip("-").isdecimal() or text == "-"
