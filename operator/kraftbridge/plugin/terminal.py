"""Writes to the user's terminal. Names of a cluster are never styles, links or commands to it."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typing_extensions import override

from kraftbridge.outside.visible import visible_lines


class Terminal(Console):
    """A console on which every character is seen, and brackets are brackets."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is printed; styles become escape sequences behind this."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible_lines(segment.text))


def say(text: str, *, to_stderr: bool = False, ends_line: bool = True) -> None:
    """Print a text as it is, but for characters that are not seen."""
    typer.echo(visible_lines(text), err=to_stderr, nl=ends_line)
