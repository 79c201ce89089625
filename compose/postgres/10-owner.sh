#!/bin/sh
# Make the database of Harebell and its owner, which may create the roles of the services.
# The official image runs this script once, at the first start, as the superuser.
set -eu

psql --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\set password `cat /run/secrets/harebell/owner-password`
CREATE ROLE harebell LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE harebell OWNER harebell;
SQL
