-- SPDX-License-Identifier: MIT
-- Tables of the example handler ledger.c.
CREATE TABLE IF NOT EXISTS ledger_order (
	entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id text NOT NULL,
	customer text NOT NULL,
	at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS ledger_line (
	entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id text NOT NULL,
	article text NOT NULL,
	quantity integer NOT NULL CHECK (quantity > 0),
	price numeric NOT NULL
);
