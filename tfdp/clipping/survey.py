"""Finds out how the per-example gradients of a model's weights can be had.

The model is traced twice with different numbers of examples. A tensor leads with the batch axis if
its first axis has the number of examples both times; that its size happens to be the batch size
proves nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping.examples import Batch
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import CallKey, Mapping, Plan
from tfdp.clipping.microbatch_size import ExampleMemory, activation_bytes
from tfdp.clipping.recording import Frame, Recorder, RecordingScope
from tfdp.clipping.rejections import reject_unseeded_draws, reject_writes
from tfdp.clipping.rules import rule_for
from tfdp.clipping.terms import Term
from tfdp.clipping.xla import beyond_xla, mostly_plain_convolutions

_EXAMPLES = (2, 3)

Shape = tuple[int | None, ...]


@dataclasses.dataclass
class Call:
    """What is seen of one call of a layer.

    ``arguments``, ``outputs`` and ``taps`` hold one shape a tensor, None for a tensor that a
    gradient cannot reach from outside, such as one in the body of a loop.
    """

    frame: Frame
    graph: tf.Graph
    outside: bool
    arguments: list[Shape]
    random: bool = False
    operations: range = range(0)
    outputs: list[Shape] = dataclasses.field(default_factory=list)
    taps: list[Shape | None] = dataclasses.field(default_factory=list)
    pending: list[tuple] = dataclasses.field(default_factory=list)
    read: set[int] = dataclasses.field(default_factory=set)
    terms: list[tuple[int, Term]] = dataclasses.field(default_factory=list)


def survey(forward: Forward, batch: Batch) -> Plan:
    """Returns how every call is handled; ``batch`` gives structure, shapes and dtypes.

    Raises:
      UnsupportedLayerError: The model writes to something past the noise.
    """
    try:
        return _survey(forward, batch, widen=True)
    except (ValueError, tf.errors.InvalidArgumentError):
        # Repeating an input for every example may not suit what the model does with the output.
        return _survey(forward, batch, widen=False)


def _survey(forward: Forward, batch: Batch, widen: bool) -> Plan:
    fewer, more = (_trace(forward, batch, count, widen) for count in _EXAMPLES)
    activations = activation_bytes(fewer.graph, more.graph)  # before one graph alone grows
    plan = _plan(fewer, more, widen)
    activations = max(activations, fewer.tapped_bytes())
    return dataclasses.replace(
        plan,
        loops=bool(fewer.with_loops),
        convolves=mostly_plain_convolutions(fewer.graph),
        beyond_xla=", ".join(fewer.beyond_xla()),
        memory=dataclasses.replace(plan.memory, activations=activations),
    )


def _plan(fewer: _Trace, more: _Trace, widen: bool) -> Plan:
    if list(fewer.calls) != list(more.calls):
        return Plan(whole="its calls depend on the number of examples")
    pairs = {key: (fewer.calls[key], more.calls[key]) for key in fewer.calls}
    by_rule = frozenset(key for key, (a, b) in pairs.items() if _rule_holds(a, b))
    claims: dict[CallKey, set[int]] = {}
    for variable, stack in fewer.reads:
        if any(key in by_rule for key in stack):
            continue
        key = next((k for k in reversed(stack) if _can_be_mapped(*pairs[k])), None)
        if key is None:
            return Plan(whole=f"{fewer.paths[variable]} is read where examples are not apart")
        claims.setdefault(key, set()).add(variable)
    inside = _hand_over_to_random_calls(claims, fewer)
    mapped = {
        key: Mapping(
            weights=frozenset(weights),
            batched=tuple(map(_leads, pairs[key][0].arguments, pairs[key][1].arguments)),
            random=pairs[key][0].random,
            loops=key in fewer.with_loops,
            notice=_notice(pairs[key][0].frame.layer, (fewer.paths[w] for w in weights)),
        )
        for key, weights in claims.items()
    }
    by_rule -= inside
    mapped_weights = [weight for mapping in mapped.values() for weight in mapping.weights]
    memory = ExampleMemory.of_terms(_uses(fewer, by_rule), mapped_weights, fewer.graph)
    return Plan(by_rule, mapped, widen, memory=memory)


def _uses(seen: _Trace, by_rule: Iterable[CallKey]) -> dict[int, list[Term]]:
    """Returns the terms of all calls by rule, by the id of their weight."""
    uses: dict[int, list[Term]] = {}
    for key in by_rule:
        for variable, term in seen.calls[key].terms:
            uses.setdefault(variable, []).append(term)
    return uses


def _rule_holds(a: Call, b: Call) -> bool:
    """Whether the rule tapped tensors that lead with the batch, and covered what was read."""
    tapped = all(
        s is not None and t is not None and _leads(s, t)
        for s, t in zip(a.taps, b.taps, strict=True)
    )
    return (
        a.frame.by_rule
        and bool(a.taps)
        and tapped
        and a.read <= {variable for variable, _ in a.terms}
    )


def _can_be_mapped(a: Call, b: Call) -> bool:
    arguments = list(zip(a.arguments, b.arguments, strict=True))
    outputs = list(zip(a.outputs, b.outputs, strict=True))
    return (
        a.outside
        and all(_leads(s, t) or s == t for s, t in arguments)
        and any(_leads(s, t) for s, t in arguments)
        and bool(outputs)
        and all(_leads(s, t) for s, t in outputs)
    )


def _leads(a: Shape, b: Shape) -> bool:
    return bool(a) and bool(b) and (a[0], b[0]) == _EXAMPLES and a[1:] == b[1:]


def _hand_over_to_random_calls(claims: dict[CallKey, set[int]], seen: _Trace) -> set[CallKey]:
    """Hands all weights read inside a mapped call that draws random numbers to that call.

    Its forward pass too is mapped, so that every example draws the same numbers both times; what
    runs inside of it can then not be tapped.

    Returns:
      The keys of the calls inside.
    """
    inside: set[CallKey] = set()
    random = {key for key in claims if seen.calls[key].random}
    for variable, stack in seen.reads:
        outer = next((key for key in stack if key in random), None)
        if outer is not None:
            claims[outer].add(variable)
            inside |= set(stack[stack.index(outer) + 1 :])
    for key in inside:
        claims.pop(key, None)
    return inside


def _notice(layer: keras.layers.Layer, paths: Iterable[str]) -> str:
    return f"{type(layer).__name__} {layer.name!r} ({', '.join(sorted(paths))})"


@dataclasses.dataclass(frozen=True)
class _Trace:
    """What was seen of one trace.

    Attributes:
      calls: The calls of layers, in the order in which they began.
      reads: For every read of a trainable weight, its id and the running calls, outermost first.
      paths: The paths of the trainable weights by their ids.
      graph: The graph of the forward pass.
      graph_of_loss: The graph of a loss that users wrote; None for Keras's own.
    """

    calls: dict[CallKey, Call]
    reads: list[tuple[int, list[CallKey]]]
    paths: dict[int, str]
    graph: tf.Graph
    graph_of_loss: tf.Graph | None

    @functools.cached_property
    def _loops(self) -> dict[tf.Graph, dict[int, tf.Operation]]:
        """The loops by their place among the operations of their graph."""
        return {
            graph: {
                place: operation
                for place, operation in enumerate(graph.get_operations())
                if operation.type in ("While", "StatelessWhile")
            }
            for graph in {self.graph, *(call.graph for call in self.calls.values())}
        }

    @functools.cached_property
    def with_loops(self) -> frozenset[CallKey]:
        """The calls that have a loop."""
        return frozenset(
            key
            for key, call in self.calls.items()
            if any(place in call.operations for place in self._loops[call.graph])
        )

    def tapped_bytes(self) -> int:
        """What the outputs of layers with weights take for an example, and their gradients.

        In models without products, such as a stack of normalizations, there is little else.
        """
        shapes = (shape for call in self.calls.values() for shape in call.taps if shape)
        return 2 * 4 * sum(math.prod(size or 1 for size in shape[1:]) for shape in shapes)

    def beyond_xla(self) -> list[str]:
        """Names what XLA has no form of, or no form of its gradient."""
        loops = (loop for found in self._loops.values() for loop in found.values())
        # The second input of a loop is the most rounds that it makes, -1 for any number.
        bounds = (tf.get_static_value(loop.inputs[1]) for loop in loops)
        endless = any(bound is not None and bound.shape == () and bound == -1 for bound in bounds)
        gradients = ["the gradient of a loop without maximum_iterations"] if endless else []
        kinds = set(beyond_xla(self.graph, self.graph.inputs[: len(self.paths)]))
        if self.graph_of_loss is not None:
            kinds |= set(beyond_xla(self.graph_of_loss, self.graph_of_loss.inputs))
        return [*sorted(kinds), *gradients]


def _trace(forward: Forward, batch: Batch, count: int, widen: bool) -> _Trace:
    """Traces the model on a number of examples, in a graph that is thrown away."""

    def spec(leaf):
        return None if leaf is None else tf.TensorSpec([count, *leaf.shape[1:]], leaf.dtype)

    found: list[_Trace] = []

    def run(weights, state, x, y, sample_weight, mask, seed):
        graph = tf.compat.v1.get_default_graph()
        surveyor = _Surveyor(forward, Batch(x, y, sample_weight, mask, seed), widen, graph)
        mapping = forward.mapping(weights, state, seed)
        with RecordingScope(surveyor, mapping), surveyor.recording():
            outputs = forward.outputs(x)
        loss = forward.graph_of_loss(y, outputs, sample_weight)
        paths = {id(v): v.path for v in forward.trainable}
        found.append(_Trace(surveyor.calls, surveyor.reads, paths, graph, loss))

    values = [
        [tf.TensorSpec(v.shape, v.dtype) for v in variables]
        for variables in (forward.trainable, forward.state)
    ]
    fields = keras.tree.map_structure(spec, (batch.x, batch.y, batch.sample_weight))
    seed = tf.TensorSpec([2], tf.int32)
    traced = tf.function(run, autograph=False).get_concrete_function(
        *values, *fields, tf.TensorSpec([count], tf.bool), seed
    )
    reject_writes(traced.graph, forward.model)
    reject_unseeded_draws(traced.graph, forward.model)
    return found[0]


class _Surveyor(Recorder):
    """Tries every rule, and keeps what calls and reads look like."""

    def __init__(self, forward: Forward, batch: Batch, widen: bool, graph: tf.Graph):
        super().__init__(forward, Plan(widen=widen), batch, lambda tensor: None, None)
        self.calls: dict[CallKey, Call] = {}
        self.reads: list[tuple[int, list[CallKey]]] = []
        self._graph = graph

    def tap(self, tensor, terms):
        call = self.calls[self.frames[-1].key]
        reachable = tf.compat.v1.get_default_graph() is self._graph
        call.taps.append(tuple(tensor.shape) if reachable else None)
        if reachable and tensor.shape.rank and tensor.shape[0] == self.batch.mask.shape[0]:
            call.pending.append((tensor, terms))
        return tensor

    def _runs_by_rule(self, key, layer):
        return rule_for(layer) is not None

    def _run(self, frame, call, args, kwargs):
        graph = tf.compat.v1.get_default_graph()
        arguments = [tuple(leaf.shape) for leaf in _tensors_of((args, kwargs))]
        seen = Call(frame, graph, graph is self._graph, arguments)
        self.calls[frame.key] = seen
        seeds = self._seeds()
        begin = graph.version  # the number of its operations, which need not be listed for it
        outputs = super()._run(frame, call, args, kwargs)
        seen.operations = range(begin, graph.version)
        seen.random = self._seeds() != seeds
        for tensor, terms in seen.pending:  # now that all that they refer to is there
            yielded = terms(tf.zeros(tensor.shape, tensor.dtype))
            seen.terms += [(id(variable), term) for variable, term in yielded]
        seen.outputs = [
            tuple(leaf.shape) for leaf in _tensors_of(outputs) if leaf.dtype.is_floating
        ]
        return outputs

    def _seeds(self) -> list[int]:
        """Identifies the states of the random generators, which a draw replaces."""
        scope = keras.src.backend.get_stateless_scope()
        return [id(scope.state_mapping[id(v)]) for v in self.forward.seeds]

    def value_of(self, variable, value):
        if id(variable) in self._trainable:
            stack = [frame.key for frame in self.frames]
            self.reads.append((id(variable), stack))
            if stack:
                self.calls[stack[-1]].read.add(id(variable))
        return value


def _tensors_of(nested: Any) -> list[tf.Tensor]:
    """Returns the tensors of a nested structure, in order."""
    return [leaf for leaf in keras.tree.flatten(nested) if tf.is_tensor(leaf)]
