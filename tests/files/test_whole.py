"""A file is the old one or the new one, never half of it, and nothing is left beside it."""

import pytest

from tfdp.files import FileLock, LockedError, unfinished, write_whole


def test_text_is_written_as_it_is_and_its_folder_is_made(tmp_path):
    path = tmp_path / "new" / "a.csv"
    write_whole(path, "ε,1\r\n2\n")
    assert path.read_bytes() == "ε,1\r\n2\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with unfinished(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_what_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="disk is full"), unfinished(path) as partial:
        partial.write_text("ne")
        raise OSError("the disk is full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder, "text")
    assert sorted(tmp_path.iterdir()) == [path, folder]


def test_a_lock_is_one_holders_until_it_is_released(tmp_path):
    lock = FileLock(tmp_path / "a.lock")
    with pytest.raises(LockedError, match="this process"):
        FileLock(tmp_path / "a.lock")
    lock.release()
    FileLock(tmp_path / "a.lock").release()
