"""Sources of records with random access, picture-caption pairs, tokenizers, augmentation."""

from tfdp.data.arrays import ArraySource
from tfdp.data.batches import batches
from tfdp.data.coerce import as_source
from tfdp.data.icons import icons_manifest, icons_tokenizer, load_icons, public_captions
from tfdp.data.image_text import ImageTextSource
from tfdp.data.indexable import IndexableSource
from tfdp.data.pictures import RandomResizedCrop
from tfdp.data.records import Pair, read_manifest
from tfdp.data.source import ExampleSource
from tfdp.data.tokenizer import CaptionTokenizer

__all__ = [
    "ArraySource",
    "CaptionTokenizer",
    "ImageTextSource",
    "IndexableSource",
    "Pair",
    "RandomResizedCrop",
    "ExampleSource",
    "as_source",
    "batches",
    "icons_manifest",
    "icons_tokenizer",
    "load_icons",
    "public_captions",
    "read_manifest",
]
