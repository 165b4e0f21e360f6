#!/bin/sh
# SPDX-License-Identifier: MIT
# mqtt-publish.sh QUEUE COUNT: COUNT messages through the broker's MQTT plugin with mosquitto_pub, each
# twice.  The queue must be bound to amq.topic by its own name.  MQTT 3 has no message id and no headers:
# the identity stands in the body.
set -eu
i=0
while [ "$i" -lt "$2" ]; do
	for _ in 1 2; do
		mosquitto_pub -h 127.0.0.1 -p "$INBOXD_TEST_MQTT_PORT" -u inboxd -P "$INBOXD_TEST_AMQP_PASSWORD" \
			-q 1 -t "$1" -m "{\"id\": \"mqtt-$i\"}"
	done
	i=$((i + 1))
done
