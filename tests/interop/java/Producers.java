import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers by name, with and without transactions. */
final class Producers {
    static final Map<String, DefaultMQProducer> STARTED = new ConcurrentHashMap<>();
    private static final MessageQueueSelector BY_HASH = new SelectMessageQueueByHash();
    private final Map<String, Script> scripts = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.send", this::send);
        operations.put("producer.batch", this::batch);
        operations.put("producer.transaction", this::transaction);
        operations.put("producer.checks", call -> scripts.get(call.text("name"))
            .checks(call.number("count", 0), call.number("waitMs", 0)));
        operations.put("producer.request", this::request);
        operations.put("producer.queues", call -> producer(call).fetchPublishMessageQueues(call.text("topic")));
        operations.put("producer.recall", call ->
            Beans.call(producer(call), "recallMessage", List.of(call.text("topic"), call.text("handle"))));
        operations.put("producer.close", this::close);
    }

    private static DefaultMQProducer producer(Call call) {
        DefaultMQProducer producer = STARTED.get(call.text("name"));
        if (producer == null) throw new IllegalArgumentException("no producer " + call.text("name"));
        return producer;
    }

    private Object start(Call call) throws Exception {
        DefaultMQProducer producer;
        if (call.is("transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(call.text("group"), call.hook());
            Script script = new Script();
            script.expect(call.map("checks"));
            transactional.setTransactionListener(script);
            scripts.put(call.text("name"), script);
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(call.text("group"), call.hook());
        }
        producer.setNamesrvAddr(call.text("nameserver"));
        producer.setInstanceName(call.text("name"));
        Beans.hasten(producer);
        Beans.bePatient(producer);
        producer.setSendMsgTimeout(30_000);
        Beans.set(producer, call.map("settings"));
        producer.start();
        STARTED.put(call.text("name"), producer);
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getClientId();
    }

    private Object close(Call call) throws Exception {
        DefaultMQProducer producer = STARTED.remove(call.text("name"));
        if (producer == null) return null;
        Thread closing = new Thread(producer::shutdown);
        closing.setDaemon(true);
        closing.start();
        if (call.is("wait")) closing.join();
        return null;
    }

    private Object send(Call call) throws Exception {
        DefaultMQProducer producer = producer(call);
        Message message = call.message();
        MessageQueue queue = call.has("queueId") ? queue(producer, call) : null;
        String mode = call.text("mode", "sync");
        if (mode.equals("oneway")) {
            if (queue != null) producer.sendOneway(message, queue);
            else if (call.has("hash")) producer.sendOneway(message, BY_HASH, call.text("hash"));
            else producer.sendOneway(message);
            return null;
        }
        SendResult result;
        if (mode.equals("async")) {
            Answer answer = new Answer();
            if (queue != null) producer.send(message, queue, answer);
            else if (call.has("hash")) producer.send(message, BY_HASH, call.text("hash"), answer);
            else producer.send(message, answer);
            result = answer.get();
        } else if (queue != null) {
            result = producer.send(message, queue);
        } else if (call.has("hash")) {
            result = producer.send(message, BY_HASH, call.text("hash"));
        } else {
            result = producer.send(message);
        }
        return sent(result);
    }

    private static MessageQueue queue(DefaultMQProducer producer, Call call) throws Exception {
        for (MessageQueue queue : producer.fetchPublishMessageQueues(call.text("topic"))) {
            if (queue.getQueueId() == call.number("queueId")) return queue;
        }
        throw new IllegalArgumentException(call.text("topic") + " has no queue " + call.text("queueId"));
    }

    @SuppressWarnings("unchecked")
    private Object batch(Call call) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object each : call.list("messages")) messages.add(new Call((Map<String, Object>) each).message());
        DefaultMQProducer producer = producer(call);
        if (!call.has("queueId")) return sent(producer.send(messages));
        return sent(producer.send(messages, queue(producer, call)));
    }

    private Object transaction(Call call) throws Exception {
        TransactionMQProducer producer = (TransactionMQProducer) producer(call);
        Message message = call.message();
        scripts.get(call.text("name")).expect(Map.of(call.text("keys"), call.list("checks")));
        return sent(producer.sendMessageInTransaction(message, call.text("outcome")));
    }

    private Object request(Call call) throws Exception {
        // Never the blocking request(): that of 5.3.3 stops waiting once the question is
        // stored (DefaultMQProducerImpl$7 counts its latch down in onSuccess).
        Reply answer = new Reply();
        producer(call).request(call.message(), answer, call.number("waitMs"));
        Message reply = answer.message.get(call.number("waitMs") + 10_000, TimeUnit.MILLISECONDS);
        if (answer.failure != null) throw answer.failure;
        if (reply instanceof MessageExt) return reply;
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", reply.getTopic());
        map.put("properties", reply.getProperties());
        map.put("body", Base64.getEncoder().encodeToString(reply.getBody()));
        return map;
    }

    private static Map<String, Object> sent(SendResult result) throws Exception {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", String.valueOf(result.getSendStatus()));
        map.put("msgId", result.getMsgId());
        map.put("offsetMsgId", result.getOffsetMsgId());
        map.put("broker", result.getMessageQueue().getBrokerName());
        map.put("queueId", result.getMessageQueue().getQueueId());
        map.put("queueOffset", result.getQueueOffset());
        map.put("transactionId", result.getTransactionId());
        map.put("regionId", result.getRegionId());
        try {
            map.put("recallHandle", Beans.call(result, "getRecallHandle", new ArrayList<>()));
        } catch (NoSuchMethodException e) {
            map.put("recallHandle", null); // before 5.3.2
        }
        return map;
    }

    private static final class Reply implements RequestCallback {
        final CompletableFuture<Message> message = new CompletableFuture<>();
        volatile Exception failure;

        @Override
        public void onSuccess(Message reply) {
            // 5.3.3 calls this with null once the question is stored, and again with the reply
            if (reply != null) message.complete(reply);
        }

        @Override
        public void onException(Throwable e) {
            failure = e instanceof Exception ? (Exception) e : new IllegalStateException(e);
            message.complete(null);
        }
    }

    private static final class Answer implements SendCallback {
        private final CompletableFuture<SendResult> result = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult sent) {
            result.complete(sent);
        }

        @Override
        public void onException(Throwable e) {
            result.completeExceptionally(e);
        }

        SendResult get() throws Exception {
            try {
                return result.get(30, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException e) {
                if (e.getCause() instanceof Exception) throw (Exception) e.getCause();
                throw e;
            }
        }
    }
}
