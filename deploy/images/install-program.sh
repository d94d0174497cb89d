#!/bin/sh
# install-program.sh WHEELS EXTRAS CONSTRAINTS PREFIX: install a program with what its extras need, at pinned versions.
set -eu
wheels=$1 extras=$2 constraints=$3 prefix=$4
python=${PYTHON:-python}
wheel=$(echo "$wheels"/replaywatch-*.whl)
"$python" -m pip install --quiet --no-warn-script-location --ignore-installed \
  --constraint "$constraints" --prefix "$prefix" "${wheel}[${extras}]"
