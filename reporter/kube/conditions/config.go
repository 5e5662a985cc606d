package conditions

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/detector/problem"
)

// Field managers in the API: the agent's and the controller's. The controller marks the conditions of a
// silent agent; its writes over the agent's are corrected without being counted as contests.
const (
	FieldManager = "kernosis-agent"
	Controller   = "kernosis-controller"
)

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

	// The waits after a failed write or watch.
	firstRetry, lastRetry = 250 * time.Millisecond, 15 * time.Second

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

	// yieldFor is how long a contested type is left to the other client: long enough not to disturb it,
	// and short enough to recover soon after it is removed.
	yieldFor = time.Hour
)

// Config configures a [Patcher]. Client and Node are required.
type Config struct {
	Client kubernetes.Interface
	Node   string // name of the agent's own Node

	// Healthy returns why the agent does not work; nil: it works. While it does not, the controller
	// writes conditions for it: the agent sends no heartbeats, and does not overwrite the controller's
	// conditions. It is called often, from within Run. May be nil.
	Healthy func() error

	// Heartbeat is how often lastHeartbeatTime is renewed, within a tenth; 0: never, for clusters
	// that use the Lease for liveness.
	Heartbeat time.Duration
	// Coalesce is the minimum time between two writes; 0: a second.
	Coalesce time.Duration
	// StartJitter is the maximum delay of the first write while no condition is True; 0: ten
	// seconds, negative: none.
	StartJitter time.Duration

	// StateFile stores the written types as one JSON object, so that the next run removes types that it
	// does not know. If empty, nothing is stored.
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
	if c.Client == nil || c.Node == "" {
		return errors.New("conditions: client and node are needed")
	}
	c.Coalesce, c.timeout = cmp.Or(c.Coalesce, defaultCoalesce), cmp.Or(c.timeout, defaultTimeout)
	c.StartJitter = cmp.Or(c.StartJitter, defaultStartJitter)
	if c.Healthy == nil {
		c.Healthy = func() error { return nil }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return nil
}
