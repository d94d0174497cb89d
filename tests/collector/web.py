"""One client for all requests of the tests; a connection for each, so that nothing outlives a server."""

from __future__ import annotations

import httpx

CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=20, trust_env=False)
get = CLIENT.get
post = CLIENT.post
