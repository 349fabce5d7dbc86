"""The table of errors, and how errors leave the service."""

from __future__ import annotations

import pytest

from app.requests.errors import problem
from catalog.core.error_rows import ProtocolType
from catalog.core.errors import ErrorKind, ParseError, RefusedError, StatementError, StoreError
from catalog.core.messages import Position
from scripts.errors_page import PAGE, page

RETRYABLE = (
    ErrorKind.CATALOG_VERSION_CONFLICT,
    ErrorKind.OUTCOME_UNKNOWN,
    ErrorKind.CLUSTER_NOT_IDLE,
    ErrorKind.CATALOG_UNAVAILABLE,
    ErrorKind.METASTORE_UNAVAILABLE,
    ErrorKind.METASTORE_DIVERGED,
    ErrorKind.RECORD_NOT_READABLE,
    ErrorKind.PARTITION_UNAVAILABLE,
    ErrorKind.WRONG_GENERATION,
    ErrorKind.REPLICA_BEHIND,
    ErrorKind.PARTITION_LOST,
    ErrorKind.OWNERS_AWAITED,
    ErrorKind.GRANTS_UNAVAILABLE,
)
"""Errors that something outside is to blame for: clients see it by the type."""


@pytest.mark.row("IEP-026")
def test_codes_are_unique_four_digits_and_documented() -> None:
    """IEP-026: each case has a code of its own; 13 and 22 mean something to some SQL clients."""
    codes = [kind.code for kind in ErrorKind]
    assert len(codes) == len(set(codes))
    assert all(1000 <= code <= 9999 for code in codes)
    assert all(kind.value.title and kind.value.action.endswith(".") for kind in ErrorKind)
    assert all(len(kind.sqlstate) == 5 for kind in ErrorKind)
    assert not {13, 22} & set(codes)
    assert set(RETRYABLE) == {kind for kind in ErrorKind if kind.protocol_type is ProtocolType.EXTERNAL}


def test_the_page_equals_the_code() -> None:
    """Written by ``python scripts/errors_page.py``."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_name_that_programs_rely_on_is_there() -> None:
    names = """
        SYNTAX_ERROR STATEMENT_NOT_SUPPORTED MULTIPLE_STATEMENTS OPTION_UNKNOWN OPTION_DUPLICATE OPTION_TYPE
        OPTION_OUT_OF_RANGE PARTITIONS_NOT_ALTERABLE OPTION_NOT_ALTERABLE QUORUM_BELOW_MINIMUM
        QUORUM_ABOVE_MAXIMUM QUORUM_CONFLICTS_WITH_REPLICAS QUORUM_EXCEEDS_DATA_NODES FILTER_INVALID
        FILTER_MATCHES_NO_NODE STORAGE_PROFILE_UNKNOWN STORAGE_PROFILES_EMPTY ZONE_ALREADY_EXISTS
        ZONE_NOT_FOUND ZONE_IN_USE DEFAULT_ZONE_PROTECTED NAME_INVALID NAME_TOO_LONG TABLE_ALREADY_EXISTS
        TABLE_NOT_FOUND TRANSACTION_NOT_SUPPORTED CATALOG_VERSION_CONFLICT PARTITION_NOT_FOUND NODE_NOT_FOUND
        RECOVERY_NOT_NEEDED RECOVERY_STATE_ILLEGAL CLUSTER_NOT_IDLE NOT_ENOUGH_ALIVE_NODES NODE_SET_ILLEGAL
    """
    assert set(names.split()) <= set(ErrorKind.__members__)


@pytest.mark.row("IEP-024", "IEP-025", "IEP-026")
def test_quorum_conflicts_have_codes_of_their_own() -> None:
    """IEP-024, IEP-025, IEP-026."""
    conflicts = [kind for kind in ErrorKind if kind.name.startswith("QUORUM")]
    assert {kind.name: kind.sqlstate for kind in conflicts} == {
        "QUORUM_BELOW_MINIMUM": "22023",
        "QUORUM_ABOVE_MAXIMUM": "22023",
        "QUORUM_CONFLICTS_WITH_REPLICAS": "22023",
        "QUORUM_EXCEEDS_DATA_NODES": "23514",
    }
    assert all(kind.code // 1000 == 3 for kind in conflicts)


def test_sqlstates_and_statuses() -> None:
    expected = {
        ErrorKind.SYNTAX_ERROR: ("42601", 400),
        ErrorKind.STATEMENT_NOT_SUPPORTED: ("0A000", 400),
        ErrorKind.TRANSACTION_NOT_SUPPORTED: ("25001", 400),
        ErrorKind.ZONE_IN_USE: ("2BP01", 409),
        ErrorKind.TABLE_NOT_FOUND: ("42P01", 404),
        ErrorKind.ZONE_ALREADY_EXISTS: ("42710", 409),
        ErrorKind.ZONE_NOT_FOUND: ("42704", 404),
        ErrorKind.NAME_INVALID: ("42602", 400),
        ErrorKind.NAME_TOO_LONG: ("42622", 400),
        ErrorKind.NODE_MEMBER_LIMIT: ("54000", 409),
        ErrorKind.CATALOG_VERSION_CONFLICT: ("40001", 409),
        ErrorKind.CATALOG_UNAVAILABLE: ("58000", 503),
        ErrorKind.METASTORE_UNAVAILABLE: ("58000", 503),
        ErrorKind.METASTORE_DIVERGED: ("55000", 503),
        ErrorKind.METASTORE_FULL: ("53100", 503),
        ErrorKind.PARTITION_FULL: ("53100", 507),
        ErrorKind.KEY_NOT_FOUND: ("02000", 404),
        ErrorKind.REPLICA_BEHIND: ("58000", 504),
        ErrorKind.REVISION_GONE: ("55000", 410),
        ErrorKind.OUTCOME_UNKNOWN: ("40003", 504),
        ErrorKind.WRONG_GENERATION: ("40001", 503),
        ErrorKind.INTERNAL_ERROR: ("XX000", 500),
    }
    assert {kind: (kind.sqlstate, kind.http_status) for kind in expected} == expected


def test_problem_document() -> None:
    error = RefusedError(ErrorKind.ZONE_NOT_FOUND, "zone Z does not exist", Position(2, 5), statement=3)
    assert problem(error) == {
        "type": "urn:zonekeeper:error:ZONE_NOT_FOUND",
        "title": "The zone does not exist",
        "status": 404,
        "detail": "zone Z does not exist",
        "name": "ZONE_NOT_FOUND",
        "code": 4004,
        "sqlState": "42704",
        "line": 2,
        "column": 5,
        "statement": 3,
        "action": "Check the name (quoted names keep case), or IF EXISTS.",
        "request_id": None,
    }
    assert error.kind.http_status == 404


def test_what_is_not_ours_tells_nothing_of_inside() -> None:
    document = problem(KeyError("secret"))
    assert document["name"] == "INTERNAL_ERROR"
    assert document["status"] == 500
    assert "secret" not in str(document)


def test_the_tree() -> None:
    for error in (ParseError, RefusedError, StoreError):
        assert issubclass(error, StatementError)
    assert (
        str(ParseError(ErrorKind.SYNTAX_ERROR, "no", Position(1, 2))) == "SYNTAX_ERROR: no (line 1, column 2)"
    )
    assert str(StoreError(ErrorKind.CATALOG_UNAVAILABLE, "gone")) == "CATALOG_UNAVAILABLE: gone"
