"""What all tests share: no deadline for one made-up example, since a busy machine is not a fault of the product."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
