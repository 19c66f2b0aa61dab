"""Sources of examples with random access, and the decoding and augmentation of pictures."""

from tfdp.data.arrays import ArraySource
from tfdp.data.batches import batches
from tfdp.data.coerce import as_source
from tfdp.data.indexable import IndexableSource
from tfdp.data.pictures import RandomResizedCrop
from tfdp.data.source import ExampleSource

__all__ = [
    "ArraySource",
    "ExampleSource",
    "IndexableSource",
    "RandomResizedCrop",
    "as_source",
    "batches",
]
