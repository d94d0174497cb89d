"""One thread writes to the store, and commits what arrived together as one transaction.

Each piece of work runs in a savepoint of its own: one that fails takes nothing else with it. A waiter is told only
after the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import Any, Final, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from replaywatch.collector.store import Store, reason
from replaywatch.contract.errors import StoreBusy, StoreError

T = TypeVar("T")
GROUP_MAX: Final = 64


@dataclass(slots=True)
class _Job(Generic[T]):
    work: Callable[[Session], T]
    then: Callable[[T], None] | None
    future: Future[T] = field(default_factory=Future)
    done: Callable[[], None] | None = None

    def attempt(self, session: Session) -> None:
        """Do the work in a savepoint; how it went is told by `settle`, after the commit."""
        try:
            with session.begin_nested():
                value = self.work(session)
        # Whatever happens belongs to the waiter, as with any executor.
        except Exception as error:
            told = StoreError(f"the store refused ({reason(error)})") if isinstance(error, SQLAlchemyError) else error
            self.done = lambda: self.future.set_exception(told)
        else:
            self.done = lambda: self._succeed(value)

    def _succeed(self, value: T) -> None:
        if self.then is not None:
            self.then(value)
        self.future.set_result(value)

    def settle(self) -> None:
        """Tell the waiter."""
        if self.done is not None:
            self.done()


class Writer:
    """The only writer of the store in this process."""

    def __init__(self, store: Store, waiting_max: int) -> None:
        self._store = store
        self._jobs: Queue[_Job[Any] | None] = Queue(waiting_max)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replaywatch-writer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is there to write."""
        return self._thread.is_alive()

    def offer(self, work: Callable[[Session], T], then: Callable[[T], None] | None = None) -> Future[T]:
        """Queue some work unless too much is waiting. `then` runs after the commit, in the order of commits.

        Raises: StoreBusy when too much is waiting, StoreError when closed.
        """
        return self._put(_Job(work, then), block=False)

    def do(self, work: Callable[[Session], T]) -> T:
        """Queue some work, wait for its commit and give its result. Raises: StoreError, and what the work raises."""
        return self._put(_Job(work, None), block=True).result()

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
        try:
            with self._store.session() as session, session.begin():
                for job in group:
                    job.attempt(session)
        except SQLAlchemyError as error:
            for job in group:
                job.future.set_exception(StoreError(f"the store could not commit ({reason(error)})"))
            return
        for job in group:
            job.settle()
