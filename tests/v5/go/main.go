// What the official Go client of RocketMQ 5 does against a front; README.md has the scenes.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const within = 40 * time.Second

var (
	topic, group string
	config       *rmq.Config
	everything   map[string]*rmq.FilterExpression
)

func check(err error) {
	if err != nil {
		fmt.Println("REFUSED", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func text(view *rmq.MessageView) string {
	body := string(view.GetBody())
	name := strings.TrimRight(body, "x")
	if len(body)-len(name) > 1_000 {
		return fmt.Sprintf("%s*%d", name, len(body)-len(name))
	}
	return body
}

func line() {
	fmt.Println("HELD")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
}

// Does it as soon as the channel, which waits between its attempts, is connected again. An attempt
// has five seconds, which a machine with other work may take for a handshake.
func patiently(work func() error) {
	err := work()
	for end := time.Now().Add(within); err != nil && time.Now().Before(end); err = work() {
		if !strings.Contains(err.Error(), "Unavailable") && !strings.Contains(err.Error(), "deadline exceeded") {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	check(err)
}

func producing() rmq.Producer {
	checker := &rmq.TransactionChecker{Check: func(m *rmq.MessageView) rmq.TransactionResolution {
		if strings.HasPrefix(string(m.GetBody()), "good") {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}}
	producer, err := rmq.NewProducer(config, rmq.WithTopics(topic), rmq.WithTransactionChecker(checker))
	check(err)
	check(producer.Start())
	return producer
}

func send(producer rmq.Producer, message *rmq.Message) *rmq.SendReceipt {
	receipts, err := producer.Send(context.TODO(), message)
	check(err)
	return receipts[0]
}

func message(body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func half(producer rmq.Producer, body string) rmq.Transaction {
	transaction := producer.BeginTransaction()
	_, err := producer.SendWithTransaction(context.TODO(), message(body), transaction)
	check(err)
	return transaction
}

func receiving() rmq.SimpleConsumer {
	consumer, err := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(everything))
	check(err)
	check(consumer.Start())
	return consumer
}

func received(consumer rmq.SimpleConsumer, count int, hidden time.Duration, isAcked bool) []*rmq.MessageView {
	seen := []*rmq.MessageView{}
	for end := time.Now().Add(within); len(seen) < count && time.Now().Before(end); {
		views, err := consumer.Receive(context.TODO(), 16, hidden)
		if err != nil { // also when there is nothing
			fmt.Fprintln(os.Stderr, err)
		}
		for _, view := range views {
			seen = append(seen, view)
			if isAcked {
				check(consumer.Ack(context.TODO(), view))
			}
		}
	}
	return seen
}

func bodies(count int) []string {
	seen := []string{}
	for _, view := range received(receiving(), count, 15*time.Second, true) {
		seen = append(seen, text(view))
	}
	sort.Strings(seen)
	return seen
}

func pushed(count int, isWell func(*rmq.MessageView) bool, work func()) []string {
	var lock sync.Mutex
	seen, enough := []string{}, make(chan bool, 1_000)
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		seen = append(seen, fmt.Sprintf("%s:%d", text(view), view.GetDeliveryAttempt()))
		if len(seen) >= count {
			enough <- true
		}
		if isWell(view) {
			return rmq.SUCCESS
		}
		return rmq.FAILURE
	}}
	consumer, err := rmq.NewPushConsumer(config, rmq.WithPushSubscriptionExpressions(everything),
		rmq.WithPushAwaitDuration(5*time.Second), rmq.WithPushMessageListener(listener))
	check(err)
	check(consumer.Start())
	work()
	select {
	case <-enough:
	case <-time.After(within):
	}
	lock.Lock()
	defer lock.Unlock()
	return append([]string{}, seen...)
}

func simple() []string {
	producer := producing()
	for nth := 0; nth < 5; nth++ {
		m := message(fmt.Sprintf("m%d", nth))
		m.SetTag("a")
		m.SetKeys(fmt.Sprintf("k%d", nth))
		m.AddProperty("shop", "3")
		send(producer, m)
	}
	seen := []string{}
	for _, view := range received(receiving(), 5, 15*time.Second, true) {
		told := fmt.Sprintf("%s:%s:%s:%d", text(view), *view.GetTag(), view.GetProperties()["shop"], view.GetDeliveryAttempt())
		seen = append(seen, told)
	}
	sort.Strings(seen)
	return seen
}

func push() []string {
	producer := producing()
	isWell := func(view *rmq.MessageView) bool { return text(view) != "m7" || view.GetDeliveryAttempt() > 1 }
	seen := pushed(11, isWell, func() {
		for nth := 0; nth < 10; nth++ {
			send(producer, message(fmt.Sprintf("m%d", nth)))
		}
	})
	sort.Strings(seen)
	return seen
}

func fifo() []string {
	producer := producing()
	return pushed(20, func(*rmq.MessageView) bool { return true }, func() {
		for nth := 0; nth < 20; nth++ {
			m := message(fmt.Sprintf("g%d-%d", nth%2, nth))
			m.SetMessageGroup(fmt.Sprintf("g%d", nth%2))
			send(producer, m)
		}
	})
}

func delay() []string {
	producer := producing()
	due := time.Now().Truncate(time.Second).Add(3 * time.Second)
	recalled, late := message("recalled"), message("late")
	recalled.SetDelayTimestamp(due)
	late.SetDelayTimestamp(due)
	_, err := producer.Recall(context.TODO(), topic, send(producer, recalled).RecallHandle)
	check(err)
	send(producer, late)
	seen := bodies(1)
	if time.Now().Before(due) {
		return append(seen, "early")
	}
	return append(seen, "due")
}

func transactions() []string {
	producer := producing()
	for _, body := range []string{"committed", "rolled-back", "good-orphan", "bad-orphan"} {
		transaction := half(producer, body)
		if body == "committed" {
			check(transaction.Commit())
		} else if body == "rolled-back" {
			check(transaction.RollBack())
		}
	}
	return bodies(2)
}

func dead() []string {
	producer := producing()
	seen := pushed(2, func(*rmq.MessageView) bool { return false }, func() { send(producer, message("poison")) })
	line()
	return seen
}

func ackedLater() []string {
	send(producing(), message("held"))
	consumer := receiving()
	view := received(consumer, 1, 30*time.Second, false)[0]
	line()
	patiently(func() error { return consumer.Ack(context.TODO(), view) })
	return []string{text(view)}
}

func endedLater() []string {
	transaction := half(producing(), "kept")
	line()
	patiently(transaction.Commit)
	return bodies(1)
}

func sends() []string {
	producer := producing()
	send(producer, message("short"))
	send(producer, message("long"+strings.Repeat("x", 20_000)))
	return []string{"sent"}
}

func receive() []string {
	count, err := strconv.Atoi(os.Getenv("ESCROW_COUNT"))
	check(err)
	return bodies(count)
}

func main() {
	given := append(os.Args[1:], "", "")
	topic, group = given[2], given[3]
	config = &rmq.Config{Endpoint: given[1], ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{AccessKey: given[4], AccessSecret: given[5]}}
	everything = map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}
	scenes := map[string]func() []string{
		"simple": simple, "push": push, "fifo": fifo, "delay": delay, "transactions": transactions,
		"dead": dead, "ackedLater": ackedLater, "endedLater": endedLater, "send": sends,
		"receive": receive,
	}
	fmt.Println("SEEN " + strings.Join(scenes[given[0]](), ","))
	os.Exit(0)
}
