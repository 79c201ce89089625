#!/bin/sh
# Import the exchanges, queues, policies and permissions, after the nodes have formed a cluster.
# A repeated import changes nothing. A node that joins later gets its members of the quorum queues.
set -eu
umask 077
cp -f /run/secrets/harebell/erlang-cookie "$HOME/.erlang.cookie"

join_timeout=180 # seconds until each running container is a node of the cluster
nodes=rabbit@broker
for name in broker-2 broker-3; do
    ! getent hosts "$name" >/dev/null || nodes="$nodes rabbit@$name"
done

deadline=$(($(date +%s) + join_timeout))
for node in $nodes; do
    # A container that has just started runs before its node belongs to the cluster.
    until rabbitmqctl --quiet --node rabbit@broker \
        eval "true = lists:member('$node', rabbit_nodes:list_running())." >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$deadline" ] || {
            echo "The node $node does not belong to the cluster of rabbit@broker." >&2
            exit 1
        }
        sleep 2
    done
done
rabbitmqctl --quiet --node rabbit@broker import_definitions /run/secrets/harebell/definitions.json
for node in $nodes; do
    [ "$nodes" = "$node" ] || rabbitmq-queues --quiet --node rabbit@broker grow "$node" all >/dev/null
done
