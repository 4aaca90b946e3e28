import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * One JVM that drives the official client: a JSON command a line on standard input, a JSON answer a line on
 * standard output. {"id":1,"op":"producer.send",...} is answered by {"id":1,"value":...} or by
 * {"id":1,"error":"MQClientException","message":"...","code":17}. It ends with its standard input.
 */
public final class Driver {
    interface Operation {
        Object run(Call call) throws Exception;
    }

    private final Map<String, Operation> operations = new TreeMap<>();

    private Driver() {
        new Producers().register(operations);
        new Consumers().register(operations);
        new Pullers().register(operations);
        new Admins().register(operations);
        Load.register(operations);
        operations.put("ping", call -> "pong");
    }

    /** Takes no arguments; system properties choose the header form and the home folder. */
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // the libraries print now and then; the channel is ours
        Driver driver = new Driver();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(driver.answer(line));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // clients left open by a failed test would keep the JVM alive
    }

    @SuppressWarnings("unchecked")
    private String answer(String line) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            Call call = new Call((Map<String, Object>) Json.read(line));
            answer.put("id", call.number("id"));
            Operation operation = operations.get(call.text("op"));
            if (operation == null) throw new IllegalArgumentException("no operation " + call.text("op"));
            answer.put("value", Beans.dump(operation.run(call)));
        } catch (Throwable e) {
            Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
            cause.printStackTrace();
            answer.put("error", cause.getClass().getSimpleName());
            answer.put("message", String.valueOf(cause.getMessage()));
            answer.put("code", code(cause));
        }
        return Json.write(answer);
    }

    private static Object code(Throwable cause) {
        try {
            return cause.getClass().getMethod("getResponseCode").invoke(cause);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }
}
