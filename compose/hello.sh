#!/bin/sh
# Put a schedule that runs once in three seconds, wait for its run, and show it.
set -eu
key=hello-$(date +%s)
printf '{"key": "%s", "when": {"after": "3s"}, "target": {"task": {"name": "harebell.echo"}}}' "$key" |
    harebell schedule put -

tries=60 # half a second and one query each
until harebell --output json run list --key "$key" | grep -q '"succeeded"'; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || {
        harebell run list --key "$key"
        echo "The run has not succeeded within 60 seconds." >&2
        exit 1
    }
    sleep 0.5
done
harebell run list --key "$key"
