package file

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var seeds = flag.Uint64("seeds", 4, "how many runs of any rotation and any restart")

// A log is written, rotated in every way, and read by readers that are stopped and started at any
// time. Each line is handed over once, in order.
func TestAnyRotationAnyRestart(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var trace bytes.Buffer
			log := slog.New(slog.NewTextHandler(&trace, &slog.HandlerOptions{Level: slog.LevelDebug}))
			rnd := rand.New(rand.NewPCG(seed, 1))
			l := newLog(t, filepath.Join(t.TempDir(), "app.log"))
			begun := time.Now()
			rotations, restarts, written, lossy := 0, 0, 0, 0
			packed := make(map[int]bool)
			c := start(t, Config{Path: l.path, Log: log}, func(r *Reader) { r.pollEvery = 20 * time.Millisecond }).up()
			var got []string
			restart := func() {
				at := c.stop()
				log.Debug("stopped", "at", at, "items", len(got)+len(c.items))
				got = append(got, c.items...)
				restarts++
				if p, ok := parsePosition(at); !ok {
					t.Errorf("bad position %q", at)
				} else if p.Offset == 0 {
					// If the file is compressed before the next reader has started, that reader
					// can't recognize it.
					lossy++
				}
				c = start(t, Config{Path: l.path, Position: at, Log: log}, func(r *Reader) { r.pollEvery = 20 * time.Millisecond })
			}
			for written < 20_000 && time.Since(begun) < time.Minute {
				for range rnd.IntN(100) {
					l.write(fmt.Sprintf("line %d %s\n", written, strings.Repeat("x", rnd.IntN(100))))
					written++
				}
				op := rnd.IntN(14)
				if op < 6 {
					log.Debug("op", "n", op, "written", written, "rotations", rotations)
				}
				switch op {
				case 0:
					l.rename(fmt.Sprintf("app.log.%08d", rotations))
					rotations++
					for range rnd.IntN(3) {
						l.write(fmt.Sprintf("line %d to the old file\n", written))
						written++
					}
					l.reopen()
				case 1:
					l.copyTruncate(fmt.Sprintf("app.log.%08d", rotations))
					rotations++
					if rnd.IntN(2) == 0 {
						l.compress(fmt.Sprintf("app.log.%08d", rotations-1), ".gz")
						packed[rotations-1] = true
					}
				case 2:
					restart()
				case 3: // half a line
					l.write(fmt.Sprintf("line %d ", written))
					if rnd.IntN(2) == 0 {
						restart()
					}
					l.write("whole\n")
					written++
				case 4, 5: // all that are left, except the one rotated last
					for n := range rotations - 1 {
						if !packed[n] {
							l.compress(fmt.Sprintf("app.log.%08d", n), ".gz")
							packed[n] = true
						}
					}
				}
			}
			last := fmt.Sprintf("line %d is the last", written)
			l.write(last + "\n")
			written++
			c.until("last line", func() bool { return len(c.items) > 0 && c.items[len(c.items)-1] == last })
			c.stop()
			got = append(got, c.items...)
			var missing, twice, late []int
			times, at := map[string]int{}, -1
			for _, item := range got {
				var n int
				if item == "-rotated:0" && lossy > 0 {
					lossy--
					continue
				}
				if _, err := fmt.Sscanf(item, "line %d ", &n); err != nil {
					t.Errorf("item %q", item)
					continue
				}
				if n < at {
					late = append(late, n)
				}
				at = n
				times[strconv.Itoa(n)]++
			}
			for n := range written {
				switch times[strconv.Itoa(n)] {
				case 0:
					missing = append(missing, n)
				case 1:
				default:
					twice = append(twice, n)
				}
			}
			if len(missing)+len(twice)+len(late) > 0 {
				first := slices.Min(slices.Concat(missing, twice, late))
				t.Errorf("missing %v, twice %v, late %v; the trace around the first:\n%s", missing, twice, late, traceOf(trace.String(), first))
			}
			t.Logf("%d lines, %d rotations, %d of them compressed, %d restarts in %v", written, rotations, len(packed), restarts, time.Since(begun).Round(time.Millisecond))
		})
	}
}

// traceOf returns what happened when a line was written, and for some time before and after.
func traceOf(trace string, line int) string {
	const before, after = 10_000, 30_000 // bytes: a reader lags behind
	at := 0
	for entry := range strings.Lines(trace) {
		_, count, ok := strings.Cut(entry, " written=")
		count, _, _ = strings.Cut(count, " ")
		if written, err := strconv.Atoi(count); ok && err == nil && written > line {
			break
		}
		at += len(entry)
	}
	return trace[max(0, at-before):min(len(trace), at+after)]
}

// The real logrotate.
func TestLogrotate(t *testing.T) {
	tool, err := exec.LookPath("logrotate")
	if err != nil {
		if tool, err = exec.LookPath("/usr/sbin/logrotate"); err != nil {
			t.Skip("logrotate is not installed (package logrotate)")
		}
	}
	for _, options := range []string{
		"create", "nocreate", "copytruncate", "create, dateext, dateformat -%Y%m%d-%s", "create, extension .log",
		"create, compress, delaycompress", "create, compress", "copytruncate, compress",
		"create, compress, dateext, dateformat -%Y%m%d-%s",
	} {
		t.Run(options, func(t *testing.T) {
			dir := t.TempDir()
			l := newLog(t, filepath.Join(dir, "app.log"))
			conf := filepath.Join(dir, "conf")
			text := fmt.Sprintf("%s {\nrotate 20\n%s\n}\n", l.path, strings.ReplaceAll(options, ", ", "\n"))
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := start(t, Config{Path: l.path}).up()
			var want []string
			for i := range 23 {
				line := fmt.Sprint("line ", i)
				l.write(line + "\n")
				want = append(want, line)
				if strings.HasPrefix(options, "copytruncate") {
					// What is written between copying and truncating is lost with any tool.
					c.want(want...)
				}
				if strings.Contains(options, "dateformat") && i != 7 {
					continue // its names have a resolution of a second
				}
				out, err := exec.CommandContext(t.Context(), tool, "-f", "-s", filepath.Join(dir, "state"), conf).CombinedOutput()
				if err != nil {
					t.Fatalf("logrotate: %v\n%s", err, out)
				}
				l.reopen()
			}
			l.write("the end\n")
			c.want(append(want, "the end")...)
		})
	}
}
