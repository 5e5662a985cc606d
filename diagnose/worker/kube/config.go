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

// Config configures a Store.
type Config struct {
	// REST is how to reach the API server. Its rate limits apply to Create and Write; watches are
	// not limited.
	REST *rest.Config
	Node string // whose Diagnoses are watched
	Dir  string // folder of the last known objects; created if missing
	// Builtin reports whether an operation name of an OperationSet is a built-in and needs no
	// Operation; nil: none is.
	Builtin func(name string) bool
	// Timeout is for one request; 0: 5 s. Create and Write give up after three times that.
	Timeout time.Duration
	// Settle is how long after an outage a Forbidden of the API server is not trusted; 0: 30 s.
	Settle time.Duration
	// MaxSaved bounds the file of the last known objects, in bytes; 0: 16 MiB.
	MaxSaved int
	Log      *slog.Logger // nil: no log
}

const (
	// defaultTimeout is long for a server that answers, and short for a waiting worker.
	defaultTimeout = 5 * time.Second
	// defaultSettle is several times what an API server needs to load its roles after it begins to
	// listen.
	defaultSettle = 30 * time.Second
	// defaultMaxSaved has room for 2000 sets of 50 nodes.
	defaultMaxSaved = 16 << 20
	// savedFile is the name of the file of the last known objects.
	savedFile = "objects.json"
)

// Store is created by [New]. It is safe for concurrent use.
type Store struct {
	config  Config
	api     *api
	account *account
	file    statefile.File

	operations *mirror[*v1alpha1.Operation]
	sets       *mirror[*v1alpha1.OperationSet]
	triggers   *mirror[*v1alpha1.Trigger]
	diagnoses  *mirror[*v1alpha1.Diagnosis]

	changing sync.Mutex // serializes the handling of changed objects
	objects  atomic.Pointer[worker.Objects]

	saving  sync.Mutex
	dirty   atomic.Bool   // objects differ from the file
	unsaved chan struct{} // signals dirty

	running atomic.Bool
}

// New returns a Store with the objects saved by the previous process. It sends no requests.
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
