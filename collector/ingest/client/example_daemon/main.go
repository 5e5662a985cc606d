// Command example_daemon is a template for a problem daemon: it reports a condition while a
// filesystem has too little free space, and an event with the text of each note that somebody
// leaves there (a file tell-kernosis).
//
// The agent's configuration for it:
//
//	reports:
//	- name: example-daemon
//	  conditions:
//	  - type: ScratchFull
//	    healthyReason: ScratchHasRoom
//	    healthyMessage: the scratch filesystem has room
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/collector/ingest/client"
)

func main() {
	d := daemon{}
	socket := flag.String("socket", "/run/kernosis/report.sock", "the agent's report socket")
	source := flag.String("source", "example-daemon", "name in the agent's configuration")
	flag.StringVar(&d.path, "path", "/tmp", "folder on the filesystem to watch")
	flag.Float64Var(&d.minFree, "min-free", 5, "percent of the filesystem that should be free")
	flag.DurationVar(&d.every, "every", 10*time.Second, "how often to check")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx, *socket, *source); err != nil {
		log.Fatal(err)
	}
}

// daemon watches a filesystem.
type daemon struct {
	path    string
	minFree float64
	every   time.Duration
}

// run reports until ctx ends.
func (d *daemon) run(ctx context.Context, socket, source string) error {
	c, err := client.New(socket, client.Source{
		Name: source, Heartbeat: max(d.every, time.Second), ValidFor: max(3*d.every, 10*time.Second),
		OnError: func(err error) { log.Print(err) },
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	ticker := time.NewTicker(d.every)
	defer ticker.Stop()
	for {
		if err := d.look(c); err != nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
			// Close sends what is waiting; the condition stays until it is no longer valid.
			return errors.Join(c.Close(), <-ended)
		case <-ticker.C:
		}
	}
}

// look reports the current state.
func (d *daemon) look(c *client.Client) error {
	cond := client.Condition{Type: "ScratchFull", Status: client.False}
	var s syscall.Statfs_t
	switch err := syscall.Statfs(d.path, &s); {
	case err != nil:
		cond.Status, cond.Message = client.Unknown, fmt.Sprintf("statfs %s: %v", d.path, err)
	case s.Blocks > 0 && 100*float64(s.Bavail)/float64(s.Blocks) < d.minFree:
		// A constant message: the free space would change it each time.
		cond.Status, cond.Reason = client.True, "BelowMinimum"
		cond.Message = fmt.Sprintf("less than %g %% of %s is free", d.minFree, d.path)
	}
	if err := c.SetCondition(cond); err != nil {
		return err
	}
	note := filepath.Join(d.path, "tell-kernosis")
	text, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(note); err != nil {
		return err
	}
	return c.Event(client.Event{Severity: client.Warn, Reason: "NoteFound", Message: string(text)})
}
