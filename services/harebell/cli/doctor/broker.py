"""The verdicts about the broker, from the answers of its management API. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from harebell.cli.doctor.checks import Check, failed, passed, warned
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.messaging.topology.permissions import User, service_users

Json: TypeAlias = Mapping[str, Any]

MIN_RELEASE: Final = (3, 10)
PROMETHEUS: Final = "rabbitmq_prometheus"
EXTERNAL_LOGINS: Final = "rabbitmq_auth_mechanism_ssl"
MAX_DESCRIPTORS: Final = 0.9  # the used share of the file descriptors of a node
SERVICES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq_inspector")
OWN_PREFIX: Final = "harebell-"  # of each policy of a definitions file, with other options too
# The parts of a policy that an operator may not change. The bounds may differ.
FIXED_PARTS: Final = ("overflow", "alternate-exchange")
IMPORT: Final = "Import the definitions file again: harebell topology definitions --help."
RIGHTS: Final = ("configure", "write", "read")


def judge_release(versions: Collection[str]) -> Iterator[Check]:
    """Return the verdict about the releases of the nodes."""
    check = "broker release"
    old = sorted(each for each in versions if _release(each) < MIN_RELEASE)
    if old:
        text = f"The broker has the release {old[0]}, but Harebell needs 3.10 or later."
        yield failed(check, text, "Upgrade RabbitMQ to a supported release.")
    elif len(versions) > 1:
        text = f"The nodes have several releases: {', '.join(sorted(versions))}."
        yield warned(check, text, "Upgrade the other nodes of the cluster.")
    else:
        yield passed(check, f"The broker has the release {next(iter(versions))}.")


def judge_alarms(nodes: Sequence[Json]) -> Iterator[Check]:
    """Return a verdict for each fault of a node, or one verdict without a fault."""
    faults = [fault for node in nodes for fault in _faults_of(node)]
    yield from faults
    if not faults:
        yield passed("alarms", f"No node has an alarm (nodes: {len(nodes)}).")


def _faults_of(node: Json) -> Iterator[Check]:
    check, name = "alarms", node["name"]
    if not node.get("running"):
        text = f"The node {name} does not run."
        yield failed(check, text, "Start the node, or remove it: rabbitmqctl forget_cluster_node.")
        return
    if node.get("mem_alarm"):
        text = f"The node {name} has a memory alarm, so the broker accepts no message."
        remedy = "Give the node more memory, or find the queue that grows: rabbitmqctl list_queues."
        yield failed(check, text, remedy)
    if node.get("disk_free_alarm"):
        text = f"The node {name} has too little free disk space, so the broker accepts no message."
        yield failed(check, text, "Free disk space of the node, or enlarge its disk.")
    if others := node.get("partitions"):
        text = f"The node {name} is separated from {', '.join(others)}."
        yield failed(check, text, "Repair the network, and then restart the node.")
    used, total = node.get("fd_used"), node.get("fd_total")
    if isinstance(used, int) and isinstance(total, int) and used > total * MAX_DESCRIPTORS:
        text = f"The node {name} uses {used} of {total} file descriptors."
        yield warned(check, text, "Raise the limit of open files of the node.")


def judge_plugins(nodes: Sequence[Json], *, needs_external: bool) -> Iterator[Check]:
    """Return the verdicts about the enabled plugins of the running nodes."""
    check = "plugins"
    enabled = {
        each["name"]: set(each.get("enabled_plugins") or ()) for each in nodes if each["running"]
    }
    without = {
        plugin: [name for name, plugins in enabled.items() if plugin not in plugins]
        for plugin in (PROMETHEUS, EXTERNAL_LOGINS)
    }
    faults = []
    if needs_external and (names := without[EXTERNAL_LOGINS]):
        text = f"The plugin {EXTERNAL_LOGINS} is disabled on {', '.join(names)}, so no login works."
        faults.append(failed(check, text, _enable(EXTERNAL_LOGINS)))
    if names := without[PROMETHEUS]:
        text = f"The plugin {PROMETHEUS} is disabled on {', '.join(names)}, so no metric is read."
        faults.append(warned(check, text, _enable(PROMETHEUS)))
    yield from faults
    if not faults:
        yield passed(check, "Each node has the plugins that this installation needs.")


def _enable(plugin: str) -> str:
    return f"Enable the plugin on each node: rabbitmq-plugins enable {plugin}."


def judge_policies(found: Iterable[Json], options: InstallationOptions) -> Iterator[Check]:
    """Return the verdicts about the policies, which bound the queues of Harebell."""
    check = "policies"
    present = {each["name"]: each for each in found}
    definitions = definitions_file(options, bytes)
    expected = {each["name"]: each for each in definitions["policies"]}
    if not present.keys() & expected.keys():
        text = "The virtual host has no policy of Harebell, so no queue has a bound."
        yield warned(check, text, IMPORT)
        return
    faults = [
        text
        for name, policy in expected.items()
        for text in _differences(name, policy, present.get(name))
    ]
    queues = [each["name"] for each in definitions["queues"]]
    faults += [
        f"The policy {name} replaces a policy of Harebell for the queue {queue}."
        for name, policy in present.items()
        if not name.startswith(OWN_PREFIX) and (queue := _matching(policy, queues)) is not None
    ]
    for text in faults:
        yield failed(check, text, IMPORT if "replaces" not in text else _NARROW)
    if not faults:
        yield passed(check, f"Each queue has its policy (policies: {len(expected)}).")


_NARROW: Final = "Delete this policy, or narrow its pattern: at most one policy applies to a queue."


def _differences(name: str, expected: Json, found: Json | None) -> Iterator[str]:
    if found is None:
        yield f"The policy {name} is missing."
        return
    for field in ("pattern", "apply-to"):
        if found[field] != expected[field]:
            yield f"The policy {name} has the {field} '{found[field]}', not '{expected[field]}'."
    for field, value in expected["definition"].items():
        present = found["definition"].get(field)
        if present is None:
            yield f"The policy {name} has no {field}."
        elif field in FIXED_PARTS and present != value:
            yield f"The policy {name} has the {field} '{present}', not '{value}'."


def _matching(policy: Json, queues: Iterable[str]) -> str | None:
    """Return the first queue that another policy takes from its policy of Harebell."""
    if policy["apply-to"] == "exchanges" or policy["priority"] < 0:
        return None
    try:
        pattern = re.compile(policy["pattern"])
    except re.error:  # RabbitMQ accepts more forms of patterns
        return None
    return next((each for each in queues if pattern.search(each)), None)


def judge_permissions(
    found: Iterable[Json], topics: Iterable[Json], users: Sequence[User], *, vhost: str
) -> Iterator[Check]:
    """Return a verdict for each user whose permissions differ from those of the definitions file.

    A login that no service has cannot be compared.
    """
    check = "permissions"
    present = {each["user"]: each for each in found}
    if not present.keys() & {each.name for each in service_users()}:
        text = f"The virtual host {vhost} has no login of a service, so the services share a login."
        yield warned(check, text, IMPORT)
        return
    topic_rights = {(each["user"], each["exchange"]): each for each in topics}
    faults = [
        fault
        for user in users
        for fault in _wrong_rights(user, present.get(user.name), topic_rights, vhost=vhost)
    ]
    for text, remedy in faults:
        yield failed(check, text, remedy)
    if not faults:
        yield passed(check, f"Each login has its permissions (logins: {len(users)}).")


def _wrong_rights(
    user: User, found: Json | None, topics: Mapping[tuple[str, str], Json], *, vhost: str
) -> Iterator[tuple[str, str]]:
    expected = {"configure": user.configure, "write": user.write, "read": user.read}
    texts = " ".join(f"'{expected[each]}'" for each in RIGHTS)
    remedy = f"rabbitmqctl set_permissions -p '{vhost}' {user.name} {texts}"
    if found is None:
        yield f"The login {user.name} has no permission in the virtual host {vhost}.", remedy
        return
    for right in RIGHTS:
        if found[right] != expected[right]:
            text = f"The login {user.name} has the {right} permission '{found[right]}', "
            yield f"{text}not '{expected[right]}'.", remedy
    for each in user.topics:
        topic = topics.get((user.name, each.exchange))
        if topic is None or (topic["write"], topic["read"]) != (each.write, each.read):
            text = f"The login {user.name} has other topic permissions for {each.exchange}."
            names = f"-p '{vhost}' {user.name} {each.exchange}"
            patterns = f"'{each.write}' '{each.read}'"
            yield text, f"rabbitmqctl set_topic_permissions {names} {patterns}"


def judge_services(connections: Iterable[Json], *, vhost: str, own_version: str) -> Iterator[Check]:
    """Return the verdicts about the services that are connected, and about their versions."""
    check = "services"
    versions: dict[str, set[str]] = {}
    for each in connections:
        properties = each.get("client_properties") or {}
        service, version = properties.get("service"), properties.get("version")
        if each.get("vhost") == vhost and service in SERVICES and isinstance(version, str):
            versions.setdefault(service, set()).add(version)
    missing = [each for each in SERVICES if each not in versions]
    if missing:
        text = f"No instance of these services is connected: {', '.join(missing)}."
        yield failed(check, text, "Start the services, and read /readyz of those that do not run.")
    used = set().union(*versions.values())
    if len(used) > 1:
        each_version = "; ".join(
            f"{name} {', '.join(sorted(versions[name]))}" for name in SERVICES if name in versions
        )
        text = f"The services have several versions: {each_version}."
        yield warned(check, text, "Finish the upgrade of all services, the ticker before intake.")
    elif used and used != {own_version}:
        text = f"The services have the version {used.pop()}, and this command has {own_version}."
        yield warned(check, text, "Use the command of the same version as the services.")
    elif not missing:
        yield passed(check, f"All five services are connected, with the version {own_version}.")


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
