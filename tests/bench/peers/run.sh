#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# run.sh BUILD PEER MODE: becomes the peer, which empties BENCH_QUEUE until SIGTERM.
#
#   node pool|one|batch, go pool|one|batch|sets, python pika, celery worker, shell psql, outbox polling|replication
#
# Before the queue is filled, `outbox setup` makes its inbox table anew, and instead of tests/bench/load
# `celery load COUNT PERCENT` fills the queue for celery.  outbox replication needs wal_level=logical and a role
# with REPLICATION.
set -euo pipefail

if [ $# -lt 3 ]; then
	echo "usage: $0 BUILD PEER MODE" >&2
	exit 64
fi
here=$(cd "$(dirname "$0")" && pwd)
peers=$(cd "$1/bench/peers" && pwd)
peer=$2
shift 2
: "${BENCH_AMQP_URI:?}" "${BENCH_QUEUE:?}"

case "$peer $1" in
"node "* | "outbox "*)
	NODE_PATH=$peers/$peer/node_modules exec node "$here/$peer/peer.js" "$@"
	;;
"go "*)
	exec "$peers/go/peer" "$@"
	;;
"python "*)
	exec /usr/bin/python3 "$here/python/peer.py" "$@"
	;;
"celery load")
	shift
	PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 "$here/celery/load.py" "$@"
	;;
"celery worker")
	cd "$here/celery"
	# Gossip and mingle are for fleets of workers.
	PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 -m celery -A orders worker \
		--without-gossip --without-mingle --loglevel WARNING
	;;
"shell psql")
	# Debian's psql is a script in Perl that looks for this one, which takes longer than the message.
	psql=$(find /usr/lib/postgresql/*/bin/psql | sort -V | tail -n 1)
	exec amqp-consume --url="$BENCH_AMQP_URI" --queue="$BENCH_QUEUE" --prefetch-count=10 -- \
		"${psql:-psql}" -X -q -f "$here/shell/handle.sql"
	;;
*)
	echo "no such peer: $peer $1" >&2
	exit 64
	;;
esac
