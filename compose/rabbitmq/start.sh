#!/bin/sh
# Start a node with the cookie that all nodes share. RabbitMQ requires it in a private file.
set -eu
umask 077
cp -f /run/secrets/harebell/erlang-cookie "$HOME/.erlang.cookie"
exec docker-entrypoint.sh rabbitmq-server
