package testenv

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakEnv makes the test binary leak what the variable names.
const leakEnv = "KERNOSIS_TEST_LEAK"

// leak leaks something of a kind, and returns the exit code of the tests.
func leak(kind, file string) (code int) {
	switch kind {
	case "goroutine":
		go leakedGoroutine()
	case "file":
		if _, err := os.Create(file); err != nil {
			fmt.Println(err)
			return 2
		}
	case "both":
		return max(leak("goroutine", ""), leak("file", file))
	case "replaced": // the same number, but another file
		os.Stdin.Close()
		return leak("file", file)
	case "late": // closed only after the tests
		f, err := os.Create(file)
		if err != nil {
			fmt.Println(err)
			return 2
		}
		time.AfterFunc(100*time.Millisecond, func() { f.Close() })
	case "pipe":
		if _, _, err := os.Pipe(); err != nil {
			fmt.Println(err)
			return 2
		}
	case "splice": // pipes that Go keeps after a copy between sockets
		if err := spliced(); err != nil {
			fmt.Println(err)
			return 2
		}
	case "failed":
		leak("both", file)
		return 3
	}
	return 0
}

func leakedGoroutine() { select {} }

func spliced() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	var ends [4]net.Conn
	for i := 0; i < len(ends); i += 2 {
		if ends[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			return err
		}
		defer ends[i].Close()
		if ends[i+1], err = l.Accept(); err != nil {
			return err
		}
		defer ends[i+1].Close()
	}
	if _, err := io.WriteString(ends[0], "text"); err != nil {
		return err
	}
	before := pipes()
	_, err = io.CopyN(ends[3], ends[1], 4)
	if n := pipes() - before; err == nil && n != 2 {
		err = fmt.Errorf("the copy made %d descriptors of pipes, want 2", n)
	}
	return err
}

func pipes() (n int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "pipe:") {
			n++
		}
	}
	return n
}

func TestCheckLeaks(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "left-open")
	const goroutine = "testenv.leakedGoroutine"
	for kind, want := range map[string]struct {
		code  int
		named []string
	}{
		"nothing":   {0, nil},
		"late":      {0, nil},
		"goroutine": {1, []string{goroutine}},
		"file":      {1, []string{file}},
		"pipe":      {1, []string{"pipe:["}},
		"splice":    {0, nil},
		"both":      {1, []string{goroutine, file}},
		"replaced":  {1, []string{file}},
		"failed":    {3, nil}, // the tests report the failure
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			c := exec.Command(exe, file)
			c.Env, c.Stderr = append(os.Environ(), leakEnv+"="+kind), &stderr
			err := c.Run()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := c.ProcessState.ExitCode(); code != want.code {
				t.Errorf("exit code %d, want %d; %s", code, want.code, &stderr)
			}
			for _, leaked := range []string{goroutine, file, "pipe:["} {
				if wanted := slices.Contains(want.named, leaked); strings.Contains(stderr.String(), leaked) != wanted {
					t.Errorf("names %s: %v, want %v; stderr: %s", leaked, !wanted, wanted, &stderr)
				}
			}
		})
	}
}
