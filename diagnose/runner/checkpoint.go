package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Record is what became of a node.
type Record struct {
	ID        int                  `json:"id"`
	Operation string               `json:"operation"`
	Repairs   bool                 `json:"repairs,omitempty"` // it is a Remediate
	State     v1alpha1.ResultState `json:"state"`
	Reason    string               `json:"reason,omitempty"`
	Message   string               `json:"message,omitempty"` // one line
	Verdict   *operation.Verdict   `json:"verdict,omitempty"`
	// Results are bounded by operation.MaxResult and operation.MaxResults; Truncated says
	// that they were more.
	Results   map[string]string `json:"results,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	Start     time.Time         `json:"start,omitzero"` // of the first try
	Duration  time.Duration     `json:"duration,omitempty"`
	Attempts  int               `json:"attempts,omitempty"`
}

// outcome returns the record's outcome for the graph's state machine.
func (r *Record) outcome() graph.Outcome {
	switch r.State {
	case v1alpha1.ResultSucceeded:
		return graph.Succeeded
	case v1alpha1.ResultFailed, v1alpha1.ResultRefuted:
		return graph.Failed
	case v1alpha1.ResultWouldRun, v1alpha1.ResultWithheld:
		if r.Reason == v1alpha1.ReasonMadeBefore {
			return graph.Succeeded // by an earlier run: this one goes on behind it
		}
		return graph.WouldRun
	case v1alpha1.ResultUnknown:
		return graph.Unknown
	}
	return "" // none that a checkpoint has: Done refuses it
}

// checkpoint is a run on the disk: all that it is resumed and reported from. Other versions
// read it, too: fields may be added, which older versions ignore and lose when they go on
// with the run. What an older version must not ignore needs another checkpointVersion.
type checkpoint struct {
	Plan    plan      `json:"plan"`
	Records []Record  `json:"records,omitempty"` // in the order in which nodes ran
	Begun   *begun    `json:"begun,omitempty"`   // the operation that runs
	Started time.Time `json:"started"`
	Waiting *Waiting  `json:"waiting,omitempty"` // for people: it is asked again when it goes on
	Final   *End      `json:"final,omitempty"`   // nil: the run goes on
}

// replay returns the graph of the run, and its state machine with all that has run.
func (c *checkpoint) replay() (*graph.Graph, *graph.Run, error) {
	g, err := graph.Build(c.Plan.Nodes)
	if err == nil && len(c.Plan.Effects) != g.Len() {
		err = fmt.Errorf("%d effects for %d nodes", len(c.Plan.Effects), g.Len())
	}
	if err != nil {
		return nil, nil, err
	}
	run := graph.NewRun(g, c.Plan.repairs)
	for i := range c.Records {
		if err := run.Done(c.Records[i].ID, c.Records[i].outcome()); err != nil {
			return nil, nil, err
		}
	}
	return g, run, nil
}

// plan is what the run was begun with.
type plan struct {
	Nodes      []graph.Node       `json:"nodes"`
	Effects    []operation.Effect `json:"effects"` // by node, the start's empty
	Parameters map[string]string  `json:"parameters,omitempty"`
	Intended   []int              `json:"intended,omitempty"`
}

// begun is an operation that was begun and has no outcome yet.
type begun struct {
	ID     int       `json:"id"`
	Starts int       `json:"starts"` // how often an agent has begun it
	At     time.Time `json:"at"`
}

// End is how a run ended.
type End struct {
	Phase   v1alpha1.Phase `json:"phase"`
	Reason  string         `json:"reason"`
	Message string         `json:"message,omitempty"`
	At      time.Time      `json:"at"`
}

// Bad checkpoints are reported as a CheckpointError. Where the diagnosis has a repair that
// could have been begun, it is not run: its checkpoint stays until a person has looked
// and [Runner.Forget] is called.
type CheckpointError struct {
	Path string
	Err  error
}

func (e *CheckpointError) Error() string { return fmt.Sprintf("checkpoint %s: %v", e.Path, e.Err) }

func (e *CheckpointError) Unwrap() error { return e.Err }

const (
	extension = ".checkpoint"
	// magic begins a checkpoint, before the number of its form, and a checksum.
	magic = "kernosis-checkpoint-"
	// checkpointVersion changes when an older version must not read the form any more.
	checkpointVersion = 1

	// maxCheckpoint bounds what is read: 256 nodes with 8 KiB of results each, escaped.
	maxCheckpoint = 32 << 20
)

// store keeps the checkpoint of one diagnosis.
type store struct {
	path  string
	fault func(Stage)
}

// load returns nil where there is none. Its errors are CheckpointErrors.
func (s store) load() (*checkpoint, error) {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a run that has not begun is no error
	}
	var raw []byte
	if err == nil && info.Size() > maxCheckpoint {
		err = fmt.Errorf("%d bytes, at most %d", info.Size(), maxCheckpoint)
	}
	if err == nil {
		raw, err = os.ReadFile(s.path)
	}
	var c *checkpoint
	if err == nil {
		c, err = decode(raw)
	}
	if err != nil {
		return nil, &CheckpointError{Path: s.path, Err: err}
	}
	return c, nil
}

// encode writes a line with a checksum before the checkpoint: what a disk has changed
// must not be taken for a run.
func encode(c *checkpoint) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // six bytes for each < of a stack
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	return append(fmt.Appendf(nil, "%s%d %x\n", magic, checkpointVersion, sum), b.Bytes()...), nil
}

func decode(raw []byte) (*checkpoint, error) {
	head, body, found := bytes.Cut(raw, []byte("\n"))
	want, ours := strings.CutPrefix(string(head), magic)
	number, want, spaced := strings.Cut(want, " ")
	version, err := strconv.Atoi(number)
	sum := sha256.Sum256(body)
	switch {
	case !found || !ours || !spaced || err != nil || version < 1:
		return nil, errors.New("this is no checkpoint of a diagnosis")
	case version > checkpointVersion:
		return nil, &statefile.NewerError{Form: version, Known: checkpointVersion} // its checksum may be another one's
	case want != hex.EncodeToString(sum[:]):
		return nil, errors.New("it was damaged: its checksum is another one")
	}
	var c checkpoint
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// save replaces the checkpoint: a kill or a power failure leaves the old or the new one.
func (s store) save(c *checkpoint) error {
	raw, err := encode(c)
	if err != nil {
		return err
	}
	f := statefile.File{Path: s.path, Durable: true, Written: func() { s.fault(StageWritten) }}
	if err := f.Replace(raw); err != nil {
		return err
	}
	s.fault(StageSaved)
	return nil
}

func (r *Runner) store(id string) store {
	return store{path: filepath.Join(r.c.Dir, id+extension), fault: r.c.Fault}
}

// Close ends a run that is not executed any more, for those who read it. One that was cancelled
// takes this end: it says why. One that has come to its own end, or has not begun, stays as it is.
func (r *Runner) Close(id string, end End) error {
	if err := r.begin(id); err != nil {
		return err
	}
	defer r.end(id)
	s := r.store(id)
	cp, err := s.load()
	if err != nil || cp == nil || cp.Final != nil && cp.Final.Phase != v1alpha1.PhaseCancelled {
		return err
	}
	cp.Final = &end
	return s.save(cp)
}

// Forget removes a diagnosis' checkpoint: its end is reported, or it is not wanted any
// more. One that is being executed can't be forgotten, and one of a newer version stays.
func (r *Runner) Forget(id string) error {
	if !validID(id) {
		return fmt.Errorf("id %.140q is none of a diagnosis", id)
	}
	if err := r.begin(id); err != nil {
		return err
	}
	defer r.end(id)
	path := r.store(id).path
	if _, err := r.store(id).load(); err != nil {
		if _, newer := errors.AsType[*statefile.NewerError](err); newer {
			return fmt.Errorf("forget diagnosis: %w", err)
		}
	}
	var errs []error
	for _, p := range []string{path, path + ".new", path + ".damaged"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget diagnosis: %w", err)
	}
	return nil
}
