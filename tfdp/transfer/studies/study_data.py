"""The examples of a study, by the names in its config, and the seeds that follow from them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tfdp.transfer.backbones import load_backbone
from tfdp.transfer.feature_table import FeatureTable
from tfdp.transfer.features import COMMON, FeatureFolder, PictureSet, open_splits
from tfdp.transfer.fine_tuning import Pictures
from tfdp.transfer.release_budget import seed_for
from tfdp.transfer.studies.candidates import Candidate

_USUAL_DTYPE = "float16"  # of features


@dataclasses.dataclass(frozen=True)
class StudyData:
    """The examples of a study, each kind opened when a method first asks for it.

    Attributes:
        features: Feature folder, for methods on features.
        train_split, test_split: Names of the splits.
        dataset, path: Pictures, for methods that train the backbone; see `open_pictures`.
        backbone, weights, image_size: See `load_backbone`; "" and 0 stand for its own.
    """

    features: str = ""
    train_split: str = "train"
    test_split: str = "test"
    dataset: str = ""
    path: str = ""
    backbone: str = ""
    weights: str = ""
    image_size: int = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> StudyData:
        """Returns the data that a study's config names."""
        backbone, pictures = config["backbone"], config["pictures"]
        return cls(
            features=config["features"],
            train_split=config["train_split"],
            test_split=config["test_split"],
            dataset=pictures["dataset"],
            path=pictures["path"],
            backbone=backbone["name"],
            weights=backbone["weights"],
            image_size=backbone["image_size"],
        )

    def of(self, candidate: Candidate) -> tuple[Any, Any]:
        """Returns examples to train on and to test on."""
        return self.picture_splits if candidate.method == "fine_tune" else self.feature_splits

    def class_names(self, candidate: Candidate) -> list[str]:
        """Returns the names of the classes."""
        if candidate.method == "fine_tune":
            return list(self._picture_sets[0].class_names)
        return self.folder.manifest["dataset"]["class_names"]

    def seed(self, candidate: Candidate, seed: int | None) -> int | None:
        """Returns the seed for these examples: other examples have other noise under one seed.

        Names identify the public datasets that are the same everywhere. Others of one name may
        differ, and of features from TFRecord files it is not known what made them.
        """
        if candidate.method == "fine_tune":
            made: list[Any] = [self.dataset, self.backbone, self.image_size]
            if self.dataset not in COMMON:
                made.append(self.path)
            if self.weights:
                made.append(self.weights)
        else:
            manifest = self.folder.manifest
            made = [manifest.get(key) for key in ("dataset", "backbone", "preprocessing")]
            if (dtype := manifest.get("dtype", _USUAL_DTYPE)) != _USUAL_DTYPE:
                made.append(dtype)  # features that were rounded otherwise are other features
            if manifest["dataset"].get("name") not in COMMON:
                made.append(self.checksum)
        return seed_for(seed, self.train_split, made)

    @functools.cached_property
    def folder(self) -> FeatureFolder:
        """The feature folder, with all files compared with their checksums."""
        return FeatureFolder(self.features, verify=True)

    @property
    def checksum(self) -> str:
        """SHA-256 of the features: of the checksums of their files, and of what made them."""
        manifest = self.folder.manifest
        made = [manifest.get(key) for key in ("dataset", "backbone", "preprocessing")]
        made += [manifest["splits"][split] for split in (self.train_split, self.test_split)]
        return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def feature_splits(self) -> tuple[FeatureTable, FeatureTable]:
        """Features to train on and to test on."""
        train, test = self.folder.table(self.train_split), self.folder.table(self.test_split)
        if train.dim != test.dim:
            raise ValueError(
                f"features of split {self.train_split!r} have {train.dim} columns, and those of "
                f"{self.test_split!r} {test.dim}: make both with the same backbone."
            )
        return train, test

    @functools.cached_property
    def picture_splits(self) -> tuple[Pictures, Pictures]:
        """Pictures to train on and to test on, at the size of the backbone."""
        size = self.image_size or load_backbone(self.backbone, self.weights or None).image_size
        train, test = self._picture_sets
        return Pictures(train, size), Pictures(test, size)

    @functools.cached_property
    def _picture_sets(self) -> list[PictureSet]:
        return open_splits(self.dataset, (self.train_split, self.test_split), self.path)
