package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// maxProfile bounds a profile, in bytes: the stacks of 30,000 goroutines, or a trace of a busy
// process over 30 s.
const maxProfile = 32 << 20

func Pprof(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "pprof", Doc: "Takes a profile of a Go process from its pprof endpoint: stacks of all goroutines, heap, CPU and others.",
		Effect: operation.Collect,
		Parameters: []operation.Parameter{
			{Name: "address", Kind: operation.Address, Doc: "address of the endpoint, with port"},
			{Name: "port", Kind: operation.Integer, Min: 1, Max: 65535, Doc: "its port"},
			{Name: "socket", Kind: operation.String, Doc: "its unix socket instead of address and port: /run/containerd/debug.sock"},
			{Name: "path", Kind: operation.String, Default: "/debug/pprof", Max: 256, Doc: "base path of the profiles"},
			{
				Name: "profile", Kind: operation.Enum, Values: []string{"goroutine", "heap", "allocs", "block", "mutex", "threadcreate", "cpu", "trace"},
				Default: "goroutine", Doc: "profile to take",
			},
			{Name: "seconds", Kind: operation.Duration, Default: "5s", Min: int64(time.Second), Max: int64(30 * time.Second), Doc: "how long to record cpu and trace"},
		},
		Results: []operation.Result{
			{Name: "profile", Doc: "the profile"},
			{Name: "artifact", Doc: "its name: goroutine.txt, heap.pb.gz, trace.out …"},
			{Name: "bytes", Doc: "its size"},
			{Name: "goroutines", Doc: "number of goroutines (goroutine)"},
			{Name: "states", Doc: "goroutines by what they wait for: chan receive 12; IO wait 3 (goroutine)"},
			{Name: "longestWait", Doc: "longest wait of a goroutine, in whole minutes (goroutine)"},
		},
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) { return pprof(ctx, h, call) },
	}
}

// profileRequest has the URL, artifact name and format of a kind of profile.
type profileRequest struct {
	path, query, artifact string
	begins                string // what such a profile starts with
}

func profileOf(kind string, seconds time.Duration) profileRequest {
	const gzip = "\x1f\x8b"
	whole := strconv.Itoa(int((seconds + time.Second - 1) / time.Second))
	switch kind {
	case "goroutine":
		return profileRequest{"goroutine", "debug=2", "goroutine.txt", "goroutine "}
	case "cpu":
		return profileRequest{"profile", "seconds=" + whole, "cpu.pb.gz", gzip}
	case "trace":
		return profileRequest{"trace", "seconds=" + whole, "trace.out", "go 1."}
	}
	return profileRequest{kind, "", kind + ".pb.gz", gzip}
}

func pprof(ctx context.Context, h operation.Host, call *operation.Call) (operation.Output, error) {
	p := call.Parameters
	r := profileOf(p["profile"], p.Duration("seconds"))
	if !path.IsAbs(p["path"]) {
		return operation.Output{}, fmt.Errorf("path %s: want a path such as /debug/pprof", operation.Quoted(p["path"]))
	}
	u := &url.URL{Scheme: "http", Path: path.Join(p["path"], r.path), RawQuery: r.query}
	client, err := newHTTPClient(TLS{})
	if err != nil {
		return operation.Output{}, err
	}
	defer client.CloseIdleConnections()
	switch byAddress, bySocket := p["address"] != "" && p["port"] != "", p["socket"] != ""; {
	case bySocket:
		if !path.IsAbs(p["socket"]) {
			return operation.Output{}, fmt.Errorf("socket %s: want an absolute path", operation.Quoted(p["socket"]))
		}
		u.Host = "localhost"
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", h.FS.Path(p["socket"]))
		}
	case byAddress:
		u.Host = netip.AddrPortFrom(p.Addr("address"), uint16(p.Int("port"))).String()
	default:
		return operation.Output{}, errors.New("parameters address and port, or socket, are required")
	}
	where := cmp.Or(p["socket"], u.Host) + u.Path
	out, err := takeProfile(ctx, client, u, r, call)
	if err != nil {
		return operation.Output{}, fmt.Errorf("profile of %s: %w", where, WhyEnded(ctx, err))
	}
	out.Results["profile"] = p["profile"]
	return out, nil
}

func takeProfile(ctx context.Context, client *http.Client, u *url.URL, r profileRequest, call *operation.Call) (operation.Output, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return operation.Output{}, err
	}
	resp, err := send(client, req)
	if err != nil {
		return operation.Output{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return operation.Output{}, statusError(resp)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" {
		return operation.Output{}, fmt.Errorf("answer is encoded as %s, which was not requested", operation.Quoted(enc))
	}
	// Answers of other services are not stored.
	begin := make([]byte, len(r.begins))
	n, err := io.ReadFull(resp.Body, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return operation.Output{}, err
	}
	if string(begin[:n]) != r.begins {
		return operation.Output{}, fmt.Errorf("the answer is not the requested profile: it begins with %s", operation.Quoted(string(begin[:n])))
	}
	w, err := call.Artifacts.Create(r.artifact)
	if err != nil {
		return operation.Output{}, err
	}
	stacks := &stackSummary{states: map[string]int{}}
	var to io.Writer = w
	if r.path == "goroutine" {
		to = io.MultiWriter(w, stacks)
	}
	_, err = to.Write(begin)
	size := int64(n)
	if err == nil {
		var more int64
		more, err = io.Copy(to, io.LimitReader(resp.Body, maxProfile-size))
		size += more
	}
	err = errors.Join(err, w.Close())
	out := operation.Output{Results: map[string]string{"artifact": r.artifact}}
	switch {
	case errors.Is(err, operation.ErrArtifactBudget):
		out.Truncated = true
	case err != nil:
		return operation.Output{}, fmt.Errorf("after %d bytes: %w", size, err)
	case size == maxProfile:
		// It was truncated if one more byte follows.
		m, _ := io.ReadFull(resp.Body, begin[:1])
		out.Truncated = m > 0
	}
	out.Results["bytes"] = strconv.FormatInt(size, 10)
	if r.path == "goroutine" {
		stacks.addTo(out.Results)
	}
	return out, nil
}

// stackSummary counts goroutines in the text of their stacks (debug=2) while it is written. A line
// "goroutine 7 [chan receive, 12 minutes]:" starts each goroutine.
type stackSummary struct {
	line    []byte // beginning of an incomplete line
	count   int
	states  map[string]int
	longest int // minutes
}

const (
	maxStackLine      = 512 // bytes of a line that are parsed
	maxStates         = 32  // distinct states that are counted
	maxStatesReported = 8
)

// goroutineLine is the first line of a goroutine. A process may print more between number and
// state: gp=0x… m=nil.
var goroutineLine = regexp.MustCompile(`^goroutine \d+ [^\[]*\[(.*?)\]:`)

// Write parses the next part of the text.
func (s *stackSummary) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			s.line = append(s.line, b[:min(len(b), maxStackLine-len(s.line))]...)
			return n, nil
		}
		s.line = append(s.line, b[:min(i, maxStackLine-len(s.line))]...)
		s.take(string(s.line))
		s.line, b = s.line[:0], b[i+1:]
	}
}

func (s *stackSummary) take(line string) {
	m := goroutineLine.FindStringSubmatch(line)
	if m == nil {
		return
	}
	s.count++
	state, more, _ := strings.Cut(m[1], ", ")
	for part := range strings.SplitSeq(more, ", ") {
		if text, ok := strings.CutSuffix(part, " minutes"); ok {
			if m, err := strconv.Atoi(text); err == nil {
				s.longest = max(s.longest, m)
			}
		}
	}
	state = display.Safe(state, 64)
	if _, known := s.states[state]; !known && len(s.states) >= maxStates {
		state = "other"
	}
	s.states[state]++
}

// addTo adds the summary to results.
func (s *stackSummary) addTo(results map[string]string) {
	results["goroutines"] = strconv.Itoa(s.count)
	results["longestWait"] = strconv.Itoa(s.longest) + "m"
	names := slices.SortedFunc(maps.Keys(s.states), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.states[b], s.states[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, name := range names {
		if i == maxStatesReported {
			parts = append(parts, fmt.Sprintf("and %d others", len(names)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, s.states[name]))
	}
	results["states"] = strings.Join(parts, "; ")
}
