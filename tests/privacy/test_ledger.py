"""The ledger: nothing is lost, nothing is taken back, and changes from outside are noticed."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfdp.privacy import Ledger, Segment, StepSettings, ledger_file
from tfdp.privacy.ledger import LedgerError

ONE = StepSettings(60_000, 256, 1.0, 1.0)
OTHER = StepSettings(60_000, 256, 2.0, 1.0)
PASSES = StepSettings(60_000, 256, 1.0, 1.0, "none")
FIXED = StepSettings(60_000, 256, 1.0, 1.0, "fixed_size")


def fill(ledger, *counts):
    for settings, count in counts:
        for _ in range(count):
            ledger.record(settings)
    return ledger


@pytest.mark.parametrize("on_disk", [True, False])
def test_steps_are_counted_not_settings(on_disk, tmp_path):
    ledger = fill(Ledger(tmp_path if on_disk else None), (ONE, 100))
    assert ledger.steps == len(ledger) == 100
    fill(ledger, (OTHER, 50))
    assert len(ledger) == 150
    assert ledger.segments() == [Segment(ONE, 100), Segment(OTHER, 50)]
    back = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert back.entries == ledger.entries


@pytest.mark.parametrize("change", [
    {"num_examples": 60_001}, {"batch_size": 257}, {"noise_multiplier": 1.1}, {"clip_norm": 0.5},
])  # fmt: skip
def test_other_settings_open_a_segment_and_overwrite_nothing(change, tmp_path):
    changed = StepSettings(**{**ONE.to_dict(), **change})
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3), (changed, 2), (ONE, 1))
        assert [entry.steps for entry in ledger.entries] == [3, 2, 1]
        assert ledger.segments() == [Segment(ONE, 4), Segment(changed, 2)]
    assert Ledger.read(tmp_path).segments() == [Segment(ONE, 4), Segment(changed, 2)]


def test_a_later_process_adds_to_what_is_there(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 6))
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 4))
        assert ledger.segments() == [Segment(ONE, 10)]
    assert [entry.steps for entry in Ledger.read(tmp_path).entries] == [6, 4]


def test_a_step_is_on_the_disk_when_record_returns(tmp_path, monkeypatch):
    synced = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), sync(fd))[1])
    with Ledger(tmp_path) as ledger:
        for count in range(1, 6):
            ledger.record(ONE)
            assert Ledger.read(tmp_path).steps == count
    assert len(synced) == 6, "the first line of a segment takes two writes, the others one"


def test_a_new_file_is_flushed_before_it_takes_its_place_and_its_folder_after(
    tmp_path, monkeypatch
):
    done = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def noted_replace(source, target):
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    Ledger(tmp_path / "folder").close()
    assert done == [".ledger.jsonl.unfinished", "replace", "folder"]


def test_a_long_line_is_on_the_disk_before_its_line_end(tmp_path, monkeypatch):
    written = []
    write, sync = os.pwrite, os.fdatasync
    with Ledger(tmp_path) as ledger:
        monkeypatch.setattr(os, "pwrite", lambda *args: (written.append(args[1]), write(*args))[1])
        monkeypatch.setattr(os, "fdatasync", lambda fd: (written.append("sync"), sync(fd))[1])
        fill(ledger, (ONE, 2))
    body, first, end, second, count, third = written
    assert body.startswith(b'{"id": ') and b"\n" not in body and end == b"\n"
    assert count.startswith(b'{"steps": 2, ') and len(count) == 64
    assert first == second == third == "sync"


def test_the_file_is_one_readable_line_a_step(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3), (OTHER, 2))
    data = (tmp_path / "ledger.jsonl").read_bytes()
    header, *lines, end = [json.loads(line) for line in data.splitlines()]
    assert header["ledger"] == "tfdp" and end == {"end": True}
    assert [line["steps"] for line in lines] == [1, 2, 3, 1, 2]
    assert lines[0]["settings"] == ONE.to_dict() and lines[3]["settings"] == OTHER.to_dict()
    assert all(set(line) == {"steps", "check"} for line in (*lines[1:3], lines[4]))
    assert all(len(line) % 64 == 0 for line in data.splitlines(keepends=True))


def test_the_file_grows_by_blocks_and_stays_readable(tmp_path):
    with Ledger(tmp_path) as ledger:
        path, sizes = tmp_path / "ledger.jsonl", set()
        for count in range(1, 200):
            ledger.record(ONE)
            sizes.add(path.stat().st_size)
            assert Ledger.read(tmp_path).steps == count
    assert sizes == {4096, 8192, 12288, 16384}
    with Ledger(tmp_path) as ledger:
        fill(ledger, (OTHER, 1))
    assert Ledger.read(tmp_path).segments() == [Segment(ONE, 199), Segment(OTHER, 1)]


def edit(data, old, new):
    assert old in data
    return data.replace(old, new, 1)


def last_line(data):
    """The last line before the end of the file."""
    return data.splitlines(keepends=True)[-2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: edit(data, b'{"steps": 7', b'{"steps": 3'),
        lambda data: edit(data, b'"noise_multiplier": 1.0', b'"noise_multiplier": 9.0'),
        lambda data: edit(data, b'{"end": true}', b"             "),
        lambda data: data[:-1024],
        lambda data: data[:-300],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:512],
        lambda data: b"",
        lambda data: data + last_line(data),
        lambda data: edit(data, last_line(data), 2 * last_line(data)),
        lambda data: edit(data, b'{"steps": 6', b'{"steps": 5'),
        lambda data: data + b'{"upd',
        lambda data: data[:512] + data[1024:],
        lambda data: data[:64] + data[128:],
        lambda data: data[128:],
        lambda data: b"\0" * len(data),
        lambda data: edit(data, b'"version": 1', b'"version": 2'),
        lambda data: edit(data, b'"steps": 1', b'"steps": 1, "steps": 1'),
    ],
)
def test_a_changed_or_truncated_ledger_is_noticed(damage, tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 7), (OTHER, 2))
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LedgerError, match="ledger"):
        Ledger.read(tmp_path)
    before = path.read_bytes()
    with pytest.raises(LedgerError):
        Ledger(tmp_path)
    assert path.read_bytes() == before, "a damaged ledger is left for people to look at"


@pytest.mark.parametrize("settings", [ONE, OTHER])
def test_a_line_torn_at_any_byte_is_a_step_that_was_not_made(settings, tmp_path):
    """Whatever part of a line reaches the disk: all before it counts, and it does once it is whole.

    A line of several sectors may reach the disk in any order, but for its line end, the last.
    """
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3))
        before = path.read_bytes()
        fill(ledger, (settings, 1))
        after = path.read_bytes()
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    start, stop = changed[0], after.index(b"\n", changed[0]) + 1
    for cut in range(start, stop):
        for torn in (
            after[:cut] + before[cut:],
            before[:cut] + after[cut : stop - 1] + before[stop - 1 :],
        ):
            path.write_bytes(torn)
            whole = settings is ONE and b'"}' in torn[start:stop] and b"\n" in torn[start:stop]
            assert Ledger.read(tmp_path).steps == 3 + whole
    path.write_bytes(after[: start + 30] + before[start + 30 :])
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 2))
    assert Ledger.read(tmp_path).steps == 5


def test_a_file_torn_while_it_grows_is_whole(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        while path.stat().st_size == 4096:
            before = path.read_bytes()
            fill(ledger, (ONE, 1))
        after = path.read_bytes()
    for end in range(4096, 8192, 7):
        path.write_bytes(before + after[4096:end])
        assert Ledger.read(tmp_path).steps == ledger.steps - 1
        with Ledger(tmp_path) as again:
            fill(again, (ONE, 1))
            assert Ledger.read(tmp_path).steps == ledger.steps


@pytest.mark.parametrize("settings", [ONE, OTHER])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_step_that_could_not_be_written_is_not_made_and_the_next_one_is(
    call, settings, tmp_path, monkeypatch
):
    """A full disk, or a person who interrupts: the step raises, and the ledger goes on."""
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 70))
        original = getattr(os, call)

        def failing(*args):
            monkeypatch.undo()
            original(*args)
            raise KeyboardInterrupt

        for number in range(3):
            monkeypatch.setattr(os, call, failing)
            with pytest.raises(KeyboardInterrupt):
                ledger.record(settings)
            assert ledger.steps == Ledger.read(tmp_path).steps == 70 + number
            fill(ledger, (ONE, 1))
    assert Ledger.read(tmp_path).segments() == [Segment(ONE, 73)]


def test_blanks_that_an_editor_trimmed_are_no_change(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 7))
    whole = path.read_bytes()
    path.write_bytes(b"\n".join(line.strip() for line in whole.split(b"\n")))
    with Ledger(tmp_path) as ledger:
        assert path.read_bytes() == whole
        fill(ledger, (ONE, 2))
    assert Ledger.read(tmp_path).steps == 9


@pytest.mark.parametrize("what", ["removed", "replaced", "edited", "cut"])
@pytest.mark.parametrize("then", [ONE, OTHER])
def test_a_file_that_changes_while_in_use_stops_the_next_step(what, then, tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3))
        content = path.read_bytes()
        if what == "edited":
            with path.open("r+b") as file:
                file.seek(content.index(b'{"steps": 3'))
                file.write(b'{"steps": 1')
        elif what == "cut":
            os.truncate(path, 4000)
        else:
            path.unlink()
            if what == "replaced":
                path.write_bytes(content)
        with pytest.raises(LedgerError, match="no step is made"):
            ledger.record(then)
        assert ledger.steps == 3


def test_a_second_object_of_a_process_takes_over_and_loses_nothing(tmp_path):
    first = fill(Ledger(tmp_path), (ONE, 2), (OTHER, 1))
    second = Ledger(tmp_path)
    assert second.entries == first.entries
    for write in (lambda: first.record(ONE), lambda: first.merge(Ledger())):
        with pytest.raises(LedgerError, match="another Ledger of this process .* has taken it ov"):
            write()
    first.close()  # lets nothing go that is not its own
    fill(second, (OTHER, 1))
    third = Ledger(tmp_path)
    del second
    fill(third, (ONE, 1))
    assert Ledger.read(tmp_path).steps == third.steps == 5
    third.close()
    Ledger(tmp_path).close()


def test_nothing_is_taken_over_from_a_file_that_is_gone(tmp_path):
    first = fill(Ledger(tmp_path), (ONE, 2))
    content = (tmp_path / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(LedgerError, match="had it open. Opening it would lose 2 steps"):
        Ledger(tmp_path)
    assert not (tmp_path / "ledger.jsonl").exists()
    first.close()
    with Ledger(tmp_path) as anew:
        assert anew.steps == 0
    (tmp_path / "ledger.jsonl").write_bytes(content)
    assert Ledger(tmp_path).steps == 2


def test_threads_that_open_and_record_at_once_lose_nothing(tmp_path):
    recorded = []

    def work(_):
        for _ in range(10):
            ledger = Ledger(tmp_path)
            for _ in range(3):
                try:
                    ledger.record(ONE)
                except LedgerError:
                    break
                recorded.append(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert Ledger.read(tmp_path).steps == len(recorded) > 0


def test_a_forgotten_ledger_lets_go(tmp_path):
    ledger = fill(Ledger(tmp_path), (ONE, 1))
    del ledger
    with Ledger(tmp_path) as again:
        assert again.steps == 1


def test_a_stale_lock_file_locks_nobody_out(tmp_path):
    (tmp_path / "ledger.jsonl.lock").write_text("pid 1 on elsewhere\n")
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 1))


def test_a_closed_ledger_records_nothing(tmp_path):
    ledger = fill(Ledger(tmp_path), (ONE, 2))
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.record(ONE)
    assert Ledger.read(tmp_path).steps == 2


def test_repeats_of_the_very_same_step_are_free(tmp_path):
    with Ledger(tmp_path) as ledger:
        for step in range(10):
            ledger.record(ONE, stream="key", step=step)
    with Ledger(tmp_path) as ledger:  # killed after 10, weights kept from step 7
        for step in range(7, 15):
            ledger.record(ONE, stream="key", step=step)
        assert ledger.steps == 15
        ledger.record(ONE, stream="another key", step=3)
        ledger.record(OTHER, stream="key", step=3)
        ledger.record(ONE)
        assert ledger.steps == 18
        ledger.record(ONE, stream="key", step=20)
        ledger.record(ONE, stream="key", step=20)
        assert ledger.steps == 19
    assert Ledger.read(tmp_path).steps == 19


def test_stream_and_number_go_together():
    with pytest.raises(ValueError, match="give both or neither"):
        Ledger().record(ONE, stream="key")
    with pytest.raises(ValueError, match="step must be a whole number"):
        Ledger().record(ONE, stream="key", step=-1)


def test_steps_that_do_not_compose_are_rejected_before_they_run(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 1))
        with pytest.raises(ValueError, match="cannot be composed"):
            ledger.record(FIXED)
        assert Ledger.read(tmp_path).steps == 1


def test_unsampled_passes_begin_anew_with_each_segment():
    ledger = Ledger()
    for _ in range(2):
        ledger.begin_segment()
        fill(ledger, (PASSES, 10))
    assert ledger.segments() == [Segment(PASSES, 10)] * 2
    assert PASSES.exposures(10) == 1
    once = Ledger()
    fill(once, (PASSES, 10))
    assert ledger.epsilon(1e-5).epsilon > once.epsilon(1e-5).epsilon


def test_merging_copies_of_one_ledger_keeps_the_newer(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 5))
        old = ledger.to_dict()
        fill(ledger, (ONE, 3), (OTHER, 1))
        ledger.merge(old)
        assert ledger.steps == 9
        fill(ledger, (OTHER, 1))
    behind = Ledger.from_dict(old)
    behind.merge(Ledger.read(tmp_path))
    assert behind.steps == 10
    behind.merge(Ledger.read(tmp_path))
    assert behind.steps == 10


def test_merging_a_ledger_that_ran_ahead_raises_the_file(tmp_path):
    """The file was restored from a backup; the checkpoint knows better."""
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 2))
        backup = (tmp_path / "ledger.jsonl").read_bytes()
        fill(ledger, (ONE, 6))
        checkpoint = ledger.to_dict()
    (tmp_path / "ledger.jsonl").write_bytes(backup)
    with Ledger(tmp_path) as ledger:
        assert ledger.steps == 2
        ledger.merge(checkpoint)
        assert ledger.steps == 8
    assert Ledger.read(tmp_path).steps == 8


def test_merging_forks_counts_both_branches():
    trunk = fill(Ledger(), (ONE, 4))
    left, right = (fill(Ledger.from_dict(trunk.to_dict()), (ONE, n)) for n in (3, 2))
    left.merge(right)
    assert left.steps == 4 + 3 + 2


def test_merging_contradictions_is_rejected():
    ledger = fill(Ledger(), (ONE, 4))
    forged = ledger.to_dict()
    forged["segments"][0]["settings"]["noise_multiplier"] = 9.0
    with pytest.raises(LedgerError, match="disagree"):
        ledger.merge(forged)
    with pytest.raises(LedgerError, match="not a ledger"):
        ledger.merge({"format": "shopping list"})
    assert ledger.steps == 4


def test_threads_do_not_lose_steps(tmp_path):
    with Ledger(tmp_path) as ledger:
        threads = [threading.Thread(target=fill, args=(ledger, (ONE, 25))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.steps == 100
    assert Ledger.read(tmp_path).steps == 100


def test_an_empty_ledger_is_a_ledger(tmp_path):
    assert Ledger(), "truth means that there is one"
    assert Ledger().epsilon(1e-5).epsilon == 0.0
    Ledger(tmp_path / "new" / "folder").close()
    assert Ledger.read(tmp_path / "new" / "folder").entries == ()
    with pytest.raises(FileNotFoundError):
        Ledger.read(tmp_path / "nowhere")


def test_a_crash_at_any_moment_never_counts_too_little(tmp_path, monkeypatch):
    """Every system call that writes is made to fail once, before it and after it."""

    class CrashError(Exception):
        pass

    names = ("pwrite", "fdatasync", "ftruncate", "write", "fsync", "replace", "open")
    real = {name: getattr(os, name) for name in names}
    for number in range(400):
        folder = tmp_path / str(number)
        calls, returned = 0, 0
        crashed = False

        def breaking(name, number=number):
            def call(*args, **kwargs):
                nonlocal calls, crashed
                calls += 1
                if crashed or calls == number // 2 + 1:
                    if number % 2 and not crashed:
                        real[name](*args, **kwargs)
                    crashed = True
                    raise CrashError
                return real[name](*args, **kwargs)

            return call

        with Ledger(folder) as ledger:
            for name in names:
                monkeypatch.setattr(ledger_file.os, name, breaking(name))
            try:
                for settings in (ONE, ONE, OTHER, OTHER, ONE, ONE):
                    ledger.record(settings)
                    returned += 1
            except CrashError:
                pass
            monkeypatch.undo()
        assert returned <= Ledger.read(folder).steps <= returned + 1
        if not crashed:
            assert returned == 6 and number > 20
            return
    raise AssertionError("the crashes never ended")


def test_a_ledger_behind_a_link_stays_where_it_is(tmp_path):
    (tmp_path / "run").mkdir()
    with Ledger(tmp_path / "central") as ledger:
        ledger.record(StepSettings(100, 10, 1.0, 1.0))
    (tmp_path / "run" / "ledger.jsonl").symlink_to(tmp_path / "central" / "ledger.jsonl")
    with Ledger(tmp_path / "run") as ledger:
        ledger.record(StepSettings(100, 10, 1.0, 1.0))
        other = Ledger(tmp_path / "central")
        with pytest.raises(LedgerError, match="has taken it over"):
            ledger.record(StepSettings(100, 10, 1.0, 1.0))
        other.close()
    assert (tmp_path / "run" / "ledger.jsonl").is_symlink()
    assert Ledger.read(tmp_path / "central").steps == 2
