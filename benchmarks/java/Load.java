import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Load by the official client. Prints "go" when the counted part begins and one JSON line at its end.
 *
 * <p>mode=send|transaction|drain nameserver=host:port topic=T size=128 threads=16 batch=1 warm=3
 * seconds=10, or count=N for a number of messages instead of a time
 */
public class Load {
    static final Map<String, String> ARGUMENTS = new HashMap<>();

    static String text(String name, String fallback) {
        return ARGUMENTS.getOrDefault(name, fallback);
    }

    static int number(String name, int fallback) {
        return Integer.parseInt(text(name, String.valueOf(fallback)));
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            ARGUMENTS.put(pair[0], pair[1]);
        }
        System.setProperty("rocketmq.serialize.type", text("header", "ROCKETMQ"));
        if (text("mode", "send").equals("drain")) {
            drain();
        } else {
            produce();
        }
        System.exit(0);
    }

    /** Latencies of one thread, in microseconds. */
    static final class Latencies {
        int[] micros = new int[1 << 16];
        int count;
        long failed;

        void add(long nanos) {
            if (count == micros.length) {
                micros = Arrays.copyOf(micros, count * 2);
            }
            micros[count++] = (int) (nanos / 1000);
        }
    }

    static DefaultMQProducer producer() {
        DefaultMQProducer producer;
        if (text("mode", "send").equals("transaction")) {
            TransactionMQProducer transactional = new TransactionMQProducer("load");
            transactional.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            producer = transactional;
        } else {
            producer = new DefaultMQProducer("load");
        }
        producer.setNamesrvAddr(text("nameserver", "127.0.0.1:9876"));
        producer.setInstanceName("load" + ProcessHandle.current().pid());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        return producer;
    }

    static void produce() throws Exception {
        int threads = number("threads", 1);
        int batch = number("batch", 1);
        long count = number("count", 0);
        boolean transactional = text("mode", "send").equals("transaction");
        byte[] body = new byte[number("size", 128)];
        Arrays.fill(body, (byte) 'x');
        String topic = text("topic", "Load");
        DefaultMQProducer producer = producer();
        producer.start();
        AtomicLong left = new AtomicLong(count);
        CountDownLatch done = new CountDownLatch(threads);
        List<Latencies> all = new ArrayList<>();
        long start = System.nanoTime();
        long from = count > 0 ? start : start + number("warm", 3) * 1_000_000_000L;
        long until = count > 0 ? Long.MAX_VALUE : from + number("seconds", 10) * 1_000_000_000L;
        for (int i = 0; i < threads; i++) {
            Latencies latencies = new Latencies();
            all.add(latencies);
            new Thread(() -> {
                while (count == 0 || left.getAndAdd(-batch) > 0) {
                    long begin = System.nanoTime();
                    if (begin >= until) {
                        break;
                    }
                    boolean ok = false;
                    try {
                        ok = send(producer, topic, body, batch, transactional);
                    } catch (Exception failure) {
                        if (latencies.failed < 3) {
                            System.err.println(failure.toString().split("\n")[0]);
                        }
                    }
                    if (begin >= from) {
                        if (ok) {
                            latencies.add(System.nanoTime() - begin);
                        } else {
                            latencies.failed++;
                        }
                    }
                }
                done.countDown();
            }).start();
        }
        Thread.sleep(Math.max(0, (from - System.nanoTime()) / 1_000_000));
        System.out.println("go");
        done.await();
        double took = (System.nanoTime() - from) / 1e9;
        System.out.println("end");
        report(all, took, batch);
        producer.shutdown();
    }

    static boolean send(
            DefaultMQProducer producer, String topic, byte[] body, int batch, boolean transactional)
            throws Exception {
        SendResult result;
        if (transactional) {
            result = producer.sendMessageInTransaction(new Message(topic, body), null);
        } else if (batch > 1) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < batch; i++) {
                messages.add(new Message(topic, body));
            }
            result = producer.send(messages);
        } else {
            result = producer.send(new Message(topic, body));
        }
        return result.getSendStatus() == SendStatus.SEND_OK;
    }

    static void report(List<Latencies> all, double seconds, int batch) {
        int count = 0;
        long failed = 0;
        for (Latencies one : all) {
            count += one.count;
            failed += one.failed;
        }
        int[] sorted = new int[count];
        int at = 0;
        for (Latencies one : all) {
            System.arraycopy(one.micros, 0, sorted, at, one.count);
            at += one.count;
        }
        Arrays.sort(sorted);
        System.out.printf(
                "{\"messages\":%d,\"failed\":%d,\"seconds\":%.3f,\"rate\":%.0f,\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f}%n",
                count * batch, failed, seconds, count * batch / seconds,
                percentile(sorted, 0.5), percentile(sorted, 0.99), percentile(sorted, 0.999));
    }

    static double percentile(int[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (share * sorted.length))] / 1e3;
    }

    static void drain() throws Exception {
        long wanted = number("count", 1_000_000);
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("drain" + System.currentTimeMillis());
        consumer.setNamesrvAddr(text("nameserver", "127.0.0.1:9876"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(text("topic", "Load"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (first.compareAndSet(0, System.nanoTime())) {
                System.out.println("go");
            }
            if (seen.addAndGet(messages.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        double took = (System.nanoTime() - first.get()) / 1e9;
        System.out.println("end");
        System.out.printf("{\"messages\":%d,\"failed\":0,\"seconds\":%.3f,\"rate\":%.0f}%n",
                seen.get(), took, seen.get() / took);
        consumer.shutdown();
    }
}
