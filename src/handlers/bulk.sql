-- SPDX-License-Identifier: MIT
-- Table of the example handler bulk.c.
CREATE TABLE IF NOT EXISTS measurement (
	sensor text NOT NULL,
	at timestamptz NOT NULL,
	value double precision
);
