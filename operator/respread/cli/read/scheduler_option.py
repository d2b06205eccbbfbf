"""`--scheduler-configuration`: the configuration of the cluster's scheduler, which the API does not expose."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from respread.cli.errors import CommandError
from respread.scheduling.configuration import ConfigurationError, SchedulerConfiguration, read_configuration

R = TypeVar("R")


def scheduler_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `scheduler_configuration`, the SchedulerConfiguration."""

    @click.option(
        "--scheduler-configuration",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The KubeSchedulerConfiguration that the cluster's scheduler is started with. The API does not expose it; "
        "without the file the scheduler is assumed to have its default configuration.",
    )
    @wraps(command)
    def with_scheduler(*args: Any, scheduler_configuration: Path | None, **options: Any) -> R:
        return command(*args, scheduler_configuration=_read(scheduler_configuration), **options)

    return with_scheduler


def _read(file: Path | None) -> SchedulerConfiguration:
    if file is None:
        return SchedulerConfiguration()
    try:
        return read_configuration(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        raise CommandError(f"--scheduler-configuration {file}: {error}.") from error
