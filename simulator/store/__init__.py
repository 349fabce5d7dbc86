"""Store servers in one process and in virtual time: simulated network, disks, clocks and metastore."""
