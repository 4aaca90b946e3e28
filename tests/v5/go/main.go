// What the official Go client of RocketMQ 5 does against a front: SCENE ENDPOINT TOPIC GROUP.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func check(err error) {
	if err != nil {
		fmt.Println("ERROR", err)
		os.Exit(1)
	}
}

func main() {
	scene, endpoint, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	config := &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
	checker := &rmq.TransactionChecker{Check: func(m *rmq.MessageView) rmq.TransactionResolution {
		if strings.HasPrefix(string(m.GetBody()), "good") {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}}
	producer, err := rmq.NewProducer(config, rmq.WithTopics(topic), rmq.WithTransactionChecker(checker))
	check(err)
	check(producer.Start())
	count := 5
	if scene == "transactions" {
		count = 2
		for _, body := range []string{"committed", "rolled-back", "good-orphan", "bad-orphan"} {
			t := producer.BeginTransaction()
			_, err := producer.SendWithTransaction(context.TODO(), &rmq.Message{Topic: topic, Body: []byte(body)}, t)
			check(err)
			if body == "committed" {
				check(t.Commit())
			} else if body == "rolled-back" {
				check(t.RollBack())
			}
		}
	} else {
		for i := 0; i < 5; i++ {
			m := &rmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("m%d", i))}
			m.SetTag("a")
			m.SetKeys("k")
			_, err := producer.Send(context.TODO(), m)
			check(err)
		}
	}
	consumer, err := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(10*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	check(err)
	check(consumer.Start())
	seen := []string{}
	for end := time.Now().Add(40 * time.Second); len(seen) < count && time.Now().Before(end); {
		views, err := consumer.Receive(context.TODO(), 16, 20*time.Second)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		for _, v := range views {
			seen = append(seen, string(v.GetBody()))
			check(consumer.Ack(context.TODO(), v))
		}
	}
	sort.Strings(seen)
	fmt.Println("SEEN " + strings.Join(seen, ","))
	os.Exit(0)
}
