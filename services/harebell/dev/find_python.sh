#!/bin/sh
# Print the newest released Python, 3.11 or later, that can make a virtual environment; else nothing.
# PYTHON, if it is set, is the only one that is looked at.
set -eu

candidates() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" || true
        return
    fi
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        command -v "$name" || true
    done
    for python in "$HOME"/.pyenv/versions/3.*/bin/python3; do
        [ ! -x "$python" ] || echo "$python"
    done
}

# Debian's python3 lacks ensurepip until python3-venv is installed; a pyenv shim may lead nowhere.
describe='
import ensurepip, sys, venv
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final":
    print(".".join(map(str, sys.version_info[:3])), sys.executable)
'

candidates | while read -r python; do
    "$python" -c "$describe" 2>/dev/null || true
done | sort -V | tail -n 1 | cut -d ' ' -f 2-
