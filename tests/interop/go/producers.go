package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const callTime = 30 * time.Second

// chosen sends to the queue or by the sharding key that a message names, else to the queues in turn.
type chosen struct {
	mutex sync.Mutex
	turn  int
}

func (c *chosen) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if message.Queue != nil {
		for _, queue := range queues {
			if queue.QueueId == message.Queue.QueueId {
				return queue
			}
		}
	}
	if key := message.GetShardingKey(); key != "" {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(key))
		return queues[int(sum.Sum32())%len(queues)]
	}
	c.turn++
	return queues[c.turn%len(queues)]
}

// script is a transaction listener that answers as it is told.
type script struct {
	mutex    sync.Mutex
	news     *sync.Cond
	outcomes map[string]string
	checks   map[string][]string
	seen     []map[string]any
}

func (s *script) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.state(s.outcomes[message.GetKeys()])
}

func (s *script) state(name string) primitive.LocalTransactionState {
	switch name {
	case "COMMIT_MESSAGE", "commit", "COMMIT":
		return primitive.CommitMessageState
	case "ROLLBACK_MESSAGE", "rollback", "ROLLBACK":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (s *script) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := message.GetKeys()
	name := ""
	if left := s.checks[key]; len(left) > 0 {
		name = left[0]
		if len(left) > 1 {
			s.checks[key] = left[1:]
		}
	}
	described := describe(message)
	described["checkedMs"] = time.Now().UnixMilli()
	described["answer"] = name
	s.seen = append(s.seen, described)
	s.news.Broadcast()
	return s.state(name)
}

type started struct {
	plain  rocketmq.Producer
	trans  rocketmq.TransactionProducer
	script *script
}

var (
	mutex     sync.Mutex
	producers = map[string]*started{}
)

func startProducer(call *Call) (any, error) {
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{call.Nameserver}),
		producer.WithGroupName(call.Group),
		producer.WithInstanceName(call.Name),
		producer.WithQueueSelector(&chosen{}),
	}
	if call.AccessKey != "" {
		options = append(options, producer.WithCredentials(call.credentials()))
	}
	made := &started{}
	var err error
	if call.Transactional {
		made.script = &script{outcomes: map[string]string{}, checks: map[string][]string{}}
		made.script.news = sync.NewCond(&made.script.mutex)
		if len(call.Checks) > 0 {
			_ = json.Unmarshal(call.Checks, &made.script.checks)
		}
		if made.trans, err = rocketmq.NewTransactionProducer(made.script, options...); err == nil {
			err = made.trans.Start()
		}
	} else if made.plain, err = rocketmq.NewProducer(options...); err == nil {
		err = made.plain.Start()
	}
	if err != nil {
		return nil, err
	}
	mutex.Lock()
	producers[call.Name] = made
	mutex.Unlock()
	return call.Name, nil
}

func named(call *Call) (*started, error) {
	mutex.Lock()
	defer mutex.Unlock()
	if found := producers[call.Name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no producer %s", call.Name)
}

func closeProducer(call *Call) (any, error) {
	mutex.Lock()
	found := producers[call.Name]
	delete(producers, call.Name)
	mutex.Unlock()
	if found == nil {
		return nil, nil
	}
	stop := func() {
		if found.plain != nil {
			_ = found.plain.Shutdown()
		} else {
			_ = found.trans.Shutdown()
		}
	}
	if call.Wait {
		stop()
	} else {
		go stop()
	}
	return nil, nil
}

func (call *Call) message() *primitive.Message {
	message := primitive.NewMessage(call.Topic, call.Body)
	message.Flag = call.Flag
	for name, value := range call.Properties {
		message.WithProperty(name, value)
	}
	if call.Tag != "" {
		message.WithTag(call.Tag)
	}
	if call.Keys != "" {
		message.WithProperty(primitive.PropertyKeys, call.Keys)
	}
	if call.Hash != "" {
		message.WithShardingKey(call.Hash)
	}
	if call.DelayLevel > 0 {
		message.WithDelayTimeLevel(call.DelayLevel)
	}
	if call.QueueID != nil {
		message.Queue = &primitive.MessageQueue{Topic: call.Topic, QueueId: *call.QueueID}
	}
	return message
}

func sent(result *primitive.SendResult) map[string]any {
	names := map[primitive.SendStatus]string{
		primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}
	return map[string]any{
		"status": names[result.Status], "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"broker": result.MessageQueue.BrokerName, "queueId": result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset, "transactionId": result.TransactionID,
	}
}

func deliver(found *started, mode string, messages ...*primitive.Message) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	switch mode {
	case "oneway":
		return nil, found.plain.SendOneWay(ctx, messages...)
	case "async":
		type outcome struct {
			result *primitive.SendResult
			err    error
		}
		done := make(chan outcome, 1)
		err := found.plain.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			done <- outcome{result, err}
		}, messages...)
		if err != nil {
			return nil, err
		}
		select {
		case one := <-done:
			if one.err != nil {
				return nil, one.err
			}
			return sent(one.result), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	result, err := found.plain.SendSync(ctx, messages...)
	if err != nil {
		return nil, err
	}
	return sent(result), nil
}

func send(call *Call) (any, error) {
	found, err := named(call)
	if err != nil {
		return nil, err
	}
	return deliver(found, call.Mode, call.message())
}

func sendBatch(call *Call) (any, error) {
	found, err := named(call)
	if err != nil {
		return nil, err
	}
	messages := make([]*primitive.Message, 0, len(call.Messages))
	for i := range call.Messages {
		messages = append(messages, call.Messages[i].message())
	}
	return deliver(found, "sync", messages...)
}

func sendInTransaction(call *Call) (any, error) {
	found, err := named(call)
	if err != nil {
		return nil, err
	}
	var answers []string
	if err := json.Unmarshal(call.Checks, &answers); err != nil {
		return nil, err
	}
	found.script.mutex.Lock()
	found.script.outcomes[call.Keys] = call.Outcome
	found.script.checks[call.Keys] = answers
	found.script.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	result, err := found.trans.SendMessageInTransaction(ctx, call.message())
	if err != nil {
		return nil, err
	}
	return sent(result.SendResult), nil
}

func checks(call *Call) (any, error) {
	found, err := named(call)
	if err != nil {
		return nil, err
	}
	return collected(&found.script.mutex, found.script.news, func() []map[string]any { return found.script.seen }, call), nil
}

// collected waits until there are enough or the time is over.
func collected(mutex *sync.Mutex, news *sync.Cond, seen func() []map[string]any, call *Call) []map[string]any {
	late := time.AfterFunc(time.Duration(call.WaitMs)*time.Millisecond, news.Broadcast)
	defer late.Stop()
	until := time.Now().Add(time.Duration(call.WaitMs) * time.Millisecond)
	mutex.Lock()
	defer mutex.Unlock()
	for len(seen()) < call.Count && time.Now().Before(until) {
		news.Wait()
	}
	return append([]map[string]any{}, seen()...)
}
