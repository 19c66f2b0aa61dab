"""Which ledgers hold the steps that trained a variable."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from tfdp.privacy.ledger import Ledger


class _Spender:
    """A ledger whose steps trained a variable; its content outlives it."""

    def __init__(self, ledger: Ledger):
        self.ledger = weakref.ref(ledger)
        self._last = ledger.to_dict()

    def content(self) -> dict[str, Any]:
        """Returns the ledger's entries, as plain values."""
        ledger = self.ledger()
        if ledger is not None:
            self._last = ledger.to_dict()
        return self._last


# By identity: Keras variables cannot be keys. An entry leaves with its variable.
_spenders: dict[int, list[_Spender]] = {}


def note_training(variables: Iterable[Any], ledger: Ledger) -> None:
    """Remembers that steps of these variables are recorded in this ledger."""
    own = _Spender(ledger)
    for variable in variables:
        if id(variable) not in _spenders:
            _spenders[id(variable)] = []
            weakref.finalize(variable, _spenders.pop, id(variable), None)
        spenders = _spenders[id(variable)]
        for spender in spenders:
            spender.content()  # while it is there to be asked
        if all(spender.ledger() is not ledger for spender in spenders):
            spenders.append(own)


def spending_elsewhere(
    variables: Iterable[Any], ledger: Ledger
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields the variables that steps outside this ledger have trained, and their ledgers."""
    ours = {entry.id: entry.steps for entry in ledger.entries}
    for variable in variables:
        for spender in _spenders.get(id(variable), ()):
            content = spender.content()
            if any(ours.get(entry["id"], 0) < entry["steps"] for entry in content["segments"]):
                yield variable, content
