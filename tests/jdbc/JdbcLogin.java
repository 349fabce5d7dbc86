import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/**
 * Connects once for each argument: a URL, a vertical bar, and properties as name=value with blanks between. Prints a
 * line each: the answer of a statement, or what the driver says of the failure.
 */
public class JdbcLogin {
    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String[] parts = argument.split("\\|", 2);
            Properties properties = new Properties();
            for (String property : parts[1].split(" ")) {
                String[] pair = property.split("=", 2);
                properties.setProperty(pair[0], pair[1].replace('+', ' '));
            }
            try (Connection connection = DriverManager.getConnection(parts[0], properties);
                    Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT 7 AS n")) {
                rows.next();
                System.out.println("answer " + rows.getInt(1));
            } catch (SQLException error) {
                System.out.println("error " + error.getMessage().replace('\n', ' '));
            }
        }
    }
}
