"""The page as a whole."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from string import Template
from typing import Any

from tfdp.privacy.html import guarantee, mechanism
from tfdp.privacy.html.style import STYLE

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Privacy report</title>
<style>$style</style>
</head>
<body>
<main>
$content
<footer>Schema version $schema. <code>tfdp.privacy.verify(folder)</code> says whether the report
agrees with its ledger.</footer>
</main>
</body>
</html>
""")

_SECTIONS = (
    guarantee.notes,
    guarantee.protection,
    guarantee.attack,
    guarantee.accountants,
    guarantee.against_updates,
    mechanism.mechanism,
    mechanism.not_covered,
    mechanism.assumptions,
    mechanism.counts,
    mechanism.ledger,
    mechanism.versions,
)


def render(values: Mapping[str, Any], made: datetime.date) -> str:
    """A privacy report for people: one HTML file without outside references or scripts.

    Args:
        values: of a `PrivacyReport`.
        made: the day of its making.
    """
    sections = [guarantee.headline(values, made), *(section(values) for section in _SECTIONS)]
    content = "\n".join(part for part in sections if part)
    return _PAGE.substitute(style=STYLE, content=content, schema=values["schema_version"])
