package main

import (
	"context"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// listener records what it is given, and fails as often as it is told.
type listener struct {
	mutex    sync.Mutex
	news     *sync.Cond
	failures map[string]int
	seen     []map[string]any
	push     rocketmq.PushConsumer
}

var consumers = map[string]*listener{}

func (l *listener) take(name string, orderly bool, messages []*primitive.MessageExt) consumer.ConsumeResult {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	outcome := consumer.ConsumeSuccess
	for _, message := range messages {
		described := describe(message)
		described["consumedMs"] = time.Now().UnixMilli()
		described["consumer"] = name
		described["answer"] = "CONSUME_SUCCESS"
		if l.failures[message.GetKeys()] > 0 {
			l.failures[message.GetKeys()]--
			outcome = consumer.ConsumeRetryLater
			if orderly {
				outcome = consumer.SuspendCurrentQueueAMoment
			}
			described["answer"] = "RECONSUME_LATER"
		}
		l.seen = append(l.seen, described)
	}
	l.news.Broadcast()
	return outcome
}

func startConsumer(call *Call) (any, error) {
	made := &listener{failures: call.Failures}
	made.news = sync.NewCond(&made.mutex)
	model := consumer.Clustering
	if call.Settings["messageModel"] == "BROADCASTING" {
		model = consumer.BroadCasting
	}
	from := consumer.ConsumeFromFirstOffset
	if call.Settings["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET" {
		from = consumer.ConsumeFromLastOffset
	}
	times := int32(-1)
	if wanted, ok := call.Settings["maxReconsumeTimes"].(float64); ok {
		times = int32(wanted)
	}
	options := []consumer.Option{
		consumer.WithMaxReconsumeTimes(times),
		consumer.WithNameServer(primitive.NamesrvAddr{call.Nameserver}),
		consumer.WithGroupName(call.Group),
		consumer.WithInstance(call.Name),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerOrder(call.Orderly),
	}
	if call.AccessKey != "" {
		options = append(options, consumer.WithCredentials(call.credentials()))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	kind := consumer.TAG
	if call.Sql {
		kind = consumer.SQL92
	}
	for topic, expression := range call.Subscriptions {
		selector := consumer.MessageSelector{Type: kind, Expression: expression}
		err = push.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return made.take(call.Name, call.Orderly, messages), nil
		})
		if err != nil {
			return nil, err
		}
	}
	made.push = push
	if err = push.Start(); err != nil {
		return nil, err
	}
	mutex.Lock()
	consumers[call.Name] = made
	mutex.Unlock()
	return call.Name, nil
}

func received(call *Call) (any, error) {
	mutex.Lock()
	found := consumers[call.Name]
	mutex.Unlock()
	return collected(&found.mutex, found.news, func() []map[string]any { return found.seen }, call), nil
}

func closeConsumer(call *Call) (any, error) {
	mutex.Lock()
	found := consumers[call.Name]
	delete(consumers, call.Name)
	mutex.Unlock()
	if found == nil {
		return nil, nil
	}
	if call.Wait {
		_ = found.push.Shutdown()
	} else {
		go func() { _ = found.push.Shutdown() }()
	}
	return nil, nil
}

func describe(message *primitive.MessageExt) map[string]any {
	queueID := -1
	if message.Queue != nil {
		queueID = message.Queue.QueueId
	}
	return map[string]any{
		"topic": message.Topic, "queueId": queueID, "queueOffset": message.QueueOffset,
		"commitLogOffset": message.CommitLogOffset, "msgId": message.MsgId, "offsetMsgId": message.OffsetMsgId,
		"transactionId": message.TransactionId, "bornTimestamp": message.BornTimestamp,
		"storeTimestamp": message.StoreTimestamp, "sysFlag": message.SysFlag, "flag": message.Flag,
		"reconsumeTimes": message.ReconsumeTimes, "preparedTransactionOffset": message.PreparedTransactionOffset,
		"properties": message.GetProperties(), "body": message.Body,
	}
}
