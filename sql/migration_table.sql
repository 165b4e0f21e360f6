-- SPDX-License-Identifier: MIT
-- What stands before the first migration: the schema, and the table that says what was applied to it.
DO $$
BEGIN
  -- CREATE SCHEMA IF NOT EXISTS would ask for the right to create one even where it exists.
  IF to_regnamespace('@schema@') IS NULL THEN
    CREATE SCHEMA @schema@;
  END IF;
END $$;
CREATE TABLE IF NOT EXISTS @schema@.migration (
  version    integer PRIMARY KEY,
  name       text NOT NULL,
  sha256     bytea NOT NULL,
  program    text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  applied_by text NOT NULL DEFAULT current_user
);
COMMENT ON TABLE @schema@.migration IS 'versions of the schema that were applied, and by which program';
