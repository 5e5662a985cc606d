package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// ProcessTree returns the built-in process-tree.
func ProcessTree(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name:   "process-tree",
		Doc:    "Draws the processes of the node, or those below one, in tree.txt: name, number, state and owner; and counts them.",
		Effect: Collect,
		Parameters: append(pidParameters(false, "process to begin with; none: all, kernel threads too"),
			Parameter{Name: "max", Doc: "processes to draw at most; more are only counted", Kind: Integer, Default: "10000", Max: 1 << 22}),
		Results: []Result{
			{"count", "processes"},
			{"drawn", "how many of them are in tree.txt"},
			{"blocked", "how many are in uninterruptible sleep"},
			{"blockedProcesses", "which, as far as they fit"},
			{"zombies", "how many have ended and are not waited for"},
			{"stopped", "how many are stopped"},
			{"ancestors", "from init to the process, where one was given"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.processTree(ctx, patient, call) },
	})
}

func (h Host) processTree(ctx context.Context, patient patience, call *Call) (Output, error) {
	tree, err := h.readTree(ctx)
	if err != nil {
		return Output{}, err
	}
	f := newFinding()
	roots := tree.roots
	if call.Parameters["pid"] != "" {
		stat, err := h.task(call.Parameters)
		if err != nil {
			return Output{}, err
		}
		pid := int(stat.PID)
		if _, ok := tree.stats[pid]; !ok {
			return Output{}, fmt.Errorf("%d is no process: a thread has none below it", pid)
		}
		roots = []int{pid}
		f.text("ancestors", tree.ancestors(pid))
	}
	all := tree.below(roots)
	var blocked []string
	counts := map[byte]int{}
	for _, n := range all {
		stat := tree.stats[n.pid]
		counts[stat.State]++
		if stat.State == 'D' {
			blocked = append(blocked, taskName(stat.Comm, n.pid))
		}
	}
	drawn := all[:min(len(all), int(call.Parameters.Int("max")))]
	f.int("count", int64(len(all)))
	f.int("drawn", int64(len(drawn)))
	if len(drawn) < len(all) {
		f.note("%d of %d processes are not drawn", len(all)-len(drawn), len(all))
	}
	f.int("blocked", int64(counts['D']))
	f.text("blockedProcesses", strings.Join(blocked, " "))
	f.int("zombies", int64(counts['Z']))
	f.int("stopped", int64(counts['T']+counts['t']))
	err = f.artifact(call, "tree.txt", func(w *page) { h.drawTree(ctx, patient, w, tree, drawn) })
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return f.output(nil), err
}

// processes are those of one moment, as far as one moment can be had.
type processes struct {
	stats    map[int]hostfs.Stat
	children map[int][]int // sorted
	roots    []int
}

func (h Host) readTree(ctx context.Context) (*processes, error) {
	pids, err := h.FS.PIDs()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	t := &processes{stats: make(map[int]hostfs.Stat, len(pids)), children: map[int][]int{}}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if stat, err := h.FS.Stat(pid); err == nil { // else it has ended
			t.stats[pid] = stat
		}
	}
	for _, pid := range pids {
		stat, ok := t.stats[pid]
		if !ok {
			continue
		}
		parent := int(stat.PPID)
		if _, known := t.stats[parent]; known && parent != pid {
			t.children[parent] = append(t.children[parent], pid)
		} else {
			t.roots = append(t.roots, pid)
		}
	}
	return t, nil
}

// treeNode is a process at its depth.
type treeNode struct{ pid, depth int }

// below returns the processes of the trees, each parent before its children. None is
// there twice, though a number that was given again while they were read could make
// a circle.
func (t *processes) below(roots []int) []treeNode {
	var out []treeNode
	seen := map[int]bool{}
	stack := make([]treeNode, 0, len(roots))
	for _, pid := range slices.Backward(roots) {
		stack = append(stack, treeNode{pid: pid})
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[n.pid] {
			continue
		}
		seen[n.pid] = true
		out = append(out, n)
		for _, child := range slices.Backward(t.children[n.pid]) {
			stack = append(stack, treeNode{child, n.depth + 1})
		}
	}
	return out
}

// ancestors is "init[1] > shim[812] > pg[900]".
func (t *processes) ancestors(pid int) string {
	var names []string
	for seen := map[int]bool{}; !seen[pid]; {
		stat, ok := t.stats[pid]
		if !ok {
			break
		}
		seen[pid] = true
		names = append(names, taskName(stat.Comm, pid))
		pid = int(stat.PPID)
	}
	slices.Reverse(names)
	return strings.Join(names, " > ")
}

// drawTree writes a process a line, its owner where that is another than its parent's.
func (h Host) drawTree(ctx context.Context, patient patience, w *page, t *processes, nodes []treeNode) {
	owners := map[int]string{}
	for _, n := range nodes {
		if ctx.Err() != nil {
			w.printf("…\n")
			return
		}
		stat := t.stats[n.pid]
		o, _ := h.patientOwner(ctx, patient, n.pid) // of one that has ended none is known
		owners[n.pid] = o.String()
		// Deep trees are drawn flat from some depth on: a chain of forks can be as
		// deep as there are processes.
		const deepest = 64
		w.printf("%s%s %c", strings.Repeat("  ", min(n.depth, deepest)), taskName(stat.Comm, n.pid), stat.State)
		if n.depth > deepest {
			w.printf(" depth %d", n.depth)
		}
		if s := owners[n.pid]; s != "" && s != owners[int(stat.PPID)] {
			w.printf(" %s", s)
		}
		w.printf("\n")
	}
}
