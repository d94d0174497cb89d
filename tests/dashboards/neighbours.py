"""What dcgm-exporter and vLLM expose beside us, for joins: their names and labels, on the fleet's devices."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Neighbours:
    """Answers /metrics as both would together; counters grow with every scrape."""

    def __init__(self, uuids: Iterable[str], models: Iterable[str]) -> None:
        self._uuids, self._models, self._scrapes = tuple(uuids), tuple(models), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                # A Prometheus that stops goes away in the middle of a scrape.
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def text(self) -> str:
        """One exposition."""
        self._scrapes += 1
        lines = []
        for number, uuid in enumerate(self._uuids):
            labels = f'gpu="{number % 8}",UUID="{uuid}",device="nvidia{number % 8}",modelName="NVIDIA H200"'
            labels += ',Hostname="gpu-01",DCGM_FI_DRIVER_VERSION="580.65"'
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 97")
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 310.5")
        for model in self._models:
            labels = f'model_name="{model}",engine="0"'
            lines.append(f"vllm:generation_tokens_total{{{labels}}} {1000 * self._scrapes}")
            for bound, count in (("0.005", 10), ("0.01", 40), ("+Inf", 50)):
                name = "vllm:inter_token_latency_seconds_bucket"
                lines.append(f'{name}{{{labels},le="{bound}"}} {count * self._scrapes}')
        return "\n".join(lines) + "\n"

    def __enter__(self) -> Neighbours:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
