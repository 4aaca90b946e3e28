// Command driver drives the official Go client: a JSON command a line on standard input, a JSON answer a line on
// standard output, in the form of the Java driver beside it. It ends with its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Call is one command.
type Call struct {
	ID            int64             `json:"id"`
	Op            string            `json:"op"`
	Name          string            `json:"name"`
	Nameserver    string            `json:"nameserver"`
	Group         string            `json:"group"`
	Subscriptions map[string]string `json:"subscriptions"`
	Sql           bool              `json:"sql"`
	Orderly       bool              `json:"orderly"`
	Failures      map[string]int    `json:"failures"`
	Settings      map[string]any    `json:"settings"`
	Transactional bool              `json:"transactional"`
	AccessKey     string            `json:"accessKey"`
	SecretKey     string            `json:"secretKey"`
	Checks        json.RawMessage   `json:"checks"`
	Outcome       string            `json:"outcome"`
	Count         int               `json:"count"`
	WaitMs        int64             `json:"waitMs"`
	Wait          bool              `json:"wait"`
	Topic         string            `json:"topic"`
	Body          []byte            `json:"body"`
	Tag           string            `json:"tag"`
	Keys          string            `json:"keys"`
	Properties    map[string]string `json:"properties"`
	Mode          string            `json:"mode"`
	Hash          string            `json:"hash"`
	QueueID       *int              `json:"queueId"`
	Flag          int32             `json:"flag"`
	DelayLevel    int               `json:"delayLevel"`
	Messages      []Call            `json:"messages"`
}

// credentials signs requests.
func (c *Call) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: c.AccessKey, SecretKey: c.SecretKey}
}

var operations = map[string]func(*Call) (any, error){
	"ping":                 func(*Call) (any, error) { return "pong", nil },
	"producer.start":       startProducer,
	"producer.send":        send,
	"producer.batch":       sendBatch,
	"producer.transaction": sendInTransaction,
	"producer.checks":      checks,
	"producer.close":       closeProducer,
	"consumer.start":       startConsumer,
	"consumer.received":    received,
	"consumer.close":       closeConsumer,
}

func answer(line []byte) map[string]any {
	var call Call
	if err := json.Unmarshal(line, &call); err != nil {
		return map[string]any{"id": call.ID, "error": "BadCommand", "message": err.Error()}
	}
	operation := operations[call.Op]
	if operation == nil {
		return map[string]any{"id": call.ID, "error": "BadCommand", "message": "no operation " + call.Op}
	}
	value, err := operation(&call)
	if err != nil {
		return map[string]any{"id": call.ID, "error": fmt.Sprintf("%T", err), "message": err.Error()}
	}
	return map[string]any{"id": call.ID, "value": value}
}

// idFirst writes the id in front, where the reader of the other side looks for it.
func idFirst(found map[string]any) string {
	id := found["id"]
	delete(found, "id")
	rest, _ := json.Marshal(found)
	return fmt.Sprintf(`{"id":%v,%s`, id, rest[1:])
}

func main() {
	rlog.SetLogLevel("error")
	channel := os.Stdout
	os.Stdout = os.Stderr // the library prints now and then; the channel is ours
	commands := bufio.NewReaderSize(os.Stdin, 1<<24)
	for {
		line, err := commands.ReadBytes('\n')
		if err != nil {
			return
		}
		fmt.Fprintln(channel, idFirst(answer(line)))
	}
}
