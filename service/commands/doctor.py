"""`dragoman doctor`: prints what `checkup.py` finds about this machine, the installation and the bundles."""

import typer

from dragoman.service.commands.configuration import Bundles, settings_with


def doctor(bundles: Bundles = None) -> None:
    """Check this machine, the installation and the bundles; exits with 1 if anything is bad."""
    from rich.console import Console

    from dragoman.service.commands.checkup import examine

    console, verdicts = Console(highlight=False), []
    marks = {"good": "[green]good   [/]", "warning": "[yellow]warning[/]", "bad": "[red]bad    [/]"}
    for finding in examine(settings_with(bundles=bundles)):
        console.print(f"{marks[finding.verdict]} {finding.what}: {finding.detail}", soft_wrap=True)
        verdicts.append(finding.verdict)
    raise typer.Exit(1 if "bad" in verdicts else 0)
