package kmsg

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/logs"
)

func TestOnceEndsWhereTheLogEnds(t *testing.T) {
	reader := func() *Reader {
		r := New(Config{Lookback: everything})
		r.boot = "b"
		r.open = func(context.Context, string) (device, error) {
			return &ring{steps: []step{line(1), failing(unix.EPIPE), line(5), line(6)}}, nil
		}
		return r
	}
	var items []string
	r := reader()
	err := r.Once(t.Context(), func(item logs.Item) error {
		items = append(items, describe(item))
		return nil
	})
	if want := []string{"1", "overrun:3", "5", "6"}; err != nil || !slices.Equal(items, want) {
		t.Errorf("%q, %v; want %q", items, err, want)
	}
	if r.Position() == "" {
		t.Error("no position")
	}
	enough := errors.New("enough")
	if err := reader().Once(t.Context(), func(logs.Item) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reader().Once(ended, func(logs.Item) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := New(Config{Path: "/no/such"}).Once(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
