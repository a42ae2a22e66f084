-- Leases are measured by the machine's monotonic clock (see `leases.py`): `expires` and `lasts` are
-- milliseconds of it, `boot` says since which start of the machine. What is there was measured by
-- wall clocks: it has no `boot`, and so has run out. Its tokens stay.
ALTER TABLE leases ADD COLUMN lasts INTEGER;
ALTER TABLE leases ADD COLUMN boot TEXT;
