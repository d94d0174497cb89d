"""One thread writes to the store, and commits what arrived together as one transaction.

Each piece of work runs in a savepoint of its own: one that fails takes nothing else with it. Batches that arrived
together share one; when that fails, each is tried alone. A waiter is told only after the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, Full, Queue
from typing import Any, Final, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from replaywatch.collector.doubt import number_of, was_committed
from replaywatch.collector.ingest import BatchStorer, PreparedBatch, StoredBatch
from replaywatch.collector.store import Store, reason
from replaywatch.contract.errors import StoreBusy, StoreError

T = TypeVar("T")
GROUP_MAX: Final = 64
ASK_AGAIN_SECONDS: Final = 0.5
Guard = Callable[[Session], None]


@dataclass(slots=True)
class _Job(Generic[T]):
    """Some work, or a batch to be stored."""

    work: Callable[[Session], T] | PreparedBatch
    then: Callable[[T], None] | None
    future: Future[T] = field(default_factory=Future)
    done: Callable[[], None] | None = None

    def succeed(self, value: T) -> None:
        """Keep a result until the commit."""

        def tell() -> None:
            if self.then is not None:
                self.then(value)
            self.future.set_result(value)

        self.done = tell

    def fail(self, error: Exception) -> None:
        """Keep an error until the commit of what else was done."""
        told = StoreError(f"the store refused ({reason(error)})") if isinstance(error, SQLAlchemyError) else error
        self.done = lambda: self.future.set_exception(told)


class Writer:
    """The only writer of the store in this process; `guard` may forbid a transaction by raising StoreError."""

    def __init__(self, store: Store, waiting_max: int, guard: Guard | None = None) -> None:
        self._store = store
        self._jobs: Queue[_Job[Any] | None] = Queue(waiting_max)
        self._guard = guard
        self._storer = BatchStorer()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replaywatch-writer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is there to write."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Pieces of work that wait."""
        return self._jobs.qsize()

    def offer(self, work: Callable[[Session], T], then: Callable[[T], None] | None = None) -> Future[T]:
        """Queue some work unless too much is waiting. `then` runs after the commit, in the order of commits.

        Raises: StoreBusy when too much is waiting, StoreError when closed.
        """
        return self._put(_Job(work, then), block=False)

    def offer_batch(self, prepared: PreparedBatch, then: Callable[[StoredBatch], None]) -> Future[StoredBatch]:
        """Queue a batch unless too much is waiting, as `offer` does. Raises: StoreBusy, StoreError."""
        return self._put(_Job(prepared, then), block=False)

    def do(self, work: Callable[[Session], T]) -> T:
        """Queue some work, wait for its commit and give its result. Raises: StoreError, and what the work raises."""
        return self._put(_Job(work, None), block=True).result()

    def forget(self) -> None:
        """Look again what the store has, because something was deleted."""
        self.do(lambda _: self._storer.forget())

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Write what is waiting, then stop."""
        self._closed.set()
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join(timeout_seconds)

    def _put(self, job: _Job[T], *, block: bool) -> Future[T]:
        if self._closed.is_set():
            raise StoreError("the collector is shutting down; send again later")
        try:
            self._jobs.put(job, block)
        except Full:
            raise StoreBusy("too much is waiting for the store; send again later") from None
        return job.future

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            group: list[_Job[Any]] = [first]
            last = self._gather(group)
            self._write(group)
            if last:
                return

    def _gather(self, group: list[_Job[Any]]) -> bool:
        """Add what else is waiting; True when the end was among it."""
        while len(group) < GROUP_MAX:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return False
            if job is None:
                return True
            group.append(job)
        return False

    def _write(self, group: list[_Job[Any]]) -> None:
        number: str | None = None
        try:
            with self._store.writing() as session:
                transaction = session.begin()
                if self._guard is not None:
                    self._guard(session)
                for is_batch, jobs in groupby(group, key=lambda job: isinstance(job.work, PreparedBatch)):
                    (self._store_together if is_batch else self._do_each)(session, list(jobs))
                number = number_of(session)
                transaction.commit()
        except (SQLAlchemyError, StoreError) as error:
            if number is None or not self._was_committed(number):
                text = reason(error) if isinstance(error, SQLAlchemyError) else str(error)
                for job in group:
                    job.future.set_exception(StoreError(f"the store could not commit ({text})"))
                return
        for job in group:
            if job.done is not None:
                job.done()

    def _was_committed(self, number: str) -> bool:
        """Ask until the store knows: nothing may be written after a transaction whose fate is open."""
        while (known := was_committed(self._store, number)) is None:
            if self._closed.wait(ASK_AGAIN_SECONDS):
                return False
        return known

    def _do_each(self, session: Session, jobs: Iterable[_Job[Any]]) -> None:
        for job in jobs:
            try:
                with session.begin_nested():
                    assert not isinstance(job.work, PreparedBatch)
                    value = job.work(session)
            # Whatever happens belongs to the waiter, as with any executor.
            except Exception as error:
                job.fail(error)
            else:
                job.succeed(value)

    def _store_together(self, session: Session, jobs: list[_Job[StoredBatch]]) -> None:
        try:
            with session.begin_nested():
                accepted = self._storer.store(session, [j.work for j in jobs if isinstance(j.work, PreparedBatch)])
        # As above: a value that the database cannot hold must not take other senders' batches with it.
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].fail(error)
                return
            for job in jobs:
                self._store_together(session, [job])
            return
        for job, stored in zip(jobs, accepted.stored, strict=True):
            job.succeed(stored)
        first = jobs[0]
        tell = first.done

        def remember() -> None:
            self._storer.committed(accepted)
            if tell is not None:
                tell()

        first.done = remember
