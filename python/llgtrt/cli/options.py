"""From the flags of :mod:`llgtrt.config.arguments` to options of click."""

from pathlib import Path
from typing import Any

import click

from llgtrt.config import Flag, environment_variable


def option(name: str, flag: Flag) -> click.Option:
    """The option of an argument."""
    help_text = flag.help
    if flag.default is not None:
        help_text += f"  [default: {flag.default}]"
    common: dict[str, Any] = {"envvar": environment_variable(name), "help": help_text}
    declaration = [*flag.names, name]
    match flag.kind:
        case "switch":
            return click.Option(declaration, is_flag=True, **common)
        case "choice":
            return click.Option(declaration, type=click.Choice(flag.choices), **common)
        case "port":
            return _PortOption(declaration, type=click.IntRange(0, 65_535), metavar="PORT", **common)
        case "path":
            return click.Option(declaration, type=click.Path(path_type=Path), metavar="PATH", **common)
        case "paths":
            return click.Option(
                declaration, type=click.Path(path_type=Path), metavar="FILE", multiple=True, **common
            )
        case "number":
            return click.Option(declaration, type=int, metavar="N", **common)
        case "texts":
            return click.Option(declaration, type=_LineOfText(), metavar="TEXT", multiple=True, **common)
        case "text":
            return click.Option(declaration, metavar="TEXT", **common)


class _LineOfText(click.types.StringParamType):
    """One of several texts. In a variable each is a line: values may hold blanks, commas and colons."""

    def split_envvar_value(self, rv: str) -> list[str]:
        """The lines of a variable that say something."""
        return [line.strip() for line in rv.splitlines() if line.strip()]


class _PortOption(click.Option):
    """A port from the environment may be somebody else's variable."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Kubernetes sets ``LLGTRT_PORT=tcp://10.0.0.1:80`` in every pod beside a service named llgtrt."""
        value = super().resolve_envvar_value(ctx)
        return None if value is not None and "://" in value else value
