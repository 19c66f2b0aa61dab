"""What stands in the way of a preparation."""


class PreparationError(ValueError):
    """One line for the person who asked for a data set: what is wrong and how to mend it."""
