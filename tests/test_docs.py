"""The README and the pages of docs/: their code runs, and what they name is there."""

import ast
import contextlib
import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build_file import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>test:\n.*?|fragment: .*?)-->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
# What shell blocks begin with beside the programs of this repository.
_COMMANDS = {"git", "npm", "pip", "pytest", "python3.11", ".", "bash"}

ROOMS = (
    "tfdp.audit",
    "tfdp.captioner",
    "tfdp.clipping",
    "tfdp.data",
    "tfdp.evaluation",
    "tfdp.export",
    "tfdp.optimizers",
    "tfdp.privacy",
    "tfdp.sampling",
    "tfdp.training",
    "tfdp.transfer",
)

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def python_of(page: Path) -> str:
    """The Python blocks of a page in order, each after the hidden setup that stands before it."""
    parts = []
    for fence in _FENCE.finditer(page.read_text()):
        mark = fence["mark"] or ""
        if fence["language"] == "python" and not mark.startswith("fragment"):
            parts += [mark.removeprefix("test:"), fence["code"]]
    return "\n".join(parts)


def commands_of(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks, by words."""
    for fence in _FENCE.finditer(page.read_text()):
        if fence["language"] == "sh":
            for line in fence["code"].splitlines():
                yield from (command.split() for command in line.split(" && "))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_fits_on_three_screens_and_the_glossary_on_one():
    assert len(README.read_text().splitlines()) <= 180
    assert len((ROOT / "docs" / "glossary.md").read_text().splitlines()) <= 30


@page_by_page
def test_every_code_block_has_a_language_that_is_checked(page):
    languages = {fence["language"] for fence in _FENCE.finditer(page.read_text())}
    assert languages <= {"python", "sh", "text"}
    assert page.read_text().count("```") == 2 * len(list(_FENCE.finditer(page.read_text())))


@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, run_in_subprocess, tmp_path):
    """J6: as printed, in an empty folder."""
    assert run_in_subprocess(f"import os\nos.chdir({str(tmp_path)!r})\n{python_of(page)}")


@page_by_page
def test_shell_commands_name_programs_flags_and_settings_that_exist(page):
    for program, *words in commands_of(page):
        if program != "python":
            assert program in _COMMANDS, program
            continue
        dash_m, module, *flags = words
        path = ROOT / f"{module.replace('.', '/')}.py"
        assert dash_m == "-m" and path.is_file(), words
        values = dict(flag.removeprefix("--").partition("=")[::2] for flag in flags)
        defined = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', path.read_text()))
        assert {name.split(".")[0] for name in values} <= defined, words
        _check_settings(values)


def _check_settings(values: dict[str, str]) -> None:
    if "config" not in values:
        return
    file, _, argument = values.pop("config").partition(":")
    get_config = runpy.run_path(str(ROOT / file))["get_config"]
    config = get_config(argument) if argument else get_config()
    for name in values:
        if name.startswith("config."):
            *sections, last = name.split(".")[1:]
            for section in sections:
                config = config[section]
            assert last in config, name


@page_by_page
def test_every_link_leads_somewhere(page):
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@page_by_page
def test_every_path_that_a_page_names_exists(page):
    named = re.findall(
        r"`((?:tfdp|launch|configs|tests|docs|notebooks)/[\w./-]*)", page.read_text()
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@page_by_page
def test_every_name_of_tfdp_that_a_page_gives_can_be_imported(page):
    for name in set(re.findall(r"\btfdp(?:\.\w+)+", page.read_text())):
        assert_importable(name)


@page_by_page
def test_every_program_that_a_page_names_exists(page):
    for name in re.findall(r"\b(?:launch|benchmarks)\.(\w+)", page.read_text()):
        assert (ROOT / "launch" / f"{name}.py").is_file() or (
            ROOT / "benchmarks" / f"{name}.py"
        ).is_file(), name


def test_every_pitfall_names_tests_that_are_there():
    """J9."""
    page = ROOT / "docs" / "pitfalls.md"
    rows = [line for line in page.read_text().splitlines() if "](../tests/" in line]
    assert len(rows) >= 14
    for row in rows:
        named = re.findall(r"\]\((\S+?)\) ((?:`\w+`(?:, )?)+)", row)
        assert len(named) == row.count("](../tests/"), row
        for path, names in named:
            tests = re.findall(r"def (test_\w+)", (page.parent / path).read_text())
            for name in re.findall(r"`(\w+)`", names):
                assert name in tests, (path, name)


def test_the_guide_says_which_settings_to_start_from_and_never_private_norms():
    """J5."""
    section = (ROOT / "docs" / "guide.md").read_text().split("## Settings to start from")[1]
    for name in ("delta", "epsilon", "batch_size", "clip_norm", "learning_rate"):
        assert f"- `{name}`" in section
    assert "`1.0`" in section and "*public* examples" in section
    assert "per_example_norms" in section


@pytest.mark.parametrize("dataset", ["cifar10", "fashion_mnist"])
def test_tables_are_those_of_the_results(dataset):
    table = (ROOT / "benchmarks" / "results" / dataset / "table.md").read_text().strip()
    assert table in (ROOT / "docs" / "private-classifiers.md").read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_everything_that_a_room_exports_is_there_and_documented(room):
    module = importlib.import_module(room)
    for name in module.__all__:
        value = getattr(module, name)
        assert not callable(value) or inspect.getdoc(value), f"{room}.{name}"


@pytest.mark.parametrize("path", sorted((ROOT / "tfdp").rglob("*.py")), ids=str)
def test_every_name_of_tfdp_in_a_docstring_can_be_imported(path):
    for docstring in _docstrings(path):
        for name in set(re.findall(r"(?<![\w./])tfdp(?:\.\w+)+", docstring)):
            assert_importable(name)


def _docstrings(path: Path) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds):
            yield ast.get_docstring(node) or ""


def assert_importable(dotted: str) -> None:
    """Fails if there is no module, and no public attribute of one, of that name."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(".".join(parts[:cut]))
            break
    for attribute in parts[cut:]:
        assert hasattr(found, attribute), f"{dotted}: {found.__name__} has no {attribute}"
        found = getattr(found, attribute)
