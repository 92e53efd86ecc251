"""What every page of an experiment has."""

import json
from html.parser import HTMLParser
from pathlib import Path

from lab.experiments.catalog import EXPERIMENTS
from lab.experiments.page import Findings, Page


class Parts(HTMLParser):
    """The tags of a page, and whatever it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.foreign += [
            value or ""
            for name, value in attributes
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]


def check_page(tmp_path: Path, name: str, findings: Findings) -> None:
    one = EXPERIMENTS[name]
    written = Page(one.name, one.question, findings).write(tmp_path)
    assert {path.suffix for path in written} == {".html", ".json", ".png"}
    numbers = json.loads((tmp_path / f"{name}.json").read_text())
    assert numbers["reports"].keys() == findings.reports.keys()
    assert numbers["environment"]["pyspark"]
    page = Parts()
    page.feed((tmp_path / f"{name}.html").read_text())
    pictures = [section for section in findings.sections if section.figure]
    assert page.tags.count("svg") == len(pictures) >= 1
    assert page.tags.count("table") == len([s for s in findings.sections if s.table]) >= 1
    assert page.foreign == []
