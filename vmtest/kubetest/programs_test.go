package kubetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fakeBuild creates files instead of programs, to test the cache.
func fakeBuild(dir string, builds *atomic.Int32) *build {
	return &build{
		set: sets()["server"], cache: dir, dir: filepath.Join(dir, "key"), progress: &bytes.Buffer{},
		make: func(_ context.Context, into string) error {
			builds.Add(1)
			for _, p := range sets()["server"].all {
				if err := os.WriteFile(filepath.Join(into, p.name), nil, 0o755); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func TestOneOfManyBuilds(t *testing.T) {
	dir := t.TempDir()
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := fakeBuild(dir, &builds).ensure(t.Context())
			if err != nil || !complete(got, sets()["server"]) {
				t.Errorf("ensure: %v", err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
}

func TestWaitingForAnotherBuildIsReportedAndEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	lock, err := testenv.LockFile(t.Context(), filepath.Join(dir, "lock"), func() { t.Error("waited for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var builds atomic.Int32
	b := fakeBuild(dir, &builds)
	b.progress = writerFunc(func(text []byte) {
		if strings.Contains(string(text), "waiting for another build") {
			cancel()
		}
	})
	if _, err := b.ensure(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ensure: %v, want that it was cancelled", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(text []byte) (int, error) { f(text); return len(text), nil }

func TestAFailedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	var builds atomic.Int32
	for _, fail := range []func(context.Context, string) error{
		func(context.Context, string) error { return errors.New("no luck") },
		func(_ context.Context, into string) error { // one program is missing
			return os.WriteFile(filepath.Join(into, "etcd"), nil, 0o755)
		},
	} {
		b := fakeBuild(dir, &builds)
		b.make = fail
		if _, err := b.ensure(t.Context()); err == nil {
			t.Error("a build that failed is said to be there")
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 || entries[0].Name() != "lock" {
			t.Errorf("left: %v", entries)
		}
	}
}

func TestSweepKeepsWhatIsUsed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"used": time.Hour, "old": keepUnused + time.Hour, unfinished + "1": 0} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	(&build{cache: dir}).sweep(now)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "used" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestTheKeyChangesWithTheSources(t *testing.T) {
	dir := t.TempDir()
	key := func(sum string) string {
		t.Helper()
		err := errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tools\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "go.sum"), []byte(sum), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		k, err := (&build{set: sets()["server"], module: dir}).key(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if a, b, c := key("a"), key("a"), key("b"); a != b || a == c {
		t.Errorf("keys %s, %s, %s", a, b, c)
	}
}

// The error contains go's error output.
func TestABuildErrorReportsWhatGoSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module tools\n\ngo 1.26.8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &build{set: sets()["server"], module: dir, cache: dir, dir: dir, progress: &bytes.Buffer{}}
	err := b.compile(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "k8s.io/kubernetes") {
		t.Errorf("error: %v", err)
	}
}

func TestTooLittleSpaceIsReportedWithTheFolder(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "not", "yet")
	if err := space(missing, 0, "it"); err != nil {
		t.Error(err)
	}
	err := space(missing, 1<<62, "it")
	if err == nil || !strings.Contains(err.Error(), filepath.Dir(filepath.Dir(missing))) || !strings.Contains(err.Error(), "MiB free") {
		t.Errorf("error: %v", err)
	}
}
