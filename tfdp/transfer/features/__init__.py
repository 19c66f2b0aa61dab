"""Features: pictures with labels, their extraction, and the folders that hold them."""

from tfdp.transfer.features.extraction import (
    DTYPES,
    convert_tfrecords,
    extract,
    feature_header,
    read_tfrecords,
)
from tfdp.transfer.features.feature_folder import (
    Extracted,
    FeatureFileError,
    FeatureFolder,
    FeatureWriter,
    NpyPart,
)
from tfdp.transfer.features.named_datasets import COMMON, open_pictures, open_splits
from tfdp.transfer.features.picture_sets import ArrayPictures, DatasetError, PictureSet

__all__ = [
    "COMMON",
    "DTYPES",
    "ArrayPictures",
    "DatasetError",
    "Extracted",
    "FeatureFileError",
    "FeatureFolder",
    "FeatureWriter",
    "NpyPart",
    "PictureSet",
    "convert_tfrecords",
    "extract",
    "feature_header",
    "open_pictures",
    "open_splits",
    "read_tfrecords",
]
