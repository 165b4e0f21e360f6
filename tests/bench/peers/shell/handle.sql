-- SPDX-License-Identifier: MIT
-- What amqp-consume runs for each message in `make bench`, its body on the standard input: psql ends with
-- another status than 0 if anything fails, and then the message is not acked.  The key is in the body, as
-- amqp-consume hands on no properties.
\set ON_ERROR_STOP on
\set body `cat`
BEGIN;
WITH message AS (
	SELECT * FROM json_to_record(:'body') AS m (id text, account text, amount numeric, sent_us bigint)
), fresh AS (
	INSERT INTO bench_marker (consumer, key) SELECT 1, id FROM message ON CONFLICT DO NOTHING RETURNING key
)
INSERT INTO bench_row (id, account, amount, sent_us)
SELECT id, account, amount, sent_us FROM message JOIN fresh ON key = id;
COMMIT;
