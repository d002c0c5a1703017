"""`warren pipeline compact DIR`: compact a log directory on Spark, whether a process runs in it or not."""

from __future__ import annotations

import os
from typing import Any

from warren.cli.log_compact import show_compaction
from warren.cli.output import AsJson, Directory, say_json
from warren.cli.pipeline import LOCAL, Master, Remote


def compact(directory: Directory, as_json: AsJson = False, master: Master = LOCAL, remote: Remote = None) -> None:
    """Merge the rotated files and the compacted files into new ones by key range, with Spark's tasks."""
    result = on_spark(directory, master, remote)
    if as_json:
        say_json(result)
    else:
        show_compaction(result)


def on_spark(directory: str, master: str = LOCAL, remote: str | None = None) -> dict[str, Any]:
    """Compact with a Spark session of our own; also what `--engine spark` does."""
    from warren.cli.progress import Bar
    from warren.files.local import LocalFiles
    from warren.log.reading import open_for_reading
    from warren.pipeline.session import require_pyspark, session_for_command

    require_pyspark()
    directory = os.path.abspath(directory)  # executors have other working directories
    open_for_reading(LocalFiles(), directory)  # what is no log directory is told before Spark is started
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.compact import compact as run

        with Bar("compacting", 1.0) as bar:
            return run(session, directory, bar.reach)
