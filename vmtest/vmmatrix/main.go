// Command vmmatrix tests every fault on every kernel: it fetches the kernels of vmtest/kernels.txt,
// runs the tests in a virtual machine with each, and prints the table kernel × fault.
//
//	vmmatrix fetch [-kernel NAMES]
//	vmmatrix run   [-kernel NAMES] [-stem STEM] [-report FILE]
//	vmmatrix mutants -kernel NAME [-stem STEM]
//
// mutants breaks BPF programs on purpose, with a wrong field or argument, and expects failures in
// the table.
//
// Exit codes: 1 if a fault was not reported correctly or a broken program was not noticed; 2 if no
// machine could be started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/kernel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	failures, err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "vmmatrix: %v\n", err)
		if errors.As(err, new(*kernel.SetupError)) || errors.As(err, new(usageError)) {
			os.Exit(exitSetup)
		}
		os.Exit(1)
	case failures > 0:
		os.Exit(1)
	}
}

type usageError string

func (e usageError) Error() string { return string(e) }

type command struct {
	verb, kernels, stem, report string
	again                       bool
}

func parse(args []string, stderr io.Writer) (command, error) {
	c := command{}
	if len(args) == 0 {
		return c, usageError("usage: vmmatrix fetch|run|mutants [flags]")
	}
	c.verb = args[0]
	f := flag.NewFlagSet("vmmatrix "+c.verb, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.kernels, "kernel", "", "`names` of kernels, separated by commas or spaces (default: all)")
	switch c.verb {
	case "fetch":
	case "run":
		f.StringVar(&c.stem, "stem", "", "only what concerns this `stem` (oomkill, hungtask, …)")
		f.StringVar(&c.report, "report", "", "also write the table to this `file`")
		f.BoolVar(&c.again, "again", false, "run only what failed or did not run the last time; of the rest the logs are read")
	case "mutants":
		f.StringVar(&c.stem, "stem", "", "only the programs of this `stem`")
	default:
		return c, usageError(fmt.Sprintf("vmmatrix %s: no such command, want fetch, run or mutants", c.verb))
	}
	if err := f.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return c, err
	} else if err != nil {
		return c, usageError(err.Error())
	}
	if f.NArg() > 0 {
		return c, usageError(fmt.Sprintf("vmmatrix %s: unexpected %q", c.verb, f.Arg(0)))
	}
	return c, nil
}

func run(ctx context.Context, args []string) (failures int, err error) {
	c, err := parse(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	cacheDir, err := kernel.CacheDir()
	if err != nil {
		return 0, err
	}
	kernels, err := c.chosen(cacheDir)
	if err != nil {
		return 0, err
	}
	if err := c.check(kernels); err != nil {
		return 0, err
	}
	var images []kernel.Image
	var missing []error // a missing kernel does not stop the others
	for _, k := range kernels {
		image, err := c.image(ctx, k, cacheDir)
		if err != nil {
			missing = append(missing, fmt.Errorf("kernel %s: %w", k.Name, err))
			continue
		}
		fmt.Printf("%-16s %s (%s %s)\n", k.Name, image.Release, image.Package, image.Version)
		images = append(images, image)
	}
	if err := errors.Join(missing...); err != nil || c.verb == "fetch" {
		return 0, err
	}
	if c.verb == "mutants" {
		return c.mutants(ctx, kernels[0])
	}
	return c.run(ctx, kernels, images)
}

// image returns a kernel's image. Tests use the cached one; "fetch" looks for a newer version.
func (c command) image(ctx context.Context, k kernel.Kernel, cacheDir string) (kernel.Image, error) {
	if c.verb != "fetch" {
		image, err := kernel.Open(cacheDir, k.Name)
		if !errors.Is(err, kernel.ErrNotFetched) {
			return image, err
		}
	}
	return kernel.Fetch(ctx, k, cacheDir, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
}

// chosen returns the selected kernels: by name, or cached ones by release number.
func (c command) chosen(cacheDir string) ([]kernel.Kernel, error) {
	all, err := kernel.ReadMatrix("vmtest/kernels.txt")
	if err != nil {
		return nil, usageError(err.Error())
	}
	names := strings.FieldsFunc(c.kernels, func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		return all, nil
	}
	var chosen []kernel.Kernel
	for _, name := range names {
		k, err := kernel.Find(all, name)
		if image, e := kernel.Open(cacheDir, name); err != nil && e == nil {
			k, err = kernel.Find(all, image.Name)
		}
		if err != nil {
			return nil, usageError(err.Error())
		}
		if !slices.Contains(chosen, k) {
			chosen = append(chosen, k)
		}
	}
	return chosen, nil
}

// check returns an error if the command has nothing to do with these kernels.
func (c command) check(kernels []kernel.Kernel) error {
	switch {
	case c.verb == "mutants" && len(kernels) != 1:
		return usageError("vmmatrix mutants: name one kernel")
	case c.verb == "run" && len(c.plan(kernels)) == 0:
		return usageError(fmt.Sprintf("nothing to run for stem %q", c.stem))
	}
	return nil
}

func (c command) run(ctx context.Context, kernels []kernel.Kernel, images []kernel.Image) (failures int, err error) {
	w, err := newWorkshop()
	if err != nil {
		return 0, err
	}
	jobs := c.plan(kernels)
	for i := range jobs {
		jobs[i].release = images[slices.IndexFunc(images, func(im kernel.Image) bool { return im.Name == jobs[i].kernel.Name })].Release
	}
	began := time.Now()
	built := map[string]bool{}
	for _, j := range jobs {
		binary := w.binary(j.suite, j.kernel.Arch())
		if built[binary] {
			continue
		}
		built[binary] = true
		if err := w.build(ctx, j.suite, j.kernel.Arch()); err != nil {
			return 0, err
		}
	}
	if slices.ContainsFunc(jobs, func(j job) bool { return j.suite.server }) {
		if w.server, err = w.findServer(ctx); err != nil {
			return 0, err
		}
	}
	outcomes := make([]outcome, len(jobs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for i, j := range jobs {
		g.Go(func() (err error) {
			if c.again {
				if outcomes[i], err = w.read(ctx, j); err != nil || outcomes[i].whole() {
					return err
				}
			}
			outcomes[i], err = w.do(ctx, j)
			if err == nil {
				outcomes[i].print()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	t := newTable(images, outcomes)
	t.again = c.again
	fmt.Println()
	if err := t.print(os.Stdout); err != nil {
		return 0, err
	}
	n := t.failures()
	fmt.Printf("\n%d kernels, %d lines, %d failed, %s; logs in %s\n", len(images), len(t.rows), n, time.Since(began).Round(time.Second), w.dir)
	if c.report == "" {
		return n, nil
	}
	return n, os.WriteFile(c.report, []byte(t.markdown()), 0o644)
}

func newWorkshop() (workshop, error) {
	root, err := os.Getwd()
	if err != nil {
		return workshop{}, err
	}
	w := workshop{root: root, runner: filepath.Join(root, "bin", "vmrun"), dir: filepath.Join(root, "dist", "vmtest")}
	for _, need := range []string{w.runner, filepath.Join(root, "bin", "kernosis")} {
		if _, err := os.Stat(need); err != nil {
			return w, &kernel.SetupError{What: err.Error(), Do: "make vmtest builds it", Err: err}
		}
	}
	return w, os.MkdirAll(filepath.Join(w.dir, "bin"), 0o755)
}

func (c command) plan(kernels []kernel.Kernel) []job {
	var jobs []job
	for _, k := range kernels {
		for _, s := range suites() {
			run := s.pattern(c.stem)
			if !s.runsOn(k) || c.stem != "" && run == "" {
				continue
			}
			jobs = append(jobs, job{suite: s, kernel: k, run: run})
		}
	}
	return jobs
}

func (o outcome) print() {
	var bad []string
	for _, k := range o.failures() {
		bad = append(bad, fmt.Sprintf("    %s, %s: %s\n", k.stem, k.fault, o.cells[k].reason))
	}
	how := "ok"
	if len(bad) > 0 {
		how = "FAIL"
	}
	fmt.Printf("%-4s %-16s %-24s %s\n%s", how, o.kernel.Name, o.suite.name, o.took.Round(time.Second), strings.Join(bad, ""))
}
