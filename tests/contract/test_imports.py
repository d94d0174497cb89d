"""Imports go one way, the namespace stays a namespace, and the probe needs nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = {"agent": ROOT / "agent", "detectors": ROOT / "detectors", "collector": ROOT / "collector"}
# Package, and the packages of ours that it may import beside itself.
ALLOWED = {
    "contract": set[str](),
    "probe": {"contract"},
    "sources": {"contract"},
    "otlp": {"contract"},
    "agent": {"contract", "sources", "otlp"},
    "detectors": {"contract"},
    "notify": {"contract"},
    "admission": {"contract"},
    "dashboards": {"contract", "detectors"},
    "collector": {"contract", "detectors", "sources", "notify", "otlp"},
    "analyze": {"contract", "detectors", "sources"},
    "demo": {"contract", "probe", "detectors", "sources", "agent", "collector", "analyze"},
    "cli": {
        "contract",
        "probe",
        "sources",
        "agent",
        "detectors",
        "collector",
        "analyze",
        "demo",
        "notify",
        "admission",
        "dashboards",
    },
}
STANDARD_ONLY = ("contract", "probe")


def _package(name: str) -> Path:
    return next(path for root in ROOTS.values() if (path := root / "replaywatch" / name).is_dir())


def _imports(package: str) -> set[tuple[str, str]]:
    """Shape: (file, dotted name), relative imports excluded because the style has none."""
    found = set()
    for path in _package(package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update((path.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add((path.name, node.module or "."))
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_is_upstream(package: str) -> None:
    ours = {(f, name.split(".")[1]) for f, name in _imports(package) if name.startswith("replaywatch.")}
    wrong = {(f, other) for f, other in ours if other not in ALLOWED[package] | {package}}
    assert not wrong


@pytest.mark.parametrize("package", STANDARD_ONLY)
def test_what_runs_in_the_serving_process_needs_no_dependency(package: str) -> None:
    foreign = {
        (f, name)
        for f, name in _imports(package)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names and top not in ("replaywatch", "torch")
    }
    assert not foreign


def test_the_namespace_has_no_init() -> None:
    assert not [root for root in ROOTS.values() if (root / "replaywatch" / "__init__.py").exists()]


def test_every_package_is_known_here_and_packed_into_the_wheel() -> None:
    on_disk = {p.name for root in ROOTS.values() for p in (root / "replaywatch").iterdir() if p.is_dir()} - {
        "__pycache__"
    }
    assert on_disk == set(ALLOWED)
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert all(f'"replaywatch/{name}" = ' in pyproject for name in ALLOWED)
