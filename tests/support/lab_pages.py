"""What a page of the lab has in it, as a browser would find it."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from lab.experiments.catalog import EXPERIMENTS
from lab.tools.page import Findings, Page


class PageParts(HTMLParser):
    """The tags of a page, its tables by the title above them, and what it would load from
    elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.foreign: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._title = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "h2":
            self._title = ""
        elif tag == "table":
            self.tables[self._title] = []
        elif tag == "tr":
            self.tables[self._title].append([])
        elif tag in ("td", "th"):
            self.tables[self._title][-1].append("")
        self.foreign += [
            value or ""
            for name, value in attributes
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]

    def handle_data(self, text: str) -> None:
        if self.tags[-1:] == ["h2"] and not self._title:
            self._title = text
        elif self.tags[-1:] in (["td"], ["th"]) and text.strip():
            self.tables[self._title][-1][-1] += text


def stored(name: str, findings: Findings) -> dict[str, Any]:
    """The numbers of an experiment, as whoever reads the file gets them."""
    one = EXPERIMENTS[name]
    numbers: dict[str, Any] = json.loads(
        json.dumps(Page(one.name, one.question, findings).numbers())
    )
    return numbers


def check_page(directory: Path, name: str, findings: Findings) -> None:
    """Draw all of it, and compare what is there with what was found."""
    one = EXPERIMENTS[name]
    written = Page(one.name, one.question, findings).write(directory)
    assert {path.suffix for path in written} == {".html", ".json", ".png"}
    numbers = json.loads((directory / f"{name}.json").read_text())
    assert numbers["reports"].keys() == findings.reports.keys()
    assert numbers["environment"]["pyspark"]
    page = PageParts()
    page.feed((directory / f"{name}.html").read_text())
    pictures = [section for section in findings.sections if section.figure]
    assert page.tags.count("svg") == len(pictures) == len(list(directory.glob("*.png"))) >= 1
    assert page.tables == {
        section.title: [list(section.table.header), *map(list, section.table.rows)]
        for section in findings.sections
        if section.table
    }
    assert page.foreign == []
