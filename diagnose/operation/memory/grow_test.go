package memory

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// growerEnv makes this binary a process that allocates memory on command.
const growerEnv = "KERNOSIS_OPERATION_GROWER"

// grow reads lines: "take BYTES" allocates memory at once, "rate BYTES" allocates as much each
// second from then on. It ends with its stdin, or after a minute.
func grow() {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			lines <- s.Text()
		}
	}()
	const step = 10 * time.Millisecond
	tick, end := time.NewTicker(step), time.After(time.Minute)
	defer tick.Stop()
	rate, owed := 0, 0
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			word, n, _ := strings.Cut(line, " ")
			bytes, err := strconv.Atoi(n)
			if err != nil {
				panic(err)
			}
			if word == "rate" {
				rate = bytes
			} else {
				takeMemory(bytes)
			}
			fmt.Println("done")
		case <-tick.C:
			if owed += rate / int(time.Second/step); owed >= os.Getpagesize() {
				takeMemory(owed)
				owed = 0
			}
		case <-end:
			return
		}
	}
}

// takeMemory maps n bytes and touches each page.
func takeMemory(n int) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
}
