package conditions

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/detector/problem"
)

// FieldManager is how the API names the writer of our conditions.
const FieldManager = "kernosis-agent"

// BlockFor is how long a type is left out that the API has refused: what refuses it is a policy
// that a person has to change.
const BlockFor = time.Minute

// Defaults of a [Config].
const (
	// DefaultHeartbeat is as rare as that of kubelet while nothing changes.
	DefaultHeartbeat = 5 * time.Minute

	// defaultCoalesce keeps a flood at one write a second.
	defaultCoalesce = time.Second

	// defaultTimeout of a write. A server that hangs is left for the next try, which
	// in a cluster with several may reach another.
	defaultTimeout = 10 * time.Second

	// defaultStartJitter spreads the first writes of a fleet that starts at once.
	defaultStartJitter = 10 * time.Second
)

const (
	// readBackFor is how long the first write waits for the Node after the API has
	// answered the watch, which delivers nothing for a Node that does not exist.
	readBackFor = time.Second

	// holdUnknown is for how long after a start Unknown does not replace what the API
	// has: sources take some seconds to say that they see.
	holdUnknown = 10 * time.Second

	// fastFor is for how long after a start, at most, failed writes are tried again
	// quickly: a node that boots has its network late, and its faults early.
	fastFor = 2 * time.Minute

	// maxFlips in flipWindow show that another client means to keep the type.
	maxFlips   = 3
	flipWindow = 10 * time.Minute

	// yieldFor is how long a contested type is left alone: long enough to be no
	// nuisance, and short enough to recover by itself when the other is removed.
	yieldFor = time.Hour
)

// Config is what a [Patcher] is made of. Client and Node are required.
type Config struct {
	Client kubernetes.Interface
	Node   string // name of the own Node

	// Allied are field managers whose writes over ours are put right without being
	// counted against them: the controller marks the conditions of a silent agent.
	Allied []string

	// Heartbeat is how often lastHeartbeatTime is renewed, within a tenth; 0: never,
	// for clusters where the Lease carries liveness.
	Heartbeat time.Duration
	// Coalesce is the shortest time between two writes; 0: a second.
	Coalesce time.Duration
	// StartJitter is the longest time by which the first write is delayed while no
	// condition is True; 0: ten seconds, negative: none.
	StartJitter time.Duration

	// StateFile has the types that were written, one JSON object, so that the next
	// run removes those it does not know. Empty: none is kept.
	StateFile string

	// OnAck is called after each write that the API has taken, from within Run; it
	// has to return quickly. May be nil.
	OnAck func(Ack)

	Log *slog.Logger // nil: none

	timeout time.Duration // of one write; 0: ten seconds
}

// Ack reports one write.
type Ack struct {
	At        time.Time // when its answer was here
	Heartbeat bool      // nothing but the heartbeat was due
	// Written are the conditions of this write, as they were set; those of a
	// heartbeat too.
	Written []problem.Condition
}

func (c *Config) setDefaults() error {
	if c.Client == nil {
		return errors.New("conditions: no client")
	}
	if c.Node == "" {
		return errors.New("conditions: no node name")
	}
	for name, d := range map[string]time.Duration{"heartbeat": c.Heartbeat, "coalesce": c.Coalesce} {
		if d < 0 {
			return fmt.Errorf("conditions: %s is negative", name)
		}
	}
	if c.Coalesce == 0 {
		c.Coalesce = defaultCoalesce
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.StartJitter == 0 {
		c.StartJitter = defaultStartJitter
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
