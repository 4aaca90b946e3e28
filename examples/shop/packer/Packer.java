import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The packing service, in Java: one parcel for each order, however often its event comes. It knows nothing of
 * EscrowMQ; its client is Apache RocketMQ's. A parcel is a line of a file, which is also how the service knows what
 * it has packed already: the line is on disk before the event is acknowledged. A real one has a table with a unique key.
 */
public class Packer {
    private final Set<String> packed = new HashSet<>();
    private final FileChannel parcels;

    public Packer(Path file) throws IOException {
        byte[] found = Files.exists(file) ? Files.readAllBytes(file) : new byte[0];
        int end = found.length;
        while (end > 0 && found[end - 1] != '\n') end--; // a line that was cut off when the process died
        new String(found, 0, end, StandardCharsets.UTF_8).lines().forEach(packed::add);
        parcels = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        parcels.truncate(end).position(end);
    }

    /** Packs an order, unless that was done before. */
    protected synchronized void pack(String order) throws IOException {
        if (packed.contains(order)) return;
        parcels.write(ByteBuffer.wrap((order + "\n").getBytes(StandardCharsets.UTF_8)));
        parcels.force(true);
        packed.add(order);
    }

    /** Packs until the process is told to end. */
    protected void run(String nameserver) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("shop-packer");
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000); // the first order may come later, and the topic with it
        consumer.subscribe("paid", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (events, context) -> {
            try {
                for (MessageExt event : events) pack(event.getKeys());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (IOException e) {
                e.printStackTrace();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        consumer.start();
        System.out.println("packer ready");
        Thread.currentThread().join();
    }

    /** Takes the name server's address and the file of parcels. */
    public static void main(String[] args) throws Exception {
        new Packer(Path.of(args[1])).run(args[0]);
    }
}
