"""A page that needs nothing but itself, with pictures and tables; and the same as numbers."""

import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from matplotlib import rc_context
from matplotlib.figure import Figure

from lab.tools.environment import environment
from lab.tools.tables import ResultTable

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em;
       color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .25em .8em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child, .text { text-align: left }
td:not(:first-child) { white-space: nowrap }
svg { width: 100%; height: auto }
footer { color: #666; font-size: .85em; margin-top: 3em }
"""
_SVG: Final[Any] = {"svg.fonttype": "path", "svg.hashsalt": "godwit"}


class Numbers(Protocol):
    """What a program can read."""

    def to_json(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: what it shows, and what to say of it."""

    title: str
    text: str = ""
    figure: Figure | None = None
    table: ResultTable | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, for people (`sections`) and for programs (`reports` of runs, by label, and
    other `numbers`)."""

    sections: Sequence[Section]
    reports: Mapping[str, Numbers] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a question, and what it was found with."""

    name: str
    question: str
    findings: Findings
    about: Mapping[str, str] = field(default_factory=environment)

    def write(self, directory: Path) -> list[Path]:
        """`NAME.html`, `NAME.json`, and a PNG of each picture; returns what was written."""
        directory.mkdir(parents=True, exist_ok=True)
        written = [directory / f"{self.name}.html", directory / f"{self.name}.json"]
        written[0].write_text(self.to_html())
        written[1].write_text(json.dumps(self.numbers()) + "\n")
        pictures = [section.figure for section in self.findings.sections if section.figure]
        for number, figure in enumerate(pictures, 1):
            figure.set_layout_engine("none")  # it is laid out as on the page
            written.append(directory / f"{self.name}-{number}.png")
            figure.savefig(written[-1], dpi=110)
        return written

    def numbers(self) -> dict[str, Any]:
        """All that was found, for programs."""
        reports = {label: one.to_json() for label, one in self.findings.reports.items()}
        found = {"question": self.question, "environment": self.about, "reports": reports}
        return found | dict(self.findings.numbers)

    def to_html(self) -> str:
        parts = [f"<h1>{html.escape(self.name)}</h1>", f"<p>{html.escape(self.question)}</p>"]
        for section in self.findings.sections:
            parts.append(f"<h2>{html.escape(section.title)}</h2>")
            parts += [f"<p>{html.escape(section.text)}</p>"] if section.text else []
            parts += [_svg(section.figure)] if section.figure else []
            parts += [_table(section.table)] if section.table else []
        told = ", ".join(f"{name} {value}" for name, value in self.about.items())
        parts.append(f"<footer>{html.escape(told)}</footer>")
        body = "\n".join(parts)
        title = html.escape(f"godwit: {self.name}")
        return (
            f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
            f"<style>{STYLE}</style>\n{body}\n</html>\n"
        )


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    with rc_context(_SVG):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _table(table: ResultTable) -> str:
    looks = ["" if all(map(_is_number, cells)) else ' class="text"' for cells in _columns(table)]
    lines = [
        "<tr>" + "".join(_cell(kind, *each) for each in zip(looks, row, strict=True)) + "</tr>"
        for kind, row in [("th", table.header), *(("td", row) for row in table.rows)]
    ]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _cell(kind: str, look: str, text: str) -> str:
    return f"<{kind}{look}>{html.escape(text)}</{kind}>"


def _columns(table: ResultTable) -> list[tuple[str, ...]]:
    return [*zip(*table.rows, strict=True)] or [()] * len(table.header)


def _is_number(cell: str) -> bool:
    """With its unit, or one that is not known.

    >>> [*map(_is_number, ["1,024", "-0.5 s", "25%", "-", "paced:20%", "q5"])]
    [True, True, True, True, False, False]
    """
    return cell in ("", "-") or cell.removeprefix("-")[0].isdecimal()
