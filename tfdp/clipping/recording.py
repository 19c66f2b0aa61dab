"""Runs a model and keeps, for every use of a weight, what its per-example gradient needs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import CallKey, Mapping, Plan
from tfdp.clipping.rules import rule_for
from tfdp.clipping.rules.registry import Terms, replaced


@dataclasses.dataclass
class Tap:
    """Intermediates whose gradients give terms: ``terms(*gradients)``."""

    tensors: list[tf.Tensor]
    terms: Callable[..., Terms]


@dataclasses.dataclass
class Frame:
    """One running call of a layer."""

    key: CallKey
    layer: keras.layers.Layer
    by_rule: bool


class Recorder:
    """The taps of one forward pass.

    While ``recording()`` is open, the layers on the way to trainable weights report their calls.
    A call that the plan lists runs through its layer's rule, or is mapped over examples
    afterwards. Every read of a trainable weight must happen inside one of the two.

    Args:
      forward: The model.
      plan: How every call is handled.
      batch: The examples that the model runs on.
      watch: Called with every tensor whose gradient is needed.
      mapped: ``(recorder, frame, mapping, call, args, kwargs) -> outputs``: makes a call whose
        weights are mapped over examples.
    """

    def __init__(
        self,
        forward: Forward,
        plan: Plan,
        batch: Batch,
        watch: Callable[[tf.Tensor], None],
        mapped: Callable[..., Any] | None,
    ):
        self.forward = forward
        self.batch = batch
        self.taps: list[Tap] = []
        self.frames: list[Frame] = []
        self.counts: dict[int, int] = {}
        self._plan = plan
        self._watch = watch
        self._mapped = mapped
        self._trainable = {id(v) for v in forward.trainable}
        self._replayed: tuple[CallKey, dict[int, tf.Tensor]] | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block, calls of layers are reported."""
        with contextlib.ExitStack() as stack:
            for layer in self.forward.layers:
                stack.enter_context(replaced(layer, "call", self._wrap(layer, layer.call)))
                # Nothing that runs inside a rematerialized call could be tapped.
                stack.enter_context(replaced(layer, "_remat_mode", None))
            yield

    def value_of(self, variable: keras.Variable, value: tf.Tensor) -> tf.Tensor:
        """Notes a read of a variable; returns what is to be read."""
        if id(variable) not in self._trainable:
            return value
        key = self._responsible(id(variable))
        if key is None:
            self._uncovered(variable)
        if self._replayed is not None and self._replayed[0] == key:
            return self._replayed[1].get(id(variable), value)
        return value

    def tap(self, tensor: tf.Tensor, terms: Callable[[tf.Tensor], Terms]) -> tf.Tensor:
        """Asks for the gradient of a tensor; see ``register_rule``."""
        self.tap_all([tensor], terms)
        return tensor

    def tap_all(self, tensors: list[tf.Tensor], terms: Callable[..., Terms]) -> None:
        """Asks for the gradients of several tensors together."""
        for tensor in tensors:
            self._watch(tensor)
        self.taps.append(Tap(tensors, terms))

    @contextlib.contextmanager
    def replaying(
        self, frames: Sequence[Frame], counts: dict[int, int], watched: dict[int, tf.Tensor]
    ) -> Iterator[None]:
        """Within the block, the innermost of ``frames`` is called again.

        The weights that this call answers for read as ``watched``; calls inside it take the same
        keys as the first time, and nothing is tapped.
        """
        before = self.frames, self.counts, self._replayed
        self.frames, self.counts = list(frames), dict(counts)
        self._replayed = frames[-1].key, watched
        try:
            with self.recording():
                yield
        finally:
            self.frames, self.counts, self._replayed = before

    def _wrap(self, layer: keras.layers.Layer, call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapped(*args, **kwargs):
            count = self.counts[id(layer)] = self.counts.get(id(layer), 0) + 1
            key = (id(layer), count)
            frame = Frame(key, layer, self._runs_by_rule(key, layer))
            self.frames.append(frame)
            try:
                return self._run(frame, call, args, kwargs)
            finally:
                self.frames.pop()

        return wrapped

    def _run(self, frame: Frame, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self._replayed is not None:
            return call(*args, **kwargs)
        if frame.by_rule:
            if args and self._plan.widen:
                args = (keras.tree.map_structure(self._widened, args[0]), *args[1:])
            rule: Any = rule_for(frame.layer)
            return rule(frame.layer, call, self.tap, *args, **kwargs)
        mapping: Mapping | None = self._plan.mapped.get(frame.key)
        if mapping is not None and self._mapped is not None:
            return self._mapped(self, frame, mapping, call, args, kwargs)
        return call(*args, **kwargs)

    def _runs_by_rule(self, key: CallKey, layer: keras.layers.Layer) -> bool:
        return key in self._plan.by_rule

    def _responsible(self, variable: int) -> CallKey | None:
        """Returns the innermost running call that answers for a read of a weight."""
        for frame in reversed(self.frames):
            mapping = self._plan.mapped.get(frame.key)
            if frame.by_rule or (mapping is not None and variable in mapping.weights):
                return frame.key
        return None

    def _uncovered(self, variable: keras.Variable) -> None:
        raise AssertionError(
            f"The weight {variable.path} was read in another place than in the model check: "
            "the model's call must do the same on every trace."
        )

    def _widened(self, leaf: Any) -> Any:
        """Repeats what is the same for all examples, such as position ids of shape [1, T]."""
        count = self.batch.mask.shape[0]
        if not tf.is_tensor(leaf) or leaf.shape.rank in (None, 0) or leaf.shape[0] != 1:
            return leaf
        return leaf if count == 1 else tf.broadcast_to(leaf, [count, *leaf.shape[1:]])


class RecordingScope(keras.StatelessScope):
    """Stateless scope that reports every read of a variable to a recorder."""

    def __init__(self, recorder: Recorder, state_mapping: list, **options: Any):
        super().__init__(state_mapping=state_mapping, **options)
        self._recorder = recorder

    def get_current_value(self, variable):
        return self._recorder.value_of(variable, super().get_current_value(variable))
