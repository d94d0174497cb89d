"""Fetches the headers of several CUPTI releases from the package index, for `test_offsets.py`.

    python tests/tracer/fetch_headers.py FOLDER

One subfolder per release, with the headers of CUPTI and the `cuda.h` of the toolkit; one that is there is not fetched
again. Needs pip; about 130 MB are read, 20 MB kept. `make test` and .ci/run call it; tests themselves never fetch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Release of CUPTI: package and version of its headers, and of a cuda.h that fits.
RELEASES = {
    "12.4": ("nvidia-cuda-cupti-cu12==12.4.127", "nvidia-cuda-runtime-cu12==12.4.127"),
    "12.6": ("nvidia-cuda-cupti-cu12==12.6.80", "nvidia-cuda-runtime-cu12==12.6.77"),
    "12.8": ("nvidia-cuda-cupti-cu12==12.8.90", "nvidia-cuda-runtime-cu12==12.8.90"),
    "12.9": ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"),
    "13.0": ("nvidia-cuda-cupti==13.0.85", "nvidia-cuda-runtime==13.0.96"),
    "13.1": ("nvidia-cuda-cupti==13.1.115", "nvidia-cuda-runtime==13.1.80"),
    "13.2": ("nvidia-cuda-cupti==13.2.86", "nvidia-cuda-runtime==13.2.86"),
    "13.3": ("nvidia-cuda-cupti==13.3.75", "nvidia-cuda-runtime==13.3.29"),
    "13.4": ("nvidia-cuda-cupti==13.4.92", "nvidia-cuda-runtime==13.4.92"),
    "13.5": ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.37"),
}


# A host without a network is not to wait for each of the packages.
DOWNLOAD = ("-m", "pip", "download", "-qq", "--no-deps", "--retries", "1", "--timeout", "15", "--dest")


def fetch(release: str, folder: Path) -> None:
    """Put the headers of one release into a folder, whole or not at all; does nothing where they are.

    Raises: subprocess.CalledProcessError where pip cannot get them.
    """
    if all((folder / release / name).exists() for name in ("cupti_activity.h", "cuda.h")):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        subprocess.run([sys.executable, *DOWNLOAD, scratch, *RELEASES[release]], check=True)
        for wheel in Path(scratch).glob("*.whl"):
            _keep_headers(wheel, Path(scratch) / release)
        shutil.rmtree(folder / release, ignore_errors=True)  # headers in part, or none
        (Path(scratch) / release).rename(folder / release)


def _keep_headers(wheel: Path, place: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.partition("/include/")[2]
            wanted = inside == "cuda.h" or inside.startswith(("cupti_", "cupti.h", "Openacc/", "Openmp/"))
            if wanted and inside.endswith(".h"):
                target = place / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for each in RELEASES:
        try:
            fetch(each, Path(sys.argv[1]))
        except subprocess.CalledProcessError:
            sys.exit(f"the headers of CUPTI {each} could not be fetched; is there a network?")
