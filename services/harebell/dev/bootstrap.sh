#!/bin/sh
# Announce and install the missing packages. The script prints nothing if no package is missing,
# because most make targets run it.
#
#   bootstrap.sh           install the project into .venv
#   bootstrap.sh servers   also install the Debian packages of the servers that no HAREBELL_*_URL
#                          replaces
#   bootstrap.sh tests     also install the packages for tests: prometheus with promtool for the
#                          alert rules, faketime for the clock of a service, debootstrap for other
#                          RabbitMQ versions, docker.io and iptables for the stack of containers,
#                          chromium for the management UI, nodejs and npm for a receiver of signed
#                          calls, debhelper, lintian, mmdebstrap and systemd-container for the
#                          Debian package, pgbouncer, and Go and Java with their AMQP clients for
#                          the examples of the guides
#   bootstrap.sh package   also install debhelper, which `make deb` needs
#   bootstrap.sh peers     install the servers and the packages for `make bench PEERS=1`
#
# At a terminal, the script waits for permission unless YES=1. The script never starts a system service.
# PYTHON=python3.12 selects the interpreter of .venv, and the default is the newest optimised one.
set -eu

here=$(dirname "$0")
PATH=$PATH:/usr/sbin:/sbin # rabbitmq-server is there, and the PATH of a normal user lacks both
stamp=.venv/harebell-stamp
pinned=requirements/development.txt # the export of uv.lock, which pip of any version can read
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
        fail "This command needs root or sudo: $*"
    fi
}

has() {
    command -v "$1" >/dev/null || ls /usr/lib/postgresql/*/bin/"$1" >/dev/null 2>&1
}

missing_packages() {
    [ -n "$python" ] || [ -x .venv/bin/python ] || echo python3-venv
    case $1 in
    '') return 0 ;;
    package)
        has dh || echo debhelper
        return 0
        ;;
    esac
    has amqp-publish || echo amqp-tools
    [ -n "${HAREBELL_AMQP_URL:-}" ] || has rabbitmq-server || echo rabbitmq-server
    [ -n "${HAREBELL_DATABASE_URL:-}" ] || has initdb || echo postgresql
    case $1 in
    tests)
        has promtool || echo prometheus
        has faketime || echo faketime
        has debootstrap || echo debootstrap
        has dockerd || echo docker.io
        has iptables || echo iptables
        has pgbouncer || echo pgbouncer
        has chromium || echo chromium
        has node || echo nodejs
        has npm || echo npm
        has dh || echo debhelper
        has lintian || echo lintian
        has mmdebstrap || echo mmdebstrap
        has systemd-nspawn || echo systemd-container
        has go || echo golang-go
        has javac || echo default-jdk-headless
        [ -e /usr/share/gocode/src/github.com/rabbitmq/amqp091-go ] ||
            echo golang-github-rabbitmq-amqp091-go-dev
        [ -e /usr/share/java/amqp-client.jar ] || echo librabbitmq-client-java
        [ -e /usr/share/java/slf4j-nop.jar ] || echo libslf4j-java
        ;;
    peers)
        has redis-server || echo redis-server
        has node || echo nodejs
        has npm || echo npm
        ;;
    esac
}

# Print the inputs of the environment. A changed input causes a new installation.
fingerprint() {
    echo "$PWD ${PYTHON:-} $(cksum <pyproject.toml) $(cksum <$pinned)"
}

environment_is_current() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] && .venv/bin/python -c '' 2>/dev/null
}

announce() {
    [ -z "$packages" ] ||
        echo "The script installs these Debian packages and starts no service:" $packages
    [ "$environment" = current ] ||
        echo "The script installs the Python packages of uv.lock into .venv."
}

ask() {
    [ -t 0 ] && [ "${YES:-}" != 1 ] || return 0
    printf 'Continue? [Y/n] '
    read -r answer
    case $answer in
    '' | [Yy]*) ;;
    *) fail "The user declined, so the script installed nothing." ;;
    esac
}

# apt starts each installed service unless policy-rc.d forbids the start with the exit code 101.
# The script restores an existing policy afterwards, or at its next run after a crash.
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
    command -v apt-get >/dev/null ||
        fail "The command apt-get was not found. Install these packages:" $packages
    forbid_services
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
        install --no-install-recommends $packages >/dev/null
    restore_policy
    trap - EXIT HUP INT TERM
}

install_python_packages() {
    .venv/bin/python -m pip --quiet --disable-pip-version-check install "$@"
}

make_environment() {
    if [ -n "${PYTHON:-}" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(sh "$here/find_python.sh")
        [ -n "$python" ] ||
            fail "No Python 3.11 or later was found that can create a virtual environment."
        "$python" -m venv --clear .venv
    fi
    # Every file comes with its hash. A source package would bring build tools without a hash.
    install_python_packages --require-hashes --only-binary :all: --requirement "$pinned"
    install_python_packages --no-deps --no-build-isolation --editable .
    .venv/bin/python -m pip check >/dev/null ||
        fail "The lock lacks a package that pyproject.toml requires. Run make lock."
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
