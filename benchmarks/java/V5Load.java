import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Sends by the official client of RocketMQ 5: ENDPOINT TOPIC SECONDS THREADS. */
public final class V5Load {
    static final int SPANS_MAX = 1 << 22;

    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[0])
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(args[1]).build();
        byte[] body = new byte[128];
        Arrays.fill(body, (byte) 'x');
        int threads = Integer.parseInt(args[3]);
        long[] spans = new long[SPANS_MAX];
        AtomicInteger count = new AtomicInteger();
        AtomicLong failed = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        System.out.println("go");
        System.out.flush();
        long begin = System.nanoTime(), end = begin + Long.parseLong(args[2]) * 1_000_000_000L;
        for (int nth = 0; nth < threads; nth++) {
            new Thread(() -> {
                while (System.nanoTime() < end) {
                    Message message = provider.newMessageBuilder().setTopic(args[1]).setBody(body).build();
                    long from = System.nanoTime();
                    try {
                        producer.send(message);
                        spans[count.getAndIncrement() % SPANS_MAX] = System.nanoTime() - from;
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
                done.countDown();
            }).start();
        }
        done.await();
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.println("end");
        System.out.flush();
        int size = Math.min(count.get(), SPANS_MAX);
        long[] sorted = Arrays.copyOf(spans, size);
        Arrays.sort(sorted);
        System.out.printf("{\"messages\": %d, \"rate\": %.1f, \"p50\": %.3f, \"p99\": %.3f, \"failed\": %d}%n",
            count.get(), count.get() / seconds, sorted[size / 2] / 1e6, sorted[(int) (size * 0.99)] / 1e6, failed.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
