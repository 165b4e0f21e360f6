-- SPDX-License-Identifier: MIT
-- What a role needs that the daemon logs in as (besides what its handlers write to).
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
GRANT USAGE ON SCHEMA @schema@ TO @role@;
GRANT SELECT ON
  @schema@.migration, @schema@.consumer_view, @schema@.inbox_view, @schema@.parked_view,
  @schema@.parked_group_view, @schema@.outgoing_view
  TO @role@;
GRANT SELECT, INSERT ON
  @schema@.consumer, @schema@.consumer_entry
  TO @role@;
GRANT UPDATE (dead_letter_exchange, dead_letter_routing_key) ON @schema@.consumer_entry TO @role@;
GRANT SELECT, INSERT, UPDATE, DELETE ON
  @schema@.inbox, @schema@.result, @schema@.parked, @schema@.parked_chunk, @schema@.guard,
  @schema@.outgoing
  TO @role@;
GRANT USAGE ON SEQUENCE @schema@.parked_token TO @role@;
GRANT EXECUTE ON FUNCTION
  @schema@.schema_serves, @schema@.register, @schema@.fingerprints_differ, @schema@.is_key_taken,
  @schema@.park, @schema@.catch_up, @schema@.key_lock, @schema@.take_due, @schema@.adopt_key, @schema@.give_back,
  @schema@.count_crash, @schema@.key_text, @schema@.parked_body, @schema@.take_outgoing,
  @schema@.outgoing_sent, @schema@.outgoing_postponed, @schema@.forget_old
  TO @role@;
