#!/bin/sh
# Behave as the official image: refuse its removed variables, and as root take the user rabbitmq.
set -eu
for name in RABBITMQ_DEFAULT_PASS_FILE RABBITMQ_DEFAULT_USER_FILE RABBITMQ_VM_MEMORY_HIGH_WATERMARK; do
    if env | grep -q "^$name="; then
        echo "error: $name is set, which the image no longer supports" >&2
        exit 1
    fi
done
if [ "$(id -u)" = 0 ] && [ "${1#rabbitmq}" != "$1" ]; then
    chown -R rabbitmq /var/lib/rabbitmq
    exec setpriv --reuid=999 --regid=999 --clear-groups "$0" "$@"
fi
exec "$@"
