import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Predicate;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/** What the official Java client of RocketMQ 5 does against a front; README.md has the scenes. */
public final class Scenes {
    static final ClientServiceProvider provider = ClientServiceProvider.loadService();
    static final long WITHIN_S = 40;
    static String topic, group;
    static ClientConfiguration configuration;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        topic = args[2];
        group = args[3];
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(args[1])
            .setRequestTimeout(Duration.ofSeconds(15));
        if (!"default".equals(System.getenv("ESCROW_TLS"))) {
            builder.enableSsl("1".equals(System.getenv("ESCROW_TLS")));
        }
        if (args.length > 4) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(args[4], args[5]));
        }
        configuration = builder.build();
        int code = 0;
        try {
            System.out.println("SEEN " + String.join(",", play(args[0])));
        } catch (Exception error) {
            error.printStackTrace();
            System.out.println("REFUSED " + error.getMessage());
            code = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    static List<String> play(String name) throws Exception {
        return switch (name) {
            case "simple" -> simple();
            case "push" -> push();
            case "fifo" -> fifo();
            case "delay" -> delay();
            case "transactions" -> transactions();
            case "dead" -> dead();
            case "ackedLater" -> ackedLater();
            case "endedLater" -> endedLater();
            case "send" -> sends();
            case "receive" -> bodies(Integer.parseInt(System.getenv("ESCROW_COUNT")));
            case "share" -> share();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static MessageBuilder message(String body) {
        return provider.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    static String text(MessageView view) {
        String body = body(view);
        String name = body.replaceAll("x+$", "");
        return body.length() - name.length() > 1_000 ? name + "*" + (body.length() - name.length()) : body;
    }

    static void line() throws Exception {
        System.out.println("HELD");
        System.out.flush();
        new BufferedReader(new InputStreamReader(System.in)).readLine();
    }

    /** Does it as soon as the channel, which waits between its attempts, is connected again. */
    static void patiently(Work work) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_S);
        while (true) {
            try {
                work.run();
                return;
            } catch (ClientException | RuntimeException error) {
                String words = String.valueOf(error);
                boolean isAway = words.contains("UNAVAILABLE") || words.contains("DEADLINE_EXCEEDED");
                if (System.nanoTime() > end || !isAway) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    static Producer producer() throws ClientException {
        return provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(view -> body(view).startsWith("good")
                ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK)
            .build();
    }

    static SimpleConsumer consumer() throws ClientException {
        return provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    static List<MessageView> received(SimpleConsumer consumer, int count, int hiddenS, boolean isAcked)
        throws ClientException {
        List<MessageView> seen = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_S);
        while (seen.size() < count && System.nanoTime() < end) {
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(hiddenS))) {
                seen.add(view);
                if (isAcked) {
                    consumer.ack(view);
                }
            }
        }
        return seen;
    }

    static List<String> bodies(int count) throws ClientException {
        return new ArrayList<>(received(consumer(), count, 15, true).stream().map(Scenes::text).sorted().toList());
    }

    static List<String> pushed(int count, Predicate<MessageView> isWell, Work work) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch enough = new CountDownLatch(count);
        provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                seen.add(text(view) + ":" + view.getDeliveryAttempt());
                enough.countDown();
                return isWell.test(view) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
            }).build();
        work.run();
        enough.await(WITHIN_S, TimeUnit.SECONDS);
        return new ArrayList<>(seen);
    }

    static List<String> simple() throws Exception {
        Producer producer = producer();
        for (int nth = 0; nth < 5; nth++) {
            producer.send(message("m" + nth).setTag("a").setKeys("k" + nth).addProperty("shop", "3").build());
        }
        return received(consumer(), 5, 15, true).stream().map(view -> text(view) + ":" + view.getTag().get()
            + ":" + view.getProperties().get("shop") + ":" + view.getDeliveryAttempt()).sorted().toList();
    }

    static List<String> push() throws Exception {
        Producer producer = producer();
        List<String> seen = pushed(11, view -> !text(view).equals("m7") || view.getDeliveryAttempt() > 1, () -> {
            for (int nth = 0; nth < 10; nth++) {
                producer.send(message("m" + nth).build());
            }
        });
        Collections.sort(seen);
        return seen;
    }

    static List<String> fifo() throws Exception {
        Producer producer = producer();
        return pushed(20, view -> true, () -> {
            for (int nth = 0; nth < 20; nth++) {
                String own = "g" + nth % 2;
                producer.send(message(own + "-" + nth).setMessageGroup(own).build());
            }
        });
    }

    static List<String> delay() throws Exception {
        Producer producer = producer();
        long dueMs = System.currentTimeMillis() / 1_000 * 1_000 + 3_000;
        SendReceipt recalled = producer.send(message("recalled").setDeliveryTimestamp(dueMs).build());
        producer.recallMessage(topic, recalled.getRecallHandle());
        producer.send(message("late").setDeliveryTimestamp(dueMs).build());
        List<String> seen = bodies(1);
        seen.add(System.currentTimeMillis() >= dueMs ? "due" : "early");
        return seen;
    }

    static List<String> transactions() throws Exception {
        Producer producer = producer();
        for (String body : List.of("committed", "rolled-back", "good-orphan", "bad-orphan")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(body).build(), transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled-back")) {
                transaction.rollback();
            }
        }
        return bodies(2);
    }

    static List<String> dead() throws Exception {
        Producer producer = producer();
        List<String> seen = pushed(2, view -> false, () -> producer.send(message("poison").build()));
        line();
        return seen;
    }

    static List<String> ackedLater() throws Exception {
        producer().send(message("held").build());
        SimpleConsumer consumer = consumer();
        MessageView view = received(consumer, 1, 30, false).get(0);
        line();
        patiently(() -> consumer.ack(view));
        return List.of(text(view));
    }

    static List<String> endedLater() throws Exception {
        Producer producer = producer();
        Transaction transaction = producer.beginTransaction();
        producer.send(message("kept").build(), transaction);
        line();
        patiently(transaction::commit);
        return bodies(1);
    }

    /** Consumes beside others of its group, until it is told to end. */
    static List<String> share() throws Exception {
        CountDownLatch first = new CountDownLatch(1);
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                seen.add(text(view));
                first.countDown();
                return ConsumeResult.SUCCESS;
            }).build();
        first.await(WITHIN_S, TimeUnit.SECONDS);
        line();
        consumer.close();  // behind it, what it was handed has been consumed
        return new ArrayList<>(seen);
    }

    static List<String> sends() throws Exception {
        Producer producer = producer();
        producer.send(message("short").build());
        producer.send(message("long" + "x".repeat(20_000)).build());
        return List.of("sent");
    }
}
