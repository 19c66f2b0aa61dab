"""Saves a private model as the plain Keras model that it was made from."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdp.privacy import Ledger, PrivacyReport
from tfdp.privacy.ledger import FILE_NAME as LEDGER
from tfdp.privacy.report import FILE_NAME as REPORT
from tfdp.training.compiled import Compiled

_PAGE = "privacy_report.html"
_SAVED_MODEL = "tf_saved_model"

# A mixin before a Keras model class, which brings what is not defined here.
_MIXIN: Any = object


class SavedAsPlain(_MIXIN):
    """Saves and describes a model as one of the class that ``make_private`` found it in."""

    _plain_class: Any = None  # what the model was before make_private
    _private: Compiled | None = None  # what compile fixed

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves like Keras: the plain model, and its private optimizer with the ledger.

        ``keras.models.load_model(path)`` gives the plain model; ``make_private`` of it and
        ``compile`` go on with what was spent. Without tfdp, load it with ``compile=False``.
        """
        with self._own_ledger(), self._as_plain_class():
            keras.Model.save(self, filepath, *args, **kwargs)

    def export(self, filepath: Any, format: str = _SAVED_MODEL, *args: Any, **kwargs: Any) -> None:
        """Exports like Keras; a SavedModel takes the ledger and the privacy report along.

        They are in its ``assets``, where ``tfdp.export.read_report(filepath)`` finds the report
        and ``tfdp.privacy.verify(filepath + "/assets")`` verifies it. Exact counts of private
        examples are not included. Without a plan there is a ledger and no report, and before
        ``compile`` there is neither. Files of other formats cannot hold them.
        """
        super().export(filepath, format, *args, **kwargs)
        if self._private is None:
            return
        if format == _SAVED_MODEL:
            _write_spending(self, os.path.join(os.fspath(filepath), "assets"))
        else:
            logging.getLogger(__name__).warning(
                "A model in format %r carries no ledger and no privacy report: publish the result "
                "of privacy_report() beside it.",
                format,
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration of the plain model."""
        with self._as_plain_class():
            if not isinstance(self, SavedAsPlain):
                return self.get_config()
        return super().get_config()

    def get_compile_config(self) -> dict[str, Any]:
        """Returns how the model was compiled, with the model's ledger in the optimizer."""
        with self._own_ledger():
            return super().get_compile_config()

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> keras.Model:
        """Returns the plain model of a configuration."""
        plain = cls._plain_class
        if plain is not None:
            return plain.from_config(config, custom_objects)
        return super().from_config(config, custom_objects)

    def _own_ledger(self) -> contextlib.AbstractContextManager[None]:
        """The optimizer with this model's ledger, for what Keras writes of it."""
        return contextlib.nullcontext() if self._private is None else self._private.own_ledger()

    @contextlib.contextmanager
    def _as_plain_class(self) -> Iterator[None]:
        private = type(self)
        self.__class__ = private._plain_class or private
        try:
            yield
        finally:
            self.__class__ = private


def _write_spending(model: Any, folder: str) -> None:
    """Writes ledger, report and its page, through TensorFlow: models may lie in a remote store."""
    with tempfile.TemporaryDirectory() as scratch:
        with Ledger(scratch) as copy:
            copy.merge(model.ledger)
        if model.privacy is not None and model.privacy.delta is not None:
            values = model.privacy_report().values
            # Counts are exact facts about private data: they stay with whoever holds the data.
            report = PrivacyReport({key: values[key] for key in values if key != "counts"})
            report.write_json(os.path.join(scratch, REPORT))
            report.write_html(os.path.join(scratch, _PAGE))
        tf.io.gfile.makedirs(folder)
        for name in (LEDGER, REPORT, _PAGE):
            written, target = os.path.join(scratch, name), os.path.join(folder, name)
            if os.path.exists(written):
                tf.io.gfile.copy(written, target, overwrite=True)
            elif tf.io.gfile.exists(target):  # of an earlier model in the same place
                tf.io.gfile.remove(target)
