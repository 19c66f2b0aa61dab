"""The sections on how the guarantee comes about, what it rests on and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from tfdp.privacy._report_scope import of_units
from tfdp.privacy._report_text import clipping_words, sampling_words
from tfdp.privacy.html import parts
from tfdp.privacy.html.numbers import count, figure, percent

Values = Mapping[str, Any]


def mechanism(v: Values) -> str:
    """Noise and sampling, in figures."""
    return parts.section("Noise and sampling", parts.facts(_mechanism(v)))


def _mechanism(v: Values) -> Iterator[tuple[str, str]]:
    one = of_units("record", v)
    yield "Noise multiplier", figure(v["noise_multiplier"], 5)
    yield "Clip norm (ℓ₂)", figure(v["l2_norm_clip"])
    yield "Clipping", clipping_words(v)
    if v.get("sensitivity") is not None:
        yield "Sensitivity", f"one {one} moves the sum by at most {figure(v['sensitivity'])}"
    yield "Noise", f"standard deviation {figure(v['noise_standard_deviation'], 5)} on the sum"
    yield "Mechanism", v["noise_mechanism"]
    yield "Convention", v["noise_convention"]
    yield "Sampling", f"{sampling_words(v)} ({v['sampling']})"
    yield (
        "Rate",
        f"q = {count(v['expected_batch_size'])} / {count(v['num_examples'])} = "
        f"{figure(v['sampling_probability'])}",
    )
    yield "Expected batch", f"{count(v['expected_batch_size'])} {one}s"
    yield "Updates", f"{count(v['steps'])} made, {count(v['planned_steps'])} planned"
    yield "Epochs", f"each {one} used {figure(v['expected_epochs'])} times on average"
    if v["expected_coverage"] is not None:
        yield "Coverage", f"{percent(v['expected_coverage'])} of the {one}s used at least once"
    target = v["target_epsilon"]
    yield "Target", "none was set" if target is None else f"ε = {figure(target)}"


def not_covered(v: Values) -> str:
    """What the guarantee does not speak of."""
    return parts.section("What is not covered", parts.bullets(v["not_covered"]))


def assumptions(v: Values) -> str:
    """What must be true for the figure to hold."""
    return parts.section(
        "What the figure rests on",
        parts.bullets(v.get("assumptions") or ()),
    )


def counts(v: Values) -> str:
    """Further counts, which come from the private records."""
    found = v.get("counts") or {}  # a report that was given away may come without them
    if not any(found.values()):
        return ""
    return parts.section(
        "Counts",
        parts.facts((str(name).replace("_", " "), _plain(c)) for name, c in found.items()),
        parts.paragraph(
            "Taken from the private records without noise, for those who hold the data.", "soft"
        ),
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(item)}" for name, item in value.items()) or "none"
    return str(value)


def ledger(v: Values) -> str:
    """Every segment of the ledger."""
    names = ("Began (UTC)", "Updates", "Batch", "Noise multiplier", "Clip norm", "Segment")
    table = parts.grid("ledger", names, (_segment(entry) for entry in v["segments"]))
    if not v["segments"]:
        table = parts.paragraph("It is empty: no update has been made.")
    elif len(v["segments"]) > 12:
        table = parts.folded(f"{count(len(v['segments']))} segments", table)
    return parts.section("Ledger", table)


def _segment(entry: Values) -> tuple[str, ...]:
    settings = entry["settings"]
    return (
        str(entry["started"]).replace("T", " ").removesuffix("+00:00"),
        count(entry["steps"]),
        f"{count(settings['batch_size'])} of {count(settings['num_examples'])}, "
        f"{settings['sampling']}",
        figure(settings["noise_multiplier"], 5),
        figure(settings["clip_norm"]),
        str(entry["id"]),
    )


def versions(v: Values) -> str:
    """The code behind the figures, and tensorflow-privacy's own words."""
    rows = [
        (name, str(version or "not installed"), False) for name, version in v["versions"].items()
    ]
    statement = v["tensorflow_privacy_statement"]
    own_words = f"<pre>{escape(statement)}</pre>" if statement else ""
    return parts.section(
        "Versions",
        parts.figures(rows),
        parts.folded("The statement of tensorflow-privacy", own_words) if own_words else "",
    )
