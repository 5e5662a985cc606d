package agent

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// An agent whose folder of rules can't be watched keeps its rules and does not end.
func TestRulesThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var logs testenv.LogBuffer
		p := parts{
			cfg: Config{RulesDir: dir}, changed: changes(dir), agent: &pipeline{},
			log: slog.New(slog.NewTextHandler(&logs, nil)),
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.watchRules(ctx) }()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("the agent ends: %v", err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, text := range []string{"level=WARN", "rules not reloaded"} {
			if n := strings.Count(logs.String(), text); n != 1 {
				t.Errorf("%q is logged %d times within a minute:\n%s", text, n, logs.String())
			}
		}
	})
}
