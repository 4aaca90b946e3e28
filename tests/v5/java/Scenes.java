import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/** What the official Java client of RocketMQ 5 does against a front: NAME ENDPOINT TOPIC GROUP. */
public final class Scenes {
    static final ClientServiceProvider provider = ClientServiceProvider.loadService();
    static String topic, group;
    static ClientConfiguration configuration;

    public static void main(String[] args) throws Exception {
        topic = args[2];
        group = args[3];
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[1]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(5)).build();
        List<String> seen = switch (args[0]) {
            case "simple" -> simple();
            case "push" -> push(10, false);
            case "fifo" -> push(20, true);
            case "transactions" -> transactions();
            default -> throw new IllegalArgumentException(args[0]);
        };
        System.out.println("SEEN " + String.join(",", seen));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Message message(String body, String messageGroup) {
        MessageBuilder builder = provider.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).setTag("a").setKeys("key-" + body)
            .addProperty("shop", "3");
        return messageGroup == null ? builder.build() : builder.setMessageGroup(messageGroup).build();
    }

    static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    static Producer producer(TransactionChecker checker) throws ClientException {
        ProducerBuilder builder = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic);
        return checker == null ? builder.build() : builder.setTransactionChecker(checker).build();
    }

    static SimpleConsumer consumer() throws ClientException {
        return provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(10))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    static List<String> received(SimpleConsumer consumer, int count) throws ClientException {
        List<String> seen = new ArrayList<>();
        long end = System.nanoTime() + 40_000_000_000L;
        while (seen.size() < count && System.nanoTime() < end) {
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(15))) {
                seen.add(body(view));
                consumer.ack(view);
            }
        }
        Collections.sort(seen);
        return seen;
    }

    static List<String> simple() throws Exception {
        Producer producer = producer(null);
        for (int nth = 0; nth < 5; nth++) {
            producer.send(message("m" + nth, null));
        }
        return received(consumer(), 5);
    }

    static List<String> push(int count, boolean isOrdered) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch enough = new CountDownLatch(isOrdered ? count : count + 1);
        provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                seen.add(body(view) + ":" + view.getDeliveryAttempt());
                enough.countDown();
                boolean fails = !isOrdered && body(view).equals("m7") && view.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        Producer producer = producer(null);
        for (int nth = 0; nth < count; nth++) {
            producer.send(message((isOrdered ? "g" + nth % 2 + "-" : "m") + nth, isOrdered ? "g" + nth % 2 : null));
        }
        enough.await(40, TimeUnit.SECONDS);
        List<String> found = new ArrayList<>(seen);
        if (!isOrdered) {
            Collections.sort(found);
        }
        return found;
    }

    static List<String> transactions() throws Exception {
        Producer producer = producer(view -> body(view).startsWith("good")
            ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK);
        for (String body : List.of("committed", "rolled-back", "good-orphan", "bad-orphan")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(body, null), transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled-back")) {
                transaction.rollback();
            }
        }
        return received(consumer(), 2);
    }
}
