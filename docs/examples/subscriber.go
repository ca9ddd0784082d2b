// Prints each event of Plimsoll while it is connected.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

func main() {
	server, err := net.Dial("tcp", os.Args[1]) // 127.0.0.1:4222
	if err != nil {
		panic(err)
	}
	fmt.Fprint(server, "CONNECT {\"verbose\":false}\r\nSUB plimsoll.v1.> 1\r\n")
	for lines := bufio.NewReader(server); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			panic(err)
		}
		switch words := strings.Fields(line); words[0] {
		case "PING":
			fmt.Fprint(server, "PONG\r\n")
		case "MSG":
			size, _ := strconv.Atoi(words[len(words)-1])
			body := make([]byte, size+2)
			io.ReadFull(lines, body)
			var event struct{ ID, Type, Source string }
			json.Unmarshal(body[:size], &event)
			fmt.Println(event.Type, event.Source, event.ID)
		}
	}
}
