#!/bin/sh
# Install what is missing, and say so first. It is silent when nothing is, so it runs every time.
#
#   bootstrap.sh           .venv with the project in it
#   bootstrap.sh servers   also the Debian packages of the servers that no HAREBELL_*_URL replaces
#   bootstrap.sh tests     and what only tests need: promtool (of the package prometheus), which
#                          tests the alert rules, faketime, which sets a service's clock, and
#                          chromium, which opens the management UI
#   bootstrap.sh peers     servers, and what only the peers of `make bench PEERS=1` need
#
# It asks at a terminal unless YES=1. It never starts a system service. PYTHON=python3.12 chooses the
# interpreter of .venv; else it is the newest.
set -eu

here=$(dirname "$0")
PATH=$PATH:/usr/sbin:/sbin # where rabbitmq-server is; a plain user's PATH lacks them
stamp=.venv/harebell-stamp
policy=/usr/sbin/policy-rc.d
policy_aside=$policy.before-harebell
policy_mark='# put here by Harebell while it installs packages'

fail() {
    echo "harebell: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "this needs root or sudo: $*"
    fi
}

has() {
    command -v "$1" >/dev/null || ls /usr/lib/postgresql/*/bin/"$1" >/dev/null 2>&1
}

missing_packages() {
    [ -n "$python" ] || [ -x .venv/bin/python ] || echo python3-venv
    [ -n "$1" ] || return 0
    has amqp-publish || echo amqp-tools
    [ -n "${HAREBELL_AMQP_URL:-}" ] || has rabbitmq-server || echo rabbitmq-server
    [ -n "${HAREBELL_DATABASE_URL:-}" ] || has initdb || echo postgresql
    case $1 in
    tests)
        has promtool || echo prometheus
        has faketime || echo faketime
        has debootstrap || echo debootstrap
        has chromium || echo chromium
        ;;
    peers)
        has redis-server || echo redis-server
        has node || echo nodejs
        has npm || echo npm
        ;;
    esac
}

# What the environment was made from: it is made again when any of this changes.
fingerprint() {
    echo "$PWD ${PYTHON:-} $(cksum <pyproject.toml)"
}

environment_is_current() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] && .venv/bin/python -c '' 2>/dev/null
}

announce() {
    [ -z "$packages" ] ||
        echo "About to install these Debian packages (starting no service):" $packages
    [ "$environment" = current ] ||
        echo "About to install the Python packages that pyproject.toml names, into .venv"
}

ask() {
    [ -t 0 ] && [ "${YES:-}" != 1 ] || return 0
    printf 'Go on? [Y/n] '
    read -r answer
    case $answer in
    '' | [Yy]*) ;;
    *) fail "nothing was installed" ;;
    esac
}

# apt starts a service when it is installed, unless policy-rc.d forbids it (101). A policy that was
# there before comes back afterwards, at the latest on the next run.
forbid_services() {
    restore_policy
    trap restore_policy EXIT
    trap 'exit 1' HUP INT TERM
    [ ! -e "$policy" ] || as_root mv "$policy" "$policy_aside"
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

restore_policy() {
    ! grep -qs "$policy_mark" "$policy" || as_root rm "$policy"
    [ ! -e "$policy_aside" ] || as_root mv "$policy_aside" "$policy"
}

install_packages() {
    command -v apt-get >/dev/null || fail "no apt-get here; please install:" $packages
    forbid_services
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
        install --no-install-recommends $packages >/dev/null
    restore_policy
    trap - EXIT HUP INT TERM
}

make_environment() {
    if [ -n "${PYTHON:-}" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(sh "$here/find_python.sh")
        [ -n "$python" ] || fail "no Python 3.11 or later that can make a virtual environment"
        "$python" -m venv --clear .venv
    fi
    .venv/bin/python -m pip --quiet --disable-pip-version-check install --editable '.[dev]'
    fingerprint >"$stamp"
}

environment=current
environment_is_current || environment=stale
python=$([ "$environment" = current ] || sh "$here/find_python.sh")
packages=$(missing_packages "${1:-}")
announce
[ -z "$packages" ] || ask
[ -z "$packages" ] || install_packages
[ "$environment" = current ] || make_environment
