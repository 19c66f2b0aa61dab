"""Reads BUILD (Starlark that is also Python) and the imports of source files, for test_build."""

import ast
import dataclasses
import importlib.metadata
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("tfdp", "launch", "configs", "tests")


@dataclasses.dataclass(frozen=True)
class Target:
    """One rule of BUILD, its globs expanded to paths from the root."""

    rule: str
    name: str
    srcs: tuple[str, ...]
    data: tuple[str, ...]
    deps: tuple[str, ...]
    main: str | None


def read_targets() -> dict[str, Target]:
    """The Python targets of BUILD by name."""
    targets = {}
    for statement in ast.parse((ROOT / "BUILD").read_text()).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not call.func.id.startswith("py_"):
            continue
        values = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
        lists = {key: tuple(values.get(key, ())) for key in ("srcs", "data", "deps")}
        name = values["name"]
        assert name not in targets, f"BUILD names {name} twice"
        targets[name] = Target(call.func.id, name, **lists, main=values.get("main"))
    return targets


def _value(node: ast.expr) -> str | list:
    if isinstance(node, ast.BinOp):
        return [*_value(node.left), *_value(node.right)]
    if isinstance(node, ast.Call):
        assert node.func.id == "glob", f"BUILD calls {node.func.id}, which this test cannot read"
        found = _glob(node.args[0])
        excluded = [k.value for k in node.keywords if k.arg == "exclude"]
        return sorted(found - set().union(*map(_glob, excluded)))
    return ast.literal_eval(node)


def _glob(node: ast.expr) -> set[str]:
    # Bazel's final ** takes files, pathlib's only folders.
    patterns = (re.sub(r"\*\*$", "**/*", pattern) for pattern in ast.literal_eval(node))
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return {_relative(path) for path in paths if path.is_file() and not _is_cache(path)}


def source_files() -> set[str]:
    """Every Python file under the source folders."""
    return {
        _relative(path)
        for folder in SOURCE_FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not _is_cache(path)
    }


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_cache(path: Path) -> bool:
    return "__pycache__" in path.parts


@dataclasses.dataclass(frozen=True)
class Imports:
    """What a file imports: paths of this project's files, and distributions of others."""

    files: frozenset[str]
    packages: frozenset[str]


@cache
def imports_of(path: str) -> Imports:
    """The imports of a file, the ones inside functions and under TYPE_CHECKING included.

    In a test, code given to a child process as a string counts, and so does a string that names a
    module or a file of the project (`launch.plan`, `configs/quickstart.py`).
    """
    tree = ast.parse((ROOT / path).read_text())
    names = set(_imported(tree, path))
    if path.startswith("tests/"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.update(_named_in_string(node.value))
    files = {file for name in names if (file := _project_file(name)) and file != path}
    others = {name.split(".")[0] for name in names} - {*SOURCE_FOLDERS, *sys.stdlib_module_names}
    return Imports(frozenset(files), frozenset(map(_distribution, others)))


def _imported(tree: ast.AST, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("TensorBoard", "create_file_writer"):
            yield "tensorboard"  # TensorFlow imports it when the first summary is written
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively, name the package"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if _project_file(whole) else node.module


def _named_in_string(text: str) -> Iterator[str]:
    if re.fullmatch(r"(tfdp|launch|configs|tests)(\.\w+)+", text):
        yield text
    elif match := re.fullmatch(r"(configs/\w+)\.py(:.*)?", text):
        yield match[1].replace("/", ".")
    elif "import " in text:
        try:
            yield from _imported(ast.parse(textwrap.dedent(text)), "a string")
        except SyntaxError:
            return


def _project_file(module: str) -> str | None:
    """The file of a module of this project, None for other modules and for attributes."""
    base = ROOT / module.replace(".", "/")
    if module.split(".")[0] not in SOURCE_FOLDERS:
        return None
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return _relative(path)
    return None


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _distribution(top_level: str) -> str:
    names = _distributions().get(top_level)
    assert names, f"import {top_level}: no installed package provides it, nor does this project"
    return normalized(names[0])


def normalized(package: str) -> str:
    """A package's name the way Bazel's pip hub spells it."""
    return re.sub(r"[-_.]+", "_", package).lower()


def required_packages(file: str = "requirements.txt") -> dict[str, str]:
    """The pinned packages of a requirements file: normalised name -> version."""
    lines = (line.split("#")[0].strip() for line in (ROOT / file).read_text().splitlines())
    pins = (line.split("==") for line in lines if line)
    return {normalized(name): version for name, version in pins}
