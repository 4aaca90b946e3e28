// Calls the tests' server (server.py) with grpc-go, and prints a line for each thing that it saw.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *(v.(*[]byte)), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*(v.(*[]byte)) = bytes.Clone(data)
	return nil
}

func (raw) Name() string { return "raw" }

const (
	workers     = 64
	callsOfEach = 100
	givenUp     = 300
)

var channel *grpc.ClientConn

func call(ctx context.Context, method string, body []byte) ([]byte, error) {
	var answer []byte
	err := channel.Invoke(ctx, "/t/"+method, &body, &answer)
	return answer, err
}

func outcome(err error) string {
	return strings.TrimSpace(fmt.Sprint(status.Code(err), " ", status.Convert(err).Message()))
}

func echoes(ctx context.Context) int {
	var group sync.WaitGroup
	failed := make(chan error, workers*callsOfEach)
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := 0; number < callsOfEach; number++ {
				if _, err := call(ctx, "Echo", []byte("hello")); err != nil {
					failed <- err
				}
			}
		}()
	}
	group.Wait()
	return workers*callsOfEach - len(failed)
}

func split(ctx context.Context, body []byte) int {
	stream, err := channel.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/t/Split")
	if err != nil {
		panic(err)
	}
	if err := stream.SendMsg(&body); err != nil {
		panic(err)
	}
	if err := stream.CloseSend(); err != nil {
		panic(err)
	}
	size := 0
	for {
		var part []byte
		if err := stream.RecvMsg(&part); err != nil {
			return size
		}
		size += len(part)
	}
}

func main() {
	var err error
	channel, err = grpc.NewClient("127.0.0.1:"+os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	large := bytes.Repeat([]byte("z"), 10_000_000)
	answer, err := call(ctx, "Echo", large)
	fmt.Println("large", bytes.Equal(answer, large), outcome(err))
	fmt.Println("split", split(ctx, large))
	fmt.Println("echoes", echoes(ctx))
	for number := 0; number < givenUp; number++ {
		short, stop := context.WithTimeout(ctx, time.Millisecond)
		_, err = call(short, "Never", nil)
		stop()
	}
	fmt.Println("given up", status.Code(err))
	_, err = call(ctx, "Refuse", []byte("nö %"))
	fmt.Println("refused", outcome(err))
	_, err = call(ctx, "Other", nil)
	fmt.Println("other", outcome(err))
	fmt.Println("echoes", echoes(ctx))
}
