import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;

/** What a program sees through the official JDBC driver: one section after another, as one JSON object. */
public class JdbcProbe {
    private final Connection connection;
    private final Map<String, Object> sections = new LinkedHashMap<>();

    interface Section {
        Object run() throws Exception;
    }

    private JdbcProbe(Connection connection) {
        this.connection = connection;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "tester");
        try (Connection connection = DriverManager.getConnection(arguments[0], properties)) {
            JdbcProbe probe = new JdbcProbe(connection);
            probe.all();
            System.out.println(Json.of(probe.sections));
        }
    }

    private void all() {
        section("versions", this::versions);
        section("catalogs", () -> rows(metadata().getCatalogs()));
        section("schemas", () -> rows(metadata().getSchemas()));
        section("tables", () -> rows(metadata().getTables(null, "system", "zones", null)));
        section("columns", () -> rows(metadata().getColumns(null, "system", "zones", "%")));
        section("types", () -> rows(metadata().getTypeInfo()));
        section("table_types", () -> rows(metadata().getTableTypes()));
        section("primary_keys", () -> rows(metadata().getPrimaryKeys("zonekeeper", "system", "zones")));
        section("imported_keys", () -> rows(metadata().getImportedKeys("zonekeeper", "system", "zones")));
        section("procedures", () -> rows(metadata().getProcedures(null, null, null)));
        section("procedure_columns", () -> rows(metadata().getProcedureColumns(null, null, null, null)));
        section("udts", () -> rows(metadata().getUDTs(null, null, null, null)));
        section("attributes", () -> rows(metadata().getAttributes(null, null, null, null)));
        section("super_tables", () -> rows(metadata().getSuperTables(null, null, null)));
        section("super_types", () -> rows(metadata().getSuperTypes(null, null, null)));
        section("pseudo_columns", () -> rows(metadata().getPseudoColumns(null, null, null, null)));
        section("statement", this::statement);
        section("changes", this::changes);
        section("warnings", this::warnings);
        section("values", this::values);
        section("nulls", this::nulls);
        section("result_metadata", this::resultMetadata);
        section("parameter_metadata", this::parameterMetadata);
        section("fetch_size", this::fetchSize);
        section("max_rows", this::maxRows);
        section("batch", this::batch);
        section("errors", this::errors);
        section("session", this::session);
        section("cancel", this::cancel);
        section("query_timeout", this::queryTimeout);
        section("valid", () -> connection.isValid(120));
        section("close", this::close);
    }

    private void section(String name, Section section) {
        try {
            sections.put(name, section.run());
        } catch (Exception error) {
            sections.put(name, Map.of("failed", error.getClass().getSimpleName() + ": " + error.getMessage()));
        }
    }

    private DatabaseMetaData metadata() throws SQLException {
        return connection.getMetaData();
    }

    private Object versions() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("product", metadata().getDatabaseProductName());
        found.put("version", metadata().getDatabaseProductVersion());
        found.put("driver", metadata().getDriverName());
        found.put("read_only", metadata().isReadOnly());
        found.put("quote", metadata().getIdentifierQuoteString());
        found.put("catalog", connection.getCatalog());
        found.put("schema", connection.getSchema());
        return found;
    }

    private Object statement() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return rows(statement.executeQuery("SELECT 1 AS one, 'x' AS text, NULL AS nothing"));
        }
    }

    private Object changes() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        try (Statement statement = connection.createStatement()) {
            found.put("is_query", statement.execute("CREATE ZONE jdbc (PARTITIONS 2)"));
            found.put("update_count", statement.getUpdateCount());
            found.put("execute_update", statement.executeUpdate("ALTER ZONE jdbc SET (REPLICAS 2)"));
            found.put("zones", rows(statement.executeQuery(
                    "SELECT zone_name, zone_replicas FROM zones WHERE zone_name = 'JDBC'")));
        }
        try (PreparedStatement statement = connection.prepareStatement("CREATE ZONE jdbc2 (PARTITIONS ?)")) {
            statement.setInt(1, 3);
            statement.execute();
        }
        try (Statement statement = connection.createStatement()) {
            found.put("prepared", rows(statement.executeQuery(
                    "SELECT zone_name, zone_partitions FROM zones WHERE zone_name = 'JDBC2'")));
            statement.execute("DROP ZONE jdbc");
            statement.execute("DROP ZONE jdbc2");
        }
        return found;
    }

    private Object warnings() throws SQLException {
        List<Object> found = new ArrayList<>();
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE ZONE warned (REPLICAS 7, QUORUM SIZE 2)");
            for (SQLWarning each = statement.getWarnings(); each != null; each = each.getNextWarning()) {
                found.add(each.getMessage());
            }
            statement.execute("DROP ZONE warned");
        }
        return found;
    }

    /** Each type there, as a parameter, and back: its name, and its value as text. */
    private Object values() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        echo(found, "boolean", (s) -> s.setBoolean(1, true), (r) -> r.getBoolean(1));
        echo(found, "tinyint", (s) -> s.setByte(1, (byte) -128), (r) -> r.getByte(1));
        echo(found, "smallint", (s) -> s.setShort(1, Short.MIN_VALUE), (r) -> r.getShort(1));
        echo(found, "integer", (s) -> s.setInt(1, Integer.MIN_VALUE), (r) -> r.getInt(1));
        echo(found, "bigint", (s) -> s.setLong(1, Long.MAX_VALUE), (r) -> r.getLong(1));
        echo(found, "bigint_min", (s) -> s.setLong(1, Long.MIN_VALUE), (r) -> r.getLong(1));
        echo(found, "real", (s) -> s.setFloat(1, 0.1f), (r) -> r.getFloat(1));
        echo(found, "double", (s) -> s.setDouble(1, 1.0 / 3), (r) -> r.getDouble(1));
        echo(found, "nan", (s) -> s.setDouble(1, Double.NaN), (r) -> r.getDouble(1));
        echo(found, "infinity", (s) -> s.setDouble(1, Double.NEGATIVE_INFINITY), (r) -> r.getDouble(1));
        echo(found, "real_infinity", (s) -> s.setFloat(1, Float.POSITIVE_INFINITY), (r) -> r.getFloat(1));
        echo(found, "decimal", (s) -> s.setBigDecimal(1, new BigDecimal("12345.678901")),
                (r) -> r.getBigDecimal(1));
        echo(found, "decimal38",
                (s) -> s.setBigDecimal(1, new BigDecimal("-12345678901234567890.123456789012345678")),
                (r) -> r.getBigDecimal(1));
        echo(found, "varchar", (s) -> s.setString(1, "it's; -- ? \u2603 \ud83d\ude00"), (r) -> r.getString(1));
        echo(found, "varbinary", (s) -> s.setBytes(1, new byte[] {0, 'e', (byte) 255}),
                (r) -> HexFormat.of().formatHex(r.getBytes(1)));
        echo(found, "date", (s) -> s.setDate(1, java.sql.Date.valueOf("2024-02-29")), (r) -> r.getDate(1));
        echo(found, "local_date", (s) -> s.setObject(1, LocalDate.of(2024, 2, 29)),
                (r) -> r.getObject(1, LocalDate.class));
        echo(found, "time", (s) -> s.setTime(1, Time.valueOf("01:02:03")), (r) -> r.getTime(1));
        echo(found, "timestamp", (s) -> s.setTimestamp(1, Timestamp.valueOf("2024-02-03 04:05:06.789123")),
                (r) -> r.getTimestamp(1));
        echo(found, "local_timestamp",
                (s) -> s.setObject(1, LocalDateTime.parse("2024-02-03T04:05:06.789123456")),
                (r) -> r.getTimestamp(1));
        select(found, "timestamp_zone", "TIMESTAMP '2024-02-03 04:05:06.789123 +05:30'",
                (r) -> r.getTimestamp(1).toInstant());
        select(found, "timestamp_named_zone", "TIMESTAMP '2024-07-03 04:05:06.789 America/New_York'",
                (r) -> r.getTimestamp(1).toInstant());
        select(found, "time_zone", "TIME '01:02:03.5 +05:30'", (r) -> r.getString(1));
        select(found, "time_micros", "TIME '01:02:03.123456'", (r) -> r.getString(1));
        select(found, "uuid", "UUID '12151fd2-7586-11e9-8f9e-2a86e4085a59'", (r) -> r.getObject(1));
        select(found, "json", "JSON '{\"a\": [1, 2]}'", (r) -> r.getString(1));
        select(found, "array_date", "ARRAY[DATE '2024-02-29', NULL]",
                (r) -> Arrays.toString((Object[]) r.getArray(1).getArray()));
        select(found, "map", "MAP(ARRAY['a', 'b'], ARRAY[DECIMAL '1.50', NULL])", (r) -> r.getObject(1));
        select(found, "row", "CAST(ROW(1, X'65', DATE '2024-02-29') AS ROW(n BIGINT, b VARBINARY, d DATE))",
                (r) -> {
                    io.trino.jdbc.Row row = (io.trino.jdbc.Row) r.getObject(1);
                    List<String> fields = new ArrayList<>();
                    row.getFields().forEach((f) -> fields.add(f.getName().orElse("?") + "="
                            + (f.getValue() instanceof byte[] b ? HexFormat.of().formatHex(b) : f.getValue())));
                    return fields;
                });
        select(found, "interval_months", "INTERVAL -'3-2' YEAR TO MONTH", (r) -> r.getObject(1));
        select(found, "interval_days", "INTERVAL '2 03:04:05.678' DAY TO SECOND", (r) -> r.getObject(1));
        select(found, "sum", "sum(zone_id) FROM zones WHERE zone_id > 1000000", (r) -> r.getObject(1));
        select(found, "year_12000", "DATE '12000-01-01'", (r) -> r.getString(1));
        return found;
    }

    interface Setter {
        void set(PreparedStatement statement) throws Exception;
    }

    interface Getter {
        Object get(ResultSet result) throws Exception;
    }

    private void echo(Map<String, Object> found, String name, Setter setter, Getter getter) {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ? AS v")) {
            setter.set(statement);
            found.put(name, value(statement.executeQuery(), getter));
        } catch (Exception error) {
            found.put(name, "failed: " + error.getMessage());
        }
    }

    private void select(Map<String, Object> found, String name, String expression, Getter getter) {
        try (Statement statement = connection.createStatement()) {
            found.put(name, value(statement.executeQuery("SELECT " + expression), getter));
        } catch (Exception error) {
            found.put(name, "failed: " + error.getMessage());
        }
    }

    private static Object value(ResultSet result, Getter getter) throws Exception {
        try (result) {
            result.next();
            Object value = getter.get(result);
            return List.of(result.getMetaData().getColumnTypeName(1), String.valueOf(value));
        }
    }

    private Object nulls() throws Exception {
        List<Object> found = new ArrayList<>();
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?, CAST(? AS DATE), ?")) {
            statement.setNull(1, Types.VARCHAR);
            statement.setNull(2, Types.DATE);
            statement.setString(3, null);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                for (int n = 1; n <= 3; n++) {
                    found.add(result.getObject(n) == null && result.wasNull());
                }
            }
        }
        return found;
    }

    private Object resultMetadata() throws SQLException {
        List<Object> found = new ArrayList<>();
        String sql = "SELECT zone_id, zone_name AS n, DECIMAL '1.50' AS d, is_default_zone FROM zones";
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            describe(result.getMetaData(), found);
        }
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            describe(statement.getMetaData(), found);
        }
        return found;
    }

    private static void describe(ResultSetMetaData metadata, List<Object> found) throws SQLException {
        for (int n = 1; n <= metadata.getColumnCount(); n++) {
            found.add(List.of(metadata.getColumnLabel(n), metadata.getColumnTypeName(n),
                    metadata.getColumnType(n), metadata.getPrecision(n), metadata.getScale(n),
                    metadata.getColumnClassName(n)));
        }
    }

    private Object parameterMetadata() throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?, '?', ?")) {
            return statement.getParameterMetaData().getParameterCount();
        }
    }

    private Object fetchSize() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(7);
            int count = 0;
            try (ResultSet result = statement.executeQuery("SELECT a.column_name FROM system.jdbc.columns a, "
                    + "(VALUES 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) b (n)")) {
                while (result.next()) {
                    count++;
                }
            }
            return List.of(statement.getFetchSize(), count > 1000);
        }
    }

    private Object maxRows() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setMaxRows(3);
            return rows(statement.executeQuery("SELECT n FROM (VALUES 1, 2, 3, 4, 5) t (n) ORDER BY n"));
        }
    }

    private Object batch() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("supported", metadata().supportsBatchUpdates());
        try (PreparedStatement statement = connection.prepareStatement("CREATE ZONE batch (PARTITIONS ?)")) {
            statement.setInt(1, 1);
            statement.addBatch();
            found.put("counts", statement.executeBatch().length);
        }
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP ZONE batch");
        }
        return found;
    }

    private Object errors() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        for (String sql : List.of("SELEC 1", "SELECT nope FROM zones", "SELECT 1 / 0", "DROP ZONE nowhere",
                "SELECT CAST('x' AS INTEGER)", "SELECT * FROM nowhere")) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(sql);
                found.put(sql, "no error");
            } catch (SQLException error) {
                found.put(sql, Arrays.asList(error.getErrorCode(), error.getSQLState(), error.getMessage()));
            }
        }
        return found;
    }

    private Object session() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        connection.setSchema("information_schema");
        found.put("schema", connection.getSchema());
        try (Statement statement = connection.createStatement()) {
            found.put("tables", rows(statement.executeQuery("SELECT count(*) > 0 FROM tables")));
            statement.execute("USE zonekeeper.system");
            found.put("used", connection.getSchema());
            statement.execute("SET SESSION timeout = '30s'");
            statement.execute("RESET SESSION timeout");
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            found.put("in_transaction", rows(statement.executeQuery("SELECT 2")));
            connection.commit();
        }
        connection.setAutoCommit(true);
        return found;
    }

    static final String ENDLESS = "WITH RECURSIVE t (x) AS (SELECT 1 UNION ALL SELECT (x * 7) % 1000003 FROM t) "
            + "SELECT count(*) FROM t";

    private Object cancel() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        ExecutorService threads = Executors.newSingleThreadExecutor((task) -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        try (Statement statement = connection.createStatement()) {
            Future<String> running = threads.submit(() -> {
                try (ResultSet result = statement.executeQuery(ENDLESS)) {
                    return "ended";
                } catch (SQLException error) {
                    return "canceled";
                }
            });
            while (states("%WITH RECURSIVE%").isEmpty() && !running.isDone()) {
                Thread.sleep(20);
            }
            statement.cancel();
            found.put("outcome", running.get());
            while (!states("%WITH RECURSIVE%").isEmpty()) {
                Thread.sleep(20);
            }
            found.put("still_there", states("%WITH RECURSIVE%").size());
            threads.shutdown();
        }
        try (Statement statement = connection.createStatement()) {
            found.put("next", rows(statement.executeQuery("SELECT 1")));
        }
        return found;
    }

    private List<Object> states(String like) throws SQLException {
        try (PreparedStatement other = connection.prepareStatement(
                "SELECT state FROM sql_queries WHERE statement LIKE ? AND statement NOT LIKE '%sql_queries%'")) {
            other.setString(1, like);
            return rows(other.executeQuery());
        }
    }

    private Object queryTimeout() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            rows(statement.executeQuery(ENDLESS));
            return "ended";
        } catch (SQLException error) {
            return error.getMessage().replaceFirst("^Query failed \\(#\\w+\\): ", "");
        }
    }

    private Object close() throws SQLException {
        connection.close();
        return List.of(connection.isClosed(), connection.isValid(5));
    }

    private static List<Object> rows(ResultSet result) throws SQLException {
        List<Object> rows = new ArrayList<>();
        try (result) {
            ResultSetMetaData metadata = result.getMetaData();
            while (result.next()) {
                Map<String, Object> row = new LinkedHashMap<>();
                for (int n = 1; n <= metadata.getColumnCount(); n++) {
                    row.put(metadata.getColumnLabel(n), result.getObject(n));
                }
                rows.add(row);
            }
        }
        return rows;
    }

    /** Enough of JSON to be read by the test. */
    static final class Json {
        static String of(Object value) {
            if (value instanceof Map<?, ?> map) {
                StringJoiner parts = new StringJoiner(",", "{", "}");
                map.forEach((name, each) -> parts.add(quoted(String.valueOf(name)) + ":" + of(each)));
                return parts.toString();
            }
            if (value instanceof Iterable<?> list) {
                StringJoiner parts = new StringJoiner(",", "[", "]");
                list.forEach((each) -> parts.add(of(each)));
                return parts.toString();
            }
            if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long) {
                return String.valueOf(value);
            }
            return quoted(String.valueOf(value));
        }

        private static String quoted(String text) {
            StringBuilder quoted = new StringBuilder("\"");
            for (char each : text.toCharArray()) {
                if (each == '"' || each == '\\' || each < ' ' || each > '~') {
                    quoted.append(String.format("\\u%04x", (int) each));
                } else {
                    quoted.append(each);
                }
            }
            return quoted.append('"').toString();
        }
    }
}
