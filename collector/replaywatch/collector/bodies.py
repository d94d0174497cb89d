"""Windows read back out of the batches that brought them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from replaywatch.collector.arrival import Limits, read_batch
from replaywatch.collector.tables import BatchRow, BodyRow, WindowRow
from replaywatch.contract.errors import WireError
from replaywatch.contract.window import Window

LOG = logging.getLogger("replaywatch.collector")
# What was accepted once is read whatever today's limits are.
_ANY: Final = Limits(1 << 40, 1 << 40)


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch as the store has it."""

    serial: int
    received_ns: int
    windows: tuple[Window, ...]


def batches_since(session: Session, partition: int, serial: int, received_ns: int) -> Iterator[KeptBatch]:
    """A partition's batches after a serial, and those received since some time, oldest first."""
    wanted = (BatchRow.serial > serial) | (BatchRow.received_ns >= received_ns)
    return _read(session, _query().where(BatchRow.partition == partition, wanted))


def batches_of(session: Session, workload_id: str, last_ns: int) -> Iterator[KeptBatch]:
    """The batches with a workload's windows that end within some time before its last one, oldest first."""
    newest = session.scalar(select(func.max(WindowRow.end_ns)).where(WindowRow.workload_id == workload_id))
    if newest is None:
        return iter(())
    mine = (WindowRow.workload_id == workload_id) & (WindowRow.end_ns > newest - last_ns)
    serials = set(session.scalars(select(WindowRow.batch_serial).where(mine)))
    return _read(session, _query().where(BatchRow.serial.in_(serials)))


def newest_received_ns(session: Session, partition: int) -> int:
    """When a partition's last batch came; 0 when there is none."""
    newest = select(func.max(BatchRow.serial)).where(BatchRow.partition == partition).scalar_subquery()
    return session.scalar(select(BatchRow.received_ns).where(BatchRow.serial == newest)) or 0


def _query() -> Any:
    same = (BodyRow.serial == BatchRow.serial) & (BodyRow.received_ns == BatchRow.received_ns)
    columns = select(BatchRow.serial, BatchRow.received_ns, BatchRow.shift_ns, BodyRow.is_gzip, BodyRow.body)
    return columns.join(BodyRow, same).order_by(BatchRow.serial)


def _read(session: Session, query: Any) -> Iterator[KeptBatch]:
    for serial, received_ns, shift_ns, is_gzip, body in session.execute(query.execution_options(yield_per=50)):
        try:
            read = read_batch(body, is_gzip=is_gzip, limits=_ANY, received_ns=received_ns, shift_ns=shift_ns)
        except WireError as error:
            LOG.warning("the stored batch %d is left out: %s", serial, error)
            continue
        yield KeptBatch(serial, received_ns, read.batch.windows)
