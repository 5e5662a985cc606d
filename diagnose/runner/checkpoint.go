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
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Record is the outcome of a node.
type Record struct {
	ID        int                  `json:"id"`
	Operation string               `json:"operation"`
	Repairs   bool                 `json:"repairs,omitempty"` // the operation is a Remediate
	State     v1alpha1.ResultState `json:"state"`
	Reason    string               `json:"reason,omitempty"`
	Message   string               `json:"message,omitempty"` // one line
	Verdict   *operation.Verdict   `json:"verdict,omitempty"`
	// Results are bounded by operation.MaxResult and operation.MaxResults; Truncated is set if some
	// were cut or dropped.
	Results   map[string]string `json:"results,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	Start     time.Time         `json:"start,omitzero"` // of the first attempt
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
			return graph.Succeeded // an earlier run made the repair: this one continues after it
		}
		return graph.WouldRun
	case v1alpha1.ResultUnknown:
		return graph.Unknown
	}
	return "" // a checkpoint never has another state: Done refuses it
}

// checkpoint is the on-disk state of a run, from which it is resumed and reported. Other versions
// read it, too: fields may be added; older versions ignore them and lose them when they continue
// the run. A field that an older version must not ignore needs a new checkpointVersion.
type checkpoint struct {
	Plan    plan      `json:"plan"`
	Records []Record  `json:"records,omitempty"` // in the order in which nodes ran
	Begun   *begun    `json:"begun,omitempty"`   // the operation that runs
	Started time.Time `json:"started"`
	Waiting *Waiting  `json:"waiting,omitempty"` // for approval: the gate is asked again when the run resumes
	Final   *End      `json:"final,omitempty"`   // nil: the run has not ended
}

// replay rebuilds the run's graph, and its state machine with all recorded outcomes.
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

// plan is the input of the run when it began.
type plan struct {
	Nodes      []graph.Node       `json:"nodes"`
	Effects    []operation.Effect `json:"effects"` // by node id; empty for the start node
	Parameters map[string]string  `json:"parameters,omitempty"`
	Intended   []int              `json:"intended,omitempty"`
}

// repairs reports whether a node of the plan changes something.
func (p *plan) repairs(id int) bool { return p.Effects[id] == operation.Remediate }

// begun is an operation that has started and has no outcome yet.
type begun struct {
	ID     int       `json:"id"`
	Starts int       `json:"starts"` // how often an agent has started it
	At     time.Time `json:"at"`
}

// End is how a run ended.
type End struct {
	Phase   v1alpha1.Phase `json:"phase"`
	Reason  string         `json:"reason"`
	Message string         `json:"message,omitempty"`
	At      time.Time      `json:"at"`
}

// CheckpointError reports a checkpoint that can't be used. If the diagnosis has a repair that may
// have started, it does not run: its checkpoint stays until a person has looked and calls
// [Runner.Forget].
type CheckpointError struct {
	Path string
	Err  error
}

func (e *CheckpointError) Error() string { return fmt.Sprintf("checkpoint %s: %v", e.Path, e.Err) }

func (e *CheckpointError) Unwrap() error { return e.Err }

const (
	extension = ".checkpoint"
	// magic is the first word of a checkpoint, before the format version and the checksum.
	magic = "kernosis-checkpoint-"
	// checkpointVersion is incremented when older versions must not read the format any more.
	checkpointVersion = 1

	// maxCheckpoint bounds the file that is read: 256 nodes with 8 KiB of results each, escaped.
	maxCheckpoint = 32 << 20
)

// store reads and writes the checkpoint of one diagnosis.
type store struct {
	path  string
	fault func(Stage)
}

// load returns nil if there is no checkpoint. Its errors are CheckpointErrors.
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

// encode writes the checkpoint after a line with its checksum, so that a file that the disk
// corrupted is not taken for a run.
func encode(c *checkpoint) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // otherwise six bytes for each < in a stack
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
		return nil, errors.New("not a checkpoint of a diagnosis")
	case version > checkpointVersion:
		return nil, &statefile.NewerError{Form: version, Known: checkpointVersion} // its checksum may be of another kind
	case want != hex.EncodeToString(sum[:]):
		return nil, errors.New("it is damaged: the checksum does not match")
	}
	var c checkpoint
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// save replaces the checkpoint atomically: a kill or power failure leaves the old or the new one.
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
	return store{path: SavedPath(r.c.Dir, id), fault: r.c.Fault}
}

// Close records an end in the checkpoint of a run that will not be executed any more, and returns
// the run's report; nil if the run has not begun. If the agent ended during a repair, the run ends
// as Unknown instead. Close replaces the end of a cancelled run, because end gives the reason. It
// does not change a run that has ended in another way.
//
// It returns [ErrActive] while the run is executed, a [*CheckpointError] if its checkpoint can't be
// read, and the report together with an error if the end can't be written.
func (r *Runner) Close(id string, end End) (*Report, error) {
	if err := r.begin(id); err != nil {
		return nil, err
	}
	defer r.end(id)
	e := &execution{r: r, d: &Diagnosis{ID: id}, store: r.store(id), log: r.c.Log.With("diagnosis", id)}
	cp, err := e.store.load()
	if err != nil || cp == nil {
		return nil, err
	}
	if err := e.restore(cp); err != nil {
		return nil, err
	}
	if cp.Final == nil || cp.Final.Phase == v1alpha1.PhaseCancelled {
		if e.interruptedRepair() {
			end.Phase, end.Reason, end.Message = ended(e.run.Result())
		}
		cp.Final, cp.Begun = &end, nil
		e.save()
	}
	return e.report(), e.unsaved
}

// Forget removes a diagnosis' checkpoint. Call it once the end is reported or nobody needs the
// checkpoint. It returns an error while the diagnosis is executed, and for a checkpoint of a newer
// version.
func (r *Runner) Forget(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("%.140q is not the ID of a diagnosis", id)
	}
	if err := r.begin(id); err != nil {
		return err
	}
	defer r.end(id)
	path := r.store(id).path
	if _, err := r.store(id).load(); is[*statefile.NewerError](err) {
		return fmt.Errorf("forget diagnosis: %w", err)
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
