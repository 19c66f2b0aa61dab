"""Keras models that train with differential privacy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdp.clipping import per_example_loss
from tfdp.data import ExampleSource, as_source, batches
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger, PrivacyPlan, PrivacyReport
from tfdp.privacy.report import build_report
from tfdp.privacy.spenders import note_training
from tfdp.training import validation
from tfdp.training.compiled import Compiled, fingerprint, with_earlier_spending
from tfdp.training.loop import private_steps
from tfdp.training.metrics import mean_over_examples
from tfdp.training.run import (
    Run,
    class_to_sample_weight,
    evaluated_at_once,
    make_run,
    plan_from_fit,
    planned_epochs,
    stream_of,
)
from tfdp.training.saving import SavedAsPlain
from tfdp.training.trial import check_validation_fits

# Of the arguments of Keras's compile that are not named here.
_POSITIONS = ("metrics", "weighted_metrics", "run_eagerly", "steps_per_execution", "jit_compile")
_SKIPPED = "examples_beyond_examples_per_user"  # among the counts of the report


class DPModel(SavedAsPlain):
    """A Keras model whose ``fit`` is differentially private.

    Build one like ``keras.Model(inputs, outputs)``, turn a model into one with
    ``make_private(model)``, or put the class before ``keras.Model`` in a subclassed model::

        class MyModel(tfdp.DPModel, keras.Model): ...

    What works on ``keras.Model`` works here. ``compile`` takes a ``tfdp.optimizers`` optimizer;
    a step of ``fit`` is one private step, whatever the number of microbatches. ``fit`` samples the
    examples itself, clips every example's gradient, adds noise to the sum once, divides by the
    expected batch size of the plan, and enters the step in the ledger.
    """

    _run: Run | None = None  # of the latest fit since compile

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is DPModel or cls._plain_class is not None:
            return make_private((cls._plain_class or keras.Model)(*args, **kwargs))
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any):
        if self._plain_class is None:  # else __new__ returned a complete model
            super().__init__(*args, **kwargs)

    def compile(
        self,
        optimizer: PrivateOptimizer,
        loss: Any = None,
        loss_weights: Any = None,
        *args: Any,
        microbatch_size: int | None = None,
        engine: str = "auto",
        seed: int | None = None,
        ledger: Ledger | None = None,
        public_examples: Any = None,
        **kwargs: Any,
    ) -> None:
        """Configures training; arguments not named here are those of ``keras.Model.compile``.

        Args:
          optimizer: One of ``tfdp.optimizers``.
          loss: As in Keras. Its reduction is replaced: one value per example.
          loss_weights: As in Keras.
          *args: As in Keras: metrics, weighted_metrics, ...
          microbatch_size: Examples that one replica processes at a time. It bounds memory and
            changes nothing else. By default, the size that is expected to take the least time,
            padding included, within about 1 GiB (4 GiB on accelerators).
          engine: How the clipped sum is computed: "auto" (in a single pass where every layer has a
            rule, else vectorized), "single_pass", "two_pass" or "vectorized". They agree.
          seed: Makes noise and sampling reproducible, for tests. The guarantee then does not
            hold against anyone who knows the seed, and the report says so.
          ledger: Where steps are entered. By default, the model's own, kept in memory.
          public_examples: As for ``tfdp.clipping.ClippedGradient``: two or more examples that are
            not private, for models that cannot be checked on synthetic inputs.
          **kwargs: As in Keras: metrics, steps_per_execution, ... ``jit_compile`` says whether XLA
            compiles the clipped sums. By default, it does where that is faster.

        Raises:
          TypeError: The optimizer is not a private one, or an argument is of the wrong kind.
          ValueError: An argument is out of range, or there is no loss.
        """
        kwargs.update(zip(_POSITIONS[: len(args)], args, strict=True))
        validation.check_compile(optimizer, microbatch_size, engine, seed, ledger)
        kwargs = validation.checked_keras_arguments(kwargs)
        validation.check_overrides(self._plain_class or type(self))
        validation.check_strategy(self)
        validation.check_optimizer_is_own(optimizer, self.trainable_variables)
        if self._private is not None and self._private.in_training:
            raise ValueError("compile: this model is training. Wait for fit() to end.")
        ledger = with_earlier_spending(self, ledger)
        # By name: of the models of KerasHub each has a signature of its own.
        super().compile(optimizer=optimizer, loss=loss, loss_weights=loss_weights, **kwargs)
        optimizer.ledger = ledger
        losses = loss, loss_weights, getattr(self, "output_names", None)
        compiled = Compiled(
            optimizer=optimizer,
            loss=per_example_loss(*losses),
            ledger=ledger,
            seed=seed,
            engine=engine,
            microbatch_size=microbatch_size,
            public_examples=public_examples,
            trainable=tuple(id(v) for v in self.trainable_variables),
            fingerprint=fingerprint(
                optimizer,
                seed=seed,
                microbatch_size=microbatch_size,
                engine=engine,
                jit_compile=kwargs.get("jit_compile"),
                run_eagerly=kwargs.get("run_eagerly", False),
                loss_weights=loss_weights,
                replicas=self.distribute_strategy.num_replicas_in_sync,
            ),
        )
        object.__setattr__(self, "_private", compiled)  # not for Keras to track
        object.__setattr__(self, "_run", None)
        self._compile_loss = mean_over_examples(*losses)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: dict | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        num_examples: int | None = None,
        delta: float | None = None,
        user_ids: Any = None,
    ) -> keras.callbacks.History:
        """Trains for the steps of the plan, or for ``epochs`` of it.

        Args:
          x: Arrays, a dict or nest of arrays, an object with ``__len__``, ``__getitem__`` and
            ``element_spec`` (see ``tfdp.data.IndexableSource``), or a ``tfdp.data.ExampleSource``:
            anything with random access, since ``fit`` samples.
          y: Targets, where ``x`` does not hold them.
          batch_size: Expected batch size; only without a plan, which holds it.
          epochs: Passes of ceil(N / B) steps. By default all that the plan has left.
          verbose: As in Keras.
          callbacks: As in Keras.
          validation_split: Must be 0: the training data would be smaller than the plan says.
          validation_data: As in Keras, or an ``ExampleSource``. Metrics of private held-out
            examples are not covered by the guarantee.
          shuffle: Has no effect: every step draws its examples anew.
          class_weight: As in Keras, for integer targets in an array.
          sample_weight: By example, ``[N]``, or by token, ``[N, T]``; applied before clipping.
          initial_epoch: As in Keras.
          steps_per_epoch: As in Keras.
          validation_steps: As in Keras.
          validation_batch_size: As in Keras; by default the microbatch size that ``compile`` was
            given, or the expected batch size, at most 256.
          validation_freq: As in Keras.
          num_examples: Dataset size, a public number, where the optimizer has no plan.
          delta: The delta to report, where the optimizer has no plan.
          user_ids: The user of every example, ``[N]`` integers or strings, where the plan has
            ``examples_per_user``. Users are then sampled, and the sum of the gradients of a user's
            examples is clipped. If a user has more examples than that, the first ones are used.

        Returns:
          The Keras history, with ``epsilon`` among the logs. ``loss`` and ``val_loss`` are the same
          quantity: the mean over the real tokens of each example, averaged over the examples, plus
          the penalties of weight regularizers. Losses of single outputs are in the validation logs
          only; for training, use metrics.

        Raises:
          ValueError: The guarantee would be broken or its budget exceeded.
          TypeError: The data cannot be sampled, or an argument is of the wrong kind. Both are
            raised before any privacy is spent.
        """
        compiled = self._require_compiled("fit")
        with compiled.alone():
            trainable = compiled.trainable if self._run is None else self._run.step.trainable
            validation.check_unchanged(self, compiled, trainable)
            validation.check_accounted(compiled)
            validation.check_not_set_back(compiled)
            validation.check_callbacks(callbacks)
            validation.check_counts(epochs=epochs, steps_per_epoch=steps_per_epoch)
            validation.check_counts(validation_batch_size=validation_batch_size)
            validation.check_counts(
                0, initial_epoch=initial_epoch, validation_steps=validation_steps
            )
            validation_data = validation.checked_validation_data(validation_data)
            validation_freq = validation.checked_validation_freq(validation_freq)
            validation.check_preprocessor(self)
            plan = compiled.optimizer.privacy
            public = {"num_examples": num_examples, "batch_size": batch_size, "delta": delta}
            validation.check_plan(plan, validation_split, user_ids, **public)
            if class_weight is not None:
                sample_weight = class_to_sample_weight(class_weight, y, sample_weight)
            source = as_source(x, y, sample_weight)
            asked = None if epochs is None else epochs - initial_epoch
            if plan is None:
                spent = compiled.ledger.steps
                plan = plan_from_fit(compiled.optimizer, spent, asked, steps_per_epoch, **public)
            users = validation.users_of(plan, source, user_ids)
            length = planned_epochs(plan, compiled.steps_left(plan), asked, steps_per_epoch)
            run = make_run(self, compiled, plan, length, source, self._run)
            stream = stream_of(run, compiled, source, users, self.distribute_strategy)
            replicas = self.distribute_strategy.num_replicas_in_sync
            at_once = evaluated_at_once(validation_batch_size, compiled, plan, replicas)
            if isinstance(validation_data, ExampleSource):
                validation_data = batches(validation_data, at_once)
            check_validation_fits(self, compiled.loss, validation_data)
            object.__setattr__(self, "_run", run)
            compiled.progress.of_data = {} if users is None else {_SKIPPED: users.examples_skipped}
            return self._execute(
                private_steps(self, compiled, run, stream),
                epochs=initial_epoch + length.count,
                steps_per_epoch=length.steps_each,
                verbose=verbose,
                callbacks=callbacks,
                validation_data=validation_data,
                initial_epoch=initial_epoch,
                validation_steps=validation_steps,
                validation_batch_size=at_once,
                validation_freq=validation_freq,
            )

    def _execute(self, steps: Iterator[dict], **arguments: Any) -> keras.callbacks.History:
        """Makes private steps in Keras's own loop of epochs and callbacks."""
        replicas = self.distribute_strategy.num_replicas_in_sync
        ticks = tf.data.Dataset.range(1).repeat().batch(replicas)  # Keras counts steps by them
        self._initial_epoch = None  # of a backup that was rejected
        self.train_function: Any = lambda _: next(steps)
        note_training(self.trainable_variables, self.ledger)
        try:
            with warnings.catch_warnings():  # of the last epoch, which may be short
                warnings.filterwarnings("ignore", message="Your input ran out of data")
                return super().fit(ticks, shuffle=False, **arguments)
        finally:
            self.train_function = None
            note_training(self.trainable_variables, self.ledger)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does; ``x`` may be an ``ExampleSource`` too.

        The loss is averaged within each example first, as in ``fit``. Keras itself averages over
        the tokens of all examples, which is another number where their lengths differ.
        """
        return super().evaluate(self._in_batches("evaluate", x, kwargs), *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does; ``x`` may be an ``ExampleSource`` too."""
        return super().predict(self._in_batches("predict", x, kwargs), *args, **kwargs)

    def _in_batches(self, what: str, x: Any, kwargs: dict[str, Any]) -> Any:
        """A source of examples as batches, of the size among the arguments; else ``x``."""
        if not isinstance(x, ExampleSource):
            return x
        compiled, size = self._require_compiled(what), kwargs.pop("batch_size", None)
        validation.check_counts(batch_size=size)
        replicas = self.distribute_strategy.num_replicas_in_sync
        return batches(x, evaluated_at_once(size, compiled, self.privacy, replicas))

    def make_train_function(self, force: bool = False) -> None:
        """Leaves the private steps to Keras's loop, where ``fit`` has put them already."""
        if not self._require_compiled("fit").in_training:
            raise ValueError("A private model trains through fit() only.")

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: a step on a batch that the caller chose cannot be accounted for."""
        raise ValueError(
            "train_on_batch is not available on a private model: a batch that the caller chose "
            "cannot be accounted as sampled. Use fit(); in a loop of your own, use "
            "tfdp.clipping.clipped_gradient_sum and tfdp.privacy.privatize."
        )

    def privacy_report(self, public: Sequence[str] = (), **counts: Any) -> PrivacyReport:
        """Returns what has been spent so far, and under which assumptions.

        Args:
          public: Names of public data that shaped the model: they spend nothing, and are listed.
          **counts: Further counts to carry in the report, such as unreadable records by reason.
        """
        compiled, plan = self._require_compiled("privacy_report"), self._require_plan()
        validation.check_accounted(compiled)
        return build_report(
            plan,
            compiled.ledger,
            counts={**compiled.progress.counts(), **counts},
            fixed_seed=compiled.seed is not None,
            notes=self._notes(compiled),
            public=public,
        )

    @property
    def ledger(self) -> Ledger:
        """The ledger of the steps that were taken."""
        return self._require_compiled("ledger").ledger

    @property
    def steps_left(self) -> int:
        """Steps that the plan still allows; without a plan, those left of the last ``fit``."""
        compiled = self._require_compiled("steps_left")
        return compiled.steps_left(self._require_plan())

    @property
    def privacy(self) -> PrivacyPlan | None:
        """The plan in force; None before ``fit`` makes one, where the optimizer has none."""
        compiled = self._require_compiled("privacy")
        return compiled.optimizer.privacy if self._run is None else self._run.plan

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation on the clipped sum, in units of the clip norm."""
        return self.optimizer.noise_multiplier

    def _require_compiled(self, what: str) -> Compiled:
        if self._private is None:
            raise ValueError(f"{what}: call compile() first, with a tfdp.optimizers optimizer.")
        return self._private

    def _require_plan(self) -> PrivacyPlan:
        if self.privacy is None:
            raise ValueError("There is no plan yet: compile with privacy=plan, or call fit().")
        return self.privacy

    def _notes(self, compiled: Compiled) -> list[str]:
        shared = validation.sharing_note(self, compiled.ledger)
        adaptive = compiled.optimizer.adaptive_clip_norm
        if adaptive is None:
            return shared
        start, now = compiled.optimizer.clip_norm, float(adaptive.numpy())
        return [*shared, f"the clip norm started at {start:g} and is now {now:.4g}"]


def make_private(model: keras.Model) -> keras.Model:
    """Makes a Keras model train with differential privacy.

    Args:
      model: A functional, sequential or subclassed model, compiled or not.

    Returns:
      The same object, with the same weights and layers; it is now a ``DPModel`` too. Compile it
      with an optimizer of ``tfdp.optimizers``.

    Raises:
      TypeError: It is not a Keras model.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"make_private needs a keras.Model, got {type(model).__name__}.")
    if not isinstance(model, DPModel):
        plain = type(model)
        # Under the name of the plain class, by which Keras writes models to files.
        names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
        private = type(plain.__name__, (DPModel, plain), {"_plain_class": plain, **names})
        model.__class__ = private
    return model
