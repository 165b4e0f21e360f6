#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make bench`: run.sh BUILD [option of bench.py...].  Puts the peers together, starts servers of its own, runs
# bench.py, stops them.  The results stay in BUILD/bench/bench.json.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/bench"
build=$(cd "$1" && pwd)
shift

"$here/peers/install.sh" "$build"
trap '"$here/../servers.sh" stop "$build/bench/servers"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$here/../servers.sh" start "$build/bench/servers" --owner $$ \
	--set track_commit_timestamp=on --set wal_level=logical # this for a peer, pg-transactional-outbox
/usr/bin/python3 "$here/bench.py" "$build/bench/servers" "$build" "$build/bench/bench.json" "$@"
