"""Check of the Python in an image.

    docker run --rm --interactive harebell python - < compose/smoke.py

A build without optimisation needs 1.6 times the CPU, so the check fails. Debian removes the flag
of its optimised packages below /usr, so the check accepts these without the flag.
"""

import platform
import sys
import sysconfig

FLAG = "--enable-optimizations"


def proof_of_optimisation(config: str, base_prefix: str) -> str | None:
    """Return the reason why a Python counts as optimised, or None."""
    if FLAG in config:
        return f"sysconfig lists {FLAG}"
    if base_prefix == "/usr":
        return "the package of the distribution, which lists no flag"
    return None


if __name__ == "__main__":
    proof = proof_of_optimisation(sysconfig.get_config_var("CONFIG_ARGS") or "", sys.base_prefix)
    print("Python", platform.python_version(), "is optimised:", proof)
    if proof is None:
        sys.exit(f"The base image must contain a Python that was built with {FLAG}.")
