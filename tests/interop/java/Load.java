import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers that send on and on, in order and in transactions, and note what they are told, in the form of
 * src/escrowmq/drill/history.py. A send is tried once: each attempt has a key of its own, because one that failed
 * may have been stored.
 */
final class Load implements TransactionListener {
    private static final int COMMITS = 4; // one of so many transactions is rolled back
    private static final Map<String, Load> STARTED = new ConcurrentHashMap<>();

    private final Call call;
    private final String name;
    private final String topic;
    private final OutputStream file;
    private final DefaultMQProducer plain;
    private final TransactionMQProducer transactional;
    private final Map<String, Boolean> commits = new ConcurrentHashMap<>();
    private final AtomicLong count = new AtomicLong();
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean isStopping;

    static void register(Map<String, Driver.Operation> operations) {
        operations.put("load.start", call -> {
            STARTED.put(call.text("name"), new Load(call));
            return null;
        });
        operations.put("load.stop", call -> STARTED.get(call.text("name")).stop());
    }

    private Load(Call call) throws Exception {
        this.call = call;
        name = call.text("name");
        topic = call.text("topic");
        file = new FileOutputStream(call.text("file"), true);
        plain = new DefaultMQProducer("PG-" + name + "-plain");
        transactional = new TransactionMQProducer("PG-" + name);
        transactional.setTransactionListener(this);
        for (DefaultMQProducer producer : List.of(plain, transactional)) {
            producer.setNamesrvAddr(call.text("nameserver"));
            producer.setInstanceName(name + producer.getProducerGroup());
            producer.setRetryTimesWhenSendFailed(0);
            if (!call.is("defaults")) Beans.hasten(producer);
            Beans.set(producer, call.map("settings"));
            producer.start();
        }
        for (int i = 0; i < call.number("senders", 2); i++) {
            int number = i;
            begin(() -> send(number));
            begin(() -> transact(number));
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private void begin(Step step) {
        Thread thread = new Thread(() -> {
            while (!isStopping) {
                try {
                    step.run();
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    return;
                } catch (Exception e) {
                    System.err.println(System.nanoTime() + " " + e);
                    pause();
                }
            }
        });
        thread.setDaemon(true);
        threads.add(thread);
        thread.start();
    }

    private static void pause() {
        try {
            Thread.sleep(10);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private Object stop() throws InterruptedException {
        isStopping = true;
        for (Thread thread : threads) thread.join();
        return count.get();
    }

    private Message message(String sender) throws IOException {
        String key = name + "-" + sender + "-" + count.incrementAndGet();
        note("asked", "key", key, "begin_ns", System.nanoTime());
        Message message = new Message(topic, key.getBytes(StandardCharsets.UTF_8));
        message.setKeys(key);
        return message;
    }

    private void send(int number) throws Exception {
        Message message = message("s" + number);
        long begin = System.nanoTime();
        SendResult sent = plain.send(message, (queues, m, n) -> queues.get((int) n % queues.size()), number);
        if (sent.getSendStatus() == SendStatus.SEND_OK) note(message.getKeys(), sent, "", begin);
    }

    private void transact(int number) throws Exception {
        Message message = message("t" + number);
        String key = message.getKeys();
        long begin = System.nanoTime();
        try {
            note(key, transactional.sendMessageInTransaction(message, null), key, begin);
        } catch (Exception e) {
            note("sent", "topic", topic, "key", key, "queue", 0, "offset", 0, "id", "", "transaction", key);
            throw e;
        } finally {
            boolean isCommitted = commits.computeIfAbsent(key, k -> false);
            note("ended", "transaction", key, "outcome", isCommitted ? "commit" : "rollback");
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object none) {
        String key = message.getKeys();
        long number = Long.parseLong(key.substring(key.lastIndexOf('-') + 1));
        boolean wants = number % COMMITS != 0;
        return state(commits.computeIfAbsent(key, k -> wants));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return state(commits.computeIfAbsent(message.getKeys(), k -> false));
    }

    private static LocalTransactionState state(boolean isCommitted) {
        return isCommitted ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    private void note(String key, SendResult sent, String transaction, long begin) throws IOException {
        note("sent", "topic", topic, "key", key, "queue", sent.getMessageQueue().getQueueId(),
            "offset", sent.getQueueOffset(), "id", sent.getMsgId(), "transaction", transaction,
            "begin_ns", begin, "end_ns", System.nanoTime());
    }

    private void note(String event, Object... fields) throws IOException {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("event", event);
        for (int i = 0; i < fields.length; i += 2) map.put((String) fields[i], fields[i + 1]);
        byte[] line = (Json.write(map) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (file) {
            file.write(line);
        }
    }
}
