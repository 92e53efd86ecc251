"""Schema strings: what is read, what is written, what is refused, and that Spark agrees."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.model.schema import check_key, check_names, parse, to_ddl

UTC = pa.timestamp("us", tz="UTC")

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(10, 0),
    "decimal(5)": pa.decimal128(5, 0),
    "dec(38, 38)": pa.decimal128(38, 38),
    "numeric(12,2)": pa.decimal128(12, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ltz": UTC,
    "timestamp_ntz": pa.timestamp("us"),
    "array<long>": pa.list_(pa.field("element", pa.int64())),
    "map<string, int>": pa.map_(pa.string(), pa.int32()),
    "struct<a:int>": pa.struct({"a": pa.int32()}),
    "struct<a int, `b c`: string NOT NULL>": pa.struct(
        [pa.field("a", pa.int32()), pa.field("b c", pa.string(), nullable=False)]
    ),
    "array<map<string,struct<t:timestamp,d:decimal(3,1)>>>": pa.list_(
        pa.field(
            "element",
            pa.map_(pa.string(), pa.struct({"t": UTC, "d": pa.decimal128(3, 1)})),
        )
    ),
}

SCHEMAS = [
    "count long, prices array<long>",
    "count: long, prices: array<long>",
    "A INT NOT NULL, b STRING not null, c DOUBLE",
    "`two words` int, `a``b` string, `dotted.name` date, `int` int",
    "a int COMMENT 'it\\'s, a <comment>', b string NOT NULL COMMENT \"second\"",
    "\n  `größe` int,\n\t_x\r\n  int  ",
    "date date, timestamp timestamp, map map<int,int>, array array<int>, comment string",
    "s struct<a:struct<b:array<struct<c:int NOT NULL COMMENT 'deep'>>>>",
]


@pytest.mark.parametrize("text", TYPES)
def test_every_type_is_read(text: str) -> None:
    assert parse(f"x {text}") == pa.schema({"x": TYPES[text]})


@pytest.mark.parametrize("text", ["char(3)", "character(3)", "varchar(3)"])
def test_a_length_is_not_enforced(text: str) -> None:
    assert parse(f"x {text}") == pa.schema({"x": pa.string()})


def test_keywords_ignore_case_and_names_keep_it() -> None:
    assert parse("aB BIGINT Not Null") == pa.schema([pa.field("aB", pa.int64(), nullable=False)])


def test_names_in_backticks_may_hold_anything() -> None:
    assert parse("`a``b` int, `two words` int, `größe.` int").names == [
        "a`b",
        "two words",
        "größe.",
    ]


def test_comments_are_dropped() -> None:
    text = "a int COMMENT 'it\\'s, a <comment>', b long NOT NULL COMMENT \"2\""
    assert parse(text) == parse("a int, b long NOT NULL")


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "", "expected a column name, not the end"),
        ("a", "", "expected a type, not the end"),
        ("a int,", "", "expected a column name, not the end"),
        ("a int b int", "b int", "expected a comma or the end, not 'b'"),
        ("a string collate x", "collate x", "expected a comma or the end, not 'collate'"),
        ("a int(3)", "(3)", "expected a comma or the end, not '('"),
        ("a lnog", "lnog", "type 'lnog' is not supported; did you mean 'long'?"),
        ("a interval", "interval", "type 'interval' is not supported"),
        ("a variant", "variant", "type 'variant' is not supported"),
        ("a `int`", "`int`", "expected a type, not '`int`'"),
        ("a-b int", "-b int", "expected a type, not '-'; a name that is no plain word goes in `ba"),
        ("größe int", "öße int", "expected a type, not 'ö'; a name that is no plain word goes in"),
        ("`a int", "`a int", "expected a column name, not '`'"),
        ("`` int", "`` int", "expected a column name, not '`'"),
        ("1a int", "1a int", "the name '1a' begins with a digit, so it goes in `backticks`"),
        ("a decimal(39)", "39)", "expected a number from 1 to 38, not '39'"),
        ("a decimal(0)", "0)", "expected a number from 1 to 38, not '0'"),
        ("a decimal(5,6)", "6)", "expected a number from 0 to 5, not '6'"),
        ("a decimal(5", "", "expected ')', not the end"),
        ("a varchar", "", "expected '(', not the end"),
        ("a array<int", "", "expected '>', not the end"),
        ("a array", "", "expected '<', not the end"),
        ("a map<int>", ">", "expected ',', not '>'"),
        ("a struct<>", ">", "expected a column name, not '>'"),
        ("a int not nil", "nil", "expected 'null', not 'nil'"),
        ("a int comment b", "b", "expected a quoted comment, not 'b'"),
    ],
)
def test_refusal_points_at_the_place(text: str, place: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    message, shown, caret = str(caught.value).split("\n")
    assert message.startswith(reason)
    assert shown == f"  {text}"
    assert shown[len(caret) - 1 :] == place


def test_refusal_shows_the_line_of_the_place() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a int,\n\tb foo,\nc int")
    assert str(caught.value) == "type 'foo' is not supported\n   b foo,\n     ^"


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ATOMS = st.one_of(
    st.sampled_from([t for t in TYPES.values() if not pa.types.is_nested(t)]),
    st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda s: pa.decimal128(precision, s))
    ),
)


def fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    return st.lists(st.builds(pa.field, NAMES, types, st.booleans()), min_size=1, max_size=4)


def nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        types.map(lambda element: pa.list_(pa.field("element", element))),
        st.builds(pa.map_, types, types),
        fields(types).map(pa.struct),
    )


@given(fields(st.recursive(ATOMS, nested, max_leaves=6)).map(pa.schema))
def test_what_is_written_is_read_back(schema: pa.Schema) -> None:
    assert parse(to_ddl(schema)) == schema


def test_what_a_schema_string_cannot_say_is_widened() -> None:
    strict = pa.list_(pa.field("element", pa.int32(), nullable=False))
    tokyo = pa.timestamp("us", tz="Asia/Tokyo")
    assert to_ddl(pa.schema({"a": strict, "t": tokyo})) == "`a` array<int>, `t` timestamp"


@pytest.mark.parametrize(
    "type_", [pa.uint64(), pa.timestamp("ns"), pa.large_string(), pa.decimal128(3, -1), pa.null()]
)
def test_types_that_spark_lacks_are_not_written(type_: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="no counterpart"):
        to_ddl(pa.schema({"x": type_}))


def test_an_empty_name_is_not_written() -> None:
    with pytest.raises(ConfigError, match="empty name"):
        to_ddl(pa.schema({"": pa.int32()}))


def test_keys_of_every_comparable_type_pass() -> None:
    check_key(
        parse(
            "a boolean, b byte, c short, d int, e long, f string, g binary, h date, i timestamp, "
            "j timestamp_ntz, k decimal(38,18)"
        )
    )


@pytest.mark.parametrize(
    ("type_", "advice"),
    [
        ("float", "cast it to decimal or string"),
        ("double", "cast it to decimal or string"),
        ("array<int>", "cast it to string"),
        ("map<string,int>", "cast it to string"),
        ("struct<`a`:int>", "cast it to string"),
    ],
)
def test_other_keys_are_refused_by_name(type_: str, advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_key(parse(f"id long, price {type_}"))
    assert f"key column 'price' is of type {type_}" in str(caught.value)
    assert advice in str(caught.value)


def test_a_key_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one column"):
        check_key(pa.schema([]))


def test_ordinary_names_pass() -> None:
    check_names(parse("a int, b_ struct<_a:int,b:int>, c struct<a:int>"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a int, b int, a int", "columns 'a' and 'a' have the same name"),
        ("word int, Word int", "columns 'word' and 'Word' have the same name"),
        ("s struct<a:int,A:int>", "columns 'a' and 'A' of 's' have the same name"),
        ("s array<struct<a:int,A:int>>", "columns 'a' and 'A' of 's.element' have the same name"),
        ("_hash long", "column '_hash' begins with an underscore"),
    ],
)
def test_other_names_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_names(parse(text))


@pytest.mark.spark
@pytest.mark.parametrize("text", [*(f"x {text}" for text in TYPES), *SCHEMAS])
def test_spark_reads_the_same_schema(spark: SparkSession, text: str) -> None:
    ours = parse(text)
    for ddl in (text, to_ddl(ours)):
        theirs = StructType.fromDDL(ddl)
        assert isinstance(theirs, StructType)
        assert to_arrow_schema(theirs, timezone="UTC") == ours
