"""`warren pipeline …`: jobs on a log directory that run on Spark, on this machine or on a cluster.

    warren pipeline verify DIR                                 all cores of this machine
    warren pipeline verify DIR --master spark://host:7077      a cluster, which has the wheel on every node
    warren pipeline verify DIR --remote sc://host              Spark Connect

Without Spark each of them says which command installs it. What Spark itself says goes to stderr: a few lines when it
starts, and errors.
"""

from __future__ import annotations

from typing import Annotated

import typer

pipeline = typer.Typer(name="pipeline", help="Jobs on a log directory that run on Spark.", no_args_is_help=True)

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[N] or spark://host:7077.")
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host.", show_default=False)
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The directory of the table.", show_default=False)]
PinSeconds = Annotated[
    int,
    typer.Option("--pin-seconds", min=0, metavar="S", help="How long files stay without a sign of life; 0: no pin."),
]

LOCAL = "local[*]"
