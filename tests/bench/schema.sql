-- SPDX-License-Identifier: MIT
-- What every contestant of `make bench` writes to: one row of business for each message that is new, and a
-- marker for those that keep their own.  No unique constraint on the row: only the marker decides.
CREATE TABLE public.bench_row (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL, sent_us bigint NOT NULL);
CREATE TABLE public.bench_marker (consumer integer NOT NULL, key text NOT NULL, PRIMARY KEY (consumer, key));
GRANT ALL ON public.bench_row, public.bench_marker TO PUBLIC;
