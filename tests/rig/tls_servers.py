"""A private RabbitMQ and a private PostgreSQL with TLS and with a private authority."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import asyncpg
from tests.rig.broker_versions import server_command
from tests.rig.certificates import Authority, Pair
from tests.rig.servers import Servers

from harebell.dev.ports import LOOPBACK, choose_ports
from harebell.dev.servers import PrivateServers

BROKER_CONFIGURATION = """\
listeners.ssl.default = {host}:{port}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {pair.certificate}
ssl_options.keyfile = {pair.key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
"""
PLUGINS = "[rabbitmq_management,rabbitmq_prometheus,rabbitmq_auth_mechanism_ssl].\n"
# Erlang then reads a changed file of a certificate within half a second instead of two minutes.
FRESH_FILES = (
    'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS '
    '-ssl ssl_pem_cache_clean 500" exec "$@"'
)


def _free_port(root: Path) -> int:
    """Return a port that the private servers of `root` do not choose."""
    return choose_ports(["amqps"], seed=f"TLS of {root}", remembered={})["amqps"]


class TlsServers:
    """Both servers, with plain listeners for the tests and TLS for the tested code."""

    def __init__(self, root: Path) -> None:
        self.authority = Authority(root / "authority")
        self.good = self.authority.issue("good")
        self.broker_port = _free_port(root)
        self._files = root / "rabbitmq" / "tls"  # a tree of another version contains this folder
        self.private = PrivateServers(root, broker_command=self._broker_command)

    @classmethod
    @contextmanager
    def open(cls, root: Path) -> Iterator["TlsServers"]:
        servers = cls(root)
        try:
            servers.private.start()
            yield servers
        finally:
            servers.private.discard()

    @property
    def servers(self) -> Servers:
        """Both servers for a stack, whose database has verified TLS."""
        return Servers(self.private.amqp_url, self.database_url(), self.private)

    def amqp_url(self, path: str = "/", user: str | None = None, **parameters: str) -> str:
        """Return an `amqps` URL with the authority of the servers."""
        login = user or urlsplit(self.private.amqp_url).netloc.rpartition("@")[0]
        query = urlencode({"cafile": str(self.authority.file)} | parameters)
        return f"amqps://{login}@{LOOPBACK}:{self.broker_port}{path}?{query}"

    def database_url(self, user: str | None = None, **parameters: str) -> str:
        """Return a URL with `sslmode=verify-full` and the authority of the servers."""
        parts = urlsplit(self.private.database_url)
        login = user or parts.netloc.rpartition("@")[0]
        defaults = {"sslmode": "verify-full", "sslrootcert": str(self.authority.file)}
        chosen = {name: text for name, text in (defaults | parameters).items() if text}
        netloc = f"{login}@{parts.hostname}:{parts.port}"
        return parts._replace(netloc=netloc, query=urlencode(chosen)).geturl()

    def use_in_broker(self, pair: Pair) -> None:
        """Replace the certificate of RabbitMQ, which new connections receive."""
        Pair(self._files / "server.pem", self._files / "server.key").replace_by(pair)

    async def use_in_database(self, pair: Pair) -> None:
        """Replace the certificate of PostgreSQL and reload its configuration."""
        owner = await asyncpg.connect(self.private.database_url, ssl=False)
        try:
            data = Path(await owner.fetchval("SHOW data_directory"))
            self._install(pair, data)
            hba = data / "pg_hba.conf"
            rule = "hostssl all harebell_auditor 127.0.0.1/32 cert\n"
            if rule not in hba.read_text():
                hba.write_text(rule + hba.read_text())
            for setting in (
                "ssl_cert_file = 'server.pem'",
                "ssl_key_file = 'server.key'",
                "ssl_ca_file = 'authority.pem'",
                "ssl = on",
            ):
                await owner.execute(f"ALTER SYSTEM SET {setting}")
            await owner.execute("SELECT pg_reload_conf()")
        finally:
            await owner.close()

    def _install(self, pair: Pair, folder: Path) -> None:
        """Copy the files of a server into `folder`, for the owner of that folder."""
        owner = folder.stat()
        files = {"server.pem": pair.certificate, "server.key": pair.key}
        for name, source in (files | {"authority.pem": self.authority.file}).items():
            path = folder / name
            path.touch(mode=0o600)
            os.chown(path, owner.st_uid, owner.st_gid)
            path.write_bytes(source.read_bytes())

    def _broker_command(self, directory: Path) -> list[str]:
        """Add TLS to the written configuration, and return the command of the node."""
        shutil.rmtree(self._files, ignore_errors=True)
        self._files.mkdir(parents=True)
        self._install(self.good, self._files)
        configuration = BROKER_CONFIGURATION.format(
            host=LOOPBACK,
            port=self.broker_port,
            authority=self._files / "authority.pem",
            pair=Pair(self._files / "server.pem", self._files / "server.key"),
        )
        with (directory / "rabbitmq.conf").open("a") as file:
            file.write(configuration)
        (directory / "enabled_plugins").write_text(PLUGINS)
        command = server_command(os.environ.get("BROKER") or None, os.environ)(directory)
        return ["sh", "-c", FRESH_FILES, "broker", *command]
