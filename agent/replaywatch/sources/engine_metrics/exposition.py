"""A small parser of the Prometheus text exposition format, for the base package, which has no dependency.

Source: Prometheus documentation, "Text-based format". Names may hold colons; OpenMetrics' `# EOF`, `# UNIT` and
exemplars are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from replaywatch.contract.errors import UnreadableSource

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?P<labels>\{.*\})?\s*(?P<value>[^\s{}#]+)(?:\s+(?P<stamp>-?[\d.]+))?\s*(?:#.*)?$"
)
_LABEL = re.compile(r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?P<end>,|$)')
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf(?:inity)?|[Nn]a[Nn])")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r"\\[n\"\\]")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a name, its labels in order of their names, a value."""

    name: str
    labels: Labels
    value: float

    @property
    def by_label(self) -> Mapping[str, str]:
        """Labels as a mapping."""
        return dict(self.labels)


@dataclass(frozen=True, slots=True)
class Exposition:
    """A parsed page. Shape: `samples` in the order of the page; `types` by family name (counter, gauge, ...)."""

    samples: tuple[Sample, ...]
    types: Mapping[str, str] = field(default_factory=dict)

    def named(self, *names: str) -> Iterator[Sample]:
        """Samples with one of these names."""
        return (sample for sample in self.samples if sample.name in names)

    def has(self, *prefixes: str) -> bool:
        """Whether a sample's name begins with one of these."""
        return any(sample.name.startswith(prefixes) for sample in self.samples)

    def is_cumulative(self, sample: Sample) -> bool:
        """Whether a sample only grows while its process lives."""
        if self.types.get(sample.name) in ("gauge", "untyped", "unknown"):
            return False
        return sample.name.endswith(("_total", "_bucket", "_sum", "_count")) or self.types.get(sample.name) == "counter"


def parse(text: str, source: str) -> Exposition:
    """A page of metrics.

    Raises: UnreadableSource with the number of the first line that is not in the format.
    """
    samples: list[Sample] = []
    types: dict[str, str] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line:
            continue
        if line.startswith("#"):
            words = line.split(None, 3)
            if len(words) == 4 and words[1] == "TYPE":
                types[words[2]] = words[3].strip().lower()
            continue
        samples.append(_sample(line, number, source))
    return Exposition(tuple(samples), types)


def _sample(line: str, number: int, source: str) -> Sample:
    match = _SAMPLE.match(line)
    if match is None or not _NUMBER.fullmatch(match["value"]):
        raise UnreadableSource(f"{source}: line {number} is not a metric ({line[:60]!r}); give a page of /metrics")
    labels = _labels(match["labels"], number, source) if match["labels"] else ()
    return Sample(match["name"], labels, float(match["value"]))


def _labels(text: str, number: int, source: str) -> Labels:
    found: list[tuple[str, str]] = []
    inside, at = text[1:-1].rstrip(), 0
    while at < len(inside):
        match = _LABEL.match(inside, at)
        if match is None:
            raise UnreadableSource(f"{source}: line {number} has labels that cannot be read; give a page of /metrics")
        found.append((match["name"], _ESCAPE.sub(lambda m: _ESCAPES[m[0]], match["value"])))
        at = match.end()
    return tuple(sorted(found))
