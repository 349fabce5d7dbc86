"""Records as small JSON documents with a version field ``v``: one typed codec for all of them.

A codec is made from a dataclass and its annotations. Reading checks every field's type and bounds, so that what
comes out is a value that the dataclass may hold, or ``RecordNotReadableError`` and nothing else. Fields that
this build does not know, at the same ``v``, are kept in the attribute ``unknown`` and written again after the
known ones: builds of different ages may take turns at a record.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from catalog.core.errors import ErrorKind, RefusedError

FORMAT = 1
LEVELLED = 2
"""Version of a record that holds a release level: builds that know of no levels cannot read it."""
INTEGER_MAX = (1 << 63) - 1
TIME_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, which is as far as dates go."""
UNKNOWN = "unknown"
SHOWN_MAX = 80

Unknown = Mapping[str, Any]
"""Fields that a later build has written, as JSON values."""

T = TypeVar("T")
Read = Callable[[Any], Any]


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _finite(digits: str) -> float:
    """1e999 would be written again as Infinity, which nobody reads."""
    number = float(digits)
    return number if math.isfinite(number) else _refuse_constant(digits[:SHOWN_MAX])


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


class RecordNotReadableError(RefusedError, ValueError):
    """A record that this build cannot read. It is there, so it is neither absent nor empty: nothing may be done
    on it, and nothing may be written over it."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(ErrorKind.RECORD_NOT_READABLE, f"{key}: {reason}" if key else reason)
        self.reason = reason
        self.key = key


@dataclass(frozen=True, slots=True)
class Extensible:
    """A dataclass of which later builds may have written more than this one knows."""

    unknown: Unknown | None = field(default=None, compare=False, repr=False, kw_only=True)


class Record(Extensible):
    """One that is the value of a key, as its ``codec`` writes it."""

    __slots__ = ()
    codec: ClassVar[Codec[Any]]

    def encode(self) -> bytes:
        return self.codec.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Raises RecordNotReadableError, whatever the bytes are."""
        record: Self = cls.codec.decode(value)
        return record


@dataclass(frozen=True, slots=True)
class Form:
    """Form in which values of one type are written where the type does not say it: ``read`` raises
    ValueError."""

    read: Read
    write: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    form: Form
    required: bool
    default: Any
    omitted: bool
    """Left out of the document while it has its default."""


class Codec(Generic[T]):
    """``omit``: fields that are left out while they have their default. ``required``: fields with a default
    that every build has written. ``order``: of the document, where it is not the dataclass's; what it does not
    name is not stored. ``forms``: of fields that are written in another way than their type. ``inline``: fields
    whose own fields are the document's. ``remembered``: so many values are decoded once and shared from then
    on, for small records that are looked at again and again. ``levelled``: the field with the release level
    from which on the record has a format of its own (``LEVELLED``).
    """

    def __init__(
        self,
        cls: type[T],
        *,
        omit: Collection[str] = (),
        required: Collection[str] = (),
        order: Sequence[str] = (),
        forms: Mapping[str, Form] | None = None,
        inline: Mapping[str, Codec[Any]] | None = None,
        remembered: int = 0,
        levelled: str = "",
    ) -> None:
        self._cls = cls
        self._levelled = levelled
        self._decode = lru_cache(remembered)(self._decoded) if remembered else self._decoded
        self._inline: dict[str, Codec[Any]] = dict(inline or {})
        hints = get_type_hints(cls)
        self._keeps = UNKNOWN in hints
        by_name: dict[str, _Field] = {}
        for cls_field in fields(cls):  # type: ignore[arg-type]  # a dataclass, which Generic cannot say
            if cls_field.name == UNKNOWN or cls_field.name in self._inline:
                continue
            has_default = cls_field.default is not MISSING or cls_field.default_factory is not MISSING
            default = cls_field.default
            if default is MISSING and cls_field.default_factory is not MISSING:
                default = cls_field.default_factory()
            form = (forms or {}).get(cls_field.name) or _form(hints[cls_field.name], cls_field.name)
            needed = not has_default or cls_field.name in required
            by_name[cls_field.name] = _Field(cls_field.name, form, needed, default, cls_field.name in omit)
        names = order or tuple(by_name)
        assert set(names) <= set(by_name), (cls, names)
        self._fields = tuple(by_name[name] for name in names)
        self.names: frozenset[str] = frozenset(names).union(*(codec.names for codec in self._inline.values()))

    def encode(self, value: T) -> bytes:
        is_levelled = bool(self._levelled and getattr(value, self._levelled))
        return dump({"v": LEVELLED if is_levelled else FORMAT, **self.document(value)})

    def decode(self, value: bytes) -> T:
        """Raises RecordNotReadableError, whatever the bytes are."""
        return self._decode(value)

    def _decoded(self, value: bytes) -> T:
        document = load(value, LEVELLED if self._levelled else FORMAT)
        try:
            return self.value(document)
        except RecordNotReadableError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise RecordNotReadableError(f"{error} in {_shown(value)}") from error

    def document(self, value: T) -> dict[str, Any]:
        """Return the document without the version."""
        values: dict[str, Any] = {}
        for name, codec in self._inline.items():
            values |= codec.document(getattr(value, name))
        for item in self._fields:
            held = getattr(value, item.name)
            if not (item.omitted and held == item.default):
                values[item.name] = item.form.write(held)
        if self._keeps:
            values |= getattr(value, UNKNOWN) or {}
        return values

    def value(self, document: Any) -> T:
        """Raises ValueError. ``document`` is one without the version."""
        if type(document) is not dict:
            raise ValueError("not an object")
        values: dict[str, Any] = {name: codec.value(document) for name, codec in self._inline.items()}
        for item in self._fields:
            if item.name in document:
                try:
                    values[item.name] = item.form.read(document[item.name])
                except (ValueError, TypeError, OverflowError) as error:
                    raise ValueError(f"{item.name}: {error}") from error
            elif item.required:
                raise ValueError(f"no {item.name}")
        if self._keeps:
            known = len(values) if not self._inline else 0
            if len(document) > known:
                rest = {name: held for name, held in document.items() if name not in self.names}
                values[UNKNOWN] = rest or None
        return self._cls(**values)

    @property
    def form(self) -> Form:
        """Return the form of a record as a field of another one."""
        return Form(self.value, self.document)


def load(value: bytes, newest: int = FORMAT) -> dict[str, Any]:
    """The fields of a document of a format up to ``newest``, without the version. Raises
    RecordNotReadableError."""
    try:
        document = _JSON.decode(value.decode())
    except (ValueError, RecursionError) as error:
        raise RecordNotReadableError(f"not a JSON document ({_reason(error)}): {_shown(value)}") from error
    if type(document) is not dict or "v" not in document:
        raise RecordNotReadableError(f"not a record, which has a format v: {_shown(value)}")
    version = document.pop("v")
    if type(version) is not int or not FORMAT <= version <= newest:
        is_huge = type(version) is int and abs(version) > INTEGER_MAX
        version_text = "a huge number" if is_huge else str(version)[:SHOWN_MAX]
        reads = f"{FORMAT}" if newest == FORMAT else f"{FORMAT} to {newest}"
        raise RecordNotReadableError(f"format {version_text} is not known; this build reads {reads}")
    return document


def dump(document: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half a character in a field that this build does not know goes back as it came: escaped.
        return json.dumps(document, separators=(",", ":")).encode()


def optional(form: Form) -> Form:
    """Return a form that reads what ``form`` reads, or none."""
    return Form(
        lambda value: None if value is None else form.read(value),
        lambda held: None if held is None else form.write(held),
    )


def listed(form: Form) -> Form:
    """A tuple, written as a list."""
    return Form(sequence(form.read), lambda values: [form.write(value) for value in values])


def pairs() -> Form:
    """A tuple of pairs, sorted, written as an object."""
    read = mapping(text, text)
    return Form(lambda value: tuple(sorted(read(value).items())), dict)


def mapping(key: Read, held: Read) -> Read:
    def read(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise ValueError(f"not an object: {value!r:.80}")
        return {key(name): held(item) for name, item in value.items()}

    return read


def sequence(held: Read) -> Read:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ValueError(f"not a list: {value!r:.80}")
        return tuple(map(held, value))

    return read


def text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"not a text: {value!r:.80}")
    if not value.isascii():
        value.encode()  # a lone surrogate cannot be written again
    return value


def integer(value: Any) -> int:
    if type(value) is not int or abs(value) > INTEGER_MAX:
        raise ValueError("not an integer of 64 bits")
    return value


def natural(value: Any) -> int:
    if integer(value) < 0:
        raise ValueError("below 0")
    return int(value)


def moment(value: Any) -> int:
    if natural(value) > TIME_MAX_MS:
        raise ValueError("after the year 9999")
    return int(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("not a number")
    return value  # type: ignore[no-any-return]  # an int stays one: it is written as it was read


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"neither true nor false: {value!r:.80}")
    return value


_PLAIN: Mapping[Any, Read] = {str: text, bool: _boolean, float: _number}


def _same(held: Any) -> Any:
    return held


def _form(hint: Any, name: str) -> Form:  # one branch a type
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return optional(_form(inner, name))
    if origin is tuple:
        assert arguments[1] is Ellipsis, hint
        return listed(_form(arguments[0], name))
    if origin is frozenset:
        form = listed(_form(arguments[0], name))
        return Form(lambda value: frozenset(form.read(value)), lambda held: form.write(sorted(held)))
    if origin in (dict, Mapping):
        form = _form(arguments[1], name)
        return Form(
            mapping(text, form.read), lambda held: {key: form.write(item) for key, item in held.items()}
        )
    if hint is int:
        return Form(moment if name.endswith("_ms") else natural, _same)
    if hint in _PLAIN:
        return Form(_PLAIN[hint], _same)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Form(_enum(hint), lambda held: held.value)
    assert isinstance(hint, type), hint
    if hasattr(hint, "parse"):
        # A type with a text of its own, which ``str`` gives.
        parse: Callable[[str], Any] = hint.parse
        return Form(lambda value: parse(text(value)), str)
    assert is_dataclass(hint), hint
    return Codec(hint).form


def _enum(hint: type[Enum]) -> Read:
    known = {member.value: member for member in hint}

    def read(value: Any) -> Enum:
        if type(value) is not str or value not in known:
            raise ValueError(f"{value!r:.80} is not one of {', '.join(map(str, known))}")
        return known[value]

    return read


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:SHOWN_MAX]


def _shown(value: bytes) -> str:
    return repr(value[:SHOWN_MAX]) + ("..." if len(value) > SHOWN_MAX else "")
