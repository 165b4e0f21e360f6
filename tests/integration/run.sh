#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the integration tests against servers that it starts and stops.
#
#   tests/integration/run.sh BUILD [SUITE...]
#
# With INBOXD_TEST_PROGRAM=FILE it runs that instead of BUILD/tests/integration.
# With INBOXD_TEST_ENV=FILE (an env file of tests/servers.sh) it uses servers that already run.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/servers.sh
. "$here/servers.sh"

build=$(cd "$1" && pwd) || exit 1
shift
servers=$build/tests/servers
export INBOXD_TEST_BUILD=$build INBOXD_TEST_SOURCES=$here
export INBOXD_TEST_DIR=$build/tests/run
node=$here/../build/node
export NODE_PATH=$node/node_modules

tests=
# shellcheck disable=SC2317 # called by the trap
finish() {
	[ -z "$tests" ] || { kill -TERM "$tests" 2>/dev/null && wait "$tests"; }
	[ -n "${INBOXD_TEST_ENV:-}" ] || servers_stop "$servers"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

rm -rf "$INBOXD_TEST_DIR"
mkdir -p "$INBOXD_TEST_DIR"
if [ -z "${INBOXD_TEST_ENV:-}" ]; then
	servers_start "$servers" --owner $$ \
		--plugins rabbitmq_mqtt,rabbitmq_stomp,rabbitmq_event_exchange || exit 1
fi
# shellcheck source=/dev/null
. "${INBOXD_TEST_ENV:-$servers/env}"

# Node's clients, installed once for each state of the lock file.  npm trusts whom the system trusts: a
# company's own authority, say.
authorities=/etc/ssl/certs/ca-certificates.crt
[ ! -r "$authorities" ] || export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$authorities}"
lock=$here/publishers/node/package-lock.json
if [ -z "${INBOXD_TEST_PROGRAM:-}" ] && ! cmp -s "$lock" "$node/installed"; then
	rm -rf "$node" && mkdir -p "$node" && cp "$here"/publishers/node/package*.json "$node"
	if (cd "$node" && npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1); then
		cp "$lock" "$node/installed"
	else
		echo "npm could not install Node's clients; the tests with them will fail:" >&2
		tail -n 20 "$node/npm.log" >&2
	fi
fi

# In the background, so that a signal is handled at once.
"${INBOXD_TEST_PROGRAM:-$build/tests/integration}" "$@" &
tests=$!
wait "$tests"
result=$?
tests=
# A test that failed has left its directory.
for log in "$INBOXD_TEST_DIR"/*/*.log "$INBOXD_TEST_DIR"/*/*.out; do
	[ -s "$log" ] || continue
	echo "--- $log ends with"
	tail -n 25 "$log"
done >&2
exit "$result"
