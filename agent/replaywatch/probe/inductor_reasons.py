"""From Inductor's words to the contract's FALLBACK_REASONS. The words are those of torch 2.4 to 2.14."""

from __future__ import annotations

import re

# First match wins.
_REASONS = (
    ("exceeding max re-recording limit", "rerecord_limit"),
    ("mutated inputs", "mutated_input"),
    ("input storage mutation", "mutated_input"),
    ("cpu device", "cpu_tensor"),
    ("multiple devices", "cpu_tensor"),
    ("non-Tensor inputs", "cpu_tensor"),
    ("symbolic shapes", "dynamic_shape"),
    ("dynamic shapes", "dynamic_shape"),
    ("incompatible op", "incompatible_op"),
    ("control flow operator", "incompatible_op"),
    ("index_put_ fallback", "incompatible_op"),
    ("sparsity not handled", "incompatible_op"),
    ("complex memory overlap", "incompatible_op"),
    ("MemPool contexts", "incompatible_op"),
    ("cpp-wrapper", "incompatible_op"),
    ("caching allocator", "other"),
    ("override_cudagraphs annotation", "forced_eager"),
    ("bisector", "forced_eager"),
    ("TESTING_ONLY", "forced_eager"),
)
_FOUND_FROM = re.compile(r"Found from\s*:?\s*(.*)", re.DOTALL)
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_NUMBERED_NODE = re.compile(r"on cudagraph node \S+ |function \d+ ")


def reason_of(text: str) -> str:
    """The contract's reason for a skip message of Inductor."""
    return next((reason for words, reason in _REASONS if words in text), "other")


def tidy(text: str) -> tuple[str, str | None]:
    """A skip message without stack, source lines and running numbers, and the file and line it names, if any.

    Equal causes give equal texts, so that they are counted and not listed.
    """
    where = None
    found = _FOUND_FROM.search(text)
    if found:
        places = _FILE_LINE.findall(found.group(1))
        if places:
            where = f"{places[-1][0].rsplit('/', 1)[-1]}:{places[-1][1]}"
        text = text[: found.start()]
    text = _NUMBERED_NODE.sub("", text.split("\n", 1)[0])
    return text.strip().rstrip(".:").strip()[:300], where
