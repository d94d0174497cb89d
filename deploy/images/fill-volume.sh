#!/bin/sh
# fill-volume.sh FOLDER: put the probe into a mounted volume, and say so.
#
# Everything is copied beside its place and renamed into it: a native library that a running process has mapped keeps
# its content, and a second run leaves the same as the first.
set -eu
folder=$1
probe=${PROBE_SOURCE:-/probe}
if [ ! -d "$folder" ] || [ ! -w "$folder" ]; then
  echo "replaywatch: $folder is no folder that user $(id -u) can write; mount a volume there" >&2
  exit 1
fi
umask 022
rm -rf "$folder/.incoming" "$folder/.outgoing"
cp -R "$probe" "$folder/.incoming"
mkdir "$folder/.outgoing"
for name in replaywatch replaywatch.pth replaywatch-run VERSION; do
  if [ -e "$folder/$name" ]; then mv "$folder/$name" "$folder/.outgoing/"; fi
  mv "$folder/.incoming/$name" "$folder/$name"
done
rm -rf "$folder/.incoming" "$folder/.outgoing"
echo "replaywatch: probe $(cat "$folder/VERSION") is in $folder"
