#!/bin/sh
# build_images.sh: really build the three images with buildah, where no container registry is reached.
#
#   apt-get install buildah debootstrap busybox-static    (as root; about eight minutes and 3 GiB in $TMPDIR)
#   sh tests/deploy/build_images.sh
#
# The base images are stand-ins under their names: a minimal Debian with this machine's Python in /usr/local, and
# busybox. What is built is not for use; that it is built, and what it runs as, is what this shows. pip's configuration
# is this machine's: BUILD_OPTIONS passes more to buildah, such as volumes that pip.conf names.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BUILDAH_ISOLATION=chroot
b() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
base=$(sed -n 's/^ARG PYTHON_TAG=//p' deploy/images/Dockerfile)
build=$(sed -n 's/^ARG BUILD_TAG=//p' deploy/images/Dockerfile)
busybox=$(sed -n 's/^ARG BUSYBOX_TAG=//p' deploy/images/Dockerfile)
python=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')

echo "== stand-ins"
debootstrap --variant=minbase --include=ca-certificates,g++,make,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5 \
  bookworm "$work/root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
cp -R "$python/bin" "$python/lib" "$python/include" "$work/root/usr/local/"
rm -rf "$work"/root/usr/local/lib/python3*/site-packages/* "$work"/root/usr/local/bin/pip*
container=$(b from scratch)
tar -C "$work/root" -c . >"$work/root.tar" && rm -rf "$work/root"
b add -q "$container" "$work/root.tar" / && rm "$work/root.tar"
b config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
b run "$container" -- sh -c 'ldconfig && ln -sf python3 /usr/local/bin/python && python -m ensurepip >/dev/null'
b commit -q "$container" "docker.io/library/python:$build"
b tag "docker.io/library/python:$build" "docker.io/library/python:$base"
mkdir -p "$work/bb/bin" "$work/bb/etc" "$work/bb/tmp"
cp "$(command -v busybox)" "$work/bb/bin/busybox"
for name in sh cp mv rm mkdir cat id chown; do ln -s busybox "$work/bb/bin/$name"; done
echo 'root:x:0:0:root:/root:/bin/sh' >"$work/bb/etc/passwd"
container=$(b from scratch)
b add -q "$container" "$work/bb" /
b config --env PATH=/bin "$container"
b commit -q "$container" "docker.io/library/busybox:$busybox"

for target in probe agent collector; do
  echo "== $target"
  # BUILD_OPTIONS is several words on purpose.
  # shellcheck disable=SC2086
  b bud --pull-never -q --network host ${BUILD_OPTIONS:-} -f deploy/images/Dockerfile \
    --ignorefile deploy/images/Dockerfile.dockerignore --target "$target" -t "localhost/replaywatch/$target" . >/dev/null
  container=$(b from --pull-never "localhost/replaywatch/$target")
  if [ "$target" = probe ]; then
    mkdir -m 777 "$work/volume"
    b run -v "$work/volume:/opt/replaywatch" "$container" -- /bin/sh /fill-volume.sh /opt/replaywatch
    test -f "$work/volume/replaywatch/probe/libreplaywatch_tracer.so"
  else
    # shellcheck disable=SC2016
    b run "$container" -- sh -c 'test "$(id -u)" = 65532 && ! touch /usr/local/x 2>/dev/null'
    b run "$container" -- replaywatch "$target" --help >/dev/null
  fi
done
echo "all three images were built and run"
