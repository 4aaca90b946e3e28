import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Beans to maps and back by reflection, because half of the classes changed their package with 5.0. */
final class Beans {
    private static final int DEPTH_MAX = 12;

    private Beans() { }

    /** Has a client look for routes each second and not each half minute, so that tests need not wait. */
    static void hasten(ClientConfig client) {
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(5_000);
        client.setPersistConsumerOffsetInterval(1_000);
    }

    /** Has a client wait for answers longer than three seconds: a starved JVM may take that to read one. */
    static void bePatient(ClientConfig client) {
        client.setMqClientApiTimeout(30_000);
    }

    /** Calls the setter of every key; an unknown key is an error, so that a test cannot misspell one. */
    static void set(Object bean, Map<String, Object> settings) throws Exception {
        for (Map.Entry<String, Object> entry : settings.entrySet()) {
            String key = entry.getKey();
            String name = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
            call(bean, name, Arrays.asList(entry.getValue()));
        }
    }

    /** Calls the public method of that name that takes these JSON values, converted. */
    static Object call(Object bean, String name, List<Object> arguments) throws Exception {
        Exception last = new NoSuchMethodException(
            bean.getClass().getSimpleName() + "." + name + " with " + arguments.size() + " arguments");
        for (Method method : bean.getClass().getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (!method.getName().equals(name) || types.length != arguments.size()) continue;
            Object[] values = new Object[types.length];
            try {
                for (int i = 0; i < types.length; i++) values[i] = convert(arguments.get(i), types[i]);
            } catch (IllegalArgumentException e) {
                last = e;
                continue;
            }
            try {
                return method.invoke(bean, values);
            } catch (InvocationTargetException e) {
                if (e.getCause() instanceof Exception) throw (Exception) e.getCause();
                throw e;
            }
        }
        throw last;
    }

    @SuppressWarnings("unchecked")
    private static Object convert(Object value, Class<?> type) throws Exception {
        if (value == null) {
            if (type.isPrimitive()) throw new IllegalArgumentException("null for " + type);
            return null;
        }
        if (type == String.class && value instanceof String) return value;
        if (value instanceof Number) {
            Number number = (Number) value;
            if (type == int.class || type == Integer.class) return Math.toIntExact(number.longValue());
            if (type == long.class || type == Long.class) return number.longValue();
            if (type == double.class || type == Double.class) return number.doubleValue();
        }
        if (value instanceof Boolean && (type == boolean.class || type == Boolean.class)) return value;
        if (type.isEnum() && value instanceof String) return Enum.valueOf((Class<Enum>) type, (String) value);
        if (value instanceof List) {
            if (type == Set.class) return new LinkedHashSet<>((List<Object>) value);
            if (type.isInstance(value)) return value;
        }
        if (value instanceof Map) {
            if (type.isInstance(value)) return value;
            if (type.getName().startsWith("org.apache.rocketmq.")) {
                Object bean = type.getDeclaredConstructor().newInstance();
                set(bean, (Map<String, Object>) value);
                return bean;
            }
        }
        throw new IllegalArgumentException(value + " is no " + type.getName());
    }

    /** JSON values of whatever the client returned: public getters, maps, lists; bodies in Base64. */
    static Object dump(Object value) {
        return dump(value, 0);
    }

    private static Object dump(Object value, int depth) {
        if (value == null || value instanceof Number || value instanceof Boolean || value instanceof String) {
            return value;
        }
        if (depth > DEPTH_MAX) return "...";
        if (value instanceof byte[]) return Base64.getEncoder().encodeToString((byte[]) value);
        if (value instanceof MessageExt) return message((MessageExt) value);
        if (value instanceof Map) {
            Map<String, Object> map = new LinkedHashMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                map.put(key(entry.getKey()), dump(entry.getValue(), depth + 1));
            }
            return map;
        }
        if (value instanceof Collection) {
            List<Object> list = new ArrayList<>();
            for (Object item : (Collection<?>) value) list.add(dump(item, depth + 1));
            return list;
        }
        boolean isOurs = value.getClass().getName().startsWith("org.apache.rocketmq.");
        return isOurs && !(value instanceof Enum) ? getters(value, depth) : value.toString();
    }

    private static String key(Object key) {
        if (!(key instanceof MessageQueue)) return String.valueOf(key);
        MessageQueue queue = (MessageQueue) key;
        return queue.getTopic() + "@" + queue.getBrokerName() + "@" + queue.getQueueId();
    }

    private static Map<String, Object> getters(Object bean, int depth) {
        Map<String, Object> map = new TreeMap<>();
        for (Method method : bean.getClass().getMethods()) {
            String name = method.getName();
            int cut = name.startsWith("get") ? 3 : name.startsWith("is") ? 2 : 0;
            if (cut == 0 || name.length() == cut || method.getParameterCount() > 0
                || Modifier.isStatic(method.getModifiers()) || method.getDeclaringClass() == Object.class) continue;
            try {
                method.setAccessible(true);
                String field = Character.toLowerCase(name.charAt(cut)) + name.substring(cut + 1);
                map.put(field, dump(method.invoke(bean), depth + 1));
            } catch (ReflectiveOperationException e) {
                continue; // a getter that cannot answer yet has nothing to tell
            }
        }
        return map;
    }

    /** What a listener saw of one message. */
    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", message.getTopic());
        map.put("broker", message.getBrokerName());
        map.put("queueId", message.getQueueId());
        map.put("queueOffset", message.getQueueOffset());
        map.put("commitLogOffset", message.getCommitLogOffset());
        map.put("msgId", message.getMsgId());
        map.put("offsetMsgId", offsetMsgId(message));
        map.put("transactionId", message.getTransactionId());
        map.put("bornTimestamp", message.getBornTimestamp());
        map.put("storeTimestamp", message.getStoreTimestamp());
        map.put("bornHost", String.valueOf(message.getBornHost()).replace("/", ""));
        map.put("storeHost", String.valueOf(message.getStoreHost()).replace("/", ""));
        map.put("storeSize", message.getStoreSize());
        map.put("sysFlag", message.getSysFlag());
        map.put("flag", message.getFlag());
        map.put("bodyCRC", message.getBodyCRC());
        map.put("reconsumeTimes", message.getReconsumeTimes());
        map.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        map.put("properties", new TreeMap<>(message.getProperties()));
        byte[] body = message.getBody();
        map.put("body", body == null ? null : Base64.getEncoder().encodeToString(body));
        return map;
    }

    private static String offsetMsgId(MessageExt message) {
        try {
            return String.valueOf(call(message, "getOffsetMsgId", new ArrayList<>()));
        } catch (Exception e) {
            return message.getMsgId(); // only the client's own subclass has two ids
        }
    }
}
