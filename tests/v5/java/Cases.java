import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.regex.*;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/**
 * What the official Java client may do, case by case: ENDPOINT. Each line is `CASE name verdict`: sent,
 * the code by which the server refused, or illegal, which is what the client itself refused.
 */
public final class Cases {
    static final ClientServiceProvider provider = ClientServiceProvider.loadService();
    static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    static ClientConfiguration configuration;
    static Producer producer;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics("NORMAL", "FIFO", "DELAY", "TRANSACTION")
            .setTransactionChecker(view -> TransactionResolution.ROLLBACK).build();
        types();
        tags();
        keys();
        bodies();
        properties();
        delays();
        receives();
        System.out.println("END");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void say(String name, Work work) {
        String verdict = "sent";
        try {
            work.run();
        } catch (Exception | Error error) {
            Matcher code = CODE.matcher(String.valueOf(error.getMessage()));
            verdict = code.find() ? code.group(1) : "illegal";
            System.err.println(name + ": " + error);
        }
        System.out.println("CASE " + name + " " + verdict);
    }

    static MessageBuilder message(String topic) {
        return provider.newMessageBuilder().setTopic(topic).setBody("body".getBytes(StandardCharsets.UTF_8));
    }

    static long soon() {
        return System.currentTimeMillis() + 1_000;
    }

    static void types() {
        for (String topic : List.of("NORMAL", "FIFO", "DELAY", "TRANSACTION")) {
            say("NORMAL-to-" + topic, () -> producer.send(message(topic).build()));
            say("FIFO-to-" + topic, () -> producer.send(message(topic).setMessageGroup("g").build()));
            say("DELAY-to-" + topic, () -> producer.send(message(topic).setDeliveryTimestamp(soon()).build()));
            say("TRANSACTION-to-" + topic, () -> {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(topic).build(), transaction);
                transaction.rollback();
            });
        }
        say("to-no-topic", () -> producer.send(message("Nowhere").build()));
    }

    static void tag(String name, String tag) {
        say("tag-" + name, () -> producer.send(message("NORMAL").setTag(tag).build()));
    }

    static void tags() {
        tag("plain", "paid");
        tag("symbols", "~!@#$%^&*()_+-={}[]:;'<>,.?/");
        tag("chinese", "\u6807\u7b7e");
        tag("bar", "a|b");
        tag("blank", " ");
        tag("control", "a\tb");
        tag("16KiB", "t".repeat(16 << 10));
        tag("longer", "t".repeat((16 << 10) + 1));
    }

    static void key(String name, String... keys) {
        say("key-" + name, () -> producer.send(message("NORMAL").setKeys(keys).build()));
    }

    static void keys() {
        key("plain", "order-1");
        key("several", "order-1", "customer-2", "shop-3");
        key("chinese", "\u952e");
        key("blank", " ");
        key("control", "a\nb");
        key("longer", "k".repeat((16 << 10) + 1));
    }

    static void body(String name, byte[] body) {
        say("body-" + name, () -> producer.send(message("NORMAL").setBody(body).build()));
    }

    static void bodies() {
        body("spaces", "   ".getBytes(StandardCharsets.UTF_8));
        body("emoji", "\ud83d\ude03".getBytes(StandardCharsets.UTF_8));
        body("empty", new byte[0]);
        body("4MiB", new byte[4 << 20]);
        body("larger", new byte[(4 << 20) + 1]);
    }

    static void properties(String name, int count, String value) {
        say("properties-" + name, () -> {
            MessageBuilder builder = message("NORMAL");
            for (int nth = 0; nth < count; nth++) {
                builder.addProperty("name" + nth, value);
            }
            producer.send(builder.build());
        });
    }

    static void property(String name, String key, String value) {
        say("property-" + name, () -> producer.send(message("NORMAL").addProperty(key, value).build()));
    }

    static void properties() {
        properties("128", 128, "v");
        properties("129", 129, "v");
        properties("longer", 1, "v".repeat(16 << 10));
        property("symbols", "a-b_c.d", "~!@#$%^&*()");
        property("chinese", "\u540d", "\u503c");
        property("control", "name", "a\u0001b");
        property("reserved", "UNIQ_KEY", "mine");
        property("reserved-too", "PGROUP", "mine");
    }

    static void delay(String name, Duration fromNow) {
        long dueMs = System.currentTimeMillis() + fromNow.toMillis();
        say("delay-" + name, () -> producer.send(message("DELAY").setDeliveryTimestamp(dueMs).build()));
    }

    static void delays() {
        delay("past", Duration.ofHours(-1));
        delay("day", Duration.ofHours(23));
        delay("week", Duration.ofDays(7));
        say("recall-twice", () -> {
            SendReceipt receipt = producer.send(message("DELAY").setDeliveryTimestamp(soon() + 60_000).build());
            producer.recallMessage("DELAY", receipt.getRecallHandle());
            producer.recallMessage("DELAY", receipt.getRecallHandle());
        });
        say("recall-nonsense", () -> producer.recallMessage("DELAY", "nonsense"));
    }

    static void receives() throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("CG-cases").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of("NORMAL", FilterExpression.SUB_ALL)).build();
        List<MessageView> views = new ArrayList<>();
        while (views.size() < 3) {
            views.addAll(consumer.receive(32, Duration.ofSeconds(30)));
        }
        say("ack", () -> consumer.ack(views.get(0)));
        say("ack-twice", () -> consumer.ack(views.get(0)));
        say("hide-longer-and-ack", () -> {
            consumer.changeInvisibleDuration(views.get(1), Duration.ofSeconds(60));
            consumer.ack(views.get(1));
        });
        say("hide-for-13-hours", () -> consumer.changeInvisibleDuration(views.get(2), Duration.ofHours(13)));
        say("receive-0", () -> consumer.receive(0, Duration.ofSeconds(30)));
        say("receive-hidden-for-9-s", () -> consumer.receive(1, Duration.ofSeconds(9)));
        say("receive-hidden-for-13-hours", () -> consumer.receive(1, Duration.ofHours(13)));
    }
}
