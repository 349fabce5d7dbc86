"""The table of errors: the only place that knows numeric codes, SQLSTATEs, HTTP statuses and protocol types.

Numeric codes are unique, have four digits and never change their meaning; the first digit groups them (1 text,
2 options, 3 quorum, 4 names, zones and tables, 5 limits, 6 races and outcomes, 7 availability, 8 requests, 9
internal). 13 and 22 are not used anywhere: some SQL clients give them a meaning of their own. 5001 was a zone's
learners, before the engine had any, and is not used again. The table for people is
``catalog/tech-notes/errors.md``, written by ``scripts.errors_page``.
"""

from __future__ import annotations

from enum import Enum

from catalog.core.error_rows import ErrorRow, ProtocolType, no_room, outside


class ErrorKind(Enum):
    """The table. The member's name is the error's public name."""

    SYNTAX_ERROR = ErrorRow(
        1001, "42601", 400, "The text is not a statement", "Correct the text at the line and column given."
    )
    STATEMENT_NOT_SUPPORTED = ErrorRow(
        1002, "0A000", 400, "The statement is not supported", "Use a statement that the message names."
    )
    MULTIPLE_STATEMENTS = ErrorRow(
        1003, "42601", 400, "There is more than one statement", "Send one at a time, or send them as a script."
    )
    TRANSACTION_NOT_SUPPORTED = ErrorRow(
        1004,
        "25001",
        400,
        "Transactions are not supported",
        "Remove BEGIN and COMMIT: each statement commits on its own.",
    )
    TEXT_TOO_LARGE = ErrorRow(
        1005, "54000", 413, "The text is too large", "Send it in parts below the limit that the message names."
    )
    TEXT_NESTED_TOO_DEEPLY = ErrorRow(
        1006, "54001", 400, "The text is nested too deeply", "Write it with fewer parentheses and brackets."
    )
    QUERY_NOT_ALLOWED = ErrorRow(
        1101, "42501", 400, "Not allowed in a query", "Query system views only, with ordinary functions."
    )
    VIEW_NOT_FOUND = ErrorRow(
        1102, "42P01", 404, "The view does not exist", "SHOW TABLES lists what can be queried."
    )
    COLUMN_NOT_FOUND = ErrorRow(
        1103, "42703", 400, "The column does not exist", "DESCRIBE the view for its columns."
    )
    QUERY_INVALID = ErrorRow(1104, "42000", 400, "The query is not valid", "Correct what the message names.")
    QUERY_FAILED = ErrorRow(
        1105, "22000", 400, "The query failed on a value", "Correct what the message names."
    )
    CATALOG_NOT_FOUND = ErrorRow(
        1106, "3D000", 404, "The catalog does not exist", "SHOW CATALOGS lists those that do."
    )
    SCHEMA_NOT_FOUND = ErrorRow(
        1107, "3F000", 404, "The schema does not exist", "SHOW SCHEMAS lists those that do."
    )
    MISSING_SCHEMA_NAME = ErrorRow(
        1108, "3F000", 400, "The session has no schema", "Write schema.table, or connect with a schema."
    )
    OPTION_UNKNOWN = ErrorRow(
        2001, "22023", 400, "The option does not exist", "Use one of the options that the message lists."
    )
    OPTION_DUPLICATE = ErrorRow(2003, "22023", 400, "An option is given twice", "Give each option once.")
    OPTION_TYPE = ErrorRow(
        2004, "22023", 400, "The value has the wrong type", "Give a value of the type that the message names."
    )
    OPTION_OUT_OF_RANGE = ErrorRow(
        2005, "22023", 400, "The value is out of range", "Give a value in the range that the message names."
    )
    PARTITIONS_NOT_ALTERABLE = ErrorRow(
        2006, "0A000", 400, "PARTITIONS cannot be altered", "Create another zone with this many partitions."
    )
    OPTION_NOT_ALTERABLE = ErrorRow(
        2007, "0A000", 400, "The option cannot be altered", "Create another zone with this option."
    )
    STORAGE_PROFILES_EMPTY = ErrorRow(
        2008, "22023", 400, "A storage profile's name is blank", "Name each profile, or leave the option out."
    )
    FILTER_INVALID = ErrorRow(
        2009, "22023", 400, "NODES FILTER is not valid", "Write a JSONPath such as $[?(@.region == 'EU')]."
    )
    FILTER_MATCHES_NO_NODE = ErrorRow(
        2010,
        "23514",
        409,
        "NODES FILTER matches no node",
        "Start a node that it matches, or correct the filter.",
    )
    QUORUM_BELOW_MINIMUM = ErrorRow(
        3001, "22023", 400, "QUORUM SIZE is too small", "Give a size within the bounds that the message names."
    )
    QUORUM_ABOVE_MAXIMUM = ErrorRow(
        3002, "22023", 400, "QUORUM SIZE is too large", "Give a size within the bounds, or more replicas."
    )
    QUORUM_CONFLICTS_WITH_REPLICAS = ErrorRow(
        3003, "22023", 400, "REPLICAS conflicts with the zone's QUORUM SIZE", "Alter both in one statement."
    )
    QUORUM_EXCEEDS_DATA_NODES = ErrorRow(
        3004, "23514", 409, "QUORUM SIZE exceeds the data nodes", "Start more nodes, or give a smaller size."
    )
    NAME_INVALID = ErrorRow(
        4001, "42602", 400, "The name is not valid", "Use letters, digits and underscores, or quote the name."
    )
    NAME_TOO_LONG = ErrorRow(
        4002, "42622", 400, "The name is too long", "Use a name of at most 128 characters."
    )
    ZONE_ALREADY_EXISTS = ErrorRow(
        4003, "42710", 409, "The zone already exists", "Use another name, or IF NOT EXISTS."
    )
    ZONE_NOT_FOUND = ErrorRow(
        4004, "42704", 404, "The zone does not exist", "Check the name (quoted names keep case), or IF EXISTS."
    )
    STORAGE_PROFILE_UNKNOWN = ErrorRow(
        4005, "42704", 400, "No live node has the storage profile", "Use a profile that a live node has."
    )
    ZONE_IN_USE = ErrorRow(
        4006, "2BP01", 409, "The zone has tables", "Drop the zone's tables first, or keep the zone."
    )
    DEFAULT_ZONE_PROTECTED = ErrorRow(
        4007, "55006", 409, "The zone is the default zone", "Make another zone the default with SET DEFAULT."
    )
    STORAGE_PROFILE_ENGINES = ErrorRow(
        4008,
        "22023",
        400,
        "The storage profiles belong to different engines",
        "Use profiles of one engine on every node of the zone.",
    )
    NAME_CONFUSABLE = ErrorRow(
        4011,
        "42602",
        409,
        "The name can be taken for another one",
        "Use a name that differs by more than case, and ends in no space.",
    )
    NAME_NOT_VISIBLE = ErrorRow(
        4009, "42602", 400, "The name contains an invisible character", "Use visible characters only."
    )
    ENGINE_UNSUPPORTED = ErrorRow(
        4010, "0A000", 409, "The zone's storage engine does not have this", "Use what the message names."
    )
    TABLE_ALREADY_EXISTS = ErrorRow(
        4101, "42P07", 409, "The table already exists", "Use another name, or IF NOT EXISTS."
    )
    TABLE_NOT_FOUND = ErrorRow(
        4102, "42P01", 404, "The table does not exist", "Check the name (quoted names keep case), or IF EXISTS."
    )
    TABLE_COLUMN_DUPLICATE = ErrorRow(4103, "42701", 400, "A column is named twice", "Name each column once.")
    TABLE_COLUMN_NOT_FOUND = ErrorRow(
        4104, "42703", 400, "The column does not exist", "Check the name (quoted names keep case)."
    )
    TABLE_COLUMN_TYPE = ErrorRow(
        4105, "42704", 400, "The column type is unknown", "Use a type that the message names."
    )
    TABLE_COLUMN_IN_KEY = ErrorRow(
        4106, "2BP01", 409, "The column is part of the primary key", "Create another table without it."
    )
    TABLE_PRIMARY_KEY_INVALID = ErrorRow(
        4107, "42P16", 400, "The primary key is not valid", "Give one PRIMARY KEY of columns of the table."
    )
    TABLE_COLOCATION_INVALID = ErrorRow(
        4108, "42P16", 400, "The colocation columns are not valid", "Use distinct columns of the primary key."
    )
    TABLE_STORAGE_PROFILE = ErrorRow(
        4109, "42704", 400, "The zone has no such storage profile", "Use one of the zone's profiles."
    )
    PARTITION_NOT_FOUND = ErrorRow(
        4201, "22023", 400, "The zone has no such partition", "Give numbers in the range named."
    )
    NODE_NOT_FOUND = ErrorRow(
        4202, "42704", 404, "The node does not exist", "`zonectl status` lists them; names are case-sensitive."
    )
    OPERATION_NOT_FOUND = ErrorRow(
        4203, "42704", 404, "The operation does not exist", "`zonectl operations` lists the stored operations."
    )
    USER_NOT_FOUND = ErrorRow(
        4301,
        "42704",
        404,
        "The user does not exist",
        "SHOW USERS lists them; IF EXISTS ignores one that is missing.",
    )
    USER_ALREADY_EXISTS = ErrorRow(
        4302, "42710", 409, "The user already exists", "Use another name, or IF NOT EXISTS."
    )
    ROLE_NOT_FOUND = ErrorRow(
        4303,
        "42704",
        404,
        "The role does not exist",
        "SHOW ROLES lists them; IF EXISTS ignores one that is missing.",
    )
    ROLE_ALREADY_EXISTS = ErrorRow(
        4304, "42710", 409, "The role already exists", "Use another name, or IF NOT EXISTS."
    )
    ROLE_PROTECTED = ErrorRow(
        4305, "42939", 409, "The role cannot be changed", "Create a role of your own: CREATE ROLE."
    )
    LAST_ADMINISTRATOR = ErrorRow(
        4306,
        "55006",
        409,
        "No administrator would be left",
        "Grant ADMIN ON SYSTEM to another active user first.",
    )
    GRANT_INVALID = ErrorRow(
        4307, "0LP01", 400, "The privilege cannot be granted like this", "Use an object that the message names."
    )
    PRIVILEGE_UNKNOWN = ErrorRow(
        4308, "22023", 400, "The privilege does not exist", "Use one of the privileges that the message lists."
    )
    PASSWORD_INVALID = ErrorRow(
        4309,
        "22023",
        400,
        "The password is not accepted",
        "Use a password within the bounds that the message names.",
    )
    USER_NAME_INVALID = ErrorRow(
        4310, "42602", 400, "The name of a user or role is not valid", "Use characters that the message names."
    )
    NODE_MEMBER_LIMIT = ErrorRow(
        5002,
        "54000",
        409,
        "A node cannot hold so many members",
        "Request fewer partitions, or add nodes.",
        ProtocolType.INSUFFICIENT_RESOURCES,
    )
    DRAIN_LEAVES_NO_DATA_NODE = ErrorRow(
        5003,
        "55006",
        409,
        "A zone would have no data node",
        "Start another node that the zone can use, or change the zone.",
    )
    NODE_ALIVE = ErrorRow(
        5004, "55006", 409, "The node is alive", "Drain a node that lives; remove one that is gone for good."
    )
    NODE_NEEDED = ErrorRow(
        5005,
        "55006",
        409,
        "Partitions need the node",
        "Start the node, or recover the partitions that the message names.",
    )
    UPGRADE_NOT_READY = ErrorRow(
        5006,
        "55006",
        409,
        "The upgrade cannot be finalised yet",
        "Start the new version of what the message names: nothing was changed.",
    )
    RECOVERY_NOT_NEEDED = ErrorRow(
        5201, "55000", 409, "A majority of the voters is alive", "Wait: the group recovers automatically."
    )
    RECOVERY_STATE_ILLEGAL = ErrorRow(
        5202, "55000", 409, "Not possible in this partition state", "Resolve what the message names first."
    )
    NOT_ENOUGH_ALIVE_NODES = ErrorRow(
        5203,
        "53000",
        409,
        "Too few nodes are alive",
        "Start the nodes that the message names, or others.",
        ProtocolType.INSUFFICIENT_RESOURCES,
    )
    NODE_SET_ILLEGAL = ErrorRow(
        5204, "22023", 400, "The nodes are not valid", "Name nodes that hold a replica of the partitions."
    )
    OPERATION_STATE_ILLEGAL = ErrorRow(
        5205, "55000", 409, "Not possible in this operation state", "Check its state: the message says why."
    )
    REVERSE_IMPOSSIBLE = ErrorRow(
        5206,
        "55000",
        409,
        "The operation cannot be reversed",
        "Resolve what the message names, or alter the zone instead.",
    )
    REBALANCING_DISABLED = ErrorRow(
        5207,
        "55000",
        409,
        "Rebalancing is turned off",
        "Turn it on: `zonectl rebalance limits --rebalancing`. Running moves finish.",
    )
    COPIES_LEFT = ErrorRow(
        5208,
        "55000",
        409,
        "Living nodes have replicas",
        "Reset without `--empty`, or name each node whose replica may be discarded: `--discard-copies`.",
    )
    LOSS_NOT_CONFIRMED = ErrorRow(
        5209,
        "55000",
        409,
        "The loss of voters is not confirmed",
        "Make sure that these nodes are dead, then name exactly them: `--confirm-dead`.",
    )
    QUERY_TIMEOUT = ErrorRow(
        5101, "57014", 504, "The query took too long", "Query less data, or use a narrower condition."
    )
    QUERY_MEMORY_LIMIT = ErrorRow(
        5102, "53200", 400, "The query needs too much memory", "Query less data, or use a narrower condition."
    )
    RESULT_TOO_LARGE = ErrorRow(
        5103, "54000", 400, "The result has too many rows", "Add a LIMIT or a narrower condition."
    )
    TOO_MANY_STATEMENTS = no_room(5104, 503, "The server has too many statements", "Try again later.")
    CLIENT_STATEMENT_LIMIT = no_room(
        5105, 429, "The client has too many statements", "Wait until one of them has ended."
    )
    QUERY_WAIT_TIMEOUT = no_room(
        5106, 503, "The query waited too long", "Check SYSTEM.SQL_QUERIES, and try again later."
    )
    CATALOG_VERSION_CONFLICT = outside(
        6001, "40001", 409, "The catalog kept changing", "Send the statement again: nothing was changed."
    )
    OUTCOME_UNKNOWN = outside(
        6002, "40003", 504, "The outcome is unknown", "Read the state back before repeating."
    )
    LIMITS_CHANGED = ErrorRow(
        6004, "40001", 412, "The limits have changed", "Read them again: nothing was changed."
    )
    CLUSTER_NOT_IDLE = outside(
        6003,
        "55006",
        409,
        "A change of the zone is still in progress",
        "Wait until its partitions have processed it, and try again.",
    )
    PLAN_CHANGED = ErrorRow(
        6005, "40001", 409, "The plan is out of date", "Plan again and compare: nothing was changed."
    )
    CATALOG_UNAVAILABLE = outside(
        7001, "58000", 503, "The catalog is not available", "Try again when its database is available."
    )
    METASTORE_UNAVAILABLE = outside(
        7002, "58000", 503, "The metastore is not available", "Try again when etcd is available."
    )
    METASTORE_DIVERGED = outside(
        7004,
        "55000",
        503,
        "Catalog and metastore do not match",
        "Restore the matching backup, or run `zonectl metastore adopt`.",
    )
    RECORD_NOT_READABLE = outside(
        7020,
        "55000",
        503,
        "A record in the metastore cannot be read",
        "Restore or delete the key that the message names, or use a build that reads its format.",
    )
    METASTORE_FULL = ErrorRow(
        7005,
        "53100",
        503,
        "The metastore is full",
        "Compact and defragment etcd, disarm its NOSPACE alarm, and try again.",
        ProtocolType.INSUFFICIENT_RESOURCES,
    )
    PARTITION_FULL = ErrorRow(
        7010,
        "53100",
        507,
        "The partition's store is full",
        "Nothing was written. Compaction runs automatically; if it stays full, move data or raise the quota.",
        ProtocolType.INSUFFICIENT_RESOURCES,
    )
    PARTITION_UNAVAILABLE = outside(
        7003, "58000", 503, "The partition is not available", "Check its status for the cause, and try again."
    )
    WRONG_GENERATION = outside(
        7011,
        "40001",
        503,
        "Another generation of the partition's group answers",
        "Send it again: nothing was written, and the routing map follows the metastore.",
    )
    PARTITION_LOST = outside(
        7012,
        "58030",
        503,
        "The partition is lost",
        "No server that has its data is up: bring one back. `zonectl recovery states` says since when, and "
        "what the last resort is.",
    )
    OWNERS_AWAITED = outside(
        7013,
        "57P04",
        503,
        "The partition waits for its owners",
        "Start the servers that the message names: nothing is lost, and nothing was written.",
    )
    ZONE_DEACTIVATED = ErrorRow(
        7014, "55006", 409, "The zone is deactivated", "Activate the zone, and try again."
    )
    PARTITION_BUSY = no_room(
        7015, 503, "Too many requests wait for the partition", "Send fewer at the same time, and try again."
    )
    REPLICA_BEHIND = outside(
        7006,
        "58000",
        504,
        "No replica is current enough for the read",
        "Try again, accept older data, or read from the leader.",
    )
    INVALID_REQUEST = ErrorRow(8001, "22023", 400, "The request is not valid", "Correct the request.")
    PARAMETERS_MISMATCH = ErrorRow(
        8003, "07001", 400, "The parameters do not match the statement", "Give exactly one value for each ?."
    )
    KEY_NOT_FOUND = ErrorRow(8002, "02000", 404, "The key does not exist", "Check the key and the zone.")
    IDEMPOTENCY_KEY_REUSED = ErrorRow(
        8009,
        "22023",
        422,
        "The idempotency key belongs to another statement",
        "Use a new key for a new statement.",
    )
    STATEMENT_NOT_FOUND = ErrorRow(
        8004, "02000", 404, "The statement does not exist", "Results are kept for a time: send it again."
    )
    STATEMENT_RESULT_GONE = ErrorRow(
        8005, "55000", 410, "The result is no longer available", "Read pages in order, or send it again."
    )
    STATEMENT_CANCELED = ErrorRow(
        8006, "57014", 409, "The statement was canceled", "Read the state back: the message says what was kept."
    )
    STATEMENT_TIMED_OUT = ErrorRow(
        8007, "57014", 409, "The statement took too long", "Allow more time. The message says what was kept."
    )
    PREPARED_STATEMENT_UNKNOWN = ErrorRow(
        8008, "26000", 400, "The prepared statement does not exist", "PREPARE it first."
    )
    REVISION_GONE = ErrorRow(
        8010, "55000", 410, "The revision is no longer available", "Read at a newer revision, or at a time."
    )
    KEY_EXISTS = ErrorRow(
        8011, "23505", 409, "The key exists", "Nothing was written. Read the key, and write with its revision."
    )
    REVISION_CHANGED = ErrorRow(
        8012,
        "40001",
        412,
        "The key is not at the wanted revision",
        "Nothing was written. Read the key again, and decide with what it holds now.",
    )
    OPERATION_ABANDONED = ErrorRow(
        8013,
        "57014",
        409,
        "The write was abandoned by a later one",
        "It was not applied, and never will be. Read the key, and write with a new operation id.",
    )
    ORIGIN_REFUSED = ErrorRow(
        8101,
        "42501",
        403,
        "Requests of other origins are not allowed",
        "Open the server's own page, or add the origin to ZONEKEEPER_ALLOWED_ORIGINS.",
    )
    HOST_REFUSED = ErrorRow(
        8102,
        "42501",
        403,
        "The server does not accept this host name",
        "Use an IP address or localhost, or add the name to ZONEKEEPER_ALLOWED_HOSTS.",
    )
    USER_REQUIRED = ErrorRow(8103, "28000", 400, "The statement names no user", "Send the header X-Trino-User.")
    MEDIA_TYPE_REFUSED = ErrorRow(
        8104, "22023", 415, "The request is not JSON", "Send Content-Type: application/json."
    )
    REQUEST_TOO_LARGE = ErrorRow(
        8105, "54000", 413, "The request is too large", "Send less in one request: nothing was changed."
    )
    REQUEST_TOO_SLOW = ErrorRow(
        8106, "57014", 408, "The request did not arrive in time", "Send it again: nothing was changed."
    )
    HEADERS_TOO_LARGE = ErrorRow(
        8107, "54000", 431, "The request's headers are too large", "Send fewer or shorter headers."
    )
    REQUEST_MALFORMED = ErrorRow(
        8108, "08P01", 400, "The request is not HTTP", "Send HTTP/1.1 without TLS, or repair the client."
    )
    FORWARDED_REFUSED = ErrorRow(
        8110,
        "42501",
        403,
        "The server takes no requests that a proxy has forwarded",
        "Start it with --auth, or ask it without the proxy.",
    )
    REASON_REQUIRED = ErrorRow(
        8111, "22004", 400, "The change has no reason", "Say why, in one line: nothing was changed."
    )
    SHOWN_STATE_CHANGED = ErrorRow(
        8109,
        "40001",
        409,
        "The state has changed since it was shown",
        "Look again, and confirm what is shown now: nothing was changed.",
    )
    TEXT_NOT_UTF8 = ErrorRow(
        8201, "22021", 400, "The text is not UTF-8", "Send whole characters, percent-encoded in addresses."
    )
    METHOD_NOT_ALLOWED = ErrorRow(
        8202, "0A000", 405, "The address does not take this method", "Use a method that the header Allow names."
    )
    ADDRESS_NOT_FOUND = ErrorRow(
        8203, "42704", 404, "The address does not exist", "See /docs for the addresses."
    )
    UNAUTHENTICATED = ErrorRow(
        8301,
        "28000",
        401,
        "The request is not logged in",
        "Send a user and password, or a token, over HTTPS: `zonectl login` stores one.",
    )
    PRIVILEGE_MISSING = ErrorRow(
        8302,
        "42501",
        403,
        "A privilege is missing",
        "Ask an administrator for the privilege that the message names.",
    )
    LOGIN_LIMITED = no_room(8303, 429, "Too many logins", "Wait for the time in Retry-After, and try again.")
    LOGIN_PROOF_LIMIT = no_room(
        8309, 429, "The user has too many tokens or links", "Revoke some, or wait until they expire."
    )
    CREDENTIAL_NOT_ENCRYPTED = ErrorRow(
        8304,
        "28000",
        403,
        "Passwords and tokens are not accepted without TLS",
        "Use the HTTPS address. Change the password or revoke the token: others may have read it.",
    )
    TOKEN_NOT_FOUND = ErrorRow(
        8305, "42704", 404, "The token does not exist", "`zonectl token list` lists the tokens of a user."
    )
    TOKEN_TOO_BROAD = ErrorRow(
        8306,
        "42501",
        403,
        "The token would allow more than its maker may",
        "Request a shorter lifetime and a scope within your own.",
    )
    GRANTS_UNAVAILABLE = outside(
        8307, "58000", 503, "Users and privileges cannot be read", "Try again when the catalog is available."
    )
    CONSOLE_SOCKET_LIMIT = no_room(8308, 429, "The user has too many pages open", "Close some of them.")
    INTERNAL_ERROR = ErrorRow(
        9001,
        "XX000",
        500,
        "Internal error",
        "Check the server's log, and report the error.",
        ProtocolType.INTERNAL_ERROR,
    )

    @property
    def code(self) -> int:
        return self.value.code

    @property
    def sqlstate(self) -> str:
        return self.value.sqlstate

    @property
    def http_status(self) -> int:
        return self.value.http_status

    @property
    def protocol_type(self) -> ProtocolType:
        return self.value.protocol_type
