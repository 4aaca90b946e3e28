import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask: the lite pull consumer and the plain one, which takes a queue and an offset. */
@SuppressWarnings("deprecation")
final class Pullers {
    private final Map<String, DefaultLitePullConsumer> lite = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> plain = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("lite.start", this::startLite);
        operations.put("lite.poll", this::poll);
        operations.put("lite.call", call ->
            Beans.call(lite.get(call.text("name")), call.text("method"), call.list("args")));
        operations.put("lite.close", this::closeLite);
        operations.put("puller.start", this::startPlain);
        operations.put("puller.pull", this::pull);
        operations.put("puller.call", call ->
            Beans.call(plain.get(call.text("name")), call.text("method"), call.list("args")));
        operations.put("puller.close", this::closePlain);
    }

    private Object startLite(Call call) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(call.text("group"), call.hook());
        consumer.setNamesrvAddr(call.text("nameserver"));
        consumer.setInstanceName(call.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(2);
        Beans.hasten(consumer);
        Beans.bePatient(consumer);
        Beans.set(consumer, call.map("settings"));
        for (Map.Entry<String, Object> entry : call.map("subscriptions").entrySet()) {
            String expression = entry.getValue().toString();
            if (call.is("sql")) consumer.subscribe(entry.getKey(), MessageSelector.bySql(expression));
            else consumer.subscribe(entry.getKey(), expression);
        }
        consumer.start();
        lite.put(call.text("name"), consumer);
        if (call.has("assign")) {
            String topic = call.text("assign");
            consumer.assign(consumer.fetchMessageQueues(topic));
        }
        return null;
    }

    private Object poll(Call call) {
        DefaultLitePullConsumer consumer = lite.get(call.text("name"));
        long count = call.number("count");
        List<MessageExt> polled = new ArrayList<>();
        long deadline = System.nanoTime() + call.number("waitMs") * 1_000_000;
        for (long left = call.number("waitMs"); polled.size() < count && left > 0;
             left = (deadline - System.nanoTime()) / 1_000_000) {
            polled.addAll(consumer.poll(left));
        }
        return polled;
    }

    private Object closeLite(Call call) {
        DefaultLitePullConsumer consumer = lite.remove(call.text("name"));
        if (consumer != null) consumer.shutdown();
        return null;
    }

    private Object startPlain(Call call) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(call.text("group"), call.hook());
        consumer.setNamesrvAddr(call.text("nameserver"));
        consumer.setInstanceName(call.text("name"));
        Beans.hasten(consumer);
        Beans.bePatient(consumer);
        Beans.set(consumer, call.map("settings"));
        consumer.start();
        plain.put(call.text("name"), consumer);
        return null;
    }

    private Object pull(Call call) throws Exception {
        MessageQueue queue = new MessageQueue(
            call.text("topic"), call.text("broker"), (int) call.number("queueId"));
        PullResult result = plain.get(call.text("name")).pull(
            queue, call.text("expression", "*"), call.number("offset"), (int) call.number("max", 32));
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getPullStatus().name());
        map.put("next", result.getNextBeginOffset());
        map.put("min", result.getMinOffset());
        map.put("max", result.getMaxOffset());
        map.put("messages", result.getMsgFoundList());
        return map;
    }

    private Object closePlain(Call call) {
        DefaultMQPullConsumer consumer = plain.remove(call.text("name"));
        if (consumer != null) consumer.shutdown();
        return null;
    }
}
