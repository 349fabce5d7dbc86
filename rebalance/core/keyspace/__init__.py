"""The metastore's keys, and the records that processes keep under them."""
