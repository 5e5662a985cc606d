// Command testrun runs the tests of packages and prints their results, then a summary: how
// many passed, failed and were skipped and why, and which took longest.
//
//	testrun [-packages PATTERNS] [-parallel N] [-slow N] [-build PROGRAMS] [-- GO-TEST-FLAGS...]
//
// Packages that need the kernel to themselves (those whose tests import vmtest/kernellock)
// run last, one after another; the others run beside each other. All borrow one API server.
// With -race, tests of allocations in packages with a file race_test.go run without it too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	packages []string // patterns
	parallel int      // packages that run beside each other
	slow     int      // tests to list
	build    []string // sets of Kubernetes' programs
	flags    []string // of go test
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	packages := flags.String("packages", "./...", "package patterns, separated by spaces")
	build := flags.String("build", "", "programs of Kubernetes to build meanwhile, separated by commas: server, node, controllers, clients")
	var o options
	flags.IntVar(&o.parallel, "parallel", 4, "how many packages run beside each other")
	flags.IntVar(&o.slow, "slow", 0, "how many of the slowest tests to list")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.packages, o.flags = strings.Fields(*packages), flags.Args()
	o.build = strings.FieldsFunc(*build, func(r rune) bool { return r == ',' })
	for _, name := range o.build {
		if programs[name] == nil {
			return o, fmt.Errorf("-build: unknown programs %q: want server, node, controllers or clients", name)
		}
	}
	return o, nil
}

// run returns what the process exits with: 0 where all tests passed, 1 where one failed or
// did not build, and 2 with an error where no test could be run.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return 2, err
	}
	all, err := list(ctx, o.packages)
	if err != nil {
		return 2, err
	}
	aid, err := startAid(ctx, o.build, stderr)
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, aid.end()) }()
	report := newReport(stdout)
	for _, part := range o.parts(all) {
		if len(part.packages) == 0 || ctx.Err() != nil {
			continue
		}
		failed, err := goTest(ctx, report, append(part.flags, part.packages...), aid.env(), stderr, o.slow > 0)
		if err != nil {
			return 2, err
		}
		if failed {
			code = 1
		}
	}
	report.summarize(o.slow)
	if err := ctx.Err(); err != nil {
		return 2, fmt.Errorf("interrupted, not all tests ran: %w", err)
	}
	return code, nil
}

// part is one call of go test.
type part struct{ flags, packages []string }

func (o options) parts(all packages) []part {
	together := append([]string{fmt.Sprintf("-p=%d", o.parallel)}, o.flags...)
	parts := []part{{together, all.together}}
	if i := slices.Index(together, "-race"); i >= 0 {
		parts = append(parts, part{append(slices.Delete(slices.Clone(together), i, i+1), "-run="+plainTests), all.plain})
	}
	return append(parts, part{append([]string{"-p=1"}, o.flags...), all.alone})
}
