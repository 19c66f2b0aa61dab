"""Keras models that train with differential privacy."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import keras

from tfdp.clipping import per_example_loss
from tfdp.clipping.clipped_gradient import check_engine, checked_jit_compile
from tfdp.data import ExampleSource, as_source, batches
from tfdp.optimizers import PrivateOptimizer
from tfdp.privacy import Ledger, PrivacyPlan, PrivacyReport, build_report
from tfdp.privacy.spenders import note_training
from tfdp.training import arguments, checks, continuity
from tfdp.training.assembly import make_run, rows_to_evaluate
from tfdp.training.held_out_loss import mean_over_examples
from tfdp.training.keras_loop import endless_ticks, last_epoch_may_be_short, one_at_a_time
from tfdp.training.plain import SavedAsPlain
from tfdp.training.run import planned_steps
from tfdp.training.sharing import with_earlier_spending
from tfdp.training.state import PrivateState, fingerprint
from tfdp.training.usable import check_validation_fits

# Of the arguments of Keras's compile that are not named here.
_POSITIONS = ("metrics", "weighted_metrics", "run_eagerly", "steps_per_execution", "jit_compile")


class DPModel(SavedAsPlain):
    """A Keras model whose ``fit`` is differentially private.

    Build one like ``keras.Model(inputs, outputs)``, turn a model into one with
    ``make_private(model)``, or put the class before ``keras.Model`` in a subclassed model::

        class MyModel(tfdp.DPModel, keras.Model): ...

    What works on ``keras.Model`` works here. ``compile`` takes a ``tfdp.optimizers`` optimizer;
    a step of ``fit`` is one step, whatever the number of microbatches. ``fit`` samples the
    records itself, clips every example's gradient, adds noise to the sum once, divides by the
    expected batch size of the plan, and enters the update in the ledger.
    """

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
          microbatch_size: Rows that one replica handles at a time: bounds memory, changes
            nothing else. By default as many as are expected to take least time, padding included,
            within about 1 GiB; 4 GiB on accelerators.
          engine: How examples are clipped: "auto" (in a single pass where every layer has a rule),
            "single_pass", "two_pass" or "vectorized"; they agree.
          seed: Makes noise and sampling reproducible, for tests. The guarantee then does not
            hold against anyone who knows the seed, and the report says so.
          ledger: Where steps are entered; by default the model's own, kept in memory.
          public_examples: As for ``tfdp.clipping.ClippedGradient``: two rows or more that are not
            private, for models that made-up numbers do not suit.
          **kwargs: As in Keras: metrics, steps_per_execution, ... ``jit_compile`` says whether XLA
            compiles the clipped sums: by default where that is faster.

        Raises:
          TypeError: The optimizer is not a private one, or an argument is of the wrong kind.
          ValueError: An argument is out of range, or there is no loss.
        """
        kwargs.update(zip(_POSITIONS[: len(args)], args, strict=True))
        checks.check_compile(optimizer, microbatch_size, seed, ledger)
        # Keras and the run read these two as plain numbers and flags, and miss NumPy's.
        kwargs["steps_per_execution"] = checks.updates_at_once(kwargs.get("steps_per_execution", 1))
        check_engine(engine)
        if kwargs.get("jit_compile") is not None:
            kwargs["jit_compile"] = checked_jit_compile(kwargs["jit_compile"])
        checks.check_overrides(self._plain_class or type(self))
        checks.check_strategy(self)
        continuity.check_optimizer_is_own(optimizer, self.trainable_variables)
        if "_private" in self.__dict__ and self._private.fitting.locked():
            raise ValueError("compile: this model is training. Wait for fit() to end.")
        ledger = with_earlier_spending(self, ledger)
        # Loss scaling reacts to private gradients; half precision is clipped in float32 anyway.
        kwargs["auto_scale_loss"] = False
        # By name: of the models of KerasHub each has a signature of its own.
        super().compile(optimizer=optimizer, loss=loss, loss_weights=loss_weights, **kwargs)
        optimizer.ledger = ledger
        losses = loss, loss_weights, getattr(self, "output_names", None)
        state = PrivateState(
            loss=per_example_loss(*losses),
            microbatch_size=microbatch_size,
            engine=engine,
            optimizer=optimizer,
            seed=seed,
            stream=secrets.token_hex(8),
            settings=fingerprint(
                optimizer,
                seed=seed,
                microbatch_size=microbatch_size,
                engine=engine,
                jit_compile=kwargs.get("jit_compile"),
                run_eagerly=kwargs.get("run_eagerly", False),
                loss_weights=loss_weights,
                replicas=self.distribute_strategy.num_replicas_in_sync,
            ),
            ledger=ledger,
            public_examples=public_examples,
            plan=optimizer.privacy,
            trainable=[id(v) for v in self.trainable_variables],
        )
        object.__setattr__(self, "_private", state)  # not for Keras to track
        self._compile_loss = mean_over_examples(*losses)

    @one_at_a_time
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
          validation_split: Must be 0: it would shrink N behind the plan's back.
          validation_data: As in Keras, or a ``ExampleSource``. Metrics of private held-out
            records are not covered by the guarantee.
          shuffle: Has no effect: every step draws its records anew.
          class_weight: As in Keras, for integer targets in an array.
          sample_weight: By record, ``[N]``, or by token, ``[N, T]``; applied before clipping.
          initial_epoch: As in Keras.
          steps_per_epoch: Updates an epoch.
          validation_steps: As in Keras.
          validation_batch_size: As in Keras; by default the microbatch size that ``compile`` was
            given, or the expected batch, at most 256.
          validation_freq: As in Keras.
          num_examples: Public number of records, where the optimizer has no plan.
          delta: The delta to report, where the optimizer has no plan.
          user_ids: For every record whose it is, ``[N]`` integers or strings, where the plan
            has ``examples_per_user``: persons are then sampled, and the sum of the gradients of a
            person's records is clipped. Of more records than that the first ones are used.

        Returns:
          The Keras history; ``epsilon`` is among the logs. ``loss`` and ``val_loss`` are the same
          quantity: the mean over examples of each one's mean over its real tokens, and the
          penalties of weight regularizers. Losses of single outputs are in the validation logs
          only; those of training are to be had as metrics.

        Raises:
          ValueError: Something would break or overspend the guarantee.
          TypeError: The data cannot be sampled, or an argument is of the wrong kind. Both before
            any privacy is spent.
        """
        state = self._compiled_state("fit")
        checks.check_unchanged(self, state)
        checks.check_sharing(self, state.ledger)
        continuity.check_accounted(self.optimizer, state)
        continuity.check_not_set_back(self.optimizer, state)
        arguments.check_callbacks(callbacks)
        continuity.check_callbacks(callbacks)
        arguments.check_counts(epochs=epochs, steps_per_epoch=steps_per_epoch)
        arguments.check_counts(validation_batch_size=validation_batch_size)
        arguments.check_counts(initial_epoch=initial_epoch, least=0)
        arguments.check_validation(validation_data)
        validation_data = arguments.text_as_tensors(validation_data)
        arguments.check_counts(validation_steps=validation_steps, least=0)
        validation_freq = arguments.epochs_to_validate(validation_freq)
        arguments.check_preprocessor(self)
        plan = self.optimizer.privacy
        checks.check_fit(plan, batch_size, num_examples, delta, validation_split, user_ids)
        checks.warn_of_callbacks(callbacks)
        if class_weight is not None:
            sample_weight = checks.class_to_sample_weight(class_weight, y, sample_weight)
        source = as_source(x, y, sample_weight)
        state.units = checks.units_of(plan, source, user_ids)
        self._initial_epoch = None  # of a backup that was refused
        asked = None if epochs is None else epochs - initial_epoch
        earlier = state.plan
        state.plan = self.optimizer.privacy or checks.plan_from_fit(
            self.optimizer,
            num_examples,
            batch_size,
            asked,
            steps_per_epoch,
            delta,
            spent=state.ledger.steps,
        )
        if earlier is not None and earlier.denominator != state.plan.denominator:
            state.update = None  # which divides by the expected batch
        steps, per_epoch, epochs = planned_steps(
            state.plan, self.steps_left, asked, steps_per_epoch
        )
        replicas = self.distribute_strategy.num_replicas_in_sync
        validation_batch_size = rows_to_evaluate(state, validation_batch_size, replicas)
        if isinstance(validation_data, ExampleSource):
            validation_data = batches(validation_data, validation_batch_size)
        run = make_run(self, source, steps, per_epoch)
        check_validation_fits(self, validation_data)
        state.run = run
        note_training(self.trainable_variables, state.ledger)
        try:
            with last_epoch_may_be_short():
                return super().fit(
                    endless_ticks(self.distribute_strategy),
                    epochs=initial_epoch + epochs,
                    steps_per_epoch=per_epoch,
                    verbose=verbose,
                    callbacks=callbacks,
                    shuffle=False,
                    validation_data=validation_data,
                    initial_epoch=initial_epoch,
                    validation_steps=validation_steps,
                    validation_batch_size=validation_batch_size,
                    validation_freq=validation_freq,
                )
        finally:
            state.run = None
            note_training(self.trainable_variables, state.ledger)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does; ``x`` may be a ``ExampleSource`` too.

        The loss is averaged within each example first, as in ``fit``. Keras itself averages over
        the tokens of all, which is another number where examples have several lengths.
        """
        return super().evaluate(self._in_batches("evaluate", x, kwargs), *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does; ``x`` may be a ``ExampleSource`` too."""
        return super().predict(self._in_batches("predict", x, kwargs), *args, **kwargs)

    def _in_batches(self, what: str, x: Any, kwargs: dict[str, Any]) -> Any:
        """A source of records as batches, of the size among the arguments; else ``x``."""
        if not isinstance(x, ExampleSource):
            return x
        size = kwargs.pop("batch_size", None)
        arguments.check_counts(batch_size=size)
        replicas = self.distribute_strategy.num_replicas_in_sync
        return batches(x, rows_to_evaluate(self._compiled_state(what), size, replicas))

    def make_train_function(self, force: bool = False) -> None:
        """Lets Keras's training loop call the private run."""
        run = self._compiled_state("fit").run
        if run is None:
            raise ValueError("A private model trains through fit() only.")
        self.train_function = run.train_function

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Refuses: a step on a batch that the caller chose cannot be accounted for."""
        raise ValueError(
            "train_on_batch is not available on a private model: a batch chosen outside cannot "
            "be accounted as sampled. Use fit(); in a loop of your own, use "
            "tfdp.clipping.clipped_gradient_sum and tfdp.privacy.noise.privatize."
        )

    def privacy_report(self, public: Sequence[str] = (), **counts: Any) -> PrivacyReport:
        """Returns what has been spent so far, and under which assumptions.

        Args:
          public: Names of public data that shaped the model: they cost nothing, and are named.
          **counts: Further counts to carry in the report, such as unreadable records by reason.
        """
        state = self._compiled_state("privacy_report")
        if state.plan is None:
            raise ValueError("There is no plan yet: compile with privacy=plan, or call fit().")
        continuity.check_accounted(self.optimizer, state)
        return build_report(
            state.plan,
            state.ledger,
            counts={**state.counts(), **counts},
            fixed_seed=state.seed is not None,
            notes=self._notes(),
            public=public,
        )

    @property
    def ledger(self) -> Ledger:
        """The record of executed steps."""
        return self._compiled_state("ledger").ledger

    @property
    def steps_left(self) -> int:
        """How many steps the plan still allows; without one, those of the last call of fit."""
        state = self._compiled_state("steps_left")
        if state.plan is None:
            raise ValueError("There is no plan yet: compile with privacy=plan, or call fit().")
        # Updates that a crash took from a seeded run are made again for nothing.
        iterations = int(self.optimizer.iterations.numpy())
        entered = [e.first + e.steps for e in state.ledger.entries if e.stream == state.stream]
        repeats = max(0, max(entered, default=0) - iterations)
        if self.optimizer.privacy is None:  # no budget: every fit may spend what it asks for
            return repeats + max(0, state.plan.steps - state.ledger.steps)
        return repeats + state.plan.affordable_steps(state.ledger.segments())

    @property
    def privacy(self) -> PrivacyPlan | None:
        """The plan in force."""
        return self._compiled_state("privacy").plan

    @property
    def noise_multiplier(self) -> float:
        """Noise standard deviation on the clipped sum, in units of the clip norm."""
        return self.optimizer.noise_multiplier

    def _compiled_state(self, what: str) -> PrivateState:
        if "_private" not in self.__dict__:
            raise ValueError(f"{what}: call compile() first, with a tfdp.optimizers optimizer.")
        return self._private

    def _notes(self) -> list[str]:
        shared = checks.sharing_note(self, self.ledger)
        moving = self.optimizer.clip_norm
        if moving is None:
            return shared
        start, now = self.optimizer.l2_norm_clip, float(moving.numpy())
        return [*shared, f"the clip norm started at {start:g} and has come to {now:.4g}"]


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
