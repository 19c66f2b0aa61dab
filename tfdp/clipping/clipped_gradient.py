"""The clipped gradient sum of one microbatch as a pure, XLA-compiled function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdp import checks
from tfdp.clipping.examples import Batch, without_padding
from tfdp.clipping.factors import PerExampleGradients, clip_factors, clipped_sums, squared_norms
from tfdp.clipping.forward import Forward
from tfdp.clipping.layer_plan import Plan
from tfdp.clipping.mapped import vectorized
from tfdp.clipping.microbatch_size import best_microbatch_size
from tfdp.clipping.model_check import check_model
from tfdp.clipping.rejections import reject_mixing_layers
from tfdp.clipping.single_pass import single_pass
from tfdp.clipping.xla import require_float32_products
from tfdp.privacy.clipping import FlatClipping, PerLayerClipping, settled

ENGINES = ("auto", "single_pass", "two_pass", "vectorized")


class Clipped(NamedTuple):
    """What one microbatch gives.

    U is the number of users where the examples of a user are clipped together, and that of
    examples otherwise.

    Attributes:
      sums: Clipped gradient sum of every trainable variable, at least float32.
      norms: ``[U]`` gradient norms before clipping; not finite where one overflowed.
      squared_norms: ``[weights, U]``: their squares, apart for every trainable variable.
      losses: ``[B]``; zero at padding.
      used: ``[B]`` bool: the examples that contributed (neither padding nor non-finite).
      outputs: The model's outputs, or None.
    """

    sums: list[tf.Tensor]
    norms: tf.Tensor
    squared_norms: tf.Tensor
    losses: tf.Tensor
    used: tf.Tensor
    outputs: Any


class ClippedGradient:
    """``(weights, state, batch) -> Clipped``: reads and writes no variable.

    One device, every replica of a strategy, tests and benchmarks call the same object.

    Args:
      model: A built Keras model.
      loss: ``(y_true, y_pred, sample_weight) -> [B]``; see ``per_example_loss``.
      clip_norm: C, the largest L2 norm of an example's contribution over all weights jointly. Or
        the clip norms of layers by their path, as for ``PrivacyPlan``.
      clipping: How contributions are brought to that norm, as for ``PrivacyPlan``: an object such
        as ``AutomaticClipping()``, its dictionary or its name. By default, flat clipping. Quantile
        clipping is flat clipping here: the caller moves C by ``clip_scale``.
      engine: "auto" takes a single pass, in which calls of layers without a rule are mapped over
        examples, with a warning that names them; "single_pass" rejects such layers. "two_pass"
        forms the sum in a second backward pass, which is slower and needs less memory.
        "vectorized" maps the whole model.
      with_outputs: Whether to return the model's outputs, which metrics need.
      jit_compile: Whether XLA compiles the function. "auto" compiles all but convolutional
        networks on CPUs. A model that XLA does not support is not compiled, with a warning.
      examples_per_user: How many consecutive examples are clipped together: the sum of their
        gradients is what has norm at most C. If it overflows, the user contributes nothing.
      public_examples: (x, y) or (x, y, sample_weight) of two examples or more that are not
        private, for models that cannot be checked on synthetic inputs.

    Attributes:
      forward: The model and its loss.
      clip_norm: C, also where it was given by layer.
      clipping: How examples are clipped.

    Raises:
      TypeError: ``model`` is not a Keras model.
      ValueError: An argument is out of range.
      UnsupportedLayerError: A layer mixes examples, or has no rule in the engine asked for.
    """

    def __init__(
        self,
        model: keras.Model,
        loss: Callable,
        clip_norm: float | Mapping[str, float],
        *,
        clipping: FlatClipping | Mapping[str, Any] | str | None = None,
        engine: str = "auto",
        with_outputs: bool = False,
        jit_compile: bool | str = "auto",
        examples_per_user: int = 1,
        public_examples: Any = None,
    ):
        check_engine(engine)
        self._jit_compile = checked_jit_compile(jit_compile)
        require_float32_products()
        if not isinstance(model, keras.Model):
            raise TypeError(f"model must be a keras.Model, got {model!r}.")
        clip_norm, self.clipping = settled(clip_norm, clipping)
        self.clip_norm = checks.positive("clip_norm", clip_norm)
        reject_mixing_layers(model)
        self.forward = Forward(model, loss)
        if not self.forward.trainable:
            hint = "" if model.built else " It is not built: call it on an example first."
            raise ValueError(f"The model {model.name!r} has no trainable weights.{hint}")
        if engine == "two_pass":
            self._check_two_pass()
        self._engine = engine
        self._with_outputs = with_outputs
        self._examples_per_user = examples_per_user
        self._public_examples = public_examples
        self._plans: dict[tuple, Plan] = {}
        self._functions = {
            jit: tf.function(self._clipped, jit_compile=jit, autograph=False)
            for jit in (False, True)
        }

    def __call__(
        self, weights: list, state: list, batch: Batch, clip_scale: tf.Tensor | None = None
    ) -> Clipped:
        """Computes the clipped sum, eagerly or inside a ``tf.function``.

        Args:
          weights: Values of ``forward.trainable``.
          state: Values of ``forward.state``.
          batch: Examples of static shape.
          clip_scale: What all clip norms, and so the sensitivity, are multiplied by: a scalar, for
            clip norms that change as training goes on.
        """
        clipped, complete = self.attempt(weights, state, batch, clip_scale)

        def again() -> Clipped:
            return self.skipping_overflows(weights, state, batch, clip_scale)

        if tf.executing_eagerly():  # which spares tracing what is hardly ever needed
            return clipped if complete else again()
        return tf.cond(complete, lambda: clipped, again)

    def attempt(
        self, weights: list, state: list, batch: Batch, clip_scale: tf.Tensor | None = None
    ) -> tuple[Clipped, tf.Tensor]:
        """Computes the clipped sum, unless an example overflows.

        Products such as 0 * inf then spoil the sums, and only these: ``skipping_overflows`` gives
        them. Callers who read the flag outside of their graph hardly ever need to trace that.

        Args:
          weights: As for a call.
          state: As for a call.
          batch: As for a call.
          clip_scale: As for a call.

        Returns:
          What the batch gives, and whether its sums hold, a boolean scalar.
        """
        clipped = self._function(batch)(weights, state, batch, clip_scale, False)
        return clipped, tf.reduce_all(tf.math.is_finite(clipped.norms))

    def skipping_overflows(
        self, weights: list, state: list, batch: Batch, clip_scale: tf.Tensor | None = None
    ) -> Clipped:
        """Computes the clipped sum whether or not examples overflow: those contribute zero.

        Args:
          weights: As for a call.
          state: As for a call.
          batch: As for a call.
          clip_scale: As for a call.
        """
        return self._function(batch)(weights, state, batch, clip_scale, True)

    def check(self, batch: Batch) -> None:
        """Checks the model on synthetic inputs of one kind.

        The first call with these shapes checks by itself; call this to learn of problems earlier.

        Args:
          batch: Its structure, shapes and dtypes count, not its values. Leaves may be
            ``tf.TensorSpec``.

        Raises:
          UnsupportedLayerError: One example reaches another's loss, or a layer has no rule and
            the engine asked for needs one.
          WrongRuleError: The rule of a layer is wrong.
        """
        self._plan(batch)

    def best_microbatch_size(
        self, batch: Batch, counts: Any, probabilities: Any = (1.0,), replicas: int = 1
    ) -> int:
        """Returns how many examples are best handled at a time, within some memory.

        Args:
          batch: As for ``check``.
          counts: ``[K]``: numbers of examples that a step may have.
          probabilities: ``[K]``: how likely they are.
          replicas: How many replicas handle microbatches side by side.
        """
        example_bytes = self._plan(batch).example_bytes(
            self.forward.trainable, self._examples_per_user
        )
        counts, probabilities = np.asarray(counts), np.asarray(probabilities)
        return best_microbatch_size(example_bytes, counts, probabilities, replicas)

    def _function(self, batch: Batch) -> Callable:
        """Returns ``_clipped``, compiled or not as suits such a batch."""
        return self._functions[self._compiled(self._plan(batch))]

    def _plan(self, batch: Batch) -> Plan:
        """Returns how all calls are handled; checks the model the first time."""
        shapes = _shapes(batch)
        if shapes not in self._plans:
            # In a thread of its own: a trace under way and its strategy belong to this one.
            with ThreadPoolExecutor(1) as other:
                asked = (self.forward, batch, self._engine, bool(self._jit_compile))
                plan = other.submit(check_model, *asked, self._public_examples).result()
            self._plans[shapes] = plan
        return self._plans[shapes]

    def _clipped(
        self,
        weights: list,
        state: list,
        batch: Batch,
        clip_scale: tf.Tensor | None,
        skip_overflows: bool,
    ) -> Clipped:
        batch = without_padding(batch)
        found = self._per_example(weights, state, batch)
        scale, each = self.forward.loss_scale, self._examples_per_user
        terms = found.terms
        if skip_overflows or each > 1:  # padding must not reach the sum of a user's examples
            terms = [t and t.keep(batch.mask) for t in terms]
        if each > 1:
            terms = [t and t.by_user(each) for t in terms]
        squares = squared_norms(terms, batch.mask.shape[0] // each) / scale**2
        norms = tf.sqrt(tf.reduce_sum(squares, axis=0))
        used = batch.mask & tf.math.is_finite(self._by_example(norms))
        users = tf.reduce_any(tf.reshape(used, [-1, each]), axis=1)
        # In units of the scale, norms meet the clip norms that the function was made with.
        relative = (
            squares if clip_scale is None else squares / tf.cast(clip_scale, squares.dtype) ** 2
        )
        factors = self._factors(relative, users)
        if self._engine == "two_pass" and found.second_pass is not None and not skip_overflows:
            totals = found.second_pass(self._by_example(factors[0]))
            sums = [
                term.weighted_sum(own) if term and term.forms_gradients else total
                for term, own, total in zip(terms, factors, totals, strict=True)
            ]
        else:
            if skip_overflows:
                terms = [t and t.keep(users) for t in terms]
            sums = clipped_sums(terms, factors, weights)
            if scale != 1:
                sums = [total / scale for total in sums]
        outputs = found.outputs if self._with_outputs else None
        return Clipped(sums, norms, squares, found.losses, used, outputs)

    def _factors(self, squares: tf.Tensor, used: tf.Tensor) -> list[tf.Tensor]:
        """Returns the factors of every weight, zero for examples or users that are not used."""
        factors = clip_factors(self.clipping, self.clip_norm, squares, self.forward.trainable)
        different = {id(own): own for own in factors}
        kept = {key: tf.where(used, own, 0) for key, own in different.items()}
        return [kept[id(own)] for own in factors]

    def _by_example(self, values: tf.Tensor) -> tf.Tensor:
        """Gives every example what its user has."""
        each = self._examples_per_user
        return values if each == 1 else tf.repeat(values, each)

    def _check_two_pass(self) -> None:
        if isinstance(self.clipping, PerLayerClipping):
            raise ValueError('engine="two_pass" cannot clip per layer: use "single_pass".')
        if self.forward.half_precision:
            raise ValueError(
                'engine="two_pass" sums examples in the precision of the layers. That is half '
                'precision here, in which the sum would not keep the clip norm: use "single_pass".'
            )

    def _per_example(self, weights: list, state: list, batch: Batch) -> PerExampleGradients:
        plan = self._plan(batch)
        compiled = self._compiled(plan)
        if plan.whole:
            side_by_side = compiled and not plan.loops
            return vectorized(self.forward, weights, state, batch, side_by_side)
        second_pass = self._engine == "two_pass"
        return single_pass(self.forward, weights, state, batch, plan, compiled, second_pass)

    def _compiled(self, plan: Plan) -> bool:
        if plan.beyond_xla:
            return False
        return plan.suits_xla if self._jit_compile == "auto" else bool(self._jit_compile)


def check_engine(engine: Any) -> None:
    """Raises ``ValueError`` for an engine that does not exist."""
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}.")


def checked_jit_compile(jit_compile: Any) -> bool | str:
    """Returns the flag, or "auto".

    Raises:
      ValueError: It is anything else: other text would count as yes.
    """
    if isinstance(jit_compile, bool | np.bool_):
        return bool(jit_compile)
    if not (isinstance(jit_compile, str) and jit_compile == "auto"):
        raise ValueError(f'jit_compile={jit_compile!r}: expected True, False or "auto".')
    return jit_compile


def _shapes(batch: Batch) -> tuple:
    fields = keras.tree.flatten((batch.x, batch.y, batch.sample_weight))
    return tuple(None if leaf is None else tuple(leaf.shape[1:]) for leaf in fields)
