#!/bin/sh
# Print the newest released Python, 3.11 or later, that can create a virtual environment.
# Print nothing if no such Python exists. PYTHON, if set, is the only candidate.
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

# A python3 of Debian lacks ensurepip without python3-venv, and a pyenv shim may have no target.
# The script therefore runs each candidate.
describe='
import ensurepip, sys, venv
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final":
    print(".".join(map(str, sys.version_info[:3])), sys.executable)
'

candidates | while read -r python; do
    "$python" -c "$describe" 2>/dev/null || true
done | sort -V | tail -n 1 | cut -d ' ' -f 2-
