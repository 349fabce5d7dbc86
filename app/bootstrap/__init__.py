"""The composition root: the only place that names concrete adapters. One module a process, so that a node
does not pay for importing what a server needs."""
