"""The ledger: nothing is lost, nothing is taken back, and changes from outside are noticed."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfdp.privacy import Ledger, LedgerError, Segment, StepSettings
from tfdp.privacy import _ledger_file as ledger_file

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
def test_f6_updates_are_counted_not_settings(on_disk, tmp_path):
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
def test_f8_other_settings_open_a_segment_and_overwrite_nothing(change, tmp_path):
    changed = StepSettings(**{**ONE.to_dict(), **change})
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3), (changed, 2), (ONE, 1))
        assert [entry.steps for entry in ledger.entries] == [3, 2, 1]
        assert ledger.segments() == [Segment(ONE, 4), Segment(changed, 2)]
    assert Ledger.read(tmp_path).segments() == [Segment(ONE, 4), Segment(changed, 2)]


def test_f1_a_later_process_adds_to_what_is_there(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 6))
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 4))
        assert ledger.segments() == [Segment(ONE, 10)]
    assert [entry.steps for entry in Ledger.read(tmp_path).entries] == [6, 4]


def test_an_update_is_on_the_disk_when_record_returns(tmp_path, monkeypatch):
    synced = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), sync(fd))[1])
    with Ledger(tmp_path) as ledger:
        for count in range(1, 6):
            ledger.record(ONE)
            assert Ledger.read(tmp_path).steps == count
    assert len(synced) == 4, "the first step of a segment is synced by the file's renewal"


def test_a_new_segment_is_flushed_before_it_takes_its_place_and_its_folder_after(
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

    with Ledger(tmp_path / "folder") as ledger:
        monkeypatch.setattr(os, "fsync", noted_sync)
        monkeypatch.setattr(os, "replace", noted_replace)
        ledger.record(ONE)
    assert done == ["ledger.jsonl.new", "replace", "folder"]


def test_the_file_is_one_readable_line_a_segment(tmp_path):
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3), (OTHER, 2))
    data = (tmp_path / "ledger.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    assert (lines[0]["ledger"], lines[0]["segments"]) == ("tfdp", 2)
    assert [line["steps"] for line in lines[1:]] == [3, 2]
    assert lines[1]["settings"] == ONE.to_dict()
    assert all(len(line) % 512 == 0 for line in data.splitlines(keepends=True))


def edit(data, old, new):
    assert old in data
    return data.replace(old, new, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: edit(data, b'"steps":            7', b'"steps":            3'),
        lambda data: edit(data, b'"noise_multiplier": 1.0', b'"noise_multiplier": 9.0'),
        lambda data: edit(data, b'"segments": 2', b'"segments": 1'),
        lambda data: data[:-1024],
        lambda data: data[:-300],
        lambda data: data[: len(data) // 2],
        lambda data: data[:512],
        lambda data: b"",
        lambda data: data + data[-512:],
        lambda data: data + b'{"upd',
        lambda data: data[:512] + data[1024:],
        lambda data: b"\0" * len(data),
        lambda data: edit(data, b'"version": 1', b'"version": 2'),
        lambda data: edit(data, b'"steps":', b'"steps":   1, "steps":'),
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


def test_blanks_that_an_editor_trimmed_are_no_change(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 7))
    whole = path.read_bytes()
    path.write_bytes(b"\n".join(line.rstrip() for line in whole.split(b"\n")))
    with Ledger(tmp_path) as ledger:
        assert path.read_bytes() == whole
        fill(ledger, (ONE, 2))
    assert Ledger.read(tmp_path).steps == 9


@pytest.mark.parametrize("what", ["removed", "replaced", "edited"])
@pytest.mark.parametrize("then", [ONE, OTHER])
def test_a_file_that_changes_under_us_stops_the_next_update(what, then, tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(tmp_path) as ledger:
        fill(ledger, (ONE, 3))
        content = path.read_bytes()
        if what == "edited":
            with path.open("r+b") as file:
                file.seek(512)
                file.write(b'{"steps":            1')
        else:
            path.unlink()
            if what == "replaced":
                path.write_bytes(content)
        with pytest.raises(LedgerError, match="no update is made"):
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
    with pytest.raises(LedgerError, match="of 2 steps, had it open: opening it would lose them"):
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


def test_repeats_of_the_very_same_update_cost_nothing(tmp_path):
    with Ledger(tmp_path) as ledger:
        for update in range(10):
            ledger.record(ONE, stream="key", update=update)
    with Ledger(tmp_path) as ledger:  # killed after 10, weights kept from update 7
        for update in range(7, 15):
            ledger.record(ONE, stream="key", update=update)
        assert ledger.steps == 15
        ledger.record(ONE, stream="another key", update=3)
        ledger.record(OTHER, stream="key", update=3)
        ledger.record(ONE)
        assert ledger.steps == 18
        ledger.record(ONE, stream="key", update=20)
        ledger.record(ONE, stream="key", update=20)
        assert ledger.steps == 19
    assert Ledger.read(tmp_path).steps == 19


def test_stream_and_number_go_together():
    with pytest.raises(ValueError, match="give both or neither"):
        Ledger().record(ONE, stream="key")
    with pytest.raises(ValueError, match="update must be a whole number"):
        Ledger().record(ONE, stream="key", update=-1)


def test_updates_that_do_not_compose_are_refused_before_they_run(tmp_path):
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


def test_merging_contradictions_is_refused():
    ledger = fill(Ledger(), (ONE, 4))
    forged = ledger.to_dict()
    forged["segments"][0]["settings"]["noise_multiplier"] = 9.0
    with pytest.raises(LedgerError, match="disagree"):
        ledger.merge(forged)
    with pytest.raises(LedgerError, match="not a ledger"):
        ledger.merge({"format": "shopping list"})
    assert ledger.steps == 4


def test_threads_do_not_lose_updates(tmp_path):
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

    names = ("pwrite", "fdatasync", "write", "fsync", "replace", "open")
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
