"""Programs to start with ``python -m launch.NAME``."""

import os

# TensorFlow's own chatter from start-up; its errors are still shown.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
