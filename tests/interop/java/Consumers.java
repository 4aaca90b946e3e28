import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers by name; each remembers what its listener was given. */
final class Consumers {
    private final Map<String, Listener> started = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("consumer.start", this::start);
        operations.put("consumer.received", call -> listener(call)
            .received(call.number("count", 0), call.number("waitMs", 0)));
        operations.put("consumer.queues", call -> Beans.call(
            listener(call).consumer, "fetchSubscribeMessageQueues", List.of(call.text("topic"))));
        operations.put("consumer.call", call ->
            Beans.call(listener(call).consumer, call.text("method"), call.list("args")));
        operations.put("consumer.close", this::close);
    }

    private Listener listener(Call call) {
        Listener listener = started.get(call.text("name"));
        if (listener == null) throw new IllegalArgumentException("no consumer " + call.text("name"));
        return listener;
    }

    private Object start(Call call) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            call.text("group"), call.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(call.text("nameserver"));
        consumer.setInstanceName(call.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        Beans.hasten(consumer);
        Beans.bePatient(consumer);
        Beans.set(consumer, call.map("settings"));
        for (Map.Entry<String, Object> entry : call.map("subscriptions").entrySet()) {
            String expression = entry.getValue().toString();
            if (call.is("sql")) consumer.subscribe(entry.getKey(), MessageSelector.bySql(expression));
            else consumer.subscribe(entry.getKey(), expression);
        }
        Listener listener = new Listener(consumer, call);
        if (call.is("orderly")) consumer.registerMessageListener((MessageListenerOrderly) (batch, context) ->
            listener.take(batch) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        else consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            context.setDelayLevelWhenNextConsume((int) call.number("retryLevel", 0));
            return listener.take(batch) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        started.put(call.text("name"), listener);
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    private Object close(Call call) throws Exception {
        Listener listener = started.remove(call.text("name"));
        if (listener == null) return null;
        Thread closing = new Thread(listener.consumer::shutdown);
        closing.setDaemon(true);
        closing.start();
        if (call.is("wait")) closing.join();
        return null;
    }

    private static final class Listener {
        final DefaultMQPushConsumer consumer;
        private final Call script;
        private final Map<String, Integer> failed = new ConcurrentHashMap<>();
        private final List<Object> received = new ArrayList<>();

        Listener(DefaultMQPushConsumer consumer, Call script) {
            this.consumer = consumer;
            this.script = script;
        }

        /** Remembers the batch; false if one of its keys still has to fail ("failures": key to times). */
        boolean take(List<MessageExt> batch) {
            boolean isGood = true;
            for (MessageExt message : batch) {
                String key = String.valueOf(message.getKeys());
                Object times = script.map("failures").get(key);
                boolean isBad = times != null && failed.merge(key, 1, Integer::sum) <= ((Number) times).intValue();
                isGood &= !isBad;
                Map<String, Object> seen = new LinkedHashMap<>(Beans.message(message));
                seen.put("consumer", script.text("name"));
                seen.put("consumedMs", System.currentTimeMillis());
                synchronized (this) {
                    received.add(seen);
                    notifyAll();
                }
                boolean isAsked = message.getProperty("REPLY_TO_CLIENT") != null;
                if (script.has("replyBy") && isAsked) reply(message);
            }
            return isGood;
        }

        private void reply(MessageExt message) {
            byte[] body = ("re: " + new String(message.getBody(), java.nio.charset.StandardCharsets.UTF_8))
                .getBytes(java.nio.charset.StandardCharsets.UTF_8);
            try {
                Producers.STARTED.get(script.text("replyBy")).send(MessageUtil.createReplyMessage(message, body));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        synchronized List<Object> received(long count, long waitMs) throws InterruptedException {
            long deadline = System.nanoTime() + waitMs * 1_000_000;
            for (long left = waitMs; received.size() < count && left > 0;
                 left = (deadline - System.nanoTime()) / 1_000_000) {
                wait(left);
            }
            return new ArrayList<>(received);
        }
    }
}
