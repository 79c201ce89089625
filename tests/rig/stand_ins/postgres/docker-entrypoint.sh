#!/bin/bash
# Behave as the official image at its first start: make the cluster with the password of the
# superuser, run the scripts with a server that listens on a socket only, then start the server.
set -euo pipefail

value_of() { # NAME DEFAULT: the variable, or the content of the file that NAME_FILE names
    local file="$1_FILE"
    [ -z "${!1:-}" ] || [ -z "${!file:-}" ] || { echo "error: both $1 and $file are set" >&2; exit 1; }
    if [ -n "${!file:-}" ]; then cat "${!file}"; else echo "${!1:-$2}"; fi
}

if [ "${1:-}" = postgres ] && [ "$(id -u)" = 0 ]; then
    chown -R postgres "$PGDATA" /var/run/postgresql
    exec setpriv --reuid=999 --regid=999 --clear-groups "$0" "$@"
fi

if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    chmod 700 "$PGDATA"
    POSTGRES_USER=$(value_of POSTGRES_USER postgres)
    POSTGRES_DB=$(value_of POSTGRES_DB "$POSTGRES_USER")
    POSTGRES_PASSWORD=$(value_of POSTGRES_PASSWORD '')
    export POSTGRES_USER POSTGRES_DB POSTGRES_PASSWORD
    [ -n "$POSTGRES_PASSWORD" ] || { echo "error: no password of the superuser" >&2; exit 1; }
    eval "initdb --username=\"$POSTGRES_USER\" --pwfile=<(echo \"\$POSTGRES_PASSWORD\") ${POSTGRES_INITDB_ARGS:-}"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl --pgdata "$PGDATA" --options "-c listen_addresses='' -p 5432" --wait start
    [ "$POSTGRES_DB" = postgres ] || createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*; do
        case $script in
        *.sh) if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
        *.sql) psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --file "$script" ;;
        esac
    done
    pg_ctl --pgdata "$PGDATA" --mode fast --wait stop
    unset POSTGRES_PASSWORD
fi
exec "$@"
