// Judges histories (src/escrowmq/drill/history.py) that it reads from its standard input, with porcupine.
//
// A queue is a counter: an acknowledged send gets an offset beyond those of all sends that were
// acknowledged before it began, and whoever finds the end of the queue finds it beyond them. An
// offset is a register that is written once: sends and reads that name it name one content.
//
// Prints a line for each queue or offset where that does not hold; the exit code is 1 if there is one.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 5 * time.Minute

type event struct {
	Event       string `json:"event"`
	Topic       string `json:"topic"`
	Queue       int    `json:"queue"`
	Offset      int64  `json:"offset"`
	Key         string `json:"key"`
	Transaction string `json:"transaction"`
	BeginNs     int64  `json:"begin_ns"`
	EndNs       int64  `json:"end_ns"`
}

var queueModel = porcupine.Model{
	Init: func() interface{} { return int64(-1) },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		last, asked := state.(int64), input.(event)
		if asked.Offset <= last {
			return false, last
		}
		if asked.Event == "sent" {
			return true, asked.Offset
		}
		return true, last
	},
}

var offsetModel = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		content, key := state.(string), input.(event).Key
		return content == "" || content == key, key
	},
}

func main() {
	queues, offsets := read()
	isBroken := judge("queue", queueModel, queues)
	isBroken = judge("offset", offsetModel, offsets) || isBroken
	if isBroken {
		os.Exit(1)
	}
}

func read() (map[string][]porcupine.Operation, map[string][]porcupine.Operation) {
	queues := map[string][]porcupine.Operation{}
	offsets := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for client := 0; lines.Scan(); client++ {
		var found event
		if err := json.Unmarshal(lines.Bytes(), &found); err != nil {
			fail(err)
		}
		isSend := found.Event == "sent" && found.Transaction == ""
		isEnd := found.Event == "read" && found.Key == ""
		operation := porcupine.Operation{
			ClientId: client, Input: found, Call: found.BeginNs, Return: found.EndNs,
		}
		queue := fmt.Sprintf("%s/%d", found.Topic, found.Queue)
		if isSend || isEnd {
			queues[queue] = append(queues[queue], operation)
		}
		if isSend || found.Event == "read" && !isEnd {
			offset := fmt.Sprintf("%s/%d", queue, found.Offset)
			offsets[offset] = append(offsets[offset], operation)
		}
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
	return queues, offsets
}

func judge(what string, model porcupine.Model, histories map[string][]porcupine.Operation) bool {
	names := make([]string, 0, len(histories))
	for name := range histories {
		names = append(names, name)
	}
	sort.Strings(names)
	isBroken := false
	for _, name := range names {
		result := porcupine.CheckOperationsTimeout(model, histories[name], timeout)
		if result != porcupine.Ok {
			fmt.Printf("%s %s: %s\n", what, name, result)
			isBroken = true
		}
	}
	return isBroken
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
