package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// Config is what a Store needs.
type Config struct {
	// REST says how to reach the API server. Its limits of requests hold for Create and
	// Write; watches are not limited.
	REST *rest.Config
	Node string // whose Diagnoses are watched
	Dir  string // folder of what was known last; made where it is missing
	// Builtin says whether a node of an OperationSet needs no Operation of that name; nil:
	// each does.
	Builtin func(name string) bool
	// Timeout is of one request; 0: 5 s. A Create or a Write is given up after three times
	// that.
	Timeout time.Duration
	// Settle is for how long after it was away an API server is not believed that a right
	// is missing; 0: 30 s.
	Settle time.Duration
	// MaxSaved bounds the file of what was known last, in bytes; 0: 16 MiB.
	MaxSaved int
	Log      *slog.Logger // nil: none
}

const (
	// defaultTimeout is long for a server that answers, and short for a worker that waits.
	defaultTimeout = 5 * time.Second
	// defaultSettle is several times what an API server needs to know its roles, once it
	// listens.
	defaultSettle = 30 * time.Second
	// defaultMaxSaved has room for 2000 sets of 50 nodes.
	defaultMaxSaved = 16 << 20
	// savedFile is the name of the file of what was known last.
	savedFile = "objects.json"
)

// Store is made by [New]. It is safe for concurrent use.
type Store struct {
	config  Config
	api     *api
	account *account
	file    statefile.File

	operations *mirror[*v1alpha1.Operation]
	sets       *mirror[*v1alpha1.OperationSet]
	triggers   *mirror[*v1alpha1.Trigger]
	diagnoses  *mirror[*v1alpha1.Diagnosis]

	changing sync.Mutex // one handles changed objects at a time
	objects  atomic.Pointer[worker.Objects]

	saving  sync.Mutex
	dirty   atomic.Bool   // objects are not as in the file
	unsaved chan struct{} // signals that

	running atomic.Bool
}

// New returns a Store that knows what the last one knew, and asks nobody.
func New(c Config) (*Store, error) {
	if c.REST == nil || c.Node == "" || c.Dir == "" {
		return nil, errors.New("diagnoses by the API: the API server, the node and a folder are needed")
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Settle <= 0 {
		c.Settle = defaultSettle
	}
	if c.MaxSaved <= 0 {
		c.MaxSaved = defaultMaxSaved
	}
	if c.Builtin == nil {
		c.Builtin = func(string) bool { return false }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("diagnoses by the API: %w", err)
	}
	s := &Store{
		config: c, account: newAccount(c.Log, c.Settle), unsaved: make(chan struct{}, 1),
		file:       statefile.File{Path: filepath.Join(c.Dir, savedFile), Durable: true, Max: c.MaxSaved},
		operations: newMirror[*v1alpha1.Operation](), sets: newMirror[*v1alpha1.OperationSet](),
		triggers: newMirror[*v1alpha1.Trigger](), diagnoses: newMirror[*v1alpha1.Diagnosis](),
	}
	var err error
	if s.api, err = newAPI(c.REST, c.Timeout, s.account); err != nil {
		return nil, fmt.Errorf("diagnoses by the API: %w", err)
	}
	s.load()
	return s, nil
}
