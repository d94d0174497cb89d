#!/bin/sh
# lay-out-probe.sh WHEELS FOLDER: lay out what goes into serving containers, and nothing else.
#
#   FOLDER/replaywatch/{contract,probe}   pure Python, no dependency, and the native tracer
#   FOLDER/replaywatch.pth                starts the probe where it lies in site-packages
#   FOLDER/replaywatch-run                starts a command with the probe, from any place
#   FOLDER/VERSION
set -eu
wheels=$1 folder=$2
python=${PYTHON:-python}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
whole=$(mktemp -d)
trap 'rm -rf "$whole"' EXIT
"$python" -m pip install --quiet --no-deps --no-compile --target "$whole" "$wheels"/replaywatch-*.whl
mkdir -p "$folder/replaywatch"
cp -R "$whole/replaywatch/contract" "$whole/replaywatch/probe" "$folder/replaywatch/"
cp "$here/replaywatch-run" "$folder/replaywatch-run"
chmod 755 "$folder/replaywatch-run"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$folder" "$python" -c '
import pathlib, sys
from replaywatch.probe.launch import install_pth
install_pth(pathlib.Path(sys.argv[1]))' "$folder"
sed -n 's/^Version: //p' "$whole"/replaywatch-*.dist-info/METADATA >"$folder/VERSION"
chmod -R u=rwX,go=rX "$folder"
