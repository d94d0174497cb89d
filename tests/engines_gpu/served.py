"""`vllm serve` as a process tree: the API server, its engine core, and requests over HTTP with token numbers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server in a process group of its own, ended as a whole."""

    def __init__(self, model: Path, environment: Mapping[str, str], log: Path, flags: list[str]) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1",
            "--port", str(port), "--load-format", "dummy", "--skip-tokenizer-init", "--max-model-len", "512",
            "--gpu-memory-utilization", "0.35", "--max-num-seqs", "64", "--served-model-name", "tiny", *flags,
        ]  # fmt: skip
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            command, env=dict(environment), stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(self, seconds: float) -> bool:
        """Whether it answers before the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with OPENER.open(self.url + "/health", timeout=2):
                    return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        return False

    def complete(self, batch: int, tokens: int) -> dict[str, Any]:
        """That many requests at once; milliseconds per token over the slowest, and errors."""
        errors: list[str] = []

        def ask(number: int) -> None:
            body = {
                "model": "tiny", "prompt": [(7 + 31 * number + 101 * j) % 30000 + 3 for j in range(16)],
                "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "detokenize": False,
            }  # fmt: skip
            request = urllib.request.Request(
                self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            try:
                with OPENER.open(request, timeout=60) as answer:
                    answer.read()
            except (urllib.error.URLError, OSError) as error:
                detail = error.read()[:300] if isinstance(error, urllib.error.HTTPError) else b""
                errors.append(f"{error} {detail.decode(errors='replace')}")

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(batch)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"ms_per_token": (time.perf_counter() - begin) * 1000 / tokens, "errors": errors[:3]}

    def close(self) -> None:
        """End the process group that was started here."""
        for sign, wait_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        self._log.close()
