#!/bin/sh
# SPDX-License-Identifier: MIT
# amqp-publish.sh QUEUE COUNT: COUNT messages through amqp-tools' amqp-publish, each twice.  It cannot set
# a message id; the identity stands in a header.
set -eu
i=0
while [ "$i" -lt "$2" ]; do
	for _ in 1 2; do
		amqp-publish --url="$INBOXD_TEST_AMQP_URI" -r "$1" -p -C text/plain \
			-H "id: amqp-publish-$i" -b "number $i"
	done
	i=$((i + 1))
done
