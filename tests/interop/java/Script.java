import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A transaction listener that answers as told, by the message's key, and remembers every check. */
final class Script implements TransactionListener {
    private final Map<String, Deque<String>> outcomes = new ConcurrentHashMap<>();
    private final List<Map<String, Object>> seen = new ArrayList<>();

    /** What the checks of each key will be told, in order; the last one stays, and nothing means COMMIT. */
    void expect(Map<String, ?> checks) {
        checks.forEach((key, list) -> {
            Deque<String> queue = new ArrayDeque<>();
            for (Object each : (List<?>) list) queue.add(each.toString());
            outcomes.put(key, queue);
        });
    }

    /** The checks seen so far, once there are that many or the time is over. */
    synchronized List<Object> checks(long count, long waitMs) throws InterruptedException {
        long deadline = System.nanoTime() + waitMs * 1_000_000;
        for (long left = waitMs; seen.size() < count && left > 0;
             left = (deadline - System.nanoTime()) / 1_000_000) {
            wait(left);
        }
        return new ArrayList<>(seen);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
        return state(outcome.toString());
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Deque<String> left = outcomes.getOrDefault(message.getKeys(), new ArrayDeque<>());
        String outcome;
        synchronized (this) {
            outcome = left.size() > 1 ? left.poll() : left.isEmpty() ? "COMMIT" : left.peek();
            Map<String, Object> check = new LinkedHashMap<>(Beans.message(message));
            check.put("answer", outcome);
            check.put("checkedMs", System.currentTimeMillis());
            seen.add(check);
            notifyAll();
        }
        return state(outcome);
    }

    private static LocalTransactionState state(String outcome) {
        switch (outcome) {
            case "COMMIT": return LocalTransactionState.COMMIT_MESSAGE;
            case "ROLLBACK": return LocalTransactionState.ROLLBACK_MESSAGE;
            case "UNKNOWN": return LocalTransactionState.UNKNOW;
            default: throw new IllegalStateException("scripted failure: " + outcome);
        }
    }
}
