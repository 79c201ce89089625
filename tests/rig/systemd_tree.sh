#!/bin/sh
# Build a Debian tree with systemd and Python, which systemd-nspawn boots: systemd_tree.sh DIR
#
# It is built beside DIR and moved there when it is whole. It takes root, mmdebstrap and a minute.
set -eu

root=$1
part=$root.part.$$
log=$root.log

[ ! -d "$root" ] || exit 0
[ "$(id -u)" = 0 ] || {
    echo "harebell: to build and boot a Debian tree takes root" >&2
    exit 1
}
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null |
    grep -v security | head -n 1)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME") # the release whose Python the package needs
mkdir -p "$(dirname "$root")"
mmdebstrap --variant=minbase --include=systemd,systemd-sysv,python3,libstdc++6 \
    "$suite" "$part" "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    rm -rf "$part"
    echo "harebell: no tree of Debian $suite could be built; all of it is in $log" >&2
    exit 1
}
# Another process may have been faster.
mv -T "$part" "$root" 2>/dev/null || rm -rf "$part"
