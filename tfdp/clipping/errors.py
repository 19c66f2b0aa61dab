"""What the clipping engine refuses, by name."""


class ScalarLossError(ValueError):
    """The loss does not give one value per example, so examples cannot be clipped apart."""


class WrongRuleError(ValueError):
    """The rule of a layer gives other gradients than differentiating the layer does."""


class UnsupportedLayerError(ValueError):
    """A layer mixes examples, or has no rule in the engine that was asked for."""


class CancellingError(UnsupportedLayerError):
    """Uses of a weight cancel so far that rounding hides the norm of their sum."""
