#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""peer.py pika: a consumer written by hand on pika and psycopg2, for `make bench`; a transaction for each message.

As pika's documentation has it: a BlockingConnection, a prefetch, and basic_ack in the callback once the work is
done.  As psycopg2's has it: `with connection` is one transaction, committed at its end or rolled back.
"""
import json
import os
import signal
import sys

import pika
import psycopg2

PREFETCH = 100
MARKER = "INSERT INTO bench_marker (consumer, key) VALUES (1, %s) ON CONFLICT DO NOTHING"
ROW = "INSERT INTO bench_row (id, account, amount, sent_us) VALUES (%(id)s, %(account)s, %(amount)s, %(sent_us)s)"


def main():
    if sys.argv[1:] != ["pika"]:
        sys.exit("usage: peer.py pika")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    database = psycopg2.connect("")
    channel = pika.BlockingConnection(pika.URLParameters(os.environ["BENCH_AMQP_URI"])).channel()

    def handle(channel, method, properties, body):
        with database, database.cursor() as cursor:
            cursor.execute(MARKER, (properties.message_id,))
            if cursor.rowcount == 1:
                cursor.execute(ROW, json.loads(body))
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(os.environ["BENCH_QUEUE"], handle)
    channel.start_consuming()


if __name__ == "__main__":
    main()
