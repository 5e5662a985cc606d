package collector

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/await"
)

// A reader that hangs while the agent stops continues to use its ring when it is free again.
func TestCloseBesideAReader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	sources, err := Open(Config{HostRoot: "/"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer sources.Close(true)
	hangs, release := make(chan struct{}, 1), make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- sources.Run(ctx, func(ev *event.Event) {
			if ev.Kind != event.Canary {
				return
			}
			select {
			case hangs <- struct{}{}:
			default:
			}
			<-release
		}, func() {})
	}()
	select {
	case <-hangs:
	case <-time.After(await.Within(time.Minute)):
		t.Fatal("no record came")
	}
	end()
	if err := sources.Close(true); err != nil {
		t.Error(err)
	}
	close(release)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(await.Within(time.Minute)):
		t.Fatal("the readers did not end")
	}
}
