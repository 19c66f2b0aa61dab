"""The program `launch.prepare_data`, as people run it."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.captioner.fake_package import small_package
from tests.conftest import child_code
from tests.forks import Fork

_ROOT = Path(__file__).resolve().parents[2]


def _run(*flags):
    return subprocess.run(
        [sys.executable, "-m", "launch.prepare_data", *flags],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_an_archive_becomes_a_data_set(tmp_path):
    with tarfile.open(tmp_path / "icons.tgz", "w:gz") as tar:
        tar.add(small_package(tmp_path / "icons"), "package")
    done = _run(
        "--dataset=icons",
        f"--source={tmp_path / 'icons.tgz'}",
        f"--output={tmp_path / 'out'}",
        "--image_size=16",
        "--processes=1",
    )
    assert done.returncode == 0, done.stderr
    assert "train: " in done.stdout and "skipped, broken: 1" in done.stdout
    assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".array_record", ".json", ".md"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dataset=icons", "--source=nowhere"), "error: --source=nowhere does not exist"),
        (("--dataset=icons", "--source=.", "more"), "error: unexpected argument 'more'"),
        (("--dataset=icons", "--source=.", "--lmit=3"), "error: Unknown command line flag 'lmit'"),
        (("--dataset=icns", "--source=."), "value should be one of <icons_small|icons|vocabulary>"),
    ],
)
def test_wrong_flags_get_one_clear_line(tmp_path, flags, message):
    program = child_code("launch.prepare_data")
    code, _, err = Fork(program, *flags, f"--output={tmp_path}").outcome()
    assert code > 0
    assert message in err and "Traceback" not in err
