// Command workload is the only container of pods on real nodes, and keeps their namespaces as the pause container. It does
// nothing, and takes as long as its arguments say to become ready and to stop.
package main

import (
	"flag"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	readyAfter := flag.Duration("ready-after", 0, "listen on port 8080 after this time; 0: never")
	stopAfter := flag.Duration("stop-after", 0, "how long it runs on after SIGTERM")
	flag.Parse()
	if *readyAfter > 0 {
		time.AfterFunc(*readyAfter, listen)
	}
	received := make(chan os.Signal, 8)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for each := range received {
		if each == syscall.SIGCHLD {
			reap()
			continue
		}
		time.Sleep(*stopAfter)
		return
	}
}

func listen() {
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		panic(err)
	}
	for {
		if connection, err := listener.Accept(); err == nil {
			connection.Close()
		}
	}
}

// A pause container gets the orphans of the pod, if its containers share a PID namespace.
func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}
