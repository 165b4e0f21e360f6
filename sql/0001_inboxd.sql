-- SPDX-License-Identifier: MIT
-- 0001: the inbox, the parked messages and what the daemon does to them.
-- @schema@ stands for the quoted name of the schema.

-- Who consumes.  A consumer's identity is what its keys belong to, independent of queue, host and
-- handler.  `id` is what the narrow tables carry.
CREATE TABLE @schema@.consumer (
  id               integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  identity         text NOT NULL UNIQUE,
  key_rule         text NOT NULL,
  fingerprint_rule text NOT NULL,
  registered_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  accepted_at      timestamptz
);
COMMENT ON TABLE @schema@.consumer IS
  'identities that keys belong to, with the rules their keys and fingerprints are made by';

-- Where the entries of an identity consume from: two applications that happen to choose one name must
-- not swallow each other''s messages.
CREATE TABLE @schema@.consumer_entry (
  consumer integer NOT NULL REFERENCES @schema@.consumer,
  entry    text NOT NULL,
  vhost    text NOT NULL,
  queue    text NOT NULL,
  dead_letter_exchange    text,
  dead_letter_routing_key text,
  PRIMARY KEY (consumer, entry)
);
COMMENT ON COLUMN @schema@.consumer_entry.dead_letter_exchange IS
  'where a message goes that becomes failed, as configured when the entry was last started; NULL: nowhere';
COMMENT ON COLUMN @schema@.consumer_entry.dead_letter_routing_key IS 'NULL: the message''s own';

-- The markers.  One row says: the work for this key is committed.
CREATE TABLE @schema@.inbox (
  at          timestamptz NOT NULL DEFAULT now(),
  consumer    integer NOT NULL,
  key         bytea NOT NULL,
  fingerprint bytea NOT NULL,
  PRIMARY KEY (consumer, key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX inbox_age ON @schema@.inbox (consumer, at);
COMMENT ON TABLE @schema@.inbox IS 'one row for each key whose work is committed';
COMMENT ON COLUMN @schema@.inbox.at IS 'when that work''s transaction began, by this server''s clock';
COMMENT ON COLUMN @schema@.inbox.key IS
  'kind byte (1 as given, 2 UUID, 3 SHA-256 of a longer one, 4 list, 5 SHA-256 of a longer list, 6 SHA-256 of the body), then the key';
COMMENT ON COLUMN @schema@.inbox.fingerprint IS
  'empty, or kind byte (1 body, 2 fields and two bytes of the rule), then 16 bytes of a SHA-256';

-- What a handler wanted to be kept with its key.
CREATE TABLE @schema@.result (
  consumer     integer NOT NULL,
  key          bytea NOT NULL,
  at           timestamptz NOT NULL DEFAULT now(),
  content_type text NOT NULL DEFAULT '',
  data         bytea NOT NULL,
  PRIMARY KEY (consumer, key),
  FOREIGN KEY (consumer, key) REFERENCES @schema@.inbox ON DELETE CASCADE
);

-- Messages that wait or need a person, whole: everything to replay them byte for byte.
CREATE SEQUENCE @schema@.parked_token;
CREATE TABLE @schema@.parked (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  consumer    integer NOT NULL REFERENCES @schema@.consumer,
  entry       text NOT NULL,
  state       text NOT NULL
    CHECK (state IN ('waiting', 'failed', 'mismatch', 'unresolved', 'discarded')),
  reason      text NOT NULL,
  detail      text NOT NULL DEFAULT '',
  sqlstate    text NOT NULL DEFAULT '',
  attempts    integer NOT NULL DEFAULT 0,
  crashes     integer NOT NULL DEFAULT 0,
  losses      integer NOT NULL DEFAULT 0,
  next_at     timestamptz,
  token       bigint NOT NULL DEFAULT nextval('@schema@.parked_token'),
  run_token   bigint,
  parked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  key         bytea,
  fingerprint bytea NOT NULL,
  queue       text NOT NULL,
  exchange    bytea NOT NULL,
  routing_key bytea NOT NULL,
  redelivered boolean NOT NULL,
  properties  bytea NOT NULL,
  body        bytea,
  body_size   bigint NOT NULL,
  CHECK ((state = 'waiting') = (next_at IS NOT NULL))
);
COMMENT ON COLUMN @schema@.parked.reason IS
  'mismatch, no_key, unusable_key, too_large, undecodable, rejected, sql_error, retry, broken, crashed, timed_out, redelivered';
COMMENT ON COLUMN @schema@.parked.losses IS
  'sessions that were lost while it ran, since a run was counted last: too many of them are a crash';
COMMENT ON COLUMN @schema@.parked.key IS 'as in inbox; NULL where the message had none that could be used';
COMMENT ON COLUMN @schema@.parked.fingerprint IS
  'as in inbox; without a key: SHA-256 over exchange, routing key, properties (but for headers in which a broker counts deliveries) and body';
COMMENT ON COLUMN @schema@.parked.properties IS
  'property flags and list in the wire form of AMQP 0-9-1: every type and byte as published';
COMMENT ON COLUMN @schema@.parked.body IS 'NULL: in parked_chunk, piece by piece';
COMMENT ON COLUMN @schema@.parked.token IS
  'changes whenever the row is taken or changed: work begun under an older one is void';
COMMENT ON COLUMN @schema@.parked.run_token IS
  'the token under which it was last taken; as long as it is the token, nobody has said how that run ended';
CREATE UNIQUE INDEX parked_key ON @schema@.parked (consumer, key, fingerprint) WHERE key IS NOT NULL;
CREATE INDEX parked_keyless ON @schema@.parked (consumer, fingerprint) WHERE key IS NULL;
CREATE INDEX parked_held ON @schema@.parked (consumer) WHERE state <> 'discarded';
CREATE INDEX parked_due ON @schema@.parked (consumer, next_at) WHERE state = 'waiting';
-- Those kept before their first run: asked for after every run, of thousands of others that are due.
CREATE INDEX parked_kept ON @schema@.parked (consumer, next_at)
  WHERE state = 'waiting' AND reason = 'redelivered' AND attempts = 0;

-- Bodies too large to be held in memory at once.
CREATE TABLE @schema@.parked_chunk (
  parked bigint NOT NULL REFERENCES @schema@.parked ON DELETE CASCADE,
  seq    integer NOT NULL,
  data   bytea NOT NULL,
  PRIMARY KEY (parked, seq)
);
ALTER TABLE @schema@.parked_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- What is to be published: a row for each message, gone when the broker has confirmed it.  Whoever takes
-- one has it for the time of a lease.
CREATE TABLE @schema@.outgoing (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  consumer   integer NOT NULL REFERENCES @schema@.consumer,
  entry      text NOT NULL,
  kind       text NOT NULL CHECK (kind IN ('dead_letter')),
  parked     bigint NOT NULL REFERENCES @schema@.parked ON DELETE CASCADE,
  token      bigint NOT NULL DEFAULT nextval('@schema@.parked_token'),
  next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempts   integer NOT NULL DEFAULT 0,
  error      text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE @schema@.outgoing IS 'messages to be published by the daemons of their entry';
COMMENT ON COLUMN @schema@.outgoing.parked IS
  'the message that a dead letter tells of: its body, its properties and its entry''s dead_letter_exchange are read when it is taken';
COMMENT ON COLUMN @schema@.outgoing.token IS
  'changes whenever the row is taken: an outcome told under an older one is void';
COMMENT ON COLUMN @schema@.outgoing.error IS 'why the last attempt failed';
CREATE UNIQUE INDEX outgoing_parked ON @schema@.outgoing (parked);
CREATE INDEX outgoing_due ON @schema@.outgoing (consumer, entry, next_at);
CREATE INDEX outgoing_left ON @schema@.outgoing (consumer, next_at);

-- A message that becomes failed is told to those who watch queues, whoever made it so; one that is
-- failed no longer has nothing left to tell.  What an operator restores has not failed once more.
CREATE FUNCTION @schema@.tell_failed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state = 'failed' THEN
    INSERT INTO @schema@.outgoing (consumer, entry, kind, parked)
    SELECT e.consumer, e.entry, 'dead_letter', NEW.id FROM @schema@.consumer_entry e
    WHERE e.consumer = NEW.consumer AND e.entry = NEW.entry AND e.dead_letter_exchange IS NOT NULL;
  ELSE
    DELETE FROM @schema@.outgoing o WHERE o.parked = NEW.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER parked_failed AFTER INSERT ON @schema@.parked
  FOR EACH ROW WHEN (NEW.state = 'failed') EXECUTE FUNCTION @schema@.tell_failed();
CREATE TRIGGER parked_state AFTER UPDATE OF state ON @schema@.parked
  FOR EACH ROW WHEN ((OLD.state = 'failed') <> (NEW.state = 'failed') AND OLD.state <> 'discarded')
  EXECUTE FUNCTION @schema@.tell_failed();

-- The guard of transactions whose handler holds the raw connection: a row in it makes every COMMIT
-- fail that was not announced by the daemon for this very transaction.
CREATE UNLOGGED TABLE @schema@.guard (
  backend integer NOT NULL,
  tx      text NOT NULL
);
CREATE FUNCTION @schema@.guard_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('inboxd.commit', true) IS DISTINCT FROM NEW.tx THEN
    RAISE EXCEPTION 'only inboxd ends this transaction'
      USING ERRCODE = 'invalid_transaction_termination',
            HINT = 'return from the handler instead of calling COMMIT';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_check AFTER INSERT ON @schema@.guard
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @schema@.guard_check();

-- Whether daemons that know schema version p_version may work with this schema.  A later migration
-- replaces it when older daemons must stop.
CREATE FUNCTION @schema@.schema_serves(p_version integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT p_version >= 1 $$;

-- Registers an entry of an identity, or finds what it was registered with.  `refused` names the
-- difference, both sides of it; nothing is changed then.  Where its dead letters go is no part of what
-- it is, and follows the configuration.
CREATE FUNCTION @schema@.register(
  p_identity text, p_entry text, p_vhost text, p_queue text, p_key_rule text,
  p_fingerprint_rule text, p_dead_letter_exchange text DEFAULT NULL,
  p_dead_letter_routing_key text DEFAULT NULL, OUT consumer integer, OUT refused text)
LANGUAGE plpgsql AS $$
DECLARE
  c @schema@.consumer;
  e @schema@.consumer_entry;
BEGIN
  SELECT * INTO c FROM @schema@.consumer x WHERE x.identity = p_identity;
  IF NOT FOUND THEN
    INSERT INTO @schema@.consumer (identity, key_rule, fingerprint_rule)
    VALUES (p_identity, p_key_rule, p_fingerprint_rule) ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT c FROM @schema@.consumer x WHERE x.identity = p_identity;
  END IF;
  consumer := c.id;
  IF c.key_rule <> p_key_rule THEN
    refused := format('its keys were made by %L and would now be made by %L',
      c.key_rule, p_key_rule);
    RETURN;
  ELSIF c.fingerprint_rule <> p_fingerprint_rule THEN
    refused := format('its fingerprints were made by %L and would now be made by %L',
      c.fingerprint_rule, p_fingerprint_rule);
    RETURN;
  END IF;
  SELECT * INTO e FROM @schema@.consumer_entry x WHERE x.consumer = c.id AND x.entry = p_entry;
  IF NOT FOUND THEN
    INSERT INTO @schema@.consumer_entry (consumer, entry, vhost, queue)
    VALUES (c.id, p_entry, p_vhost, p_queue) ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT e FROM @schema@.consumer_entry x
    WHERE x.consumer = c.id AND x.entry = p_entry;
  END IF;
  IF (e.vhost, e.queue) <> (p_vhost, p_queue) THEN
    refused := format('it consumed queue %L of vhost %L and would now consume queue %L of vhost %L',
      e.queue, e.vhost, p_queue, p_vhost);
  ELSIF (e.dead_letter_exchange, e.dead_letter_routing_key)
    IS DISTINCT FROM (p_dead_letter_exchange, p_dead_letter_routing_key) THEN
    UPDATE @schema@.consumer_entry x
    SET dead_letter_exchange = p_dead_letter_exchange,
        dead_letter_routing_key = p_dead_letter_routing_key
    WHERE x.consumer = c.id AND x.entry = p_entry;
  END IF;
END $$;

-- Accepts what register refused: the operator's word that it is the same consumer.
CREATE FUNCTION @schema@.accept_consumer(
  p_identity text, p_entry text, p_vhost text, p_queue text, p_key_rule text,
  p_fingerprint_rule text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  c integer;
BEGIN
  INSERT INTO @schema@.consumer (identity, key_rule, fingerprint_rule)
  VALUES (p_identity, p_key_rule, p_fingerprint_rule)
  ON CONFLICT (identity) DO UPDATE
    SET key_rule = excluded.key_rule, fingerprint_rule = excluded.fingerprint_rule,
        accepted_at = clock_timestamp()
  RETURNING id INTO c;
  INSERT INTO @schema@.consumer_entry (consumer, entry, vhost, queue)
  VALUES (c, p_entry, p_vhost, p_queue)
  ON CONFLICT (consumer, entry) DO UPDATE SET vhost = excluded.vhost, queue = excluded.queue;
END $$;

-- Whether two fingerprints tell of different content.  Only those made the same way compare.
CREATE FUNCTION @schema@.fingerprints_differ(a bytea, b bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT a <> b AND length(a) = length(b) AND length(a) > 1 AND
    CASE get_byte(a, 0)
      WHEN 1 THEN get_byte(b, 0) = 1 AND length(a) = 17
      WHEN 2 THEN substr(a, 1, 3) = substr(b, 1, 3) AND length(a) = 19
      ELSE false
    END
$$;

-- Whether a key is taken by other content than this: its work is committed, or it is parked and not
-- discarded.
CREATE FUNCTION @schema@.is_key_taken(p_consumer integer, p_key bytea, p_fingerprint bytea)
RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT FROM @schema@.inbox x
    WHERE x.consumer = p_consumer AND x.key = p_key
      AND @schema@.fingerprints_differ(x.fingerprint, p_fingerprint)
  ) OR EXISTS (
    SELECT FROM @schema@.parked x
    WHERE x.consumer = p_consumer AND x.key = p_key AND x.fingerprint <> p_fingerprint
      AND x.state <> 'discarded')
$$;

-- Makes the COMMIT of this transaction wait for the synchronous standbys, as one that has written does:
-- what was read in it may be committed here and not there yet, when somebody gave up waiting for them.
CREATE FUNCTION @schema@.catch_up() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_standby_names') <> '' THEN
    PERFORM pg_logical_emit_message(true, 'inboxd', '');
  END IF;
END $$;

-- Parks a message, or finds that it need not be parked.  One call is one decision, to be committed by
-- the caller before the delivery is settled.  The key's lock comes first; everything is looked at by
-- statements begun after it, so that work of a transaction that did commit after all is seen.
--
-- p_state NULL only looks: what a claim could not decide by the marker alone.
-- p_parked, p_token: the row of a retry; NULL for a delivery.
-- p_body NULL: the body follows in parked_chunk, for the id returned.
--
-- outcome: parked     a row was written, or the retry's row changed, to `state`
--          mismatch   the same, and the key is known with other content; or the row that was discarded
--                     says so now
--          duplicate  the work for this key and content is committed
--          present    the row that is there already tells of this copy
--          revived    the row that was there waits again, with no attempts used
--          busy       another transaction has the key in hand: offer it again later
--          dropped    the retry's row was changed by somebody else: nothing is to be done
--          again      nothing is known of the key: claim it
CREATE FUNCTION @schema@.park(
  p_consumer integer, p_entry text, p_key bytea, p_fingerprint bytea, p_lock bigint,
  p_state text, p_reason text, p_detail text, p_sqlstate text, p_attempts integer,
  p_crashes integer, p_delay_ms bigint, p_parked bigint, p_token bigint,
  p_queue text, p_exchange bytea, p_routing_key bytea, p_redelivered boolean,
  p_properties bytea, p_body bytea, p_body_size bigint,
  OUT outcome text, OUT id bigint)
LANGUAGE plpgsql AS $$
DECLARE
  v_state  text := p_state;
  v_reason text := p_reason;
  v_detail text := p_detail;
  v_marker bytea;
  v_row    @schema@.parked;
BEGIN
  IF NOT pg_try_advisory_xact_lock(p_lock) THEN
    outcome := 'busy';
    RETURN;
  END IF;

  IF p_parked IS NOT NULL THEN
    SELECT * INTO v_row FROM @schema@.parked x
    WHERE x.id = p_parked AND x.state = 'waiting' AND x.token = p_token FOR UPDATE;
    IF NOT FOUND THEN
      outcome := 'dropped';
      RETURN;
    END IF;
  END IF;

  IF p_key IS NULL THEN
    -- One that waits without a key is to be processed whatever looks like it, and of what cannot be
    -- decoded too little is known to take one for another.
    IF p_parked IS NULL AND p_redelivered AND p_state <> 'waiting' AND p_reason <> 'undecodable' THEN
      SELECT * INTO v_row FROM @schema@.parked x
      WHERE x.consumer = p_consumer AND x.key IS NULL AND x.fingerprint = p_fingerprint LIMIT 1;
      IF FOUND THEN
        PERFORM @schema@.catch_up();
        outcome := 'present';
        RETURN;
      END IF;
    END IF;
  ELSE
    -- The insert decides, as in a claim; what it inserted is taken back.
    INSERT INTO @schema@.inbox (consumer, key, fingerprint)
    VALUES (p_consumer, p_key, p_fingerprint) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      DELETE FROM @schema@.inbox x WHERE x.consumer = p_consumer AND x.key = p_key;
    ELSE
      SELECT x.fingerprint INTO STRICT v_marker FROM @schema@.inbox x
      WHERE x.consumer = p_consumer AND x.key = p_key;
    END IF;

    IF v_marker IS NOT NULL AND NOT @schema@.fingerprints_differ(v_marker, p_fingerprint) THEN
      DELETE FROM @schema@.parked x WHERE x.id = p_parked;
      PERFORM @schema@.catch_up();
      outcome := 'duplicate';
      RETURN;
    END IF;

    IF p_parked IS NULL THEN
      SELECT * INTO v_row FROM @schema@.parked x
      WHERE x.consumer = p_consumer AND x.key = p_key AND x.fingerprint = p_fingerprint;
      IF FOUND THEN
        IF p_state IS NULL AND NOT p_redelivered AND v_row.state = 'discarded'
          AND @schema@.is_key_taken(p_consumer, p_key, p_fingerprint) THEN
          UPDATE @schema@.parked x
          SET state = 'mismatch', reason = 'mismatch', detail = 'the key is known with other content',
              token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
          WHERE x.id = v_row.id;
          outcome := 'mismatch';
        ELSIF p_state IS NULL AND v_marker IS NULL AND NOT p_redelivered
          AND v_row.state IN ('failed', 'discarded') THEN
          -- Somebody sent it again on purpose: it gets a fresh budget.
          UPDATE @schema@.parked x
          SET state = 'waiting', attempts = 0, crashes = 0, next_at = clock_timestamp(),
              token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
          WHERE x.id = v_row.id;
          outcome := 'revived';
        ELSE
          PERFORM @schema@.catch_up();
          outcome := 'present';
        END IF;
        id := v_row.id;
        RETURN;
      END IF;
      IF @schema@.is_key_taken(p_consumer, p_key, p_fingerprint) THEN
        v_state := 'mismatch';
      END IF;
    ELSIF v_marker IS NOT NULL THEN
      v_state := 'mismatch';
    END IF;
  END IF;

  IF v_state IS NULL THEN
    outcome := 'again';
    RETURN;
  END IF;
  IF v_state = 'mismatch' THEN
    v_reason := 'mismatch';
    v_detail := 'the key is known with other content';
  END IF;

  IF p_parked IS NULL THEN
    INSERT INTO @schema@.parked (consumer, entry, state, reason, detail, sqlstate, attempts, crashes,
      next_at, key, fingerprint, queue, exchange, routing_key, redelivered, properties, body,
      body_size)
    VALUES (p_consumer, p_entry, v_state, v_reason, v_detail, p_sqlstate, p_attempts, p_crashes,
      CASE WHEN v_state = 'waiting'
        THEN clock_timestamp() + p_delay_ms * interval '1 millisecond' END,
      p_key, p_fingerprint, p_queue, p_exchange, p_routing_key, p_redelivered, p_properties,
      p_body, p_body_size)
    RETURNING parked.id INTO id;
  ELSE
    UPDATE @schema@.parked x
    SET state = v_state, reason = v_reason, detail = v_detail, sqlstate = p_sqlstate,
        attempts = p_attempts, crashes = p_crashes, losses = 0,
        next_at = CASE WHEN v_state = 'waiting'
          THEN clock_timestamp() + p_delay_ms * interval '1 millisecond' END,
        token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = p_parked;
    id := p_parked;
  END IF;
  outcome := CASE WHEN v_state = 'mismatch' THEN 'mismatch' ELSE 'parked' END;
END $$;

-- The lock of a key, as the daemon computes it: the first 8 bytes of SHA-256 over the consumer's id
-- (4 bytes, big-endian) and the key.
CREATE FUNCTION @schema@.key_lock(p_consumer integer, p_key bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT ('x' || encode(substr(sha256(int4send(p_consumer) || p_key), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- Takes one waiting message whose time has come: attempts + 1, a new token, due again after the lease,
-- so that a run that dies counts and nobody runs it twice.  Rows found to need no run are ended on the
-- way.  One whose work is committed goes without a word; one with other content than its marker, without
-- attempts left, or with a body of more than p_body_max bytes is returned, failed or mismatch now, in front
-- of the one that was taken and still is waiting.  No waiting row: none was taken.  A row that fails or is
-- taken belongs to p_entry from now on: the entry that parked it may have another name, or be gone.
CREATE FUNCTION @schema@.take_due(
  p_consumer integer, p_entry text, p_attempts_max integer, p_crashes_max integer, p_lease_ms bigint,
  p_body_max bigint)
RETURNS SETOF @schema@.parked
LANGUAGE plpgsql AS $$
DECLARE
  r        @schema@.parked;
  v_marker bytea;
  v_silent boolean;
  v_token  bigint;
BEGIN
  FOR r IN
    SELECT * FROM @schema@.parked x
    WHERE x.consumer = p_consumer AND x.state = 'waiting' AND x.next_at <= clock_timestamp()
    ORDER BY x.next_at LIMIT 20 FOR UPDATE SKIP LOCKED
  LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(
      @schema@.key_lock(p_consumer, coalesce(r.key, r.fingerprint)));
    v_marker := NULL;
    IF r.key IS NOT NULL THEN
      SELECT x.fingerprint INTO v_marker FROM @schema@.inbox x
      WHERE x.consumer = p_consumer AND x.key = r.key;
    END IF;
    IF v_marker IS NOT NULL AND NOT @schema@.fingerprints_differ(v_marker, r.fingerprint) THEN
      DELETE FROM @schema@.parked x WHERE x.id = r.id;
    ELSIF v_marker IS NOT NULL THEN
      RETURN QUERY
      UPDATE @schema@.parked x
      SET state = 'mismatch', reason = 'mismatch', detail = 'the key is known with other content',
          next_at = NULL, token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
      WHERE x.id = r.id
      RETURNING x.*;
    ELSIF r.attempts >= p_attempts_max OR r.crashes >= p_crashes_max THEN
      -- Taken and not answered: the last run ended with everybody who could tell.  Else it waited under a
      -- configuration that gave it more.
      v_silent := r.run_token IS NOT DISTINCT FROM r.token;
      RETURN QUERY
      UPDATE @schema@.parked x
      SET state = 'failed', entry = p_entry,
          reason = CASE WHEN v_silent THEN 'crashed' ELSE r.reason END,
          detail = CASE WHEN v_silent
            THEN 'the last run ended without a word: its process, or the whole daemon, was gone'
            ELSE format('it has no runs left (runs %s of %s, crashes %s of %s); before: %s',
              r.attempts, p_attempts_max, r.crashes, p_crashes_max, r.detail) END,
          next_at = NULL, token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
      WHERE x.id = r.id
      RETURNING x.*;
    ELSIF r.body_size > p_body_max THEN
      RETURN QUERY
      UPDATE @schema@.parked x
      SET state = 'failed', entry = p_entry, reason = 'too_large',
          detail = format('body of %s bytes is over max_message_bytes = %s', r.body_size, p_body_max),
          next_at = NULL, token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
      WHERE x.id = r.id
      RETURNING x.*;
    ELSE
      v_token := nextval('@schema@.parked_token');
      RETURN QUERY
      UPDATE @schema@.parked x
      SET attempts = x.attempts + 1, entry = p_entry, token = v_token, run_token = v_token,
          next_at = clock_timestamp() + p_lease_ms * interval '1 millisecond',
          changed_at = clock_timestamp()
      WHERE x.id = r.id
      RETURNING x.*;
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Gives a retry that was parked without key the key that today's rule finds in it.  The token stays.
--
-- outcome: adopted   run it under that key
--          present   the same message is parked under that key already: that row waits now, this one went
--          mismatch  the key is taken by other content: this row says so now, or one that was discarded
--                    with the same message in it, and this one went
--          busy      another transaction has the key in hand
--          dropped   the row was changed by somebody else
CREATE FUNCTION @schema@.adopt_key(
  p_parked bigint, p_token bigint, p_key bytea, p_fingerprint bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  r       @schema@.parked;
  v_other bigint;
  v_taken boolean;
BEGIN
  SELECT * INTO r FROM @schema@.parked x
  WHERE x.id = p_parked AND x.state = 'waiting' AND x.token = p_token FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'dropped';
  ELSIF NOT pg_try_advisory_xact_lock(@schema@.key_lock(r.consumer, p_key)) THEN
    RETURN 'busy';
  END IF;
  v_taken := @schema@.is_key_taken(r.consumer, p_key, p_fingerprint);
  SELECT x.id INTO v_other FROM @schema@.parked x
  WHERE x.consumer = r.consumer AND x.key = p_key AND x.fingerprint = p_fingerprint;
  IF FOUND THEN
    DELETE FROM @schema@.parked x WHERE x.id = p_parked;
    UPDATE @schema@.parked x
    SET state = 'mismatch', reason = 'mismatch', detail = 'the key is known with other content',
        token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = v_other AND x.state = 'discarded' AND v_taken;
    IF FOUND THEN
      RETURN 'mismatch';
    END IF;
    UPDATE @schema@.parked x
    SET state = 'waiting', attempts = 0, crashes = 0, next_at = clock_timestamp(),
        token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = v_other AND x.state IN ('failed', 'discarded');
    RETURN 'present';
  ELSIF v_taken THEN
    UPDATE @schema@.parked x
    SET state = 'mismatch', reason = 'mismatch', detail = 'the key is known with other content',
        next_at = NULL, key = p_key, fingerprint = p_fingerprint,
        token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = p_parked;
    RETURN 'mismatch';
  END IF;
  UPDATE @schema@.parked x SET key = p_key, fingerprint = p_fingerprint WHERE x.id = p_parked;
  RETURN 'adopted';
END $$;

-- Gives an attempt back that ended for a reason outside the message; due again after a delay.  p_lost: it
-- may be the message's fault after all, and is counted apart.
CREATE FUNCTION @schema@.give_back(
  p_parked bigint, p_token bigint, p_delay_ms bigint, p_lost boolean) RETURNS void
LANGUAGE sql AS $$
  UPDATE @schema@.parked
  SET attempts = greatest(attempts - 1, 0), losses = losses + p_lost::integer,
      next_at = clock_timestamp() + p_delay_ms * interval '1 millisecond',
      token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
  WHERE id = p_parked AND state = 'waiting' AND token = p_token
$$;

-- Counts that the process which ran a retry died: one crash more, failed when there are enough.
-- 'busy': the dead session still holds the key or the row, ask again; 'dropped': the row is no longer that run's.
CREATE FUNCTION @schema@.count_crash(
  p_parked bigint, p_token bigint, p_reason text, p_detail text, p_attempts_max integer,
  p_crashes_max integer, p_delay_ms bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  r        @schema@.parked;
  v_failed boolean;
BEGIN
  SELECT * INTO r FROM @schema@.parked x WHERE x.id = p_parked;
  IF NOT FOUND THEN
    RETURN 'dropped';
  END IF;
  IF NOT pg_try_advisory_xact_lock(
    @schema@.key_lock(r.consumer, coalesce(r.key, r.fingerprint))) THEN
    RETURN 'busy';
  END IF;
  -- Without a key nothing but the row itself is held: by the dead session, or by an operator.
  SELECT * INTO r FROM @schema@.parked x
  WHERE x.id = p_parked AND x.state = 'waiting' AND x.token = p_token FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN CASE WHEN EXISTS (
      SELECT FROM @schema@.parked x
      WHERE x.id = p_parked AND x.state = 'waiting' AND x.token = p_token)
      THEN 'busy' ELSE 'dropped' END;
  END IF;
  v_failed := r.crashes + 1 >= p_crashes_max OR r.attempts >= p_attempts_max;
  UPDATE @schema@.parked x
  SET state = CASE WHEN v_failed THEN 'failed' ELSE 'waiting' END,
      next_at = CASE WHEN NOT v_failed
        THEN clock_timestamp() + p_delay_ms * interval '1 millisecond' END,
      crashes = r.crashes + 1, losses = 0, reason = p_reason, detail = p_detail,
      token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
  WHERE x.id = p_parked;
  RETURN CASE WHEN v_failed THEN 'failed' ELSE 'waiting' END;
END $$;

-- What an operator does with a parked message.  Each function returns NULL when it is done, else the
-- reason why not, and waits for nobody: a row that a run has claimed is refused.  The new token voids
-- whatever a worker began under the old one.
CREATE FUNCTION @schema@.parked_absent(p_id bigint) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN EXISTS (SELECT FROM @schema@.parked x WHERE x.id = p_id)
    THEN 'it is in a worker''s hand at this moment: try again'
    ELSE 'no such message is parked' END
$$;

-- It is due now; one that had failed has all its attempts again.  A daemon takes it within seconds.
CREATE FUNCTION @schema@.parked_retry(p_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  r @schema@.parked;
BEGIN
  SELECT * INTO r FROM @schema@.parked x WHERE x.id = p_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN @schema@.parked_absent(p_id);
  ELSIF r.state = 'mismatch' THEN
    RETURN 'its key is taken by other content: discard it, or have it sent under a key of its own';
  ELSIF r.state = 'discarded' THEN
    RETURN 'it is discarded: restore it first';
  ELSIF r.state NOT IN ('failed', 'waiting') THEN
    RETURN format('it is %s', r.state);
  ELSIF r.reason = 'undecodable' THEN
    RETURN 'its content is not here: it was never readable';
  END IF;
  UPDATE @schema@.parked x
  SET state = 'waiting', next_at = clock_timestamp(),
      attempts = CASE r.state WHEN 'failed' THEN 0 ELSE r.attempts END,
      crashes = CASE r.state WHEN 'failed' THEN 0 ELSE r.crashes END,
      token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
  WHERE x.id = p_id;
  RETURN NULL;
END $$;

-- It is settled otherwise: kept, but neither run again nor in the way of its key's other content.
CREATE FUNCTION @schema@.parked_discard(p_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM @schema@.parked x WHERE x.id = p_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN @schema@.parked_absent(p_id);
  END IF;
  UPDATE @schema@.parked x
  SET state = 'discarded', next_at = NULL, token = nextval('@schema@.parked_token'),
      changed_at = clock_timestamp()
  WHERE x.id = p_id AND x.state <> 'discarded';
  RETURN CASE WHEN NOT FOUND THEN 'it is discarded already' END;
END $$;

-- Takes a discarding back: it is failed, whatever it was, or a mismatch where its key is taken by then.  No
-- dead letter tells of that.
CREATE FUNCTION @schema@.parked_restore(p_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  r @schema@.parked;
BEGIN
  SELECT * INTO r FROM @schema@.parked x WHERE x.id = p_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR NOT pg_try_advisory_xact_lock(@schema@.key_lock(r.consumer, r.key)) THEN
    RETURN @schema@.parked_absent(p_id);
  ELSIF r.state <> 'discarded' THEN
    RETURN 'it is not discarded';
  ELSIF @schema@.is_key_taken(r.consumer, r.key, r.fingerprint) THEN
    UPDATE @schema@.parked x
    SET state = 'mismatch', reason = 'mismatch', detail = 'the key is known with other content',
        token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = p_id;
  ELSE
    UPDATE @schema@.parked x
    SET state = 'failed', token = nextval('@schema@.parked_token'), changed_at = clock_timestamp()
    WHERE x.id = p_id;
  END IF;
  RETURN NULL;
END $$;

-- Takes messages that are to be published and whose time has come: at most so many, and no more once they
-- hold so many bytes (one at least): a new token, due again after the lease.  A body that is kept in
-- pieces, or of more than p_body_max bytes, is not sent.  The message is read here: whoever calls looks with an older snapshot.
-- What another entry of the identity has left for an hour belongs to p_entry from then on: that entry has
-- another name now, or is gone, or publishes no more.
CREATE FUNCTION @schema@.take_outgoing(
  p_consumer integer, p_entry text, p_most integer, p_bytes bigint, p_lease_ms bigint,
  p_body_max bigint, OUT id bigint, OUT token bigint, OUT attempts integer, OUT exchange bytea, OUT routing_key bytea,
  OUT message @schema@.parked)
RETURNS SETOF record
LANGUAGE plpgsql AS $$
DECLARE
  r      record;
  v_left bigint := p_bytes;
BEGIN
  UPDATE @schema@.outgoing o SET entry = p_entry
  WHERE o.id IN (
      SELECT l.id FROM @schema@.outgoing l
      WHERE l.consumer = p_consumer AND l.next_at <= clock_timestamp() - interval '1 hour'
        AND l.entry <> p_entry
      ORDER BY l.next_at LIMIT p_most FOR UPDATE SKIP LOCKED)
    AND EXISTS (
      SELECT FROM @schema@.consumer_entry e
      WHERE e.consumer = p_consumer AND e.entry = p_entry AND e.dead_letter_exchange IS NOT NULL);
  -- Without the messages themselves: the loop fetches, and a plan may sort, more rows than are taken.
  FOR r IN
    SELECT o.id, o.parked, convert_to(e.dead_letter_exchange, 'UTF8') AS exchange,
           coalesce(convert_to(e.dead_letter_routing_key, 'UTF8'), p.routing_key) AS routing_key
    FROM @schema@.outgoing o
    JOIN @schema@.consumer_entry e USING (consumer, entry)
    JOIN @schema@.parked p ON p.id = o.parked
    WHERE o.consumer = p_consumer AND o.entry = p_entry AND o.next_at <= clock_timestamp()
      AND e.dead_letter_exchange IS NOT NULL
    ORDER BY o.next_at LIMIT p_most FOR UPDATE OF o SKIP LOCKED
  LOOP
    EXIT WHEN v_left <= 0;
    SELECT * INTO message FROM @schema@.parked p WHERE p.id = r.parked;
    CONTINUE WHEN NOT FOUND;
    IF message.body_size > p_body_max THEN
      message.body := NULL;
    END IF;
    v_left := v_left - length(message.properties) - coalesce(length(message.body), 0);
    UPDATE @schema@.outgoing o
    SET token = nextval('@schema@.parked_token'), attempts = o.attempts + 1,
        next_at = clock_timestamp() + p_lease_ms * interval '1 millisecond'
    WHERE o.id = r.id
    RETURNING o.id, o.token, o.attempts INTO id, token, attempts;
    exchange := r.exchange;
    routing_key := r.routing_key;
    RETURN NEXT;
  END LOOP;
END $$;

-- What became of one that was taken: confirmed, or to be tried again after a delay; without one it was
-- not tried at all, and gets its attempt back.
CREATE FUNCTION @schema@.outgoing_sent(p_id bigint, p_token bigint) RETURNS void
LANGUAGE sql AS $$
  DELETE FROM @schema@.outgoing WHERE id = p_id AND token = p_token
$$;
CREATE FUNCTION @schema@.outgoing_postponed(
  p_id bigint, p_token bigint, p_delay_ms bigint, p_error text) RETURNS void
LANGUAGE sql AS $$
  UPDATE @schema@.outgoing
  SET token = nextval('@schema@.parked_token'), error = p_error,
      attempts = CASE WHEN p_delay_ms = 0 THEN greatest(attempts - 1, 0) ELSE attempts END,
      next_at = clock_timestamp() + p_delay_ms * interval '1 millisecond'
  WHERE id = p_id AND token = p_token
$$;

-- Forgets keys whose work was committed more than p_keep ago, by this server's clock: one small step, the
-- oldest first, at most p_most of them.  A key that is parked, in whatever state, is remembered: running
-- that message again would need it.  One that somebody has in hand at this moment is left for another
-- time.  It waits for nobody, and one call at a time works in a schema.
--
-- p_from:     where the step before ended, so that none looks again at what others have deleted
-- forgotten:  how many; NULL: another call is at work
-- next_from:  for the next step; NULL: nothing old is left
CREATE FUNCTION @schema@.forget_old(
  p_identity text, p_keep interval, p_from timestamptz DEFAULT '-infinity',
  p_most integer DEFAULT 500, OUT forgotten bigint, OUT next_from timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
  v_consumer integer;
  v_before   timestamptz := now() - p_keep;
  v_keys     bytea[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(
    hashtext('inboxd.forget_old'), '@schema@.inbox'::regclass::integer) THEN
    RETURN;
  END IF;
  -- What a crash of the server takes back is simply done again.
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT x.id INTO v_consumer FROM @schema@.consumer x WHERE x.identity = p_identity;
  SELECT array_agg(o.key), CASE WHEN count(*) = p_most THEN max(o.at) END INTO v_keys, next_from
  FROM (
    SELECT x.key, x.at FROM @schema@.inbox x
    WHERE x.consumer = v_consumer AND x.at >= p_from AND x.at < v_before AND NOT EXISTS (
      SELECT FROM @schema@.parked p WHERE p.consumer = x.consumer AND p.key = x.key)
    ORDER BY x.at LIMIT p_most FOR UPDATE OF x SKIP LOCKED) o;
  -- Their locks first, and then another look, younger than these: a copy may have been parked meanwhile.
  v_keys := ARRAY(
    SELECT k.key FROM unnest(v_keys) AS k (key)
    WHERE pg_try_advisory_xact_lock(@schema@.key_lock(v_consumer, k.key)));
  DELETE FROM @schema@.inbox x
  WHERE x.consumer = v_consumer AND x.key = ANY (v_keys) AND NOT EXISTS (
    SELECT FROM @schema@.parked p WHERE p.consumer = x.consumer AND p.key = x.key);
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  IF forgotten = 0 THEN
    next_from := NULL;
  END IF;
END $$;

-- A key for people, the same text that the logs show (src/message/key.h): printable, and another one for
-- every key.
CREATE FUNCTION @schema@.key_text(p_key bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  v_kind  integer := CASE WHEN length(p_key) > 1 THEN get_byte(p_key, 0) ELSE 0 END;
  v_rest  bytea := substr(p_key, 2);
  v_parts bytea[] := '{}';
  v_texts text[] := '{}';
  v_none  text := '?' || regexp_replace(encode(p_key, 'hex'), '..', '\\x\&', 'g');
  v_utf8  boolean := current_setting('server_encoding') = 'UTF8';
  v_part  bytea;
  v_text  text;
  v_at    integer := 0;
  v_size  integer;
  v_long  integer;
  v_code  integer;
BEGIN
  IF v_kind IN (3, 5, 6) AND length(v_rest) = 32 THEN
    RETURN CASE v_kind WHEN 5 THEN 'list-' WHEN 6 THEN 'body-' ELSE '' END ||
      'sha256:' || encode(v_rest, 'hex');
  ELSIF v_kind = 2 AND length(v_rest) = 16 THEN
    RETURN encode(v_rest, 'hex')::uuid::text;
  ELSIF v_kind = 1 THEN
    v_parts := ARRAY[v_rest];
  ELSIF v_kind = 4 THEN
    WHILE v_at < length(v_rest) LOOP
      IF v_at + 2 > length(v_rest) THEN
        RETURN v_none;
      END IF;
      v_size := get_byte(v_rest, v_at) * 256 + get_byte(v_rest, v_at + 1);
      IF v_at + 2 + v_size > length(v_rest) THEN
        RETURN v_none;
      END IF;
      v_parts := v_parts || substr(v_rest, v_at + 3, v_size);
      v_at := v_at + 2 + v_size;
    END LOOP;
    IF cardinality(v_parts) < 2 THEN
      RETURN v_none;
    END IF;
  ELSE
    RETURN v_none;
  END IF;

  FOREACH v_part IN ARRAY v_parts LOOP
    v_text := encode(v_part, 'escape');
    IF v_text !~ '^([!-+\--[\]-~]([ -+\--[\]-~]*[!-+\--[\]-~])?)?$' THEN
      -- Not plain ASCII without comma, backslash and outer spaces: character by character.
      v_text := '';
      v_at := 0;
      WHILE v_at < length(v_part) LOOP
        v_code := get_byte(v_part, v_at);
        v_long := CASE WHEN v_code < 128 THEN 1 WHEN v_code BETWEEN 194 AND 223 THEN 2
          WHEN v_code BETWEEN 224 AND 239 THEN 3 WHEN v_code BETWEEN 240 AND 244 THEN 4 ELSE 0 END;
        v_code := CASE v_long WHEN 2 THEN v_code & 31 WHEN 3 THEN v_code & 15 WHEN 4 THEN v_code & 7
          ELSE v_code END;
        FOR i IN 1 .. v_long - 1 LOOP
          IF v_at + i >= length(v_part) OR (get_byte(v_part, v_at + i) & 192) <> 128 THEN
            v_long := 0;
            EXIT;
          END IF;
          v_code := v_code * 64 + (get_byte(v_part, v_at + i) & 63);
        END LOOP;
        IF v_long = 0 OR (v_long > 1 AND NOT v_utf8)
          OR v_code < (CASE v_long WHEN 3 THEN 2048 WHEN 4 THEN 65536 ELSE 0 END)
          OR v_code > 1114111 OR v_code BETWEEN 55296 AND 57343 THEN
          v_long := 1;
          v_code := -1;
        END IF;
        IF v_code < 0 OR (v_code = 32 AND (v_at = 0 OR v_at + 1 = length(v_part)))
          -- What nobody sees, or what moves its neighbours.
          OR v_code < 32 OR v_code BETWEEN 127 AND 160 OR v_code IN (173, 847, 1564, 1757, 1807, 5760)
          OR v_code BETWEEN 1536 AND 1541 OR v_code BETWEEN 4447 AND 4448
          OR v_code BETWEEN 6068 AND 6069 OR v_code BETWEEN 6155 AND 6159
          OR v_code BETWEEN 8192 AND 8207 OR v_code BETWEEN 8232 AND 8239
          OR v_code BETWEEN 8287 AND 8303 OR v_code IN (12288, 12644, 65279, 65440)
          OR v_code BETWEEN 57344 AND 63743 OR v_code BETWEEN 64976 AND 65007
          OR v_code BETWEEN 65024 AND 65039 OR v_code BETWEEN 65520 AND 65531
          OR v_code BETWEEN 65534 AND 65535 OR v_code >= 917504 THEN
          v_text := v_text || regexp_replace(
            encode(substr(v_part, v_at + 1, v_long), 'hex'), '..', '\\x\&', 'g');
        ELSE
          v_text := v_text || CASE WHEN v_code IN (44, 92) THEN '\' ELSE '' END || chr(v_code);
        END IF;
        v_at := v_at + v_long;
      END LOOP;
    END IF;
    v_texts := v_texts || v_text;
  END LOOP;
  IF v_kind = 1 AND v_texts[1] ~ '^([?]|(list-|body-)?sha256:)' THEN
    RETURN '\x' || to_hex(get_byte(v_rest, 0)) || substr(v_texts[1], 2);
  END IF;
  RETURN array_to_string(v_texts, ', ');
END $$;

-- The whole body of a parked message, wherever it is kept.  Volatile, for it is asked about rows that the
-- statement around it has not seen: those that another function in it has just taken.
CREATE FUNCTION @schema@.parked_body(p_parked bigint) RETURNS bytea
LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(x.body,
    (SELECT string_agg(c.data, ''::bytea ORDER BY c.seq)
     FROM @schema@.parked_chunk c WHERE c.parked = x.id), ''::bytea)
  FROM @schema@.parked x WHERE x.id = p_parked
$$;

CREATE VIEW @schema@.inbox_view AS
  SELECT c.identity AS consumer, @schema@.key_text(i.key) AS key, i.at,
         encode(i.fingerprint, 'hex') AS fingerprint
  FROM @schema@.inbox i JOIN @schema@.consumer c ON c.id = i.consumer;

CREATE VIEW @schema@.parked_view AS
  SELECT p.id, c.identity AS consumer, p.entry, @schema@.key_text(p.key) AS key, p.state, p.reason,
         p.detail, p.sqlstate, p.attempts, p.crashes, p.next_at, p.parked_at, p.changed_at, p.queue,
         encode(p.exchange, 'escape') AS exchange, encode(p.routing_key, 'escape') AS routing_key,
         p.redelivered, p.body_size
  FROM @schema@.parked p JOIN @schema@.consumer c ON c.id = p.consumer;

-- Alike but for their numbers: what an operator wants to see once.
CREATE VIEW @schema@.parked_group_view AS
  SELECT c.identity AS consumer, p.state, p.reason, p.sqlstate,
         regexp_replace(left(p.detail, 200), '[0-9]+', 'N', 'g') AS detail, count(*) AS messages,
         min(p.parked_at) AS oldest, max(p.changed_at) AS newest, min(p.id) AS example
  FROM @schema@.parked p JOIN @schema@.consumer c ON c.id = p.consumer
  GROUP BY 1, 2, 3, 4, 5;

CREATE VIEW @schema@.outgoing_view AS
  SELECT o.id, c.identity AS consumer, o.entry, o.kind, o.parked,
         e.dead_letter_exchange AS exchange,
         coalesce(e.dead_letter_routing_key, encode(p.routing_key, 'escape')) AS routing_key,
         o.attempts, o.next_at, o.error, o.created_at
  FROM @schema@.outgoing o
  JOIN @schema@.consumer c ON c.id = o.consumer
  JOIN @schema@.consumer_entry e ON e.consumer = o.consumer AND e.entry = o.entry
  JOIN @schema@.parked p ON p.id = o.parked;

CREATE VIEW @schema@.consumer_view AS
  SELECT c.identity AS consumer, e.entry, e.vhost, e.queue, c.key_rule, c.fingerprint_rule,
         c.registered_at, c.accepted_at, e.dead_letter_exchange, e.dead_letter_routing_key
  FROM @schema@.consumer c LEFT JOIN @schema@.consumer_entry e ON e.consumer = c.id;
