#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# install.sh BUILD: puts below BUILD/bench/peers what the peers of `make bench` need: Node's packages, and the
# program in Go, made of Debian's packages.  Quick when nothing has changed since.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/bench/peers"
to=$(cd "$1/bench/peers" && pwd)

# npm trusts whom the system trusts: a company's own authority, say.
authorities=/etc/ssl/certs/ca-certificates.crt
[ ! -r "$authorities" ] || export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$authorities}"

install_node() {
	local wanted=$here/$1/package.json dir=$to/$1
	! cmp -s "$wanted" "$dir/installed" || return 0
	rm -rf "$dir" && mkdir -p "$dir" && cp "$wanted" "$dir"
	if ! (cd "$dir" && npm install --ignore-scripts --no-audit --no-fund --no-package-lock >npm.log 2>&1); then
		echo "npm could not install what $1/package.json names:" >&2
		tail -n 20 "$dir/npm.log" >&2
		return 1
	fi
	cp "$wanted" "$dir/installed"
}

build_go() {
	local source=$here/go/peer.go program=$to/go/peer
	[ ! "$program" -nt "$source" ] || return 0
	mkdir -p "$to/go"
	# Of Debian's sources, nothing from the network.
	GOPATH=/usr/share/gocode GO111MODULE=off GOFLAGS=-p=1 GOCACHE="$to/go/cache" go build -o "$program" "$source"
}

install_node node
install_node outbox
build_go
