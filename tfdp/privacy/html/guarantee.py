"""The sections on the guarantee: whom it protects, from whom, and how well."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from html import escape
from typing import Any

from tfdp.privacy import _report_scope as scope
from tfdp.privacy import interpretation
from tfdp.privacy.html import parts
from tfdp.privacy.html.chart import chart
from tfdp.privacy.html.curve import curves
from tfdp.privacy.html.numbers import count, figure, percent

Values = Mapping[str, Any]


def headline(v: Values, made: datetime.date) -> str:
    """The figure itself, what it means in a sentence, and when the report was made."""
    if math.isinf(v["epsilon"]):
        title = "No guarantee"
        meaning = "Epsilon is infinite: these settings hide nobody."
    else:
        title = (
            f"<span>ε = {figure(v['epsilon'])}</span> <span>at δ = {figure(v['delta'], 3)}</span>"
        )
        meaning = (
            f"An attacker who falsely accuses 1% of those who were not in the data can recognise "
            f"at most {percent(v['attacker_true_positive_rate']['0.01'])} of those who were."
        )
    kind = f'<p class="kind">Privacy report, made on {made.isoformat()}</p>'
    return f"<header>\n{kind}\n<h1>{title}</h1>\n<p>{escape(meaning)}</p>\n</header>"


def notes(v: Values) -> str:
    """What the reader must not miss."""
    if not v["notes"]:
        return ""
    return f'<div class="notes" role="note">\n<h2>Note</h2>\n{parts.bullets(v["notes"])}\n</div>'


def protection(v: Values) -> str:
    """The unit, the neighbours, the attacker and what they may see."""
    return parts.section(
        "What is protected, and against whom",
        parts.facts(
            [
                ("Protected", str(v["unit"])),
                ("Adjacency", f"{scope.adjacency_words(v)} ({v['adjacency']})"),
                ("Against", scope.attacker_words(v)),
                ("Covered", scope.covered_words(v)),
                ("Meaning", _meaning(v)),
                *_groups(v),
                *_public(v),
            ]
        ),
    )


def _groups(v: Values) -> list[tuple[str, str]]:
    """What the guarantee is worth to several units that belong together."""
    found = [f"{size}: ε ≤ {figure(epsilon)}" for size, epsilon in v["epsilon_of_groups"].items()]
    return [(f"Several {scope.group_words(v)}", ", ".join(found))] if found else []


def _meaning(v: Values) -> str:
    text = interpretation.meaning(v["epsilon"], v["delta"], scope.of_units("record", v))
    return text[0].upper() + text[1:]


def _public(v: Values) -> list[tuple[str, str]]:
    return [("Public data", f"{name}: costs nothing") for name in v["public_data"]]


def attack(v: Values) -> str:
    """The attacker's best rates, beside what guessing reaches."""
    rates = v["attacker_true_positive_rate"]
    cells = "".join(
        f'<div><b>{percent(rates[rate])}</b><div class="bar">'
        f'<i style="width:{100 * rates[rate]:.2f}%"></i></div>'
        f'<span class="soft">at {words} false positives; guessing finds {words}</span></div>'
        for rate, words in (("0.01", "1%"), ("0.001", "0.1%"))
    )
    return parts.section(
        "The best an attacker can do",
        parts.paragraph(
            scope.of_units(
                "The largest true-positive rate that any test of whether a record was used can "
                "have:",
                v,
            )
        ),
        f'<div class="attack">{cells}</div>',
        parts.paragraph(
            "These are limits that the guarantee proves, not attacks that were made; usual attacks "
            "find far fewer.",
            "soft",
        )
        if math.isfinite(v["epsilon"])
        else "",
    )


def accountants(v: Values) -> str:
    """Epsilon by each accountant."""
    rows = [
        ("PLD (dp-accounting)", v["epsilon_pld"]),
        ("RDP (tensorflow-privacy)", v["epsilon_rdp"]),
        ("exact Gaussian", v["epsilon_gaussian"]),
        ("without amplification by sampling", v["epsilon_without_amplification"]),
    ]
    known = v["accountant"] in ("none", *(title for title, _ in rows))
    return parts.section(
        "Epsilon by accountant",
        parts.figures(
            [
                *([] if known else [(v["accountant"], figure(v["epsilon"]), True)]),
                *((title, figure(value), title == v["accountant"]) for title, value in rows),
            ]
        ),
        parts.paragraph(
            f"The accountants' figures are upper bounds at δ = {figure(v['delta'], 3)}, and all "
            "hold; the report states the one in bold. The last line is what passes over the data "
            "in an order that hides nothing would have cost.",
            "soft",
        ),
    )


def against_updates(v: Values) -> str:
    """The curve, and its points as a table."""
    found = curves(v)
    drawing = chart(found, v["target_epsilon"])
    if not drawing:
        return ""
    keys = "".join(
        f'<span><i class="key{"" if number == 0 else " other"}"></i>{escape(curve.title)}</span>'
        for number, curve in enumerate(found)
    )
    own = found[0]
    points = parts.figures(
        (f"{count(n)} steps", figure(e), False)
        for n, e in zip(own.steps, own.epsilons, strict=True)
    )
    return parts.section(
        "Epsilon against steps",
        f"<figure>\n{drawing}\n<figcaption>{keys}</figcaption>\n</figure>",
        parts.folded("The points of the curve", points),
    )
