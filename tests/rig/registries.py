"""The registries of packages, which the tests of `make test` must not need."""

from collections.abc import Mapping
from typing import Final

# pip, npm and uv contact no registry with these variables.
OFFLINE: Final = {"PIP_NO_INDEX": "1", "npm_config_offline": "true", "UV_OFFLINE": "1"}


class RegistryNeeded(Exception):
    """A test of `make test` needs packages of a registry."""


def require_registries(environ: Mapping[str, str]) -> None:
    """Raise `RegistryNeeded` if this suite uses no registry, even if the packages are present."""
    if OFFLINE.items() <= environ.items():
        raise RegistryNeeded(
            "`make test` uses no registry of packages, so this test needs the marker `long`."
        )
