"""Passwords of the compose stack, made once, and the files from which each container reads its own.

The job `credentials` of compose/compose.yaml runs this module as root and without a network, by
`python -m harebell.dev.compose_credentials DIRECTORY [--rotate]`.

`DIRECTORY/master` keeps every password, and no other container mounts it. Each other folder of
`DIRECTORY` belongs to one container. A repeated call writes the same files again, so a call that
was interrupted is repaired by the next one.
"""

import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.storage.role_passwords import ROLES

TENANTS: Final = "HAREBELL_TENANT_LOGINS"  # variables of the compose file
POOLS: Final = "HAREBELL_POOLS"

MASTER: Final = "master"
PASSWORDS: Final = "passwords.json"  # the name of a file
ROTATE: Final = "--rotate"
PASSWORD_BYTES: Final = 32
NONE: Final[Mapping[str, str]] = {}

# The image of Harebell has one user, and the official images have these.
HAREBELL: Final = 65532
RABBITMQ: Final = 999
POSTGRES: Final = 999
GRAFANA: Final = 472
OWNERS: Final = {
    "broker": RABBITMQ,
    "database": POSTGRES,
    "migration": HAREBELL,
    "intake": HAREBELL,
    "ticker": HAREBELL,
    "dispatcher": HAREBELL,
    "executor": HAREBELL,
    "dlq_inspector": HAREBELL,
    "cli": HAREBELL,
    "audit": HAREBELL,
    "grafana": GRAFANA,
}
SERVICES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector")

OPERATOR: Final = "harebell_operator"
OWNER: Final = "owner"  # of the database
SUPERUSER: Final = "superuser"  # of PostgreSQL
COOKIE: Final = "cookie"  # of the nodes of RabbitMQ
GRAFANA_ADMIN: Final = "grafana"
SALT_KEY: Final = "salt_key"  # of the hashes in the definitions file
# A server reads these only at its first start, so a rotation keeps them.
PERMANENT: Final = frozenset({OWNER, SUPERUSER, COOKIE, GRAFANA_ADMIN})

# The part of the definitions file that RabbitMQ imports at its start. With it, RabbitMQ makes no
# login guest. The job `topology` imports the rest after the nodes have formed their cluster.
OF_LOGINS: Final = ("vhosts", "users", "permissions")

NewPassword = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passwords:
    """Every password of one installation, by the name of its login."""

    servers: Mapping[str, str]
    broker: Mapping[str, str]
    roles: Mapping[str, str]

    def document(self) -> dict[str, dict[str, str]]:
        return {
            "servers": dict(self.servers),
            "broker": dict(self.broker),
            "roles": dict(self.roles),
        }


def complete(
    kept: Mapping[str, Mapping[str, str]], options: InstallationOptions, new: NewPassword
) -> Passwords:
    """Return the kept passwords, and a new one for each login without a password.

    A tenant that is no longer an option loses its password, so its login is closed.
    """

    def each(group: str, names: Iterator[str]) -> dict[str, str]:
        known = kept.get(group, NONE)
        return {name: known.get(name) or new() for name in names}

    return Passwords(
        servers=each("servers", iter((*sorted(PERMANENT), SALT_KEY))),
        broker=each("broker", (user.name for user in options.users)),
        roles=each("roles", iter(ROLES)),
    )


def without_rotated(kept: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the passwords that a rotation keeps."""
    servers = kept.get("servers", NONE)
    return {"servers": {name: servers[name] for name in PERMANENT & servers.keys()}}


def files_of(passwords: Passwords, options: InstallationOptions) -> dict[str, dict[str, str]]:
    """Return the content of each file, by the folder of its container."""
    definitions = _definitions(passwords, options)
    logins = {key: value for key, value in definitions.items() if key in OF_LOGINS}
    people = set(passwords.broker) - {f"harebell_{service}" for service in SERVICES}
    return {
        "broker": {
            "erlang-cookie": passwords.servers[COOKIE],
            "logins.json": _json(logins),
            "definitions.json": _json(definitions),
        },
        "database": {
            "password": passwords.servers[SUPERUSER],
            "owner-password": passwords.servers[OWNER],
        },
        "migration": {
            "database-url": _database_url("harebell", passwords.servers[OWNER]),
            "role-passwords.json": _json(dict(passwords.roles)),
        },
        **{
            service: {
                "amqp-url": _amqp_url(f"harebell_{service}", passwords),
                "database-url": _role_url(service, passwords),
            }
            for service in SERVICES
        },
        "cli": {
            "amqp-url": _amqp_url(OPERATOR, passwords),
            "database-url": _role_url("auditor", passwords),
            "logins.json": _json(
                {
                    "rabbitmq": {name: passwords.broker[name] for name in sorted(people)},
                    "grafana": {"admin": passwords.servers[GRAFANA_ADMIN]},
                }
            ),
        },
        "audit": {"database-url": _role_url("auditor", passwords)},
        "grafana": {"admin-password": passwords.servers[GRAFANA_ADMIN]},
    }


def _definitions(passwords: Passwords, options: InstallationOptions) -> dict[str, Any]:
    """Return the definitions file. Equal passwords give an equal file, in spite of its salts."""
    with_passwords = parse(
        InstallationOptions, options.model_dump() | {"passwords": passwords.broker}
    )
    key, numbers = passwords.servers[SALT_KEY].encode(), count()

    def salt(length: int) -> bytes:
        return hmac.digest(key, str(next(numbers)).encode(), hashlib.sha256)[:length]

    return definitions_file(with_passwords, salt)


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _amqp_url(user: str, passwords: Passwords) -> str:
    # `brokers` names every node of the cluster that runs.
    return f"amqp://{user}:{passwords.broker[user]}@brokers:5672/"


def _role_url(service: str, passwords: Passwords) -> str:
    role = f"harebell_{service}"
    return _database_url(role, passwords.roles[role])


def _database_url(role: str, password: str) -> str:
    # The network between the containers is a bridge inside one machine.
    return f"postgresql://{role}:{password}@database:5432/harebell?sslmode=disable"


def read_options(environ: Mapping[str, str]) -> InstallationOptions:
    """Return the tenants with a login and the pools. Raise `InvalidInput` with the variable."""
    values = {}
    for variable, field in ((TENANTS, "tenants"), (POOLS, "pools")):
        names = (part.strip() for part in environ.get(variable, "").split(","))
        values[field] = tuple(name for name in names if name)
        try:
            parse(InstallationOptions, {field: values[field]})
        except InvalidInput as error:
            raise InvalidInput(error.reason, field=variable, code=error.code) from None
    return parse(InstallationOptions, values)


def write(root: Path, options: InstallationOptions, *, rotate: bool, new: NewPassword) -> None:
    """Write the files of every folder that exists in `root`.

    The master file comes first: after a crash, the next call derives the same files from it.
    """
    path = root / MASTER / PASSWORDS
    kept = decode(path.read_bytes()) if path.exists() else {}
    if not isinstance(kept, dict):
        raise InvalidInput("The file must be a JSON object.", field=str(path), code="invalid_file")
    passwords = complete(without_rotated(kept) if rotate else kept, options, new)
    _replace(path, _json(passwords.document()), os.geteuid())
    for folder, contents in files_of(passwords, options).items():
        for name, content in contents.items():
            _replace(root / folder / name, content, OWNERS[folder])


def _replace(path: Path, content: str, owner: int) -> None:
    """Replace a file, which only its owner may read, so that a reader finds a whole one."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if owner != os.geteuid():
            os.fchown(file.fileno(), owner, owner)
    part.replace(path)


def new_password() -> str:
    """Return a password that needs no escape in a URL, in SQL or in a file."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def main(arguments: list[str], environ: Mapping[str, str]) -> None:
    """Make the missing passwords, or with `--rotate` new ones, and write every file."""
    directories = [each for each in arguments if each != ROTATE]
    if len(directories) != 1:
        sys.exit(f"Usage: python -m harebell.dev.compose_credentials DIRECTORY [{ROTATE}]")
    try:
        options = read_options(environ)
        write(Path(directories[0]), options, rotate=ROTATE in arguments, new=new_password)
    except InvalidInput as error:
        sys.exit(f"{error.field}: {error.reason}")


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
