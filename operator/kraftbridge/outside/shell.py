"""Commands in messages: names from outside become arguments, whatever they contain. Pure.

People copy a command from a status, a report or a page into their shell.
A name in it may hold what a shell obeys (blanks, quotes, ``$(…)``, line ends),
or begin like an option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from string import Formatter
from typing import Final

from kraftbridge.outside.visible import LINE_END, visible

_MARK: Final = "`"
_LAST_COMMAND: Final = re.compile(f"{_MARK}([^{_MARK}]*){_MARK}$")


class Option(str):
    """An option with its value, quoted already."""

    __slots__ = ()


def option(name: str, value: object = None) -> Option:
    """Return an option as a detail of `command`: one whose name or presence is not the template's."""
    return Option(f"--{name}" if value is None else f"--{name}={quoted(str(value))}")


def quoted(value: str) -> str:
    r"""Return a value as one word of a shell, of which every character is seen.

    What a terminal obeys becomes the ``printf`` that makes it: ``"$(printf '\033')"``.
    Line ends stay inside quotes, since ``$(…)`` takes them away.
    """
    if value.isprintable():
        return shlex.quote(value)
    runs = ((seen, "".join(run)) for seen, run in groupby(value, _is_seen))
    return "".join(shlex.quote(run) if seen else f"\"$(printf '{_octal(run)}')\"" for seen, run in runs)


def command(template: str, /, **details: object) -> str:
    """Return a command for a POSIX shell, with each placeholder as one argument, or as a part of one.

    A list or a tuple becomes several arguments.
    An argument of its own that begins like an option goes to the end, behind ``--``, with the arguments after it
    (`Utility Syntax Guidelines`_, 10; Kafka's jopt-simple, commons-cli, cobra and click follow it).
    The value of an option stands behind ``=`` where it may begin so, too: ``--topic={topic}``.

    .. _Utility Syntax Guidelines: https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap12.html

    Raises
    ------
    KeyError
        A placeholder has no detail.
    """
    words: list[str] = []
    behind: list[str] = []
    before = ""
    for word in template.split(" "):
        arguments = _arguments(word, details)
        is_value = before.startswith("-") and "=" not in before
        is_argument = word.startswith("{") and not word.startswith("{{") and not is_value
        if is_argument and (behind or _begins_like_an_option(word, details)):
            behind += arguments
        else:
            words += arguments
        before = word
    return " ".join([*words, "--", *behind] if behind else words)


def joined(arguments: Iterable[str]) -> str:
    """Return the arguments of a program that we start, options among them, for a POSIX shell."""
    return shlex.join(arguments)


def marked(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a template, and whether each is a command: what stands between backquotes."""
    for number, part in enumerate(text.split(_MARK)):
        if part:
            yield part, number % 2 == 1


def filled(text: str, /, **details: object) -> str:
    """Return a template of prose and commands with its placeholders filled in; names in commands are quoted.

    A command that ends the text stands without its backquotes.

    Raises
    ------
    KeyError
        A placeholder has no detail.
    """
    last = _LAST_COMMAND.search(text)
    before = text[: last.start()] if last else text
    parts = [
        f"{_MARK}{command(part, **details)}{_MARK}" if is_command else part.format(**_seen(details))
        for part, is_command in marked(before)
    ]
    return "".join([*parts, command(last[1], **details) if last else ""])


def _seen(details: Mapping[str, object]) -> dict[str, object]:
    """Return the details of prose; names show each of their characters."""
    return {name: visible(value) if isinstance(value, str) else value for name, value in details.items()}


def commands(text: str, /, **details: object) -> list[str]:
    """Return the commands of a template, with their placeholders filled in."""
    return [command(part, **details) for part, is_command in marked(text) if is_command]


def _arguments(word: str, details: Mapping[str, object]) -> list[str]:
    """Return the arguments that a word of a template becomes."""
    name = _name(word)
    if name is None or not isinstance(details[name], list | tuple):
        return [_quoted(word, details)]
    return [_quoted(word, {**details, name: each}) for each in _values(word, details)]


def _quoted(word: str, details: Mapping[str, object]) -> str:
    """Return a word with its placeholders quoted; quotes of the template's own stay."""
    parts: list[str] = []
    for before, name, _, _ in Formatter().parse(word):
        parts.append(before)
        if name is not None:
            value = details[name]
            parts.append(value if isinstance(value, Option) else quoted(str(value)))
    return "".join(parts)


def _is_seen(character: str) -> bool:
    return character == LINE_END or character.isprintable()


def _octal(run: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in run.encode("utf-8", "surrogatepass"))


def _begins_like_an_option(word: str, details: Mapping[str, object]) -> bool:
    return any(str(value).startswith("-") and not isinstance(value, Option) for value in _values(word, details))


def _values(word: str, details: Mapping[str, object]) -> Sequence[object]:
    value = details[str(_name(word))]
    return value if isinstance(value, list | tuple) else [value]


def _name(word: str) -> str | None:
    """Return the first placeholder of a word."""
    return next((name for _, name, _, _ in Formatter().parse(word) if name), None)
