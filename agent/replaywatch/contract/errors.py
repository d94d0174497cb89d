"""All errors that Replaywatch raises on purpose.

    ReplaywatchError
    ├── SourceError                recorded material cannot be used
    │   ├── UnreadableSource       not the format it claims to be, truncated, binary, a directory
    │   └── UnknownSource          no reader recognises it
    ├── WireError                  a frame or batch that is not in the wire form
    │   └── SchemaVersionError     a wire or schema version this release does not speak
    ├── ConfigurationError         an option, address or token that cannot work
    ├── ProbeError                 the probe cannot do what was asked in this process
    └── StoreError                 the store refused or is not there
        └── StoreBusy              too much is waiting for the store; trying again later helps

A message is one sentence that says what is wrong, where, and what to do about it.
"""

from __future__ import annotations


class ReplaywatchError(Exception):
    """Base of every error raised on purpose; its text is meant for a person."""


class SourceError(ReplaywatchError):
    """Recorded material cannot be used."""


class UnreadableSource(SourceError):
    """The material is damaged or not the format it claims to be."""


class UnknownSource(SourceError):
    """No reader recognises the material."""


class WireError(ReplaywatchError):
    """A frame or batch is not in the wire form."""


class SchemaVersionError(WireError):
    """The peer speaks a wire version that this release does not."""


class ConfigurationError(ReplaywatchError):
    """An option, address or token cannot work as given."""


class ProbeError(ReplaywatchError):
    """The probe cannot do what was asked in this process."""


class StoreError(ReplaywatchError):
    """The store refused a request or cannot be reached."""


class StoreBusy(StoreError):
    """Too much is waiting for the store; trying again later helps."""
