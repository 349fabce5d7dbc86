"""Keys and values from Python: ``zone_client.ZoneClient`` (asynchronous) and ``blocking.BlockingZoneClient``.

It knows the REST API and the data path, and nothing of the server. What it raises:

ClientError
├── ReadTimedOutError        no answer to a get within the time limit
├── ServersUnavailableError  no server gave a routing map or carried out a put in time: nothing was written
└── RefusedByServerError     the server refused; ``problem`` says why
    └── ZoneNotFoundError    there is no such zone

and, from ``rebalance.ports.groups``, OutcomeUnknownError (40003: no answer to a put within the time limit, it
may have been applied; repeat it with the same operation id, or write the key anew), GenerationRefusedError
(40001: only members of another generation of the group answered a put, nothing was written), ValueRefusedError
(the value is too large) and GroupFullError (53100); from ``rebalance.ports.write_refusals``, NobodyAskedError
(58000: no member was known in time, nothing was written), ConditionFailedError (the key is not as the write
wanted it) and OperationAbandonedError; from ``rebalance.store.shell.store_client``, StoreRefusedError: the
servers of a store zone refused, or none was reached, and nothing was written.
"""
