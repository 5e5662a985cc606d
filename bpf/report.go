package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// State is the outcome of one variant.
type State string

// Variant states. Absent and Forbidden are conclusive; Failed is not, so it may be retried.
const (
	Attached  State = "attached"
	Adopted   State = "adopted"   // attached by an earlier run already
	OnDemand  State = "on-demand" // loaded and attached when needed
	Unused    State = "unused"    // a better variant serves the hook
	Absent    State = "absent"    // this kernel lacks it
	Forbidden State = "forbidden" // this kernel or machine does not permit it
	Failed    State = "failed"    // inconclusive
)

// VariantReport is the outcome of one variant of one hook.
type VariantReport struct {
	Stem     string `json:"stem"`
	Hook     string `json:"hook"`
	Program  string `json:"program"`
	Optional bool   `json:"optional,omitempty"`
	State    State  `json:"state"`
	Pinned   bool   `json:"pinned,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Fallbacks describes the hooks that are served by a fallback because a better program does not
// work: "context by kp_oom_kill_process: fentry_oom_kill_process is absent (…)".
func Fallbacks(reports []VariantReport) []string {
	var out []string
	for i, r := range reports {
		if r.State != Attached && r.State != Adopted {
			continue
		}
		var better []string
		for _, b := range reports[:i] {
			if b.Stem == r.Stem && b.Hook == r.Hook && (b.State == Absent || b.State == Forbidden || b.State == Failed) {
				better = append(better, fmt.Sprintf("%s is %s (%s)", b.Program, b.State, b.Reason))
			}
		}
		if len(better) > 0 {
			out = append(out, r.Hook+" by "+r.Program+": "+strings.Join(better, ", "))
		}
	}
	return out
}

// classify turns the error of an attempt into a state. othersWork says that another program of this
// process was loaded: then a refusal is due to this program's type, not to missing privileges.
func classify(err error, othersWork bool) State {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound),
		errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, errAbsent):
		return Absent
	case errors.Is(err, errForbidden):
		return Forbidden
	case othersWork && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && !isVerifierError(err):
		return Forbidden
	}
	return Failed
}

// errAbsent marks a variant that BTF shows to be missing, without an attempt to attach it.
var errAbsent = errors.New("not in this kernel")

// errForbidden marks what this machine denies to the agent, although the kernel supports it.
var errForbidden = errors.New("not permitted")

// isVerifierError reports whether the verifier refused a program (EACCES, EINVAL). That is a bug of
// ours, not a property of the machine.
func isVerifierError(err error) bool {
	var ve *ebpf.VerifierError
	return errors.As(err, &ve) && len(ve.Log) > 0
}

// reason returns a variant's error without misleading parts.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		// cilium/ebpf adds a hint about RLIMIT_MEMLOCK to each EPERM.
		return "operation not permitted"
	case isVerifierError(err):
		var ve *ebpf.VerifierError
		errors.As(err, &ve)
		return "verifier: " + ve.Error()
	}
	return err.Error()
}
