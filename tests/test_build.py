"""BUILD covers every source file, and says of each exactly what it imports."""

import graphlib
import re

import pytest

from tests.build_file import (
    ROOT,
    Target,
    imports_of,
    read_targets,
    required_packages,
    source_files,
)

RUNNER = "tests/pytest_main"
CONFTEST = "tests/conftest"

# The rooms from the ground up: a room may import its own layer and those below.
LAYERS = (
    {"checks", "files"},
    {"privacy"},
    {"clipping", "optimizers", "sampling", "data"},
    {"training"},
    {"transfer", "captioner", "evaluation", "export", "audit"},
)
TARGETS = read_targets()


def own_srcs(target: Target) -> set[str]:
    """The files of a target, without the runner that every test starts with."""
    return set(target.srcs) - ({target.main} if target.rule == "py_test" else set())


def owners() -> dict[str, list[str]]:
    by_file: dict[str, list[str]] = {}
    for target in TARGETS.values():
        for path in own_srcs(target):
            by_file.setdefault(path, []).append(target.name)
    return by_file


OWNER = {path: names[0] for path, names in owners().items()}


def room(path: str) -> str | None:
    """`tfdp/clipping/rules/dense.py` -> `clipping`; None outside the rooms."""
    parts = path.split("/")
    return parts[1] if parts[0] == "tfdp" and len(parts) > 2 else None


def layer(path: str) -> int:
    name = room(path)
    found = [number for number, rooms in enumerate(LAYERS) if name in rooms]
    assert found, f"{path} lies in no room of test_build.LAYERS"
    return found[0]


def room_files() -> list[str]:
    return sorted(path for path in source_files() if room(path))


def test_every_source_file_belongs_to_exactly_one_target():
    found = owners()
    assert {path: names for path, names in found.items() if len(names) > 1} == {}
    assert sorted(source_files() - found.keys()) == []
    assert sorted(found.keys() - source_files()) == [], "BUILD names files that do not exist"


def test_every_data_file_of_the_library_travels_with_one_target():
    files = (path for path in (ROOT / "tfdp").rglob("*") if path.is_file())
    data = {path.relative_to(ROOT).as_posix() for path in files}
    data = {path for path in data if not path.endswith((".py", ".pyc"))}
    libraries = (target for target in TARGETS.values() if target.name.startswith("tfdp"))
    assert sorted(path for library in libraries for path in library.data) == sorted(data)


@pytest.mark.parametrize("name", TARGETS)
def test_dependencies_are_exactly_the_imports(name):
    target = TARGETS[name]
    expected = set()
    for path in own_srcs(target):
        imports = imports_of(path)
        expected |= {f":{OWNER.get(file, f'no target has {file}')}" for file in imports.files}
        expected |= {f"@pypi//{package}" for package in imports.packages}
    expected -= {f":{name}"}
    if target.rule == "py_test":
        expected |= {f":{CONFTEST}", f":{RUNNER}"}
    deps = set(target.deps)
    assert len(deps) == len(target.deps), "a dependency is named twice"
    assert sorted(deps - expected) == [], "named in BUILD, imported by no file"
    assert sorted(expected - deps) == [], "imported, not named in BUILD"


def test_every_package_dependency_is_in_requirements():
    named = {dep for target in TARGETS.values() for dep in target.deps if dep.startswith("@")}
    assert {dep.removeprefix("@pypi//") for dep in named} <= required_packages().keys()


def test_targets_are_the_rules_that_their_files_call_for():
    for target in TARGETS.values():
        folder = target.name.split("/")[0]
        if target.rule == "py_binary":
            assert folder == "launch" and target.main is None, target.name
            assert target.srcs == (f"{target.name}.py",), target.name
        elif target.rule == "py_test":
            assert target.main == f"{RUNNER}.py", target.name
            assert any("/test_" in path for path in target.srcs), f"{target.name} holds no test"
        else:
            assert target.rule == "py_library"


@pytest.mark.parametrize("path", room_files())
def test_imports_point_down_the_layers(path):
    for imported in imports_of(path).files:
        assert room(imported), f"{path} imports {imported}, from outside the rooms"
        assert layer(imported) <= layer(path), f"{path} imports {imported} from a higher layer"


def test_rooms_do_not_import_one_another_in_circles():
    graph: dict[str, set[str]] = {}
    for path in room_files():
        rooms = {room(imported) for imported in imports_of(path).files} - {room(path)}
        graph.setdefault(room(path), set()).update(rooms)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_clipping_knows_nothing_of_plans_or_datasets():
    """But for the ways of clipping, which have their settings in the privacy room."""
    for path in room_files():
        if room(path) == "clipping":
            imported = imports_of(path).files - {"tfdp/privacy/clipping.py"}
            assert {room(other) for other in imported} <= {"checks", "clipping"}, path


def test_only_noise_brings_tensorflow_into_privacy():
    for path in room_files():
        if room(path) == "privacy" and path != "tfdp/privacy/noise.py":
            assert not {"tensorflow", "keras"} & imports_of(path).packages, path


def test_nothing_in_the_library_reads_flags():
    for path in source_files():
        if path.startswith("tfdp/"):
            source = (ROOT / path).read_text()
            assert not re.search(r"absl import .*\b(app|flags)\b|absl\.(app|flags)", source), path
            assert "ml_collections" not in imports_of(path).packages, path
