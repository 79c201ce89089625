#!/bin/sh
# Build a Debian tree with packages in it, to be entered by chroot: debian_root.sh SUITE DIR [PACKAGE...]
#
# Without a package, the tree contains the RabbitMQ of its suite.
# It is built beside DIR and moved there when it is whole, so a build that was broken off leaves
# nothing that passes for one. It takes root, debootstrap and a minute.
set -eu

[ $# -ge 2 ] || exit 0 # none is needed
suite=$1
root=$2
shift 2
[ $# -gt 0 ] || set -- rabbitmq-server
part=$root.part
log=$root.log

sites() { apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null; }
mirror=$(sites | grep -v security | head -n 1)

fail() {
    tail -n 20 "$log" >&2
    echo "harebell: no tree of Debian $suite could be built; all of it is in $log" >&2
    exit 1
}

inside() { chroot "$part" env DEBIAN_FRONTEND=noninteractive "$@"; }

build() {
    debootstrap --variant=minbase "$suite" "$part" "${mirror:-http://deb.debian.org/debian}"
    printf '#!/bin/sh\nexit 101\n' >"$part/usr/sbin/policy-rc.d" # starts no service
    chmod 755 "$part/usr/sbin/policy-rc.d"
    printf '127.0.0.1 localhost\n' >"$part/etc/hosts" # a tree may have none, and Erlang asks it
    inside apt-get -qq update
    inside apt-get -qq install --no-install-recommends "$@"
    inside apt-get clean
}

[ ! -d "$root" ] || exit 0
[ "$(id -u)" = 0 ] || {
    echo "harebell: to build and enter a Debian tree takes root" >&2
    exit 1
}
echo "Building a tree of Debian $suite in $root, once"
mkdir -p "$(dirname "$root")"
rm -rf "$part"
build "$@" >"$log" 2>&1 || fail
mv "$part" "$root"
