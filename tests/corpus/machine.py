"""The machine that an item was recorded on, without any name of a host or a person."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch


def cpu_model() -> str:
    """The host CPU's model name, `unknown` where the kernel does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def driver_version() -> str | None:
    """The NVIDIA driver's version, None where nvidia-smi does not answer."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() or None


def package_version(name: str) -> str | None:
    """The version of an installed package, None where it is absent."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe_machine(device: str) -> dict[str, str | int | None]:
    """GPU, driver, CUDA, library versions, host CPU and Python."""
    cuda = device.startswith("cuda") and torch.cuda.is_available()
    return {
        "gpu": torch.cuda.get_device_name(0) if cuda else None,
        "driver": driver_version() if cuda else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": package_version("triton"),
        "transformers": package_version("transformers"),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
    }
