"""Whether a model goes on from where its ledger says that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from tfdp.training.state import PrivateState

_CHECKPOINTS = "tfdp.training.checkpoints.CheckpointEvery, which keeps both"


def check_accounted(optimizer: Any, state: PrivateState) -> None:
    """Raises if the optimizer has made steps that the ledger does not know of.

    Weights that come with an optimizer's state, by ``load_weights`` or from a checkpoint of
    TensorFlow's own, come without what they have cost.
    """
    made, known = int(optimizer.iterations.numpy()), state.ledger.steps
    if made > known:
        raise ValueError(
            f"The optimizer has made {made} steps and the ledger holds {known}: weights came "
            "without the ledger of what they cost (load_weights, tf.train.Checkpoint and "
            "BackupAndRestore put back weights and the optimizer's state alone), so no epsilon "
            "can be stated. Load the model with keras.models.load_model, or from "
            f"{_CHECKPOINTS}. If you have their ledger, compile again with ledger=ledger; one "
            "that was lost is made up with Ledger.record, once for every step."
        )


def check_not_set_back(optimizer: Any, state: PrivateState) -> None:
    """Raises if a seeded run would make a step of this process again, on whatever data.

    The ledger takes it for the very same release and does not count it. Only a checkpoint of
    ``CheckpointEvery`` puts a run back in order to make the same steps again.
    """
    at, made = int(optimizer.iterations.numpy()), state.next_step
    if state.seed is not None and at < made:
        raise ValueError(
            f"seed={state.seed}: optimizer.iterations was set back from {made} to {at} (by "
            "assign, load_weights or a checkpoint), so the same noise would come again, on "
            "weights or records that may be others: their difference would have none, and the "
            "ledger would count the steps once. Compile again with another seed or none, or go "
            f"back with {_CHECKPOINTS}, by restore()."
        )


def check_optimizer_is_own(optimizer: Any, variables: list) -> None:
    """Raises for an optimizer that was built for the weights of another model."""
    if not optimizer.built or (not variables and not optimizer._trainable_variables):
        return  # without weights to train it belongs to no model; clipping tells of that
    own = {id(variable) for variable in optimizer._trainable_variables}
    strange = [variable.path for variable in variables if id(variable) not in own]
    if strange or not variables:
        raise ValueError(
            f"This {type(optimizer).__name__} is the optimizer of other weights (it does not know "
            f"{', '.join(strange[:3]) or 'those of a model that is not built'}); its state and its "
            "ledger are theirs. Make one optimizer for each model."
        )


def check_callbacks(callbacks: Any) -> None:
    """Raises for callbacks that put weights back without the ledger of what they cost."""
    for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks) or []):
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError(
                "BackupAndRestore puts weights back, but not the ledger of what they cost. Use "
                f"{_CHECKPOINTS}, and call its restore() before fit()."
            )
