-- SPDX-License-Identifier: MIT
-- What a role needs that only looks: the views, which show keys and states but neither bodies nor
-- headers.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
GRANT USAGE ON SCHEMA @schema@ TO @role@;
GRANT SELECT ON
  @schema@.migration, @schema@.consumer_view, @schema@.inbox_view, @schema@.parked_view,
  @schema@.parked_group_view, @schema@.outgoing_view
  TO @role@;
GRANT EXECUTE ON FUNCTION @schema@.schema_serves, @schema@.key_text TO @role@;
