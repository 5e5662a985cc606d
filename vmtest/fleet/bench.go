package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
)

// bench is to a program what *testing.T is to a test: the server's methods take either.
type bench struct {
	testing.TB                 // nil: what is not below is not called
	ctx        context.Context //nolint:containedctx // of the run
	out        io.Writer

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func newBench(ctx context.Context, out io.Writer) *bench { return &bench{ctx: ctx, out: out} }

// run calls do, and then what was to be cleaned up, last in first out. It reports whether
// anything failed.
func (b *bench) run(do func()) (failed bool) {
	b.finish(do)
	for {
		b.mu.Lock()
		n := len(b.cleanups)
		if n == 0 {
			b.mu.Unlock()
			return b.Failed()
		}
		last := b.cleanups[n-1]
		b.cleanups = b.cleanups[:n-1]
		b.mu.Unlock()
		b.finish(last)
	}
}

// finish calls do in a goroutine that Fatal may end.
func (b *bench) finish(do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	<-ended
}

func (b *bench) Helper()                  {}
func (b *bench) Name() string             { return "fleet" }
func (b *bench) Context() context.Context { return b.ctx }
func (b *bench) Output() io.Writer        { return b.out }

func (b *bench) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *bench) Failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *bench) Error(args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = true
	_, _ = fmt.Fprintln(b.out, args...)
}

func (b *bench) Errorf(format string, args ...any) { b.Error(fmt.Sprintf(format, args...)) }

func (b *bench) FailNow() {
	b.mu.Lock()
	b.failed = true
	b.mu.Unlock()
	runtime.Goexit()
}

func (b *bench) Fatal(args ...any) {
	b.Error(args...)
	b.FailNow()
}

func (b *bench) Fatalf(format string, args ...any) { b.Fatal(fmt.Sprintf(format, args...)) }

func (b *bench) Log(args ...any)                 { _, _ = fmt.Fprintln(b.out, args...) }
func (b *bench) Logf(format string, args ...any) { b.Log(fmt.Sprintf(format, args...)) }
