"""The docs hold together: links lead somewhere, lines are short, no page is out of reach."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LONGEST = 110


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of code blocks."""
    code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have, as GitHub makes them."""
    headings = (line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#"))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = "\n".join(line for _, line in prose(page))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_short(page: Path) -> None:
    long = [
        number
        for number, line in prose(page)
        if len(line) > LONGEST and not line.startswith(("|", "- `.", "### `"))
        if "http" not in line
    ]
    assert long == []


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text()):
            if not link.startswith("http"):
                waiting.append((page.parent / link).resolve())
    assert [named(page) for page in PAGES if page not in seen] == []
