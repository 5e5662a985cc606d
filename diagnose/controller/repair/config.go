package repair

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kernosis/kernosis/diagnose/controller/action"
)

// Defaults of a [Config].
const (
	// DefaultWorkers is how many Diagnoses are reconciled in parallel. Few repairs run at a time,
	// because budgets are small.
	DefaultWorkers = 4
	// DefaultEvery is how often slots are checked without any change.
	DefaultEvery = 30 * time.Second
)

// Config configures the controller. Namespace is required.
type Config struct {
	Namespace string // of the system; Diagnoses in other namespaces repair nothing
	Pods      string // label selector of the agents' pods, besides [action.OwnPods]
	// DryRun only reports what the controller would change on Nodes and pods. Repairs that agents
	// make are not affected.
	DryRun  bool
	Workers int // 0: [DefaultWorkers]
	// Holder names this process in the slots that it holds. "": the host name and a random suffix.
	Holder string
	// Every is how often slots and waiting repairs are checked again; 0: [DefaultEvery].
	Every time.Duration
	// Look is how soon ending pods are checked again; 0: the default of package action.
	Look time.Duration
	Now  func() time.Time // nil: [time.Now]
	// Metrics is where the controller's metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil: no log
}

func (c *Config) setDefaults() error {
	switch {
	case c.Namespace == "":
		return errors.New("no namespace")
	case c.Workers < 0 || c.Every < 0 || c.Look < 0:
		return fmt.Errorf("%d workers, every %s, look %s: want none negative", c.Workers, c.Every, c.Look)
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Every == 0 {
		c.Every = DefaultEvery
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("host name: %w", err)
		}
		c.Holder = host + "_" + uuid.NewString()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// own returns the selectors of Kernosis' own pods.
func (c *Config) own() ([]labels.Selector, error) {
	var out []labels.Selector
	for _, text := range []string{action.OwnPods, c.Pods} {
		if text == "" {
			continue // it would select all
		}
		s, err := labels.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("pods: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}
