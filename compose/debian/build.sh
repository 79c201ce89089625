#!/bin/sh
# Build the Debian package of the services: build.sh OUTPUT
#
# The package contains a virtual environment with the locked packages and their hashes.
# Its interpreter is that of the Debian release that builds it: PYTHON=/usr/bin/python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-/usr/bin/python3}
pip="$root/.venv/bin/python -m pip --quiet --disable-pip-version-check"
library=/usr/lib/harebell

# The date of every file, so that two builds of one commit are equal.
: "${SOURCE_DATE_EPOCH:=1735689600}"
export SOURCE_DATE_EPOCH

[ $# = 1 ] || {
    echo "usage: build.sh OUTPUT" >&2
    exit 2
}
mkdir -p "$1"
output=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$work/source
tree=$source/debian/tree
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/schemas/harebell/contract/_version.py")

make_environment() {
    environment=$tree$library
    "$python" -m venv --without-pip "$environment"
    $pip wheel --no-deps --no-build-isolation --wheel-dir "$work" "$root"
    pip_there="$pip --python $environment/bin/python install --no-compile --no-warn-script-location"
    $pip_there --require-hashes --only-binary :all: --requirement "$root/requirements/services.txt"
    $pip_there --no-deps --no-index "$work"/harebell-*.whl
    (cd "$environment/bin" && find . -type f ! -name harebell -delete)
    sed -i "1s|.*|#!$library/bin/python -I|" "$environment/bin/harebell"
    # Two lines of the first file and the whole second one name the folder of the build.
    sed -i -e '/^command = /d' "$environment/pyvenv.cfg"
    rm "$environment"/lib/python3*/site-packages/harebell-*.dist-info/direct_url.json
    rm -rf "$environment/include" "$environment"/lib/python3*/site-packages/croniter/tests
    find "$environment" -name __pycache__ -type d -prune -exec rm -rf {} +
}

write_changelog() {
    date=$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
    maintainer=$(sed -n 's/^Maintainer: //p' "$here/control")
    cat >"$source/debian/changelog" <<EOF
harebell ($version) unstable; urgency=medium

  * Release $version. The page docs/CHANGELOG.md of the project lists its changes.

 -- $maintainer  $date
EOF
}

for tool in dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || {
        echo "harebell: the command $tool was not found: install dpkg-dev and debhelper." >&2
        exit 1
    }
done
mkdir -p "$source/debian"
cp -R "$here"/. "$source/debian/"
mv "$source/debian/sysusers" "$source/debian/harebell.sysusers"
cp "$root/docs/operations/systemd.md" "$source/systemd.md"
echo systemd.md >"$source/debian/harebell.docs"
make_environment
write_changelog
numbers=$("$python" -c 'import sys; print("3.%d 3.%d" % (sys.version_info[1], sys.version_info[1] + 1))')
cd "$source"
PYTHON_VERSION=${numbers% *} PYTHON_NEXT=${numbers#* } \
    dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    exit 1
}
mv "$work"/harebell_*.deb "$output/"
ls "$output"/harebell_"$version"_*.deb
