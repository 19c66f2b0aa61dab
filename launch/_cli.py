"""What all launches share: wrong flags, configs and settings end in one clear line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from logging import WARNING, LogRecord
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging

_OWN_FOLDERS = tuple(
    str(Path(__file__).resolve().parent.parent / name) for name in ("tfdp", "launch", "configs")
)


def run_program(main: Callable[[list[str]], None]) -> None:
    """Runs `main` as an absl program.

    A mistake in the flags, in the config or in a setting is answered by one line on standard
    error and exit code 1; `--verbosity=1` shows where it came from; so is Ctrl-C. Errors out of the
    depths of other libraries keep their traceback.

    Args:
        main: receives the arguments that are not flags, the program's name first.
    """
    app.run(lambda arguments: _run(main, arguments), flags_parser=_parse)


def fail(message: str) -> NoReturn:
    """Ends the program with one line on standard error and exit code 1."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)


def check_config(config: Mapping[str, Any], *names: str) -> None:
    """Refuses a config that was written for another program.

    Raises:
        ValueError: it lacks one of these parts.
    """
    missing = [name for name in names if name not in config]
    if missing:
        raise ValueError(
            f"the config has no {', '.join(missing)}: was it written for another program?"
        )


def _parse(arguments: list[str]) -> list[str]:
    try:
        left = flags.FLAGS(arguments)
        unset = "config" in flags.FLAGS and not _is_loaded(flags.FLAGS["config"].value)
    except (KeyError, AttributeError) as error:  # ml_collections, about a key of the config
        fail(_unknown_key(str(error.args[0])))
    except (flags.Error, ValueError, TypeError, OSError) as error:
        fail(_last_words(str(error)))
    if len(left) > 1:
        fail(f"unexpected argument {left[1]!r}; settings are given as --name=value.")
    if unset:
        fail("--config is missing: name a file, as in --config=configs/quickstart.py.")
    return left


def _is_loaded(config: Any) -> bool:
    """Whether there is a config; raises what kept its file from being read."""
    return config is not None and config.is_locked is not None


def _unknown_key(text: str) -> str:
    """Makes a sentence of ml_collections' remark on a key, which comes quoted several times."""
    key = re.search(r"\w+", text)
    hint = re.search(r'Did you mean "(\w+)"', text)
    suggestion = f"; did you mean {hint[1]!r}?" if hint else "."
    return f"the config has no key {key[0]!r}{suggestion}" if key else text


def _last_words(text: str) -> str:
    """The message itself, where absl hands over the traceback of a config file with it."""
    missing = re.search(r"No such file or directory: '(.+?)'", text)
    if missing:
        return f"there is no file {missing[1]}; --config names one, as in configs/quickstart.py."
    if "Traceback (most recent call last)" not in text:
        return text
    last = re.split(r"\n(?=\w[\w.]*(?:Error|Exception)\b)", text)[-1]
    return re.sub(r"^\w[\w.]*: ", "", last)


def _run(main: Callable[[list[str]], None], arguments: list[str]) -> None:
    logging.get_absl_handler().addFilter(_worth_reading)
    try:
        main(arguments)
    except KeyboardInterrupt:
        fail("interrupted; the same command goes on from what is written.")
    except (ValueError, TypeError, OSError) as error:
        if not isinstance(error, OSError) and not _is_ours(error):
            raise
        logging.debug("The error below came from here:", exc_info=True)
        fail(str(error) or type(error).__name__)


def _worth_reading(record: LogRecord) -> bool:
    """Our own messages, and other libraries' warnings: not the chatter of saving a model."""
    return record.levelno >= WARNING or record.pathname.startswith(_OWN_FOLDERS)


def _is_ours(error: BaseException) -> bool:
    """Whether it was raised in this project's code, whose messages are written for users."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDERS)
