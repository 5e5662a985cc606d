package process

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func ProcessTree(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name:   "process-tree",
		Doc:    "Draws the processes of the node, or those below one process, in artifact tree.txt: name, PID, state and owner. Also counts them.",
		Effect: operation.Collect,
		Parameters: append(PIDParameters(false, "root of the tree; none: all processes, including kernel threads"),
			operation.Parameter{Name: "max", Doc: "maximum number of processes drawn; others are only counted", Kind: operation.Integer, Default: "10000", Max: 1 << 22}),
		Results: []operation.Result{
			{Name: "count", Doc: "processes"},
			{Name: "drawn", Doc: "processes in tree.txt"},
			{Name: "blocked", Doc: "processes in uninterruptible sleep"},
			{Name: "blockedProcesses", Doc: "which ones, as far as they fit"},
			{Name: "zombies", Doc: "processes that ended and are not waited for"},
			{Name: "stopped", Doc: "stopped processes"},
			{Name: "ancestors", Doc: "path from init to pid, if given"},
			operation.NoteResult(),
		},
		Run: host{h, operation.NewPatience()}.processTree,
	})
}

func (h host) processTree(ctx context.Context, call *operation.Call) (operation.Output, error) {
	tree, err := h.readTree(ctx)
	if err != nil {
		return operation.Output{}, err
	}
	f := operation.NewFinding()
	roots := tree.roots
	if call.Parameters["pid"] != "" {
		stat, err := Task(h.Host, call.Parameters)
		if err != nil {
			return operation.Output{}, err
		}
		pid := int(stat.PID)
		if _, ok := tree.stats[pid]; !ok {
			return operation.Output{}, fmt.Errorf("%d is a thread: want a process, threads have no children", pid)
		}
		roots = []int{pid}
		f.Text("ancestors", tree.ancestors(pid))
	}
	all := tree.below(roots)
	var blocked []string
	counts := map[byte]int{}
	for _, n := range all {
		stat := tree.stats[n.pid]
		counts[stat.State]++
		if stat.State == 'D' {
			blocked = append(blocked, TaskName(stat.Comm, n.pid))
		}
	}
	drawn := all[:min(len(all), int(call.Parameters.Int("max")))]
	f.Int("count", int64(len(all)))
	f.Int("drawn", int64(len(drawn)))
	if len(drawn) < len(all) {
		f.Note("%d of %d processes are not drawn", len(all)-len(drawn), len(all))
	}
	f.Int("blocked", int64(counts['D']))
	f.Text("blockedProcesses", strings.Join(blocked, " "))
	f.Int("zombies", int64(counts['Z']))
	f.Int("stopped", int64(counts['T']+counts['t']))
	err = f.Artifact(call, "tree.txt", func(w *operation.Page) { h.drawTree(ctx, w, tree, drawn) })
	return f.Output(nil), err
}

// processes are the processes of (almost) one moment.
type processes struct {
	stats    map[int]hostfs.Stat
	children map[int][]int // sorted
	roots    []int
}

func (h host) readTree(ctx context.Context) (*processes, error) {
	pids, err := h.FS.PIDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	t := &processes{stats: make(map[int]hostfs.Stat, len(pids)), children: map[int][]int{}}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if stat, err := h.FS.Stat(pid); err == nil { // otherwise it has ended
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

// treeNode is a process with its depth in the tree.
type treeNode struct{ pid, depth int }

// below returns the processes of the trees, each parent before its children and each process once:
// a PID that is reused while the processes are read could create a cycle.
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

// ancestors returns "init[1] > shim[812] > pg[900]".
func (t *processes) ancestors(pid int) string {
	var names []string
	for seen := map[int]bool{}; !seen[pid]; {
		stat, ok := t.stats[pid]
		if !ok {
			break
		}
		seen[pid] = true
		names = append(names, TaskName(stat.Comm, pid))
		pid = int(stat.PPID)
	}
	slices.Reverse(names)
	return strings.Join(names, " > ")
}

// drawTree writes one process per line, with its owner if that differs from its parent's.
func (h host) drawTree(ctx context.Context, w *operation.Page, t *processes, nodes []treeNode) {
	owners := map[int]string{}
	for _, n := range nodes {
		if ctx.Err() != nil {
			w.Printf("…\n")
			return
		}
		stat := t.stats[n.pid]
		o, _ := OwnerOf(ctx, h.Host, h.patient, n.pid) // unknown if it has ended
		owners[n.pid] = o.String()
		// Indentation is limited: a chain of forks can be as deep as there are processes.
		const deepest = 64
		w.Printf("%s%s %c", strings.Repeat("  ", min(n.depth, deepest)), TaskName(stat.Comm, n.pid), stat.State)
		if n.depth > deepest {
			w.Printf(" depth %d", n.depth)
		}
		if s := owners[n.pid]; s != "" && s != owners[int(stat.PPID)] {
			w.Printf(" %s", s)
		}
		w.Printf("\n")
	}
}
