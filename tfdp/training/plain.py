"""What a private model says of itself to Keras: that it is the plain model it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

# A mixin before a Keras model class, which brings what is not defined here.
_MIXIN: Any = object


class SavedAsPlain(_MIXIN):
    """Saves and describes a model as one of the class that ``make_private`` found it in."""

    _plain_class: Any = None  # what the model was before make_private

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves like Keras: the plain model, and its private optimizer with the ledger.

        ``keras.models.load_model(path)`` gives the plain model; ``make_private`` of it and
        ``compile`` go on with what was spent. Without tfdp, load it with ``compile=False``.
        """
        with self._as_plain_class():
            keras.Model.save(self, filepath, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration of the plain model."""
        with self._as_plain_class():
            if not isinstance(self, SavedAsPlain):
                return self.get_config()
        return super().get_config()

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> keras.Model:
        """Returns the plain model of a configuration."""
        plain = cls._plain_class
        if plain is not None:
            return plain.from_config(config, custom_objects)
        return super().from_config(config, custom_objects)

    @contextlib.contextmanager
    def _as_plain_class(self) -> Iterator[None]:
        private = type(self)
        self.__class__ = private._plain_class or private
        try:
            yield
        finally:
            self.__class__ = private
