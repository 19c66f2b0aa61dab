"""Features on disk."""

from tfdp.transfer.store.folder import FeatureFolder, FeatureWriter
from tfdp.transfer.store.shards import FeatureFileError, NpyPart
from tfdp.transfer.store.tfrecords import read_tfrecords

__all__ = ["FeatureFileError", "FeatureFolder", "FeatureWriter", "NpyPart", "read_tfrecords"]
