"""The command `wdistill`: parse, call, print. Nothing is imported before it is needed, so that --help is instant."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

from wdistill.cli import (
    advise,
    correct,
    data,
    demo,
    distill,
    export,
    inspect,
    label,
    report,
    reproduce,
    runs,
    show,
    theory,
    verify,
    weigh,
)
from wdistill.cli.streams import steady_streams
from wdistill.core.errors import WdistillError, printable
from wdistill.core.paths import refuse_remote

EXTRAS = {  # what to install where a library is missing; all but these few come with wdistill itself
    "torch": "wdistill[torch]",
    "safetensors": "wdistill[torch]",
    "sklearn": "wdistill[methods]",
    "PIL": "wdistill[datasets]",
    **dict.fromkeys(("numpy", "scipy", "numba", "threadpoolctl", "pyarrow", "matplotlib", "rich", "jinja2"), "wdistill"),
}


class Parser(argparse.ArgumentParser):
    """One clear line instead of the whole usage; an unknown option is named first, with the nearest known one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if self.get_default("run"):  # a command, not the parser of commands
            known = [text for action in self._actions for text in action.option_strings]
            for word in given:
                name = word.partition("=")[0]
                if name.startswith("--") and name not in (*known, "--"):
                    close = difflib.get_close_matches(name, known, 1)
                    self.error(f"unknown option {name}" + (f": did you mean {close[0]}?" if close else ""))
            by_engine = any(word.partition("=")[0] == "--engine" for word in given)  # engines read and write addresses
            for option, word in pairwise(["", *([] if by_engine else given)]):
                flag, _, value = word.partition("=") if word.startswith("--") else (option, "", word)
                value = value.removeprefix("cost:")  # of --metric: a path follows
                refuse_remote(value, flag if flag.startswith("--") else self.prog.split()[-1])
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += " (shards of one table are given as a folder or a quoted 'glob*')"
        self.exit(2, f"error: {printable(message)}\n  to do: see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every error becomes a message and an exit code."""
    with steady_streams():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    try:
        arguments = parser().parse_args(argv)
        code: int | None = arguments.run(arguments)  # None, unless a command has more to say than that it is done
        sys.stdout.flush()
    except WdistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept; the same command resumes there", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: cannot write to the terminal or file: {printable(str(error))}", file=sys.stderr)
        return 3
    except ModuleNotFoundError as error:
        if os.environ.get("WDISTILL_DEBUG") or (error.name or "").partition(".")[0] not in EXTRAS:
            return _defect(error)
        return _not_installed(str(error.name).partition(".")[0])
    except Exception as error:
        return _defect(error)
    return code or 0


def _not_installed(library: str) -> int:
    print(f"error: {library} is not installed, which this command needs", file=sys.stderr)
    print(f"  to do: pip install '{EXTRAS[library]}'", file=sys.stderr)
    return 2


def _defect(error: Exception) -> int:
    if os.environ.get("WDISTILL_DEBUG"):
        raise error
    print(f"error: this is a defect of wdistill: {type(error).__name__}: {printable(str(error))}", file=sys.stderr)
    print("  to do: run it again with WDISTILL_DEBUG=1 and report what it prints", file=sys.stderr)
    return 1


def parser() -> Parser:
    """All commands and their flags."""
    from wdistill import __version__

    top = Parser(prog="wdistill", description="Weighted distillation with unlabeled examples.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"wdistill {__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")
    for group in (
        demo,
        distill,
        export,
        label,
        advise,
        correct,
        weigh,
        inspect,
        runs,
        show,
        report,
        verify,
        data,
        reproduce,
        theory,
    ):
        group.add(commands)
    return top
