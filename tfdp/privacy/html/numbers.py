"""Numbers as people write them."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def figure(value: float | None, digits: int = 4) -> str:
    """At most so many digits, powers of ten for what is very small or very large."""
    if value is None:
        return "no answer"
    if math.isinf(value):
        return "∞"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa} × {power}"


def count(value: float) -> str:
    """A whole number, in groups of three digits."""
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """A share of one, never rounded to none or all of them."""
    text = f"{share:.2%}"
    if text == "100.00%" and share < 1:
        return "more than 99.99%"
    return text if text != "0.00%" or share == 0 else f"{100 * share:.1g}%"


def ticks(top: float, wanted: int = 5) -> list[float]:
    """Round numbers from 0 to `top` or less, about as many as wanted."""
    rough = top / wanted
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough * 0.999)
    return [step * number for number in range(math.floor(top / step * 1.0001) + 1)]
