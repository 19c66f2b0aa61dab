"""The privacy report as a page: one file, no outside references, for any screen."""

from tfdp.privacy.html.page import render

__all__ = ["render"]
