"""The one door to tensorflow-privacy.

Importing the package pulls in estimators that TensorFlow no longer has. Its documented switch
for stand-alone use, set here and nowhere else, leaves the analysis code, which is all we need.
"""

from __future__ import annotations

import sys

sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]

from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib  # noqa: E402

AccountantType = compute_dp_sgd_privacy_lib.AccountantType
compute_dp_sgd_privacy_statement = compute_dp_sgd_privacy_lib.compute_dp_sgd_privacy_statement
