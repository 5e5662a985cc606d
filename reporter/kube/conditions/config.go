package conditions

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/detector/problem"
)

// FieldManager is the agent's field manager in the API.
const FieldManager = "kernosis-agent"

// BlockFor is how long a type that the API has refused is not sent again: a policy that refuses
// it must be changed by a person.
const BlockFor = time.Minute

// Defaults of a [Config].
const (
	// DefaultHeartbeat is kubelet's interval while nothing changes.
	DefaultHeartbeat = 5 * time.Minute

	// defaultCoalesce limits a flood to one write a second.
	defaultCoalesce = time.Second

	// defaultTimeout is the timeout of one write. If a server hangs, the next try may reach
	// another one in a cluster with several.
	defaultTimeout = 10 * time.Second

	// defaultStartJitter spreads the first writes of a fleet that starts at once.
	defaultStartJitter = 10 * time.Second
)

const (
	// readBackFor is how long the first write waits for the Node after the API has answered the
	// watch, which delivers nothing for a Node that does not exist.
	readBackFor = time.Second

	// holdUnknown is how long after a start Unknown does not replace the API's status: sources
	// take some seconds to come up.
	holdUnknown = 10 * time.Second

	// fastFor is how long after a start failed writes are retried quickly: a node that boots has
	// its network late, and its faults early.
	fastFor = 2 * time.Minute

	// lateFor is how long the API may still execute a write that had no answer: its own timeout of
	// requests, 60 s unless configured, and some time to deliver it.
	lateFor = 2 * time.Minute

	// healthyAgain is the pause between two health checks while the agent does not work.
	healthyAgain = time.Second

	// maxFlips within flipWindow mean that another client insists on the type.
	maxFlips   = 3
	flipWindow = 10 * time.Minute

	// yieldFor is how long a contested type is left alone: long enough not to be a nuisance, and
	// short enough to recover by itself when the other client is removed.
	yieldFor = time.Hour
)

// Config configures a [Patcher]. Client and Node are required.
type Config struct {
	Client kubernetes.Interface
	Node   string // name of the agent's own Node

	// Allied are field managers whose writes over ours are corrected without being counted as
	// contests: the controller marks the conditions of a silent agent.
	Allied []string

	// Healthy returns why the agent does not work. Then its allies speak for it: it sends no
	// heartbeats, and does not write over theirs. It is called often, from within Run. May be nil.
	Healthy func() error

	// Heartbeat is how often lastHeartbeatTime is renewed, within a tenth; 0: never, for clusters
	// that use the Lease for liveness.
	Heartbeat time.Duration
	// Coalesce is the minimum time between two writes; 0: a second.
	Coalesce time.Duration
	// StartJitter is the maximum delay of the first write while no condition is True; 0: ten
	// seconds, negative: none.
	StartJitter time.Duration

	// StateFile stores the types that were written, as one JSON object, so that the next run
	// removes those it does not know. If empty, nothing is stored.
	StateFile string

	// OnAck is called from within Run after each write that the API has accepted; it must return
	// quickly. May be nil.
	OnAck func(Ack)

	Log *slog.Logger // nil: no logging

	timeout time.Duration // of one write; 0: ten seconds
}

// Ack reports one write.
type Ack struct {
	At        time.Time // when its answer arrived
	Heartbeat bool      // only the heartbeat was due
	// Written has the conditions of this write as they were set, including those of a heartbeat.
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
	if c.Healthy == nil {
		c.Healthy = func() error { return nil }
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
