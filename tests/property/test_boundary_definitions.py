"""The rights of the definitions file lead from no tenant to a queue of another owner."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.amqp_names import DEAD, EVENTS, PARKED, UNDELIVERED, tenant_exchange
from harebell.messaging.topology.bus import (
    DLQ,
    INTAKE,
    QUERY,
    consumed_queues,
    delayed_queue,
    undelivered_queue_of_delayed,
)
from harebell.messaging.topology.declarations import ExchangeKind, matches
from harebell.messaging.topology.definitions_file import (
    InstallationOptions,
    can_have_login,
    definitions_file,
)

NAMES = st.from_regex(r"\A[a-z0-9][a-z0-9_-]{0,8}\Z").filter(can_have_login)


@st.composite
def installations(draw: st.DrawFn) -> InstallationOptions:
    """Return an installation whose tenants often have names that begin alike."""
    roots = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    endings = draw(st.lists(st.sampled_from(["", "-2", "_ci", "other", "commands"]), max_size=4))
    tenants = tuple(dict.fromkeys([*roots, *(roots[0] + each for each in endings)]))
    declaring = tuple(draw(st.sets(st.sampled_from(tenants))))
    queues = {
        each: {f"{each}.replies": (), f"{each}.events": draw(st.sampled_from([("#",), ("run.*",)]))}
        for each in tenants
        if draw(st.booleans())
    }
    return InstallationOptions(
        tenants=tenants,
        declaring=declaring,
        tenant_queues=queues,
        delayed_exchanges={
            late(each): ExchangeKind.TOPIC for each in tenants if draw(st.booleans())
        },
        pools=("reports",),
    )


def late(tenant: str) -> str:
    """Return the name of an exchange with delayed messages, which a declaring tenant may use."""
    return f"{tenant}.late"


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The broker after the import of a definitions file."""

    definitions: Mapping[str, Any]

    def may(self, user: str, right: str, name: str) -> bool:
        [rights] = [each for each in self.definitions["permissions"] if each["user"] == user]
        return bool(rights[right]) and re.search(rights[right], name) is not None

    @property
    def exchanges(self) -> list[str]:
        return [each["name"] for each in self.definitions["exchanges"]]

    @property
    def queues(self) -> list[str]:
        return [each["name"] for each in self.definitions["queues"]]

    def reached(self, user: str) -> set[str]:
        """Return the exchanges and queues that a message of the user can reach by any route.

        The user can bind, dead-letter or divert messages only to exchanges that it may write to,
        so each further route begins at one of these. The broker sends a message from there along
        bindings, alternate exchanges and dead letter exchanges.
        """
        found = {each for each in [*self.exchanges, *self.queues] if self.may(user, "write", each)}
        if self.may(user, "write", "amq.default"):
            found |= {*self.queues}
        waiting = [*found]
        while waiting:
            for name in self._next(waiting.pop()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return found

    def _next(self, name: str) -> Iterator[str]:
        for each in self.definitions["bindings"]:
            if each["source"] == name:
                yield each["destination"]
        for each in [*self.definitions["exchanges"], *self.definitions["queues"]]:
            if each["name"] == name:
                for argument in ("alternate-exchange", "x-dead-letter-exchange"):
                    if argument in each["arguments"]:
                        yield each["arguments"][argument]


def broker_of(options: InstallationOptions) -> Broker:
    return Broker(definitions=definitions_file(options, lambda n: b"s" * n))


def own_queues(options: InstallationOptions, tenant: str) -> set[str]:
    """Return the queues of Harebell for the tenant, as far as it may publish to their exchanges."""
    queues = [*consumed_queues(tenant)]
    if late(tenant) in options.delayed_exchanges and tenant in options.declaring:
        queues += [delayed_queue(late(tenant)), undelivered_queue_of_delayed(late(tenant))]
    return {each.name for each in queues}


@given(options=installations())
def test_message_of_a_tenant_reaches_only_queues_of_the_tenant(
    options: InstallationOptions,
) -> None:
    broker = broker_of(options)

    for tenant in options.tenants:
        reached = broker.reached(tenant) & {*broker.queues}
        foreign = {each for each in reached if not each.startswith(f"{tenant}.")}
        # Nobody consumes the parking queue, and people read its messages.
        assert foreign == own_queues(options, tenant) | {PARKED}
        assert not any(
            each.startswith(f"{other}.")
            for each in reached
            for other in options.tenants
            if other != tenant
        )


@given(options=installations())
def test_message_of_an_operator_never_looks_like_one_of_a_service(
    options: InstallationOptions,
) -> None:
    broker = broker_of(options)

    reached = broker.reached("harebell_operator") & {*broker.queues}

    assert reached == {INTAKE.name, QUERY.name, DLQ.name, UNDELIVERED, PARKED}


@given(options=installations())
def test_tenant_reads_and_declares_nothing_of_another_owner(options: InstallationOptions) -> None:
    broker = broker_of(options)
    others = {*broker.exchanges, *broker.queues}

    for tenant in options.tenants:
        own = {each for each in others if each.startswith(f"{tenant}.")}
        readable = {each for each in others if broker.may(tenant, "read", each)}
        declared = {each for each in others if broker.may(tenant, "configure", each)}
        is_trusted = tenant in options.declaring
        assert readable - own == ({EVENTS} if is_trusted else set())
        assert declared == (own if is_trusted else set())
        assert broker.may(tenant, "configure", f"{tenant}.new") is is_trusted
        assert not broker.may(tenant, "configure", "anything.else")


@given(options=installations())
def test_tenant_receives_events_of_no_other_tenant(options: InstallationOptions) -> None:
    definitions = broker_of(options).definitions

    for tenant in options.tenants:
        for other in {*options.tenants} - {tenant}:
            key = f"{other}.run.dead"
            assert not any(
                each["source"] == EVENTS
                and each["destination"].startswith(f"{tenant}.")
                and matches(each["routing_key"], key)
                for each in definitions["bindings"]
            )
            for each in definitions["topic_permissions"]:
                if each["user"] == tenant:
                    assert each["exchange"] == EVENTS
                    assert not re.search(each["read"], key)
                    assert not re.search(each["read"], "#")
                    assert each["write"] == ""


@given(options=installations())
def test_only_services_write_to_exchanges_between_services(options: InstallationOptions) -> None:
    broker = broker_of(options)
    own = {tenant_exchange(each) for each in options.tenants}
    own |= {f"{each}.commands" for each in own}
    internal = {each for each in broker.exchanges if each.startswith("harebell.")} - own
    internal -= {"harebell.commands", "harebell.queries"}

    for user in broker.definitions["users"]:
        written = {each for each in internal if broker.may(user["name"], "write", each)}
        if user["name"] in (*options.tenants, "harebell_operator", "harebell_monitor"):
            assert written == set()
        else:
            assert DEAD in written or user["name"] == "harebell_watchdog"
        undelivered = [each for each in broker.exchanges if each.startswith(UNDELIVERED)]
        assert not any(broker.may(user["name"], "write", each) for each in undelivered)
