-- Quickstart: a zone with one copy of its data, then with three.
--
--   zonectl up                                       (another terminal)
--   zonectl sql -f examples/quickstart.sql --wait

-- Eight partitions, each with one replica, on the nodes that have the storage profile `default`.
CREATE ZONE quickstart (PARTITIONS 8, REPLICAS 1) STORAGE PROFILES ['default'];

-- Two more replicas of each partition. Reads and writes go on while the data is copied; a partition is done
-- when its new set of nodes is its stable one.
ALTER ZONE quickstart SET (REPLICAS 3);
