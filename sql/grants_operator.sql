-- SPDX-License-Identifier: MIT
-- What a role needs that operators log in as: it sees everything, bodies included, and may use the
-- operators' functions, which run with its own rights.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
GRANT USAGE ON SCHEMA @schema@ TO @role@;
GRANT SELECT ON ALL TABLES IN SCHEMA @schema@ TO @role@;
GRANT INSERT, UPDATE ON
  @schema@.consumer, @schema@.consumer_entry
  TO @role@;
GRANT UPDATE (state, reason, detail, attempts, crashes, next_at, token, changed_at)
  ON @schema@.parked TO @role@;
GRANT INSERT, DELETE ON @schema@.outgoing TO @role@;
GRANT USAGE ON SEQUENCE @schema@.parked_token TO @role@;
GRANT EXECUTE ON FUNCTION
  @schema@.schema_serves, @schema@.fingerprints_differ, @schema@.is_key_taken, @schema@.key_lock, @schema@.key_text,
  @schema@.parked_body, @schema@.accept_consumer, @schema@.parked_absent,
  @schema@.parked_retry, @schema@.parked_discard, @schema@.parked_restore
  TO @role@;
