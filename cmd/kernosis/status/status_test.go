package status

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// agent is what status reads of an agent: a state folder and an endpoint.
type agent struct {
	t       *testing.T
	state   string
	journal *journal.Journal
	pages   map[string]string // by path; an empty text is answered with 401
	server  *httptest.Server
	token   string // the last token that was sent
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{t: t, state: t.TempDir(), pages: map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": "kernosis_build_info{version=\"v1\"} 1\n"}}
	var err error
	if a.journal, err = journal.Open(filepath.Join(a.state, "journal"), journal.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.journal.Close() })
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.token = r.Header.Get("Authorization")
		text := a.pages[r.URL.Path]
		switch {
		case text == "":
			http.Error(w, "no bearer token", http.StatusUnauthorized)
		case strings.HasPrefix(text, "the engine"):
			http.Error(w, text, http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(a.server.Close)
	a.saved(0)
	a.add(journal.Entry{Now: time.Now().Add(-time.Minute), Boot: "b1"})
	a.add(journal.Entry{Now: time.Now(), Event: source("oomkill", true), Transitions: []problem.Transition{{Condition: &problem.Condition{
		Type: "DiskUnhealthy", Status: problem.False, Reason: "DiskIsHealthy", Message: "no device has repeated I/O errors",
	}}}})
	return a
}

func source(stem string, up bool) *event.Event {
	return &event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: stem, Up: up, Reason: "operation not permitted"}}
}

func (a *agent) add(e journal.Entry) {
	a.t.Helper()
	if _, _, err := a.journal.Add(e); err != nil || a.journal.Flush() != nil {
		a.t.Fatal(err)
	}
}

// saved sets how long ago the state was saved.
func (a *agent) saved(ago time.Duration) {
	a.t.Helper()
	path := filepath.Join(a.state, "engine.json")
	at := time.Now().Add(-ago)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) fires(p problem.Problem) {
	a.t.Helper()
	p.State = problem.Firing
	if p.FirstSeen.IsZero() {
		p.FirstSeen = time.Now().Add(-time.Second)
	}
	p.LastSeen = p.FirstSeen
	a.add(journal.Entry{Now: time.Now(), Transitions: []problem.Transition{{Problem: &p}}})
}

func (a *agent) config() Config {
	a.t.Helper()
	e, err := NewEndpoint(a.server.URL, "")
	if err != nil {
		a.t.Fatal(err)
	}
	return Config{
		Node: "n7", Endpoint: e, StateDir: a.state, Journal: filepath.Join(a.state, "journal"), StateFile: "engine.json", DeadAfter: 90 * time.Second, Reads: &bounded.Calls{},
	}
}

func (a *agent) read() *State {
	a.t.Helper()
	return NewReader(a.config()).Read(a.t.Context())
}

func text(t *testing.T, s *State, v View) string {
	t.Helper()
	var b strings.Builder
	if err := s.WriteText(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func contains(t *testing.T, s *State, v View, all ...string) {
	t.Helper()
	got := text(t, s, v)
	for _, want := range all {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestHealthy(t *testing.T) {
	a := newAgent(t)
	a.pages["/metrics"] += `kernosis_condition{type="DiskUnhealthy",status="False"} 1
kernosis_source_up{stem="oomkill"} 1
kernosis_source_up{stem="check/kernosis/self"} 1
kernosis_api_writes_total{object="lease",outcome="renewed"} 3
kernosis_api_last_acknowledged_timestamp_seconds{object="lease"} ` + strconv.FormatInt(time.Now().Add(-7*time.Second).Unix(), 10) + `
process_resident_memory_bytes 4.3e+07
process_cpu_seconds_total 6
process_start_time_seconds ` + strconv.FormatInt(time.Now().Add(-10*time.Minute).Unix(), 10) + "\n"
	s := a.read()
	if s.Outcome != Healthy || !s.Agent.Running || len(s.Sources) != 1 || len(s.Unread) != 0 || s.Cost.RSSBytes != 43_000_000 {
		t.Errorf("%+v", s)
	}
	if p := s.Cost.CPUPercent; p < 0.9 || p > 1.1 {
		t.Errorf("6 s of 10 minutes are %f %%", p)
	}
	contains(t, s, View{}, "node n7: healthy\n", "VERSION     kernosis v1, Linux ", "AGENT       running, since ", " answers ok\n", "PROBLEMS    none\n", "CONDITIONS  False  DiskUnhealthy\n",
		"SOURCES     attached  oomkill\n", "LOSSES      none since the agent started\n", "API         last write accepted: lease ", "COST        RSS 41 MiB, CPU 1.0")
	contains(t, s, View{Wide: true}, "DiskIsHealthy: no device has repeated I/O errors")
}

func TestProblems(t *testing.T) {
	a := newAgent(t)
	a.add(journal.Entry{Now: time.Now(), Event: source("sockfail", false)})
	fallback := source("hungtask", true)
	fallback.SourceUp.Fallback = "hang by a kprobe: hang_btf is absent"
	a.add(journal.Entry{Now: time.Now(), Event: fallback})
	a.add(journal.Entry{Now: time.Now(), Transitions: []problem.Transition{{Condition: &problem.Condition{
		Type: "ProbeTargetUnreachable", Status: problem.Unknown, Reason: "SourceUnavailable", Message: "sockfail: operation not permitted",
	}}}})
	a.fires(problem.Problem{Rule: "oom-kill", Group: "a", Reason: "OOMKilling", Severity: problem.Warning, Subject: "cgroup \x1b[2J", Message: "killed\nnow", Count: 3})
	a.fires(problem.Problem{Rule: "disk-unhealthy", Group: "b", Reason: "DiskIOErrors", Severity: problem.Critical, Subject: "sdb", Condition: "DiskUnhealthy"})
	a.fires(problem.Problem{Rule: "effect", Group: "c", Reason: "Effect", Severity: problem.Critical, SuppressedBy: "disk-unhealthy"})
	a.fires(problem.Problem{Rule: "quiet", Group: "d", Reason: "Quiet", Severity: problem.Critical, MutedUntil: time.Now().Add(time.Hour)})
	a.pages["/metrics"] += `kernosis_problems{rule="oom-kill"} 1
kernosis_problems{rule="disk-unhealthy"} 1
kernosis_problems{rule="effect"} 1
kernosis_problems{rule="older"} 2
kernosis_condition{type="DiskUnhealthy",status="True"} 1
kernosis_condition{type="ProbeTargetUnreachable",status="Unknown"} 1
kernosis_records_lost_total{stem="diskio",reason="ring-full"} 4
kernosis_records_lost_total{stem="log/kmsg",reason="overrun"} 0
kernosis_events_dropped_total{rule="a",reason="Budget"} 2
kernosis_events_dropped_total{rule="b",reason="Budget"} 3
kernosis_journal_failed_total 0
kernosis_api_writes_total{object="lease",outcome="failed"} 3
`
	s := a.read()
	var order []string
	for _, p := range s.Problems {
		order = append(order, p.Rule)
	}
	if want := []string{"disk-unhealthy", "oom-kill", "older", "effect", "quiet"}; !slices.Equal(order, want) || s.Outcome != Problems {
		t.Errorf("%s: %q, want %q", s.Outcome, order, want)
	}
	contains(t, s, View{}, "node n7: 4 problems firing, 1 condition True, 1 condition Unknown, 1 source blind\n",
		`OOMKilling    cgroup \x1b[2J  since `, "×3  killed now\n", "older", "×2  it began before the oldest journal entry\n", "muted until ", "1 problem hidden by their cause (-o wide)\n",
		"CONDITIONS  True     DiskUnhealthy", "Unknown  ProbeTargetUnreachable", "SourceUnavailable: sockfail: operation not permitted\n",
		"blind     sockfail: operation not permitted, since ", "fallback  hungtask: hang by a kprobe: hang_btf is absent\n",
		"LOSSES      diskio: 4 (ring-full)\n            log/kmsg: perhaps some (overrun)\n            Events: 5 (Budget)\n", "API         no write accepted yet\n")
	contains(t, s, View{Wide: true}, "hidden by disk-unhealthy: ", "[oom-kill]\n")
	if strings.Contains(text(t, s, View{}), "\x1b") {
		t.Error("a text of others reaches the terminal")
	}
	// Resolved problems are no longer listed.
	a.add(journal.Entry{Now: time.Now(), Transitions: []problem.Transition{{Problem: &problem.Problem{Rule: "oom-kill", Group: "a", State: problem.Resolved}}}})
	if s = a.read(); len(s.Problems) != 5 || s.Problems[1].Message != "it began before the oldest journal entry" { // the metric is outdated
		t.Errorf("%+v", s.Problems)
	}
}

// An agent that denies its metrics, and one whose state folder can't be read.
func TestPartOfIt(t *testing.T) {
	a := newAgent(t)
	a.pages["/metrics"] = ""
	a.fires(problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Warning})
	a.add(journal.Entry{Now: time.Now(), Event: &event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "diskio", Count: 3, Reason: "ring-full"}}})
	s := a.read()
	if s.Outcome != Problems || len(s.Problems) != 1 || s.API.Known {
		t.Errorf("%+v", s)
	}
	contains(t, s, View{}, "OOMKilling", "LOSSES      diskio: 3 (ring-full)\n", "UNREAD      metrics: /metrics answers 401: no bearer token (--token-file)\n")

	a.pages["/metrics"] = "kernosis_problems{rule=\"oom-kill\"} 2\nkernosis_problem_info{rule=\"oom-kill\",reason=\"OOMKilling\",severity=\"warning\",subject=\"pod shop/web-1\"} 1\nkernosis_condition{type=\"KernelDeadlock\",status=\"True\"} 1\nkernosis_source_up{stem=\"sockfail\"} 0\n"
	a.state = t.TempDir()
	s = a.read()
	contains(t, s, View{}, "warning  OOMKilling  pod shop/web-1", "oom-kill", "can't be read", "True  KernelDeadlock\n", "blind  sockfail: unknown reason\n", "API         not used: the agent does not report to an API server\n",
		"UNREAD      journal: not found in "+a.state)
	if s.Outcome != Problems {
		t.Error(s.Outcome)
	}
}

// Without an endpoint the state folder shows that an agent runs; without either, none runs.
func TestWhetherItRuns(t *testing.T) {
	a := newAgent(t)
	a.server.Close()
	s := a.read()
	if s.Outcome != Healthy || !s.Agent.Running || s.Agent.Health != "" {
		t.Errorf("%+v", s)
	}
	contains(t, s, View{}, "AGENT       seems to be running: it saved its state 0s ago, since ")
	a.saved(2 * time.Minute)
	s = a.read()
	if s.Outcome != Unknown || s.Agent.Running {
		t.Errorf("%+v", s)
	}
	contains(t, s, View{}, "node n7: no agent is running\n", "not running", "UNREAD      endpoint http://127.0.0.1:", "connection refused\n")
	a.state = t.TempDir()
	if s := a.read(); s.Outcome != Unknown {
		t.Errorf("%+v", s)
	}
}

// A journal that another agent left is not used for the one that answers.
func TestStaleJournal(t *testing.T) {
	a := newAgent(t)
	a.state = t.TempDir()
	var err error
	if a.journal, err = journal.Open(filepath.Join(a.state, "journal"), journal.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.journal.Close() })
	a.saved(time.Hour)
	a.add(journal.Entry{Now: time.Now().Add(-2 * time.Hour), Boot: "b1"})
	a.fires(problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", FirstSeen: time.Now().Add(-time.Hour)})
	s := a.read()
	if s.Outcome != Healthy || len(s.Problems) != 0 || len(s.Unread) != 1 || !strings.Contains(s.Unread[0].Why, "does not write to "+a.state) {
		t.Errorf("%+v", s)
	}
}

// A journal is read even if decoding it takes longer than a disk may take to answer: on a busy node
// the program gets little CPU time.
func TestLongJournal(t *testing.T) {
	a := newAgent(t)
	e := journal.Entry{Now: time.Now(), Event: source("oomkill", true)}
	for range 40 {
		e.Transitions = append(e.Transitions, problem.Transition{Problem: &problem.Problem{Rule: "oom-kill", State: problem.Firing, Message: "killed"}})
	}
	for range 3000 {
		if _, _, err := a.journal.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.journal.Flush(); err != nil {
		t.Fatal(err)
	}
	r := NewReader(a.config())
	r.within = testenv.Within(200 * time.Millisecond) // for each piece; the whole takes longer
	var s *State
	testenv.UntilShown(t, "the journal", 20*time.Second, func() (bool, string) {
		s = r.Read(t.Context())
		return len(s.Unread) == 0, text(t, s, View{})
	})
	if len(s.Problems) != 1 {
		t.Errorf("%+v", s.Problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s = NewReader(a.config()).Read(ctx); !slices.Contains(s.Unread, Unread{What: "journal", Why: "read journal: context canceled"}) {
		t.Errorf("it reads on for nobody: %+v", s.Unread)
	}
}

func TestUnhealthy(t *testing.T) {
	a := newAgent(t)
	a.pages["/healthz"] = "the engine has made no progress for 40s"
	s := a.read()
	if s.Outcome != Problems {
		t.Error(s.Outcome)
	}
	contains(t, s, View{}, "node n7: the agent is not healthy\n", "answers the engine has made no progress for 40s\n")
	a.pages["/healthz"] = "<html>"
	if s = a.read(); s.Agent.Health != "" || len(s.Unread) == 0 || !strings.Contains(s.Unread[0].Why, "not an agent") {
		t.Errorf("%+v", s)
	}
}

// Every metric that is read is a documented metric of agents.
func TestMetricsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("build.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	agents, _, _ := strings.Cut(string(page), "\n## Controller\n")
	names := regexp.MustCompile(`"(kernosis_[a-z_]+)"`).FindAllSubmatch(source, -1)
	for _, m := range names {
		if !strings.Contains(agents, "| `"+string(m[1])+"` |") {
			t.Errorf("docs/metrics.md does not have %s", m[1])
		}
	}
	if len(names) < 10 {
		t.Errorf("%d metrics", len(names))
	}
}

// The second read shows what the agent used since the first.
func TestCostBetweenReads(t *testing.T) {
	a := newAgent(t)
	used := func(cpu string) {
		a.pages["/metrics"] = "process_resident_memory_bytes 4e+07\nprocess_cpu_seconds_total " + cpu + "\nprocess_start_time_seconds 1000\n"
	}
	used("100")
	r := NewReader(a.config())
	first := r.Read(t.Context())
	used("100.5")
	second := r.Read(t.Context())
	over := second.At.Sub(first.At)
	if want := 0.5 / over.Seconds() * 100; second.Cost.Over != over || second.Cost.CPUPercent < want*0.99 || second.Cost.CPUPercent > want*1.01 {
		t.Errorf("%+v in %s, want %f %%", second.Cost, over, want)
	}
	used("1") // the agent was restarted
	if third := r.Read(t.Context()); third.Cost.CPUPercent > 1 {
		t.Errorf("%+v", third.Cost)
	}
}

func TestEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:20257": "http://127.0.0.1:20257", "localhost:1": "http://localhost:1", "[::1]:1": "http://[::1]:1", "10.0.0.7:20257": "https://10.0.0.7:20257",
		"http://10.0.0.7:20257/": "http://10.0.0.7:20257", "foo": "", "ftp://a:1": "", "http://u:p@a:1": "", "http://a:1/metrics": "",
	} {
		e, err := NewEndpoint(address, "")
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "want HOST:PORT or a URL") {
				t.Errorf("%s: %v", address, err)
			}
			continue
		}
		if err != nil || e.String() != want {
			t.Errorf("%s: %v, %v", address, e, err)
		}
	}
	a := newAgent(t)
	e, err := NewEndpoint(a.server.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Get(t.Context(), "/metrics"); err != nil || a.token != "Bearer secret" {
		t.Errorf("%q, %v", a.token, err)
	}
}

// Healthy parts are left out, and a problem takes one line.
func TestTop(t *testing.T) {
	a := newAgent(t)
	a.fires(problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Critical, Message: strings.Repeat("日本 ", 60)})
	a.add(journal.Entry{Now: time.Now(), Event: source("sockfail", false)})
	a.pages["/metrics"] += "process_resident_memory_bytes 4.3e+07\nprocess_cpu_seconds_total 6\n"
	var b strings.Builder
	if err := a.read().WriteTop(&b, View{Cells: 100}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "COST        RSS 41 MiB") || !strings.HasPrefix(lines[2], "PROBLEMS    critical  OOMKilling") ||
		!strings.HasSuffix(lines[2], "…") || display.Cells(lines[2]) > 100 || !strings.HasPrefix(lines[3], "SOURCES     blind  sockfail: ") {
		t.Errorf("%s", b.String())
	}
}

// Long lines are wrapped only between words.
func TestWidth(t *testing.T) {
	a := newAgent(t)
	a.fires(problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Warning, Subject: "cgroup /a", Message: strings.Repeat("word ", 30) + strings.Repeat("x", 90)})
	for i, line := range strings.Split(text(t, a.read(), View{Cells: 80}), "\n") {
		if i > 1 && len(line) > 80 && !strings.Contains(line, "xxx") && !strings.Contains(line, "http") && !strings.Contains(line, "/journal") {
			t.Errorf("%d: %s", len(line), line)
		}
	}
}

// A token is only sent to this machine's agent, because the certificate can't be verified.
func TestTokensStayOnThisMachine(t *testing.T) {
	for _, address := range []string{"192.0.2.7:20257", "https://agent.example:20257", "http://[2001:db8::1]:20257"} {
		if _, err := NewEndpoint(address, "secret"); err == nil || !strings.Contains(err.Error(), "this machine only") {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := NewEndpoint(address, ""); err != nil {
			t.Errorf("%s without a token: %v", address, err)
		}
	}
}

// An endpoint is an address and nothing else, whatever was given: a page is asked for at this host,
// and its text is an endpoint again.
func FuzzParseEndpoint(f *testing.F) {
	for _, address := range []string{
		"127.0.0.1:20257", "[::1]:20257", "localhost:80", "10.0.0.7:20257", "https://node-7:20257/", "http://[fe80::1%25eth0]:80", ":80", "a:", "host:99999",
		"http://h:1/#x", "http://h:1?", "http://a@h:1", "http://h:1/x?y",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		u, err := parseEndpoint(address)
		if err != nil {
			return
		}
		_, err = strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
		if err != nil || u.Hostname() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
			t.Errorf("%q is %+v, %v", address, u, err)
		}
		if page, err := url.Parse(u.JoinPath("/metrics").String()); err != nil || page.Host != u.Host || page.RequestURI() != "/metrics" {
			t.Errorf("%q: page %v, %v", address, page, err)
		}
		if again, err := parseEndpoint(u.String()); err != nil || *again != *u {
			t.Errorf("%q is %v, and %v, %v", address, u, again, err)
		}
	})
}
