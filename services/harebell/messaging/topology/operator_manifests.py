"""The topology as objects of the Messaging Topology Operator for RabbitMQ on Kubernetes. Pure.

The objects are made from the definitions file, so that both contain the same topology.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from harebell.messaging.topology.definitions_file import (
    SALT_BYTES,
    InstallationOptions,
    SaltSource,
    definitions_file,
)

API_VERSION: Final = "rabbitmq.com/v1beta1"
RETAIN: Final = "retain"  # a removed object deletes neither messages nor the virtual host
MAX_OBJECT_NAME: Final = 253  # characters of a name in Kubernetes
HASH_LENGTH: Final = 8  # characters of the hash in the name of an object
DEFAULT_VHOST: Final = "/"
QUEUE_TYPE: Final = "x-queue-type"  # the operator sets this argument from the field `type`
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # the limit that docs/operations/broker.md requires
NODES: Final = 3  # of the example cluster: quorum queues survive the loss of one node

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")

ClusterName = Annotated[str, Field(pattern=rf"^{_LABEL}$", max_length=63)]


class ManifestOptions(InstallationOptions):
    """The options in which the manifests of installations differ."""

    cluster: ClusterName = "rabbitmq"  # the name of the RabbitmqCluster
    namespace: ClusterName | None = None  # None: the namespace of the one who applies the objects
    has_cluster: bool = False  # whether the manifests contain an example of the RabbitmqCluster


def operator_manifests(options: ManifestOptions, salt: SaltSource) -> list[dict[str, Any]]:
    """Return the objects of the topology, the users and their permissions.

    The operator reads the name of a user and the hash of its password from a secret. It always
    states SHA-512 as the algorithm of this hash.
    """
    definitions = definitions_file(options, salt)
    objects = [
        *([_cluster(options)] if options.has_cluster else ()),
        *_vhosts(definitions, options),
        *_users(definitions, options, salt),
        *_permissions(definitions, options),
        *_topic_permissions(definitions, options),
        *_exchanges(definitions, options),
        *_queues(definitions, options),
        *_bindings(definitions, options),
        *_policies(definitions, options),
    ]
    for each in objects:
        if options.namespace is not None:
            each["metadata"]["namespace"] = options.namespace
    return objects


def object_name(*parts: str) -> str:
    """Return the name of an object of Kubernetes from names of RabbitMQ.

    A name that Kubernetes permits stays as it is. Another name gets a hash of the parts, because
    two names could differ only in a character that is replaced.
    """
    joined = ".".join(parts)
    if _OBJECT_NAME.fullmatch(joined) and len(joined) <= MAX_OBJECT_NAME:
        return joined
    labels = (re.sub(r"[^a-z0-9]+", "-", label).strip("-") for label in joined.split("."))
    readable = ".".join(label for label in labels if label)
    return f"{readable[: MAX_OBJECT_NAME - HASH_LENGTH - 1].strip('-.')}-{_hash(*parts)}"


def user_object_name(user: str) -> str:
    """Return the name of the object of a user.

    No tenant begins like a user of Harebell, so the names of these users need no hash.
    """
    return user.replace("_", "-") if user.startswith("harebell_") else object_name(user)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:HASH_LENGTH]


def _in_vhost(options: ManifestOptions, *names: str) -> str:
    """Return the name of an object that belongs to the virtual host.

    Two virtual hosts of one cluster have objects in the same namespace.
    """
    vhost = () if options.vhost == DEFAULT_VHOST else (options.vhost,)
    return object_name(*vhost, *names)


def _object(
    kind: str, name: str, spec: Mapping[str, Any], *, options: ManifestOptions
) -> dict[str, Any]:
    reference = {"rabbitmqClusterReference": {"name": options.cluster}}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**spec, **reference},
    }


def _vhosts(definitions: Mapping[str, Any], options: ManifestOptions) -> Iterator[dict[str, Any]]:
    limits = {each["vhost"]: each["value"] for each in definitions["parameters"]}
    for vhost in definitions["vhosts"]:
        name = vhost["name"]
        spec: dict[str, Any] = {"name": name, "deletionPolicy": RETAIN}
        if name in limits:
            spec["limits"] = {"queues": limits[name]["max-queues"]}
        label = "default" if name == DEFAULT_VHOST else object_name(name)
        yield _object("Vhost", f"vhost-{label}", spec, options=options)


def _users(
    definitions: Mapping[str, Any], options: ManifestOptions, salt: SaltSource
) -> Iterator[dict[str, Any]]:
    for user in definitions["users"]:
        name = user_object_name(user["name"])
        secret = f"{name}-login"
        password = options.passwords.get(user["name"])
        text = "" if password is None else password.get_secret_value()
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret},
            "type": "Opaque",
            "stringData": {
                "username": user["name"],
                "passwordHash": sha512_hash(text, salt(SALT_BYTES)) if text else "",
            },
        }
        spec: dict[str, Any] = {"importCredentialsSecret": {"name": secret}}
        if user["tags"]:
            spec["tags"] = user["tags"]
        if user["limits"]:
            spec["limits"] = {
                "connections": user["limits"]["max-connections"],
                "channels": user["limits"]["max-channels"],
            }
        yield _object("User", name, spec, options=options)


def sha512_hash(password: str, salt: bytes) -> str:
    """Return the hash that RabbitMQ stores for SHA-512: base64 of the salt and the digest."""
    return base64.b64encode(salt + hashlib.sha512(salt + password.encode()).digest()).decode()


def _permissions(
    definitions: Mapping[str, Any], options: ManifestOptions
) -> Iterator[dict[str, Any]]:
    for each in definitions["permissions"]:
        user = user_object_name(each["user"])
        spec = {
            "vhost": each["vhost"],
            "userReference": {"name": user},
            "permissions": {name: each[name] for name in ("configure", "write", "read")},
        }
        yield _object("Permission", _in_vhost(options, user), spec, options=options)


def _topic_permissions(
    definitions: Mapping[str, Any], options: ManifestOptions
) -> Iterator[dict[str, Any]]:
    for each in definitions["topic_permissions"]:
        user = user_object_name(each["user"])
        spec = {
            "vhost": each["vhost"],
            "userReference": {"name": user},
            "permissions": {name: each[name] for name in ("exchange", "write", "read")},
        }
        name = _in_vhost(options, user, each["exchange"])
        yield _object("TopicPermission", name, spec, options=options)


def _exchanges(
    definitions: Mapping[str, Any], options: ManifestOptions
) -> Iterator[dict[str, Any]]:
    for each in definitions["exchanges"]:
        spec = {
            "name": each["name"],
            "vhost": each["vhost"],
            "type": each["type"],
            "durable": each["durable"],
            "autoDelete": each["auto_delete"],
        }
        if each["arguments"]:
            spec["arguments"] = each["arguments"]
        yield _object("Exchange", _in_vhost(options, each["name"]), spec, options=options)


def _queues(definitions: Mapping[str, Any], options: ManifestOptions) -> Iterator[dict[str, Any]]:
    for each in definitions["queues"]:
        arguments = dict(each["arguments"])
        spec = {
            "name": each["name"],
            "vhost": each["vhost"],
            "type": arguments.pop(QUEUE_TYPE),
            "durable": each["durable"],
            "autoDelete": each["auto_delete"],
            "arguments": arguments,
            "deletionPolicy": RETAIN,
        }
        yield _object("Queue", _in_vhost(options, each["name"]), spec, options=options)


def _bindings(definitions: Mapping[str, Any], options: ManifestOptions) -> Iterator[dict[str, Any]]:
    for each in definitions["bindings"]:
        # A routing key may contain characters that no name of an object may contain.
        key = _hash(each["source"], each["routing_key"])
        spec = {
            "vhost": each["vhost"],
            "source": each["source"],
            "destination": each["destination"],
            "destinationType": each["destination_type"],
            "routingKey": each["routing_key"],
        }
        name = _in_vhost(options, each["destination"])
        yield _object("Binding", f"{name}-{key}", spec, options=options)


def _policies(definitions: Mapping[str, Any], options: ManifestOptions) -> Iterator[dict[str, Any]]:
    for each in definitions["policies"]:
        spec = {
            "name": each["name"],
            "vhost": each["vhost"],
            "pattern": each["pattern"],
            "applyTo": each["apply-to"],
            "priority": each["priority"],
            "definition": each["definition"],
        }
        yield _object("Policy", _in_vhost(options, each["name"]), spec, options=options)


def _cluster(options: ManifestOptions) -> dict[str, Any]:
    """Return an example of the cluster, which the Cluster Operator creates."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RabbitmqCluster",
        "metadata": {"name": options.cluster},
        "spec": {
            "replicas": NODES,
            "image": "rabbitmq:4-management",
            "persistence": {"storage": "20Gi"},
            "resources": {
                "requests": {"cpu": "1", "memory": "2Gi"},
                "limits": {"cpu": "2", "memory": "2Gi"},
            },
            "rabbitmq": {
                "additionalConfig": (
                    f"max_message_size = {MAX_MESSAGE_BYTES}\n"
                    "cluster_partition_handling = pause_minority\n"
                )
            },
        },
    }
