package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kernosis/kernosis/collector/event"
)

// maxCRI bounds an answer of a runtime, in bytes: a version, or some conditions.
const maxCRI = 1 << 20

// runtimeSockets are where runtimes listen, by what is most common.
func runtimeSockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	}
}

// runtimeHealth is what a container runtime says of itself.
type runtimeHealth struct {
	socket        string
	name, version string
	apiVersion    string
	conditions    []runtimeCondition
	latency       time.Duration // of the slower of two calls
	// unreachable is why there is no answer; silent: it took too long.
	unreachable error
	silent      bool
}

type runtimeCondition struct {
	name            string
	ok              bool
	reason, message string
}

// errNoRuntime is returned where no runtime's socket is known.
var errNoRuntime = errors.New("no container runtime found")

// askRuntime asks for version and status. Only where the runtime can't be looked for is
// there an error.
func askRuntime(ctx context.Context, h Host, call *Call) (runtimeHealth, error) {
	r := runtimeHealth{socket: call.Parameters["socket"]}
	if r.socket == "" {
		for _, s := range runtimeSockets() {
			if info, err := os.Stat(h.FS.Path(s)); err == nil && info.Mode().Type() == fs.ModeSocket {
				r.socket = s
				break
			}
		}
		if r.socket == "" {
			return r, fmt.Errorf("%w: none of %s is a socket", errNoRuntime, strings.Join(runtimeSockets(), ", "))
		}
	} else if !path.IsAbs(r.socket) {
		return r, fmt.Errorf("socket %s is no absolute path", quoted(r.socket))
	}
	within, cancel := context.WithTimeout(ctx, call.Parameters.Duration("timeout"))
	defer cancel()
	err := r.ask(within, h.FS.Path(r.socket))
	if status.Code(err) == codes.DeadlineExceeded {
		<-within.Done() // the runtime knows the deadline, and may be a moment ahead of it
	}
	if ctx.Err() != nil {
		return r, fmt.Errorf("container runtime at %s: %w", r.socket, ctx.Err())
	}
	if err != nil {
		if s := status.Convert(err); s.Code() == codes.Unimplemented {
			return r, fmt.Errorf("container runtime at %s speaks no CRI v1: %s", r.socket, quoted(s.Message()))
		}
		r.unreachable, r.silent = err, within.Err() != nil
	}
	return r, nil
}

func (r *runtimeHealth) ask(ctx context.Context, socket string) error {
	// The name is passed on as it is: a resolver would take signs in it for its own.
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxCRI)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	client, began := cri.NewRuntimeServiceClient(conn), time.Now()
	v, err := client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return err
	}
	r.latency = time.Since(began)
	r.name, r.version = event.SafeText(v.GetRuntimeName(), 64), event.SafeText(v.GetRuntimeVersion(), 64)
	r.apiVersion = event.SafeText(v.GetRuntimeApiVersion(), 64)
	began = time.Now()
	s, err := client.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	r.latency = max(r.latency, time.Since(began))
	const most = 16 // two are known
	for _, c := range s.GetStatus().GetConditions() {
		if len(r.conditions) < most {
			r.conditions = append(r.conditions, runtimeCondition{
				name: event.SafeText(c.GetType(), 64), ok: c.GetStatus(), reason: event.SafeText(c.GetReason(), 128), message: event.SafeText(c.GetMessage(), 512),
			})
		}
	}
	return nil
}

// condition returns a condition that the runtime has told.
func (r *runtimeHealth) condition(name string) (c runtimeCondition, ok bool) {
	for _, c := range r.conditions {
		if c.name == name {
			return c, true
		}
	}
	return runtimeCondition{}, false
}

// verdict says what is wrong; nil: nothing. The first is the cause of those after it.
func (r *runtimeHealth) verdict(slow time.Duration) *Verdict {
	at := cmp.Or(strings.TrimSpace(r.name+" "+r.version), "container runtime") + " at " + r.socket
	switch {
	case r.silent:
		return &Verdict{"RuntimeSilent", at + " doesn't answer"}
	case r.unreachable != nil:
		return &Verdict{"RuntimeUnreachable", at + ": " + event.SafeText(status.Convert(r.unreachable).Message(), 512)}
	}
	for _, known := range []struct{ condition, reason string }{{cri.RuntimeReady, "RuntimeNotReady"}, {cri.NetworkReady, "RuntimeNetworkNotReady"}} {
		if c, told := r.condition(known.condition); told && !c.ok {
			return &Verdict{known.reason, fmt.Sprintf("%s: %s is false: %s", at, c.name, strings.TrimPrefix(c.reason+": "+c.message, ": "))}
		}
	}
	if r.latency > slow {
		return &Verdict{"RuntimeSlow", fmt.Sprintf("%s takes %s to answer", at, r.latency.Round(time.Millisecond))}
	}
	return nil
}

func runtimeParameters() []Parameter {
	return []Parameter{
		{Name: "socket", Kind: String, Doc: "the runtime's CRI socket; without it the first that is there of " + strings.Join(runtimeSockets(), ", ")},
		{Name: "timeout", Kind: Duration, Default: "5s", Min: int64(10 * time.Millisecond), Max: int64(2 * time.Minute), Doc: "how long it may take to answer"},
	}
}

func runtimeResults() []Result {
	return []Result{
		{"socket", "where it was asked"},
		{"reachable", "`true`: it has answered"},
		{"runtimeName", "`containerd`, `cri-o` …"},
		{"runtimeVersion", "its version"},
		{"apiVersion", "of the CRI"},
		{"runtimeReady", "its condition RuntimeReady; missing where it doesn't tell"},
		{"networkReady", "its condition NetworkReady; missing where it doesn't tell"},
		{"conditions", "all conditions that are false, with reason and message"},
		{"latency", "of the slower of the calls Version and Status"},
		{"error", "why there is no answer"},
	}
}

func (r *runtimeHealth) results() map[string]string {
	out := map[string]string{"socket": r.socket, "reachable": strconv.FormatBool(r.unreachable == nil)}
	if r.name != "" {
		out["runtimeName"], out["runtimeVersion"], out["apiVersion"] = r.name, r.version, r.apiVersion
	}
	if r.unreachable != nil {
		out["error"] = event.SafeText(status.Convert(r.unreachable).Message(), 512)
		return out
	}
	out["latency"] = r.latency.Round(10 * time.Microsecond).String()
	if c, told := r.condition(cri.RuntimeReady); told {
		out["runtimeReady"] = strconv.FormatBool(c.ok)
	}
	if c, told := r.condition(cri.NetworkReady); told {
		out["networkReady"] = strconv.FormatBool(c.ok)
	}
	var wrong []string
	for _, c := range r.conditions {
		if !c.ok {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", c.name, c.reason, c.message))
		}
	}
	out["conditions"] = strings.Join(wrong, "; ")
	return out
}
