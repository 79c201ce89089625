#!/bin/sh
# Print the newest released Python, 3.11 or later, that can create a virtual environment.
# An optimised build is preferred to a newer one, because other builds need about twice the CPU.
# Print nothing if no such Python exists. PYTHON, if set, is the only candidate.
set -eu

candidates() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" || true
        return
    fi
    # A shim of pyenv may precede the interpreter of the distribution: look into each folder.
    printf '%s\n' "$PATH" | tr ':' '\n' | while read -r folder; do
        for name in python3.14 python3.13 python3.12 python3.11 python3; do
            [ ! -x "$folder/$name" ] || echo "$folder/$name"
        done
    done
    for python in "$HOME"/.pyenv/versions/3.*/bin/python3; do
        [ ! -x "$python" ] || echo "$python"
    done
}

# A python3 of Debian lacks ensurepip without python3-venv, and a pyenv shim may have no target.
# The script therefore runs each candidate.
# Distributions optimise their packages below /usr, and Debian removes the flag from sysconfig.
describe='
import ensurepip, sys, sysconfig, venv
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final":
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    is_optimised = "--enable-optimizations" in flags or sys.base_prefix == "/usr"
    print(int(is_optimised), ".".join(map(str, sys.version_info[:3])), sys.executable)
'

candidates | while read -r python; do
    "$python" -c "$describe" 2>/dev/null || true
done | sort -k 1,1n -k 2,2V | tail -n 1 | cut -d ' ' -f 3-
