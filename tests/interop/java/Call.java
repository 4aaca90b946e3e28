import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** The arguments of one command, typed. */
final class Call {
    final Map<String, Object> arguments;

    Call(Map<String, Object> arguments) {
        this.arguments = arguments;
    }

    boolean has(String key) {
        return arguments.get(key) != null;
    }

    String text(String key) {
        Object value = arguments.get(key);
        if (value == null) throw new IllegalArgumentException("the command lacks '" + key + "'");
        return value.toString();
    }

    String text(String key, String otherwise) {
        return has(key) ? text(key) : otherwise;
    }

    long number(String key) {
        return Long.parseLong(text(key));
    }

    long number(String key, long otherwise) {
        return has(key) ? number(key) : otherwise;
    }

    boolean is(String key) {
        return Boolean.TRUE.equals(arguments.get(key));
    }

    @SuppressWarnings("unchecked")
    Map<String, Object> map(String key) {
        return has(key) ? (Map<String, Object>) arguments.get(key) : new LinkedHashMap<>();
    }

    @SuppressWarnings("unchecked")
    List<Object> list(String key) {
        return has(key) ? (List<Object>) arguments.get(key) : new ArrayList<>();
    }

    /** Signs requests with accessKey and secretKey; null, and they are not signed, without them. */
    RPCHook hook() {
        if (!has("accessKey")) return null;
        return new AclClientRPCHook(new SessionCredentials(text("accessKey"), text("secretKey")));
    }

    /** The message described by topic, body, tag, keys, properties, delayLevel, deliverMs, delayMs, flag. */
    Message message() throws Exception {
        Message message = new Message(text("topic"), Base64.getDecoder().decode(text("body")));
        if (has("tag")) message.setTags(text("tag"));
        if (has("keys")) message.setKeys(text("keys"));
        if (has("flag")) message.setFlag((int) number("flag"));
        if (has("waitStored")) message.setWaitStoreMsgOK(is("waitStored"));
        if (has("delayLevel")) message.setDelayTimeLevel((int) number("delayLevel"));
        // timer messages came with 5.0: by reflection, so that 4.9 compiles
        if (has("deliverMs")) Beans.call(message, "setDeliverTimeMs", List.of(number("deliverMs")));
        if (has("delayMs")) Beans.call(message, "setDelayTimeMs", List.of(number("delayMs")));
        for (Map.Entry<String, Object> entry : map("properties").entrySet()) {
            message.putUserProperty(entry.getKey(), entry.getValue().toString());
        }
        return message;
    }
}
