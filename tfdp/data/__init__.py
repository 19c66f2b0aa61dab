"""Sources of examples with random access, and the decoding and augmentation of pictures."""

from tfdp.data.array_source import ArraySource
from tfdp.data.as_source import as_source
from tfdp.data.example_source import ExampleSource, batches
from tfdp.data.indexable_source import IndexableSource
from tfdp.data.pictures import RandomResizedCrop

__all__ = [
    "ArraySource",
    "ExampleSource",
    "IndexableSource",
    "RandomResizedCrop",
    "as_source",
    "batches",
]
