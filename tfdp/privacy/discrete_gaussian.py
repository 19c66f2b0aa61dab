"""The discrete Gaussian, drawn exactly, in integers, from bits that a key expands to.

No draw depends on how a machine rounds: floating-point numbers only decide comparisons that are
far from close, and close ones are decided with as many bits as they need. The same key therefore
gives the same integers on every machine.
"""

from __future__ import annotations

import decimal
import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

#: Beyond it, integers over the deviation are not exact in float64.
MOST_DEVIATION = 2**52
_PROPOSALS = 2**16  # at a time
_FIRST_BITS, _SECOND_BITS = 31, 32  # of the two uniform numbers of a proposal, to begin with
# How far float64 figures are trusted: a logarithm below a hundred, and a probability in units of
# the last bit looked at. Their true errors are a thousandth of these.
_LOG_MARGIN, _MARGIN = 1e-9, 2.0**-8


def discrete_gaussian(count: int, deviation: int, seed: bytes) -> np.ndarray:
    """Draws integers with probabilities proportional to exp(-k^2 / (2 deviation^2)).

    Karney 2016, "Sampling exactly from the normal distribution", Algorithm D, for a mean of 0 and
    an integer deviation: |k| = deviation * n + j is proposed with probability exp(-n / 2) and
    uniform j, and accepted with probability exp(-((|k| / deviation)^2 - n) / 2). About 2.8
    proposals of 12 bytes make a number.

    Args:
        count: How many.
        deviation: A whole number from 1 to 2^52. The standard deviation is the same, but for a
            relative exp(-2 pi^2 deviation^2) (Canonne, Kamath and Steinke 2020).
        seed: Its SHAKE-128 stream, in counted blocks, supplies the bits.

    Returns:
        int64 ``[count]``.
    """
    if not 1 <= deviation <= MOST_DEVIATION:
        raise ValueError(f"deviation={deviation}: expected a whole number from 1 to 2^52.")
    drawn = np.empty(count, np.int64)
    filled = 0
    for block in _blocks(deviation, seed):
        if filled == count:
            break
        part = block[: count - filled]
        drawn[filled : filled + len(part)] = part
        filled += len(part)
    return drawn


def _blocks(deviation: int, seed: bytes) -> Iterator[np.ndarray]:
    """Yields draws without end, in pieces of varying length."""
    number = 0
    while True:
        yield _block(deviation, seed + number.to_bytes(8, "little"))
        number += 1


def _block(deviation: int, seed: bytes) -> np.ndarray:
    """Accepts and rejects one block of proposals."""
    kind = np.dtype("<u4" if deviation < 2**32 else "<u8")
    data = hashlib.shake_128(seed).digest(_PROPOSALS * (8 + kind.itemsize))
    first, second = np.frombuffer(data, "<u4", 2 * _PROPOSALS).reshape(2, _PROPOSALS)
    words = np.frombuffer(data, kind, _PROPOSALS, offset=8 * _PROPOSALS)

    negative, uniform = (first & 1).astype(bool), first >> 1
    parts = (words >> (8 * kind.itemsize - max(1, (deviation - 1).bit_length()))).astype(np.int64)
    # The whole part n is the number of half units in -log of the first uniform number.
    middles = uniform + 0.5
    halves = -2 * np.log(middles / 2.0**_FIRST_BITS)
    wholes = np.floor(halves).astype(np.int64)
    close = np.abs(halves - np.rint(halves)) < 2 / middles + _LOG_MARGIN

    sizes = wholes + parts / deviation
    probability = np.exp((wholes - sizes * sizes) / 2) * 2.0**_SECOND_BITS
    taken = second + 1.0 <= probability - _MARGIN
    close |= ~taken & (second < probability + _MARGIN)
    for i in np.flatnonzero(close):
        more = _extension(seed, int(i))
        wholes[i], taken[i] = _exactly(
            int(uniform[i]), int(second[i]), int(parts[i]), deviation, more
        )

    values = wholes * deviation + parts
    taken &= (parts < deviation) & ~(negative & (values == 0))  # one zero, not two
    return np.where(negative, -values, values)[taken]


def _exactly(
    uniform: int, second: int, part: int, deviation: int, more: Callable[[int, int], int]
) -> tuple[int, bool]:
    """Decides one proposal without rounding: its whole part, and whether it is accepted."""
    first = _Uniform(uniform, _FIRST_BITS, lambda n: more(0, n))
    whole = 0
    while first.below_exp(Fraction(whole + 1, 2)):
        whole += 1
    exponent = (Fraction(whole * deviation + part, deviation) ** 2 - whole) / 2
    return whole, _Uniform(second, _SECOND_BITS, lambda n: more(1, n)).below_exp(exponent)


class _Uniform:
    """A uniform real number in [0, 1), of which more bits are drawn when they are needed."""

    def __init__(self, value: int, bits: int, more: Callable[[int], int]):
        self._value, self._bits, self._more = value, bits, more
        self._extended = 0

    def below_exp(self, exponent: Fraction) -> bool:
        """Whether it is below exp(-exponent), for exponent >= 0; the answer is never rounded."""
        while exponent:
            with decimal.localcontext(prec=self._bits // 3 + 20):
                power = -decimal.Decimal(exponent.numerator) / exponent.denominator
                found = Fraction(power.exp())
            error = found * (1 + exponent) / 10 ** (self._bits // 3 + 10)
            if Fraction(self._value + 1, 2**self._bits) <= found - error:
                return True
            if Fraction(self._value, 2**self._bits) >= found + error:
                return False
            self._value = self._value << 64 | self._more(self._extended)
            self._bits += 64
            self._extended += 1
        return True


def _extension(seed: bytes, proposal: int) -> Callable[[int, int], int]:
    """Returns what draws more bits of a proposal: (which uniform, how many before) -> 64 bits."""

    def more(which: int, number: int) -> int:
        name = f"/more/{proposal}/{which}/{number}".encode()
        return int.from_bytes(hashlib.shake_128(seed + name).digest(8), "little")

    return more
