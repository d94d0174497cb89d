"""The tutorial, followed to the letter: its own commands lead to the message that it promises."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT, blocks, commands

TUTORIAL = DOCS / "tutorial.md"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Steps:
    """What the page tells to type, in words, and what it tells to export."""

    commands: list[list[str]]
    exports: dict[str, str]


def steps(folder: Path) -> Steps:
    """The page with this interpreter, free ports, and a folder of the test's own in place of /tmp/..."""
    text = TUTORIAL.read_text().replace("/tmp/replaywatch-tutorial", str(folder / "t"))
    for port in ("5001", "8790", "9497"):
        text = text.replace(port, str(free_port()))
    found = Steps([], {})
    for words in commands(text):
        name = words[0].removeprefix(".venv/bin/")
        if name == "export":
            found.exports.update([words[1].split("=", 1)])
        elif name == "replaywatch":
            found.commands.append([sys.executable, "-m", "replaywatch.cli.main", *words[1:]])
        else:
            found.commands.append([sys.executable, *words[1:]] if name == "python" else words)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parts(message: str) -> set[str]:
    """What a message is made of: its labels, and the mark of its severity."""
    return set(re.findall(r"^\*[\w .]+\*|^:\w+:", message, re.M))


@contextmanager
def running(words: list[str], log: Path, exported: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command of the page in a terminal of its own."""
    parts = [str(ROOT / part) for part in ("agent", "detectors", "collector")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(parts)} | exported
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    """What a terminal shows once a text is in it."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in (shown := log.read_text(errors="replace")):
        assert process.poll() is None, f"{process.args!r} ended:\n{shown}"
        assert time.monotonic() < deadline, f"{process.args!r} does not show {text!r}:\n{shown}"
        time.sleep(0.1)
    return shown


def one(found: Steps, word: str) -> list[str]:
    """The page's command that has a word."""
    with_word = [words for words in found.commands if any(word == part or part.endswith(f"/{word}") for part in words)]
    assert len(with_word) == 1, f"{len(with_word)} commands with {word}"
    return with_word[0]


@pytest.mark.slow
def test_a_message_about_graphs_that_were_off_from_the_start_arrives(tmp_path: Path) -> None:
    found = steps(tmp_path)
    logs = {name: tmp_path / f"{name}.log" for name in ("receiver", "collector", "agent", "player")}
    with ExitStack() as terminals:
        receiver = terminals.enter_context(running(one(found, "receiver.py"), logs["receiver"], found.exports))
        wait_for("waiting for messages", logs["receiver"], receiver)
        for name, ready in (("collector", "the collector serves at"), ("agent", "listening on")):
            process = terminals.enter_context(running(one(found, name), logs[name], found.exports))
            wait_for(ready, logs[name], process)
        terminals.enter_context(running(one(found, "play.py"), logs["player"], found.exports))
        shown = wait_for("*To do.*", logs["receiver"], receiver)
    promised = parts(next(blocks(TUTORIAL.read_text(), "text")))
    assert len(promised) > 5
    assert promised <= parts(shown)
    assert "enforce_eager" in shown
    assert re.search(r"\d+% of the step time", shown)


def test_the_file_of_the_tutorial_is_judged_as_it_says(tmp_path: Path) -> None:
    words = one(steps(tmp_path), "analyze")
    if not (ROOT / words[-1]).is_file():
        pytest.skip(f"the recording {words[-1]} is not in this checkout")
    parts = [str(ROOT / part) for part in ("agent", "detectors", "collector")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(parts)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "No CUDA graph is used" in done.stdout


def test_every_make_target_of_the_tutorial_exists(tmp_path: Path) -> None:
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True)
    targets = [words[1] for words in steps(tmp_path).commands if words[0] == "make"]
    assert targets
    for target in targets:
        assert f"make {target} " in help_text.stdout
