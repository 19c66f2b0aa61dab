"""Private forms of Keras's own optimizers; every Keras argument is accepted."""

import keras

from tfdp.optimizers.private import PrivateOptimizer


@keras.saving.register_keras_serializable("tfdp")
class DPSGD(PrivateOptimizer, keras.optimizers.SGD):
    """SGD on clipped and noised gradients (Abadi et al. 2016); see ``PrivateOptimizer``."""


@keras.saving.register_keras_serializable("tfdp")
class DPAdam(PrivateOptimizer, keras.optimizers.Adam):
    """Adam on clipped and noised gradients; see ``PrivateOptimizer``."""


@keras.saving.register_keras_serializable("tfdp")
class DPAdamW(PrivateOptimizer, keras.optimizers.AdamW):
    """AdamW on clipped and noised gradients; see ``PrivateOptimizer``."""
