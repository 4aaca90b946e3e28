import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The admin library by method name, and mqadmin itself with what it prints. */
final class Admins {
    private final Map<String, DefaultMQAdminExt> started = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("admin.start", this::start);
        operations.put("admin.call", call ->
            Beans.call(started.get(call.text("name")), call.text("method"), call.list("args")));
        operations.put("admin.close", this::close);
        operations.put("mqadmin", this::mqadmin);
    }

    private Object start(Call call) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(call.hook());
        admin.setNamesrvAddr(call.text("nameserver"));
        admin.setInstanceName(call.text("name"));
        Beans.set(admin, call.map("settings"));
        admin.start();
        started.put(call.text("name"), admin);
        return null;
    }

    private Object close(Call call) {
        DefaultMQAdminExt admin = started.remove(call.text("name"));
        if (admin != null) admin.shutdown();
        return null;
    }

    private Object mqadmin(Call call) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(call.list("args").toArray(new String[0]), null);
        } finally {
            System.setOut(before);
            System.setErr(errors);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
