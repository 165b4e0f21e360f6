#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""publish.py PLAN COUNT: publishes COUNT messages to the queues orders and ledger through python3-pika.

One in ten is a copy of an earlier message, 0.5 % use an id again for other content, 0.5 % have no id.  What
was sent is written to the file PLAN, one line a queue: name, published, distinct keys, duplicates, reused ids,
without id, and the sum of the amounts of the distinct ones in cents.  The same arguments make the same
messages.
"""
import json
import os
import random
import sys

import pika


def order(number, account, cents):
    """What the statement of the handler sql takes apart."""
    return {"id": number, "account": account, "amount": cents / 100}


def entry(number, account, cents):
    """What the handler ledger takes apart."""
    third = cents // 3
    return {"order": number, "customer": account, "lines": [
        {"article": "paper", "quantity": 2, "price": "%d.%02d" % divmod(third, 100)},
        {"article": "pen", "quantity": 1, "price": "%d.%02d" % divmod(cents - 2 * third, 100)}]}


SHAPES = {"orders": order, "ledger": entry}


def plan(rng, queue, count):
    """(id or None, body) in the order of sending, and the numbers for PLAN."""
    copies, reused, without = count // 10, count // 200, count // 200
    distinct = count - copies - reused - without
    amounts = [rng.randrange(100, 100000) for _ in range(distinct)]

    def message(i, cents):
        number = "%s-%d" % (queue, i)
        return number, SHAPES[queue](number, "account-%d" % (i % 97), cents)

    # Each message has a place; what is added stands behind the one it copies.
    places = [(float(i), message(i, cents)) for i, cents in enumerate(amounts)]
    for i in rng.sample(range(distinct), copies):
        behind = rng.choice([0.5, rng.uniform(1, 50), rng.uniform(50, distinct)])
        places.append((i + behind, message(i, amounts[i])))
    # Far behind, so that the first one is in the database by then.
    first = set(m[0] for p, m in places if p != int(p))
    unused = [i for i in range(distinct // 4) if message(i, 0)[0] not in first]
    for i in rng.sample(unused, reused):
        places.append((i + distinct * 0.7, message(i, amounts[i] + 1)))
    for i in range(without):
        places.append((rng.uniform(0, distinct), (None, message(distinct + i, 100)[1])))
    places.sort(key=lambda p: p[0])
    return [m for _, m in places], (queue, count, distinct, copies, reused, without, sum(amounts))


def main(path, count):
    queues = list(SHAPES)
    rng = random.Random(1)
    plans = [plan(rng, queue, count // len(queues)) for queue in queues]
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["INBOXD_TEST_AMQP_URI"]))
    channel = connection.channel()
    for messages in zip(*(m for m, _ in plans)):
        for queue, (message_id, body) in zip(queues, messages):
            channel.basic_publish("", queue, json.dumps(body).encode(), pika.BasicProperties(
                message_id=message_id, content_type="application/json", delivery_mode=2))
    channel.close()  # answered when the broker has taken all of them
    connection.close()
    with open(path, "w", encoding="ascii") as file:
        for _, numbers in plans:
            print(*numbers, file=file)


main(sys.argv[1], int(sys.argv[2]))
