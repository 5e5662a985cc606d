// Command testrun runs the tests of packages and prints their results and a summary: how many
// passed, failed or were skipped, why, and which took longest.
//
//	testrun [-packages PATTERNS] [-parallel N] [-slow N] [-again N] [-build PROGRAMS] [-- GO-TEST-FLAGS...]
//	testrun build PROGRAMS...
//
// Packages with tests that need the kernel to themselves (those whose tests call testenv.HoldKernel)
// run in parallel to the others, and all borrow one API server. With -race, packages without
// goroutines run without it, and packages with a file race_test.go run both ways, because tests of
// allocations and some others skip themselves under it.
//
// With -again, failed tests are run again, alone, if at most N failed and nothing else did. The
// summary lists them even if they pass then: a test that fails by chance is a defect of the test or
// of the product.
//
// build runs no tests: it builds programs of Kubernetes, unless they are in the cache, and prints
// their folders.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
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

// othersNice is the niceness of tests that do not need the kernel to themselves: they get a quarter
// of a CPU that both groups compete for.
const othersNice = 5

// kernelFlags are the flags for tests that need the kernel. The parallel tests of a package mostly
// wait for faults and for periods of the product, so four run at a time, however few CPUs there
// are.
var kernelFlags = []string{"-parallel=4"} //nolint:gochecknoglobals // a constant

type options struct {
	packages []string // patterns
	parallel int      // packages to run in parallel
	slow     int      // number of slow tests to list
	again    int      // how many failed tests at most to run again
	build    []string // sets of Kubernetes' programs, for kubetest.Programs
	flags    []string // of go test
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	packages := flags.String("packages", "./...", "package patterns, separated by spaces")
	build := flags.String("build", "", "programs of Kubernetes to build meanwhile, separated by commas: "+programNames)
	var o options
	flags.IntVar(&o.parallel, "parallel", runtime.NumCPU()+1, "how many packages run beside each other and beside those that need the kernel; with too many of them tests meet their deadlines")
	flags.IntVar(&o.slow, "slow", 0, "how many of the slowest tests to list")
	flags.IntVar(&o.again, "again", 0, "run failed tests once more, alone, if they are at most so many")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.packages, o.flags = strings.Fields(*packages), flags.Args()
	var err error
	if o.build, err = sets(strings.FieldsFunc(*build, func(r rune) bool { return r == ',' })); err != nil {
		return o, fmt.Errorf("-build: %w", err)
	}
	return o, nil
}

// run returns the exit code: 0 if all tests passed, 1 if one failed or did not build, and 2 with an
// error if no test could be run.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	if len(args) > 0 && args[0] == "build" {
		return build(ctx, args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return 2, err
	}
	all, err := list(ctx, o.packages)
	if err != nil {
		return 2, err
	}
	var sampled []goPackage
	if o.slow > 0 {
		sampled = all
	}
	aid, err := startAid(ctx, o.build, stderr)
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, aid.end()) }()
	report := newReport(stdout)
	var both errgroup.Group
	// Two packages that need the kernel run at a time: one holds the lock while the other is built or
	// runs tests that don't need it. These packages take longest because they wait for each other, so
	// other packages get less CPU.
	for _, part := range []struct {
		calls []call
		nice  int
	}{
		{o.calls(filter(all, goPackage.kernel), 2, kernelFlags...), 0},
		{o.calls(filter(all, func(p goPackage) bool { return !p.kernel() }), o.parallel), othersNice},
	} {
		both.Go(func() error {
			for _, call := range part.calls {
				if err := goTest(ctx, report, call, part.nice, aid.env(), stderr, sampled); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err = both.Wait(); err == nil {
		err = o.repeat(ctx, report, all, aid.env(), stderr)
	}
	report.summarize(o.slow)
	if ctx.Err() != nil {
		return 2, fmt.Errorf("interrupted, not all tests ran: %w", ctx.Err())
	} else if err != nil {
		return 2, err
	}
	return report.exitCode(), nil
}

// repeat runs failed tests again, one package after the other.
func (o options) repeat(ctx context.Context, report *report, all []goPackage, env []string, stderr io.Writer) error {
	failed := report.again(o.again)
	if len(failed) == 0 {
		return nil
	}
	return report.repeat(func() error {
		for pkg, tests := range failed {
			some := filter(all, func(p goPackage) bool { return p.ImportPath == pkg })
			for _, call := range o.calls(some, 1, "-count=1", "-run=^("+strings.Join(tests, "|")+")$") {
				if err := goTest(ctx, report, call, 0, env, stderr, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

type call []string

// calls returns the calls for some packages. They run one after the other, because their reports on
// a package must not mix.
func (o options) calls(some []goPackage, parallel int, more ...string) (calls []call) {
	add := func(flags []string, ok func(goPackage) bool) {
		var paths []string
		for _, p := range filter(some, ok) {
			paths = append(paths, p.ImportPath)
		}
		if len(paths) > 0 {
			calls = append(calls, slices.Concat(call{fmt.Sprintf("-p=%d", parallel)}, more, flags, paths))
		}
	}
	plain := slices.DeleteFunc(slices.Clone(o.flags), func(flag string) bool { return flag == "-race" })
	if len(plain) == len(o.flags) {
		add(o.flags, func(goPackage) bool { return true })
		return calls
	}
	add(o.flags, func(p goPackage) bool { return p.race })
	add(plain, func(p goPackage) bool { return !p.race })
	add(append(plain, "-run="+plainTests), func(p goPackage) bool { return p.race && slices.Contains(p.IgnoredGoFiles, raceFile) })
	return calls
}
