package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

func TestOnceEndsWhereTheFileEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	now := time.Now().Format(time.RFC3339)
	for name, content := range map[string]string{path + ".1": now + " one\n", path: now + " two\n" + now + " three"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reader := func(path string) *Reader {
		t.Helper()
		r, err := New(Config{
			Path: path, Lookback: time.Hour,
			Format: Format{Timestamp: `^\S+`, TimestampFormat: time.RFC3339, Message: `\S+$`},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var items []string
	err := reader(path).Once(t.Context(), func(item logs.Item) error {
		items = append(items, string(item.Line.Text))
		return nil
	})
	if want := []string{"one", "two", "three"}; err != nil || !slices.Equal(items, want) {
		t.Errorf("%q, %v; want %q", items, err, want)
	}
	enough := errors.New("enough")
	if err := reader(path).Once(t.Context(), func(logs.Item) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reader(path).Once(ended, func(logs.Item) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	wrong, err := New(Config{Path: path, Lookback: time.Hour, Format: Format{Timestamp: "^.{15}", TimestampFormat: time.Stamp}})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("log file %s: 3 lines, none with a time in the format %q", path, time.Stamp)
	if err := wrong.Once(t.Context(), func(logs.Item) error { return nil }); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := reader(path+".missing").Once(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}
