"""Tables of results, for terminals and pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from godwit.cli.output import print_table


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows below a header, as texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def without_labels(self) -> "ResultTable":
        """Without the first column, which tells runs apart: one run needs none."""
        return ResultTable(self.header[1:], [row[1:] for row in self.rows])


def show_table(header: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print a table, with as many digits of its numbers as say something.

    >>> show_table(["keys", "epoch s"], [[30_000, 0.12345]], "Known keys:")
    Known keys:
      keys  epoch s
    ------  -------
    30,000    0.123
    <BLANKLINE>
    """
    if title:
        print(title)
    print_table(header, [[_cell(value) for value in row] for row in rows])
    print(flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
