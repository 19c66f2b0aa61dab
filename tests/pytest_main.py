"""Where Bazel starts a test target: pytest on the paths that the target names."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
