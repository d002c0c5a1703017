"""A database on a real machine whose opening fails: nothing of it stays open, whatever failed."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from tempfile import TemporaryDirectory

from tests.open_files import open_in, thread_names
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from warren.base.errors import WarrenError
from warren.embedded.database import open_database
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.settings import LogSettings
from warren.snapshot.reflection import ReflectionSettings
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles

LOG = LogSettings(use_worker_process=False)


def has_opened(directory: str, files: FaultyFiles) -> bool:
    try:
        database = open_database(directory, replace(Environment.real(), files=files), LOG, ReflectionSettings())
    except WarrenError:
        return False
    database.abandon()
    database.store.close()
    return True


def test_an_opening_that_fails_leaves_nothing_open() -> None:
    """At each step of it, one after the other: the log, the store of RocksDB, the directory of tables, and threads."""
    before = thread_names()
    gc.freeze()  # what earlier tests have left is not searched at each step
    with ExitStack() as stack:
        stack.callback(gc.unfreeze)
        place = stack.enter_context(TemporaryDirectory(dir=QUICK_PLACE))
        for step in count():
            directory = f"{place}/{step}"
            files = FaultyFiles(LocalFiles(), [Fault(FaultKind.IO_ERROR, at_step=step)])
            is_open = has_opened(directory, files)
            gc.collect()
            assert open_in(directory) == [], files.steps[-1]
            assert not set(thread_names()) - set(before)  # a thread of an earlier test may end meanwhile
            if is_open:
                assert step > 20
                return
