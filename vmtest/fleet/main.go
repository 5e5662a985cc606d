// Command fleet runs the reporting and diagnosing code of thousands of agents, and two real
// controllers, against a real kube-apiserver and etcd on this machine, and measures what they
// write and cost: when they start, while nothing happens, in storms, with a waiting Diagnosis of
// each node, under repairs, and when the controller or the API server is killed.
//
//	fleet [-nodes 5000] [-kernosis bin/kernosis] [-phases start,idle,storm] [-report docs/fleet.md]
//
// The kernel's side of an agent is left out. Each agent has its own connection, watches, Lease,
// journal and state folder, in several processes.
//
// Exit codes: 1 something was lost, doubled or written without a change, a controller took more
// memory than the chart lets it, or the run failed; 2 a mistake in the arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const allPhases = "watches,start,idle,storm,open,wait,repair,failover,restart,stop"

func main() {
	if os.Getenv(crewEnv) != "" {
		exit(runCrew(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.Nodes, "nodes", 1000, "how many agents")
	flag.StringVar(&o.Kernosis, "kernosis", "", "`path` of kernosis for the controllers; empty: no controllers and no Diagnoses")
	phases := flag.String("phases", allPhases, "what to run, in this order; unfair is a storm without a priority level")
	flag.DurationVar(&o.Rollout, "rollout", 0, "within which agents start; 0: 20 ms a node, at least 10 s")
	flag.DurationVar(&o.Idle, "idle", time.Minute, "how long nothing happens")
	flag.DurationVar(&o.Repair, "repair", time.Minute, "how long nodes are repaired")
	limit := flag.Duration("limit", 3*time.Hour, "the run fails after this time")
	report := flag.String("report", "", "`page` into which the tables are written")
	flag.Parse()
	var err error
	if o.Phases, err = parsePhases(*phases, o.Kernosis != ""); err == nil && (o.Nodes < inBudget || flag.NArg() > 0) {
		err = fmt.Errorf("want at least %d nodes, and no arguments", inBudget)
	}
	if err == nil && o.Kernosis != "" {
		o.Kernosis, err = filepath.Abs(o.Kernosis)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(2)
	}
	if o.Rollout == 0 {
		o.Rollout = max(10*time.Second, time.Duration(o.Nodes)*20*time.Millisecond)
	}
	o.Root, o.Out = ".", os.Stdout
	exit(simulate(o, *limit, *report))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func simulate(o options, limit time.Duration, report string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b := newBench(ctx, os.Stderr)
	f := newFleet(b, o)
	failed := b.run(f.run)
	where := fmt.Sprintf("%d CPUs beside everything else", runtime.NumCPU())
	text := f.markdown(where)
	_, _ = fmt.Fprintf(o.Out, "\n%s", text)
	if failed {
		return errors.New("the run failed; the tables have what was measured before")
	}
	if report != "" {
		if err := writePage(report, text); err != nil {
			return err
		}
	}
	if len(f.wrong) > 0 {
		return fmt.Errorf("%d things were not as they must be", len(f.wrong))
	}
	return nil
}
