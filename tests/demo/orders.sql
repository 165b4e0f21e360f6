-- SPDX-License-Identifier: MIT
-- Where the statement of the demo writes to.
CREATE TABLE orders (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
