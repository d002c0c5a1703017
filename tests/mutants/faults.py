"""Seeded faults: what a tired engineer might do to the store, and the simulator must find.

Each replaces one function of the product at run time, in a process of its own (tests/mutants/run.py), and names the
workloads in which it must show. A fault whose target is no longer there refuses to start: it would be a mutant of
nothing, and pass for caught or for harmless, whichever the test happens to want. Named in docs/failure_model.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

from tests.mutants.wrongs import (
    catalog_before_rename,
    clear_out_of_order,
    closing_omits_participant,
    confirm_before_sync,
    edit_is_not_synced,
    found_is_not_synced,
    found_is_only_synced,
    header_is_not_checked,
    header_is_not_summed,
    no_directory_sync,
    nondurable_is_kept,
    number_given_twice,
    purge_before_commit,
    recycled_linked_file,
    reused_epoch,
    rotated_list_from_directory,
    session_across_epochs,
    sync_failure_believed,
    tombstone_dropped_too_early,
    torn_edit_believed,
    unsalted_stale_block,
    witness_before_data,
    witness_is_replaced,
)
from warren.base.build import is_compiled
from warren.base.errors import Misuse

TESTS = "tests"  # caught by tests of the suite: `known` holds their node ids
QUEUES = "queues"  # not of the simulator: the life of tests/broker/test_queue_crashes


@dataclass(frozen=True, slots=True)
class Patch:
    target: str  # module:function or module:Class.method
    mutant: Callable[[Any], Any]  # from the real one to the wrong one

    def find(self) -> tuple[Any, str]:
        """What holds the target, and the target's name in it. Raises if there is none, or if it is machine code."""
        module_name, _, path = self.target.partition(":")
        holder_path, _, name = path.rpartition(".")
        try:
            module = import_module(module_name)
            holder = attrgetter(holder_path)(module) if holder_path else module
            holder.__dict__[name]
        except (ImportError, AttributeError, KeyError):
            raise Misuse(f"there is no {self.target} to be patched", "find out what does its work now") from None
        if is_compiled(module_name):
            raise Misuse(f"{module_name} is compiled and cannot be patched", "choose another target")
        return holder, name

    @contextmanager
    def applied(self) -> Iterator[None]:
        holder, name = self.find()
        real = holder.__dict__[name]
        setattr(holder, name, self.mutant(real))
        try:
            yield
        finally:
            setattr(holder, name, real)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    what: str  # is done wrong
    workloads: tuple[str, ...]  # in which it must show
    patches: tuple[Patch, ...]
    known: tuple[str, ...] = ()  # states that have shown it: tried first, which spares a long search

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The product is wrong inside the `with`."""
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(patch.applied())
            yield


def without_target(faults: Iterable[Fault]) -> list[str]:
    """One line for each target that cannot be patched, with the name of its mutant."""
    lines = []
    for fault in faults:
        for patch in fault.patches:
            try:
                patch.find()
            except Misuse as error:
                lines.append(f"{fault.name}: {error.what}")
    return lines


FAULTS: tuple[Fault, ...] = (
    Fault(
        "no-directory-sync", "names are never synced", ("rotate", "append"),
        (Patch("warren.log.store:LogStore.open", no_directory_sync),),
    ),
    Fault(
        "confirm-before-sync", "an epoch is declared durable, and synced with the next one", ("append", "rotate"),
        (Patch("warren.durability.group_commit:GroupCommit._write_and_sync", confirm_before_sync),),
    ),
    Fault(
        "closing-omits-participant", "a closing block names only the first file of its epoch", ("append",),
        (Patch("warren.durability.group_commit:Closing", closing_omits_participant),),
    ),
    Fault(
        "witness-before-data", "the epoch file says `durable` before the epoch is synced", ("append", "rotate"),
        (Patch("warren.durability.group_commit:GroupCommit._write_and_sync", witness_before_data),),
    ),
    Fault(
        "catalog-before-rename", "the manifest names a compacted file before it has its name", ("compact",),
        (Patch("warren.log.compaction.compaction:Compaction.commit", catalog_before_rename),),
    ),
    Fault(
        "purge-before-commit", "a compaction's inputs go before its proposal is in force", ("compact",),
        (Patch("warren.log.compaction.compaction:Compaction.commit", purge_before_commit),),
    ),
    Fault(
        "reused-epoch", "numbering continues after the durable epoch, voided or not", ("append", "recover"),
        (Patch("warren.log.store:recover", reused_epoch),),
        known=("append:37/37/all/52507",),
    ),
    Fault(
        "recycled-linked-file", "a file with a second name is recycled", ("recycle",),
        (Patch("warren.log.log_files:RecyclePool.__init__", recycled_linked_file),),
    ),
    Fault(
        "unsalted-stale-block", "a block of the file's earlier life is taken for one of this", ("recycle",),
        (Patch("warren.log.read.blocks:check_block", unsalted_stale_block),),
    ),
    Fault(
        "rotated-list-from-directory", "what was rotated is read where the next rotation is at work", ("busy",),
        (Patch("warren.log.rotation:Rotation.rotate", rotated_list_from_directory),),
        known=("busy:102/118/all/15912",),
    ),
    Fault(
        "clear-out-of-order", "a clear drops what was written after it, too", ("append", "compact"),
        (Patch("warren.log.merge.merge:Clears.uncovered", clear_out_of_order),),
    ),
    Fault(
        "tombstone-dropped-too-early", "a remove goes before it has met what it removes", ("compact", "append"),
        (Patch("warren.log.read.scan:LogInput.batches", tombstone_dropped_too_early),),
    ),
    Fault(
        "checksum-without-header", "a block's checksum covers its body only", ("repair",),
        (
            Patch("warren.records.block:BlockDraft.place", header_is_not_summed),
            Patch("warren.records.block:_is_whole", header_is_not_checked),
        ),
        known=("repair:25/102/all/228661",),
    ),
    Fault(
        "sync-failure-believed", "a sync that failed is done again and believed", ("failing",),
        (Patch("warren.durability.log_file:LogFile.write_through", sync_failure_believed),),
    ),
    Fault(
        "torn-edit-believed", "a manifest edit is applied although its checksum does not hold", ("rotate", "compact"),
        (Patch("warren.log.manifest:walk", torn_edit_believed),),
        known=("compact:23/42/all/165986",),
    ),
    Fault(
        "found-is-not-synced", "opening believes the page cache of a killed process", ("append", "rotate", "failing"),
        (Patch("warren.log.recovery:_make_durable", found_is_not_synced),),
        known=("failing:5/41/killed/69819",),
    ),
    Fault(
        "nondurable-is-kept", "what lies beyond the durable epoch is not voided on opening", ("append",),
        (Patch("warren.log.recovery:_verified", nondurable_is_kept),),
        known=("append:7/31/all/223920",),
    ),
    Fault(
        "edit-is-not-synced", "a manifest edit is answered before it is synced", ("rotate", "compact"),
        (Patch("warren.log.manifest:Manifest._commit", edit_is_not_synced),),
    ),
    Fault(
        "found-is-only-synced", "pages that a failed sync left clean are believed by the next process", ("failing",),
        (Patch("warren.log.recovery:_make_durable", found_is_only_synced),),
        known=("failing:5/81/all/11184",),
    ),
    Fault(
        "witness-is-replaced", "an epoch file without a witness takes the name of the one before", ("rotate", "busy"),
        (Patch("warren.log.recovery:rotate_epoch_file", witness_is_replaced),),
        known=("rotate:3/76/all/21", "rotate:4/43/all/5", "busy:1/41/all/36"),
    ),
    Fault(
        "number-given-twice", "an edit that comes late sets the next file number back", (TESTS,),
        (Patch("warren.log.manifest:ManifestState.apply", number_given_twice),),
        known=("tests/log/test_manifest.py::test_an_edit_that_comes_late_does_not_set_the_next_file_number_back",),
    ),
    Fault(
        "session-across-epochs", "the blocks of a session are placed one by one, not under one gate", ("bulk",),
        (Patch("warren.log.writer:LogWriter.append_drafts", session_across_epochs),),
    ),
)  # fmt: skip
