"""Pieces of HTML; every text is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def section(title: str, *content: str) -> str:
    """A card with a heading, or nothing if there is no content."""
    body = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of plain texts, or nothing."""
    items = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are."""
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f'<table class="facts">{lines}</table>'


def figures(rows: Iterable[tuple[str, str, bool]]) -> str:
    """A table of names and figures at the right; some rows stand out."""
    lines = "".join(
        f'<tr{_class("own" if own else "")}><th scope="row">{escape(name)}</th>'
        f"<td>{escape(value)}</td></tr>"
        for name, value, own in rows
    )
    return f'<table class="figures">{lines}</table>'


def grid(kind: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head; on a phone each row becomes a list of names and values."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = "".join(f"<tr>{_cells(names, row)}</tr>" for row in rows)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'


def folded(summary: str, content: str) -> str:
    """Content that opens on a touch."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"


def _cells(names: Sequence[str], row: Sequence[str]) -> str:
    return "".join(
        f'<td data-name="{escape(name)}">{escape(text)}</td>'
        for name, text in zip(names, row, strict=True)
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
