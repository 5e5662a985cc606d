package conditions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/detector/problem"
)

// write sends one patch and handles its answer. A patch without types tests whether writes are
// accepted.
func (p *Patcher) write(ctx context.Context, write, remove []string, beats bool, now time.Time) {
	only := beats && len(write)+len(remove) == 0
	if beats {
		write = p.alive(now)
	}
	// The type must be on the disk before the API has it.
	p.store()
	for _, name := range write {
		p.ledger.try(name, beats, now)
	}
	body, err := p.ledger.body(write, remove)
	if err != nil {
		p.config.Log.Error("can't encode the conditions", "error", err)
		p.fail(err, Refused, now)
		return
	}
	p.last = now
	retry := p.failing
	node, err := Patch(ctx, p.config.Client, p.config.Node, FieldManager, p.config.timeout, body)
	done := time.Now()
	if ctx.Err() != nil && err != nil {
		return // the agent ends
	}
	outcome, before := OutcomeOf(err), p.answer
	p.answer = outcome
	p.count(func(s *Stats) {
		s.Writes[outcome]++
		s.Bytes += uint64(len(body))
		if retry {
			s.Retries++
		}
		if err != nil {
			s.LastError = err.Error()
			return
		}
		s.LastAcked, s.LastError, s.NodeExists = done, "", true
		s.Removed += uint64(len(remove))
		if only {
			s.Heartbeats++
		}
	})
	if err != nil {
		// Missing permission also gives 403, but not right after a write that was accepted.
		names := slices.Concat(write, remove)
		if len(names) > 0 && (outcome == Refused || outcome == Forbidden && before == Written) {
			p.answer = Refused
			p.isolate(names, err, done)
			return
		}
		if outcome == TimedOut || outcome == Unreachable {
			p.ledger.unanswered(names, done)
		}
		p.fail(err, outcome, done)
		return
	}
	switch {
	case len(write)+len(remove) == 0:
		p.retryAt = time.Time{} // permission is granted: write the refused types at once
	case retry:
		p.config.Log.Info("conditions are written again", "node", p.config.Node)
		p.failing = false
	}
	if beats {
		p.nextBeat(done)
	}
	ack := Ack{At: done, Heartbeat: only, Written: make([]problem.Condition, 0, len(write))}
	for _, name := range write {
		ack.Written = append(ack.Written, p.ledger.entries[name].want)
	}
	p.flipped(p.ledger.observe(node, slices.Concat(write, remove), done), done)
	p.ledger.forget()
	p.store()
	if p.config.OnAck != nil {
		p.config.OnAck(ack)
	}
}

// removal is how a strategic-merge patch removes a condition from the list.
type removal struct {
	Patch string `json:"$patch"`
	Type  string `json:"type"`
}

// body returns a patch that contains only the given types.
func (l *ledger) body(write, remove []string) ([]byte, error) {
	list := make([]any, 0, len(write)+len(remove))
	for _, name := range write {
		list = append(list, l.condition(name))
	}
	for _, name := range remove {
		list = append(list, removal{Patch: "delete", Type: name})
	}
	return json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
}

// Patch patches a Node's status, and returns the new Node.
func Patch(ctx context.Context, client kubernetes.Interface, node, manager string, timeout time.Duration, body []byte) (*corev1.Node, error) {
	patched := &corev1.Node{}
	r := client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("nodes").Name(node).SubResource("status").Param("fieldManager", manager).Body(body)
	return patched, Send(ctx, r, timeout, patched)
}

// isolate finds out which type the API refuses, by writing one type at a time, so that it does
// not hold up the others.
func (p *Patcher) isolate(names []string, err error, now time.Time) {
	if len(names) > 1 {
		if p.single {
			// A policy that is newer than the conditions refuses a heartbeat: skip this heartbeat.
			p.nextBeat(now)
			p.config.Log.Warn("the API server refuses the heartbeat", "node", p.config.Node, "error", err)
		}
		p.single = true
		return
	}
	e := p.ledger.entries[names[0]]
	e.blocked = now.Add(BlockFor)
	p.config.Log.Warn("the API server refuses the condition", "condition", names[0], "node", p.config.Node, "error", err)
}

func (p *Patcher) fail(err error, outcome Outcome, now time.Time) {
	if !p.failing {
		p.failing = true
		p.backoff = p.patience(now)
		p.config.Log.Warn("can't write the conditions", "node", p.config.Node, "outcome", string(outcome), "error", err)
	}
	delay := p.backoff.Step()
	if asked := AskedDelay(err); asked > 0 {
		// Add up to a quarter at random: all refused clients got the same answer.
		asked += rand.N(asked/4 + 1)
		p.asked = now.Add(asked)
		delay = max(delay, asked)
	}
	p.retryAt = now.Add(delay)
	if outcome == NodeMissing {
		p.count(func(s *Stats) { s.NodeExists = false })
	}
}

func (p *Patcher) patience(now time.Time) wait.Backoff {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stats.LastAcked.IsZero() && now.Before(p.ledger.start.Add(fastFor)) {
		return Backoff(firstRetry, time.Second)
	}
	return Backoff(firstRetry, lastRetry)
}

func (p *Patcher) see(s sight, now time.Time) {
	if s.node == nil {
		p.readBack = sooner(p.readBack, now.Add(readBackFor))
		return
	}
	if s.gone {
		if s.node.UID == p.ledger.uid {
			p.ledger.lose()
			p.count(func(s *Stats) { s.NodeExists = false })
		}
		return
	}
	if p.ledger.stale(s.node) {
		return
	}
	appeared := !p.ledger.seen || p.ledger.uid != s.node.UID
	p.flipped(p.ledger.observe(s.node, nil, now), now)
	p.count(func(s *Stats) { s.NodeExists = true })
	if !p.failing {
		return
	}
	// The API answers, so don't wait long: write at once for a new Node, and within a second if
	// many agents notice at the same time.
	soon := now
	if !appeared {
		soon = now.Add(rand.N(time.Second))
	}
	if soon.Before(p.asked) {
		soon = p.asked
	}
	if soon.Before(p.retryAt) {
		p.retryAt = soon
	}
}

// flipped counts overwritten types, and yields types that another client keeps overwriting.
func (p *Patcher) flipped(names []string, now time.Time) {
	if len(names) == 0 {
		return
	}
	p.count(func(s *Stats) { s.Flips += uint64(len(names)) })
	for _, name := range names {
		e := p.ledger.entries[name]
		p.config.Log.Info("condition was overwritten", "condition", name, "manager", e.manager)
		if !e.yield(now, p.yieldFor) {
			continue
		}
		p.count(func(s *Stats) { s.Contested++ })
		p.config.Log.Warn("condition is contested and left to the other writer", "condition", name, "manager", e.manager, "until", e.until)
	}
}

// storeWithin is how long a write to the API waits for the state file.
const storeWithin = time.Second

// store updates the state file from the ledger. A disk error does not prevent a condition from
// being written.
func (p *Patcher) store() {
	types := p.ledger.types()
	if p.config.StateFile == "" || !p.ledger.listed || slices.Equal(types, p.stored) {
		return
	}
	// A hanging disk must not block the conditions.
	err := bounded.Err(&p.storing, storeWithin, func() error {
		return statefile.File{Path: p.config.StateFile, Durable: true}.Save(written{Node: p.config.Node, Types: types})
	})
	if errors.Is(err, bounded.ErrLate) {
		if !p.storeLate {
			p.config.Log.Warn("condition types are not saved yet: the disk does not respond")
		}
		p.storeLate = true
		return // retried at the next turn
	}
	p.storeLate = false
	if err != nil {
		p.config.Log.Warn("can't save the condition types", "error", err)
	}
	// Logged once: it is retried at the next change.
	p.stored = types
}

// stateVersion changes when older versions of Kernosis must no longer read the file.
const stateVersion = 1

type written struct {
	Node  string   `json:"node"`
	Types []string `json:"types"` // types that we have, or may have, in the API
}

// readState returns the types that an earlier run on this node has written. On an error, the
// caller logs it and continues without these types: a node's conditions must not wait for a manual
// fix.
func readState(path, node string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var w written
	file := statefile.File{Path: path}
	switch found, err := file.Load(stateVersion, &w); {
	case err != nil || !found:
		return nil, err
	case w.Node == "":
		return nil, errors.Join(fmt.Errorf("%s: it names no node", path), file.SetAside())
	case w.Node != node:
		return nil, nil // the disk has moved to another node, or the node was renamed
	}
	// The file decides what is deleted, so ignore types that can't be ours.
	return slices.DeleteFunc(w.Types, func(t string) bool { return CheckType(t) != nil }), nil
}
