#!/bin/sh
# build-wheel.sh FOLDER: build the wheel of this source tree into a folder.
#
# Without a compiler the build goes on without the native tracer; an image must not, unless REPLAYWATCH_NATIVE=0 says so.
set -eu
folder=$1
python=${PYTHON:-python}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$python" -m pip wheel --verbose --no-deps --wheel-dir "$folder" . >"$said" 2>&1 || {
  cat "$said" >&2
  exit 1
}
case ${REPLAYWATCH_NATIVE:-1} in 0 | false | no | off) exit 0 ;; esac
"$python" - "$folder" <<'CHECK' || {
import pathlib, sys, zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("replaywatch-*.whl"))
if "replaywatch/probe/libreplaywatch_tracer.so" not in zipfile.ZipFile(wheel).namelist():
    sys.exit(f"{wheel.name} has no native tracer: the compiler failed (REPLAYWATCH_NATIVE=0 goes without); it said:")
CHECK
  grep -iE 'error|cmake|compiler' "$said" | tail -n 40 >&2
  exit 1
}
