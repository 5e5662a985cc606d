package liveness

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	noon  = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	usual = periods{silent: 50 * time.Second, draining: 5 * time.Minute, startUp: 2 * time.Minute}
)

// agent returns an agent that was last seen to renew the given time before noon.
func agent(quiet time.Duration, change ...func(*observation)) *observation {
	o := &observation{
		node: true, nodeUID: "u", nodeSince: noon.Add(-time.Hour), lease: true, heard: true, owner: "u",
		renewed: noon.Add(-quiet), renewTime: noon.Add(-quiet), types: []string{"A", "B"},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func draining(o *observation)     { o.draining = true }
func leaseDeleted(o *observation) { o.lease = false }
func nodeDeleted(o *observation)  { o.node, o.nodeUID = false, "" }
func unwanted(o *observation)     { o.unwanted = true }
func otherNode(o *observation)    { o.nodeUID = "v" }
func noLease(o *observation)      { o.lease, o.heard = false, false }
func newNode(o *observation)      { o.nodeSince = noon.Add(-time.Second) }
func lasts(d time.Duration) func(*observation) {
	return func(o *observation) { o.patience = d + d/4 }
}
func zone(name string) func(*observation) {
	return func(o *observation) { o.zone = name }
}

func pods(ages ...time.Duration) func(*observation) {
	return func(o *observation) {
		o.pods = map[types.UID]time.Time{}
		for i, age := range ages {
			o.pods[types.UID(strconv.Itoa(i))] = noon.Add(-age)
		}
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		o    *observation
		want state
		in   time.Duration // until it changes; 0: never
	}{
		"fresh":                             {agent(time.Second), stateReporting, 49 * time.Second},
		"one renewal is missing":            {agent(29 * time.Second), stateReporting, 21 * time.Second},
		"two are":                           {agent(30 * time.Second), stateLate, 20 * time.Second},
		"just not silent":                   {agent(50*time.Second - 1), stateLate, 1},
		"silent":                            {agent(50 * time.Second), stateSilent, 0},
		"a Lease that lasts longer":         {agent(59*time.Second, lasts(100*time.Second)), stateReporting, 66 * time.Second},
		"a Lease that lasts longer, late":   {agent(80*time.Second, lasts(100*time.Second)), stateLate, 45 * time.Second},
		"the usual Lease":                   {agent(50*time.Second, lasts(40*time.Second)), stateSilent, 0},
		"for long":                          {agent(50 * time.Hour), stateSilent, 0},
		"a clock that went back":            {agent(-time.Hour), stateReporting, time.Hour + 50*time.Second},
		"draining":                          {agent(time.Minute, draining), stateDraining, 4 * time.Minute},
		"draining for long":                 {agent(4*time.Minute, draining), stateLate, time.Minute},
		"drained":                           {agent(5*time.Minute, draining), stateSilent, 0},
		"drained, no agent is wanted":       {agent(5*time.Minute, draining, unwanted), stateNone, 0},
		"draining, no agent is wanted":      {agent(4*time.Minute, draining, unwanted), stateDraining, time.Minute},
		"drained, its pod is still there":   {agent(5*time.Minute, draining, unwanted, pods(time.Hour)), stateSilent, 0},
		"killed, no agent is wanted":        {agent(time.Minute, unwanted), stateSilent, 0},
		"Lease deleted, none is wanted":     {agent(time.Minute, leaseDeleted, unwanted), stateNone, 0},
		"Lease deleted, fresh":              {agent(time.Second, leaseDeleted), stateReporting, 49 * time.Second},
		"Lease deleted, silent":             {agent(time.Minute, leaseDeleted), stateSilent, 0},
		"no Node":                           {agent(time.Minute, nodeDeleted), stateNone, 0},
		"Lease of an earlier Node":          {agent(time.Minute, otherNode), stateNone, 0},
		"Lease of an earlier Node, pod":     {agent(time.Minute, otherNode, pods(time.Minute)), stateStarting, time.Minute},
		"neither Lease nor pod":             {agent(0, noLease), stateNone, 0},
		"a new Node, pods not heard of yet": {agent(0, noLease, newNode), stateStarting, 49 * time.Second},
		"a new pod":                         {agent(0, noLease, pods(time.Minute)), stateStarting, time.Minute},
		"an old pod":                        {agent(0, noLease, pods(2*time.Minute)), stateNever, 0},
		"an old pod and a new one":          {agent(0, noLease, pods(time.Second, 3*time.Minute)), stateNever, 0},
		"an old pod, no Node":               {agent(0, noLease, nodeDeleted, pods(time.Hour)), stateNone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, until := judge(c.o, noon, usual)
			var in time.Duration
			if !until.IsZero() {
				in = until.Sub(noon)
			}
			if got != c.want || in != c.in {
				t.Errorf("got %s for %s, want %s for %s", got, in, c.want, c.in)
			}
			if !until.IsZero() {
				if again, _ := judge(c.o, until, usual); again == got {
					t.Errorf("still %s when it was to change", again)
				}
			}
		})
	}
}

func some(n int, quiet time.Duration, change ...func(*observation)) []*observation {
	var out []*observation
	for range n {
		out = append(out, agent(quiet, change...))
	}
	return out
}

func TestAssess(t *testing.T) {
	const fresh, silent, late = time.Second, time.Minute, 35 * time.Second
	for name, c := range map[string]struct {
		all    [][]*observation
		slowed []string
		halted bool
	}{
		"all well":                        {all: [][]*observation{some(10, fresh, zone("a"))}},
		"nobody":                          {},
		"the only one":                    {all: [][]*observation{some(1, silent, zone("a"))}},
		"two of two":                      {all: [][]*observation{some(2, silent, zone("a"))}},
		"three of three":                  {all: [][]*observation{some(3, silent, zone("a"))}, slowed: []string{"a"}, halted: true},
		"one of each of three zones":      {all: [][]*observation{some(1, silent, zone("a")), some(1, silent, zone("b")), some(1, silent, zone("c"))}, halted: true},
		"all but one":                     {all: [][]*observation{some(3, silent, zone("a")), some(1, fresh, zone("b"))}, slowed: []string{"a"}},
		"55 percent":                      {all: [][]*observation{some(11, silent, zone("a")), some(9, fresh, zone("a"))}},
		"more than that":                  {all: [][]*observation{some(12, silent, zone("a")), some(8, fresh, zone("a"))}, slowed: []string{"a"}},
		"late counts":                     {all: [][]*observation{some(12, late, zone("a")), some(8, fresh, zone("a"))}, slowed: []string{"a"}},
		"two of three":                    {all: [][]*observation{some(2, silent, zone("a")), some(1, fresh, zone("a"))}},
		"draining does not count":         {all: [][]*observation{some(10, silent, zone("a"), draining), some(2, fresh, zone("a"))}},
		"without a zone":                  {all: [][]*observation{some(5, silent), some(1, fresh)}, slowed: []string{""}},
		"deleted Nodes do not count":      {all: [][]*observation{some(5, silent, zone("a"), nodeDeleted), some(2, fresh, zone("a"))}},
		"who never reported is not quiet": {all: [][]*observation{some(5, 0, zone("a"), noLease, pods(time.Hour))}},
	} {
		t.Run(name, func(t *testing.T) {
			v := assess(slices.Values(slices.Concat(c.all...)), noon, usual)
			var slowed []string
			for name, z := range v.zones {
				if z.slowed() {
					slowed = append(slowed, name)
				}
			}
			if !slices.Equal(slowed, c.slowed) || v.halted != c.halted {
				t.Errorf("slowed %q, halted %t, want %q, %t", slowed, v.halted, c.slowed, c.halted)
			}
		})
	}
}

func TestTypesOfMostAgents(t *testing.T) {
	lists := func(list ...string) func(*observation) { return func(o *observation) { o.types = list } }
	all := slices.Concat(some(2, 0, lists("A", "B")), some(1, 0, lists("A", "C")), some(1, 0, lists("D")), some(9, time.Hour, lists("E")))
	if got := assess(slices.Values(all), noon, usual).common; !slices.Equal(got, []string{"A"}) {
		t.Errorf("got %q", got)
	}
}

// Whatever cut off all agents has ended: none is marked silent before a full period.
func TestAfterAHaltAllHaveAFullPeriod(t *testing.T) {
	tr := newTracker(usual, nil)
	for i, o := range some(5, time.Minute) {
		tr.nodes[strconv.Itoa(i)] = o
	}
	if j := tr.judge("1", noon); j.state != stateSilent || !j.halted {
		t.Fatalf("%s, halted %t", j.state, j.halted)
	}
	later := noon.Add(10 * time.Second)
	tr.nodes["0"].renewed = later
	if j := tr.judge("1", later); j.state != stateReporting || j.halted || !j.until.Equal(later.Add(usual.silent)) {
		t.Fatalf("%s until %s, halted %t", j.state, j.until, j.halted)
	}
	tr.nodes["0"].renewed = later.Add(40 * time.Second)
	if j := tr.judge("1", later.Add(usual.silent)); j.state != stateSilent || j.halted || !j.zone.slowed() {
		t.Fatalf("%s, halted %t, slowed %t", j.state, j.halted, j.zone.slowed())
	}
}

// If many agents miss renewals together, all have longer to come back, until the last of them has
// had its time. A few that stopped are no crowd.
func TestACrowdOfLateAgentsHasLonger(t *testing.T) {
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		late int
		want state
	}{{10, stateSilent}, {11, stateReporting}} {
		tr := newTracker(usual, nil)
		for i, o := range slices.Concat(some(c.late, 0), some(100, 0)) {
			tr.nodes[strconv.Itoa(i)] = o
		}
		renew := func(from int, at time.Time) {
			for i := from; i < c.late+100; i++ {
				tr.nodes[strconv.Itoa(i)].renewed = at
			}
		}
		renew(c.late, after(35))
		tr.judge("0", after(40))
		renew(c.late, after(45))
		if j := tr.judge("0", after(50)); j.state != c.want || c.want == stateReporting && !j.until.Equal(after(150)) {
			t.Fatalf("%d late: %s until %s", c.late, j.state, j.until)
		}
		if silent := tr.all(after(51)).states[stateSilent]; silent != map[state]int{stateSilent: c.late, stateReporting: 0}[c.want] {
			t.Errorf("of %d late agents %d count as silent", c.late, silent)
		}
		if c.want == stateSilent {
			continue
		}
		renew(1, after(60)) // all but one are back
		if j := tr.judge("0", after(61)); j.state == stateSilent {
			t.Error("the last one is not waited for")
		}
		renew(1, after(100))
		if j := tr.judge("0", after(101)); j.state != stateSilent {
			t.Errorf("it is %s a period after the others came back", j.state)
		}
	}
}

// Agents whose Leases last longer have three of their own periods, as others have.
func TestACrowdWithLongerLeases(t *testing.T) {
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	const late = 11
	tr := newTracker(usual, nil)
	for i, o := range slices.Concat(some(late, 0, lasts(120*time.Second)), some(100, 0)) {
		tr.nodes[strconv.Itoa(i)] = o
	}
	at := func(seconds int) judgement {
		for i := late; i < late+100; i++ {
			tr.nodes[strconv.Itoa(i)].renewed = after(seconds)
		}
		return tr.judge("0", after(seconds))
	}
	at(100)
	for seconds := 110; seconds < 450; seconds += 10 {
		if j := at(seconds); j.state == stateSilent || seconds >= 150 && !j.until.Equal(after(450)) {
			t.Fatalf("after %d s: %s until %s", seconds, j.state, j.until)
		}
		if n := tr.all(after(seconds)).states[stateSilent]; n != 0 {
			t.Fatalf("after %d s: %d count as silent", seconds, n)
		}
	}
	if j := at(450); j.state != stateSilent {
		t.Errorf("%s after 450 s", j.state)
	}
	// All but one are back: it is waited for until the last of them has had its time.
	tr.nodes["0"].renewed = after(250)
	for i, seconds := range []int{590, 601} {
		for n := 1; n < late; n++ {
			tr.nodes[strconv.Itoa(n)].renewed = after(seconds)
		}
		if j := at(seconds); (j.state == stateSilent) != (i == 1) {
			t.Errorf("after %d s the last one is %s", seconds, j.state)
		}
	}
}

// It has not renewed its Lease yet.
func TestAnAgentThatWritesItsConditionsIsBack(t *testing.T) {
	node := func(uid types.UID, reason string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: "Ready", Reason: "KubeletReady"}, {Type: "A", Reason: reason},
		}}}
		n.Name, n.UID = "1", uid
		return n
	}
	for name, c := range map[string]struct {
		then *corev1.Node
		want state
	}{
		"its own":         {node("u", "Broken"), stateReporting},
		"still ours":      {node("u", "AgentStatusUnknown"), stateSilent},
		"ours of a kind":  {node("u", "AgentStatusNeverUpdated"), stateSilent},
		"gone":            {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "1", UID: "u"}}, stateSilent},
		"of another Node": {node("v", "Broken"), stateStarting},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTracker(usual, nil)
			for i, o := range some(5, time.Second) {
				tr.nodes[strconv.Itoa(i)] = o
			}
			tr.nodes["1"] = agent(time.Minute)
			tr.seeNode(node("u", "AgentStatusUnknown"), noon)
			if j := tr.judge("1", noon); j.state != stateSilent {
				t.Fatalf("%s before", j.state)
			}
			tr.seeNode(c.then, noon.Add(time.Second))
			if j := tr.judge("1", noon.Add(2*time.Second)); j.state != c.want {
				t.Errorf("%s after, want %s", j.state, c.want)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	has := func(list ...string) (out []corev1.NodeCondition) {
		for i := 0; i < len(list); i += 4 {
			out = append(out, corev1.NodeCondition{
				Type: corev1.NodeConditionType(list[i]), Status: corev1.ConditionStatus(list[i+1]), Reason: list[i+2], Message: list[i+3],
				LastHeartbeatTime: metav1.NewTime(noon.Add(-time.Minute)),
			})
		}
		return out
	}
	const (
		since = "the node's agent has not reported since 2026-03-04T11:59:00Z"
		never = "the agent's pod is on the node, but the agent has never reported"
		owned = "the node's agent has this condition, but has never reported it"
	)
	silent := agent(time.Minute)
	for name, c := range map[string]struct {
		state state
		o     *observation
		has   []corev1.NodeCondition
		want  []string // type status reason message, "since" if the status changes; or type "delete"
	}{
		"silent": {stateSilent, silent, has("Ready", "True", "KubeletReady", "", "B", "True", "X", "", "A", "False", "Y", "", "C", "False", "Z", ""), []string{
			"A Unknown AgentStatusUnknown " + since + " since", "B Unknown AgentStatusUnknown " + since + " since",
		}},
		"written already": {stateSilent, silent, has("A", "Unknown", "AgentStatusUnknown", since, "B", "Unknown", "AgentStatusUnknown", since), nil},
		"of another silence": {stateSilent, silent, has("A", "Unknown", "AgentStatusUnknown", "of old", "B", "Unknown", "AgentStatusUnknown", since), []string{
			"A Unknown AgentStatusUnknown " + since,
		}},
		"Unknown by the agent": {stateSilent, silent, has("A", "Unknown", "SourceBlind", "", "B", "Unknown", "AgentStatusUnknown", since), []string{
			"A Unknown AgentStatusUnknown " + since,
		}},
		"listed, not there":         {stateSilent, silent, has("A", "Unknown", "AgentStatusUnknown", since), []string{"B Unknown AgentStatusNeverUpdated " + owned + " since"}},
		"never updated stays so":    {stateSilent, silent, has("A", "Unknown", "AgentStatusNeverUpdated", never, "B", "Unknown", "AgentStatusNeverUpdated", owned), nil},
		"late":                      {stateLate, silent, has("A", "True", "X", ""), nil},
		"draining":                  {stateDraining, silent, has("A", "True", "X", ""), nil},
		"never":                     {stateNever, agent(0, noLease), has("A", "False", "FromAnother", ""), []string{"C Unknown AgentStatusNeverUpdated " + never + " since"}},
		"never, written":            {stateNever, agent(0, noLease), has("A", "False", "FromAnother", "", "C", "Unknown", "AgentStatusNeverUpdated", never), nil},
		"starting":                  {stateStarting, agent(0, noLease), has("C", "Unknown", "AgentStatusNeverUpdated", never), nil},
		"came without the type":     {stateReporting, agent(0), has("A", "Unknown", "AgentStatusNeverUpdated", never, "C", "Unknown", "AgentStatusNeverUpdated", never, "D", "True", "X", ""), []string{"C delete"}},
		"the pod went":              {stateNone, agent(0, noLease), has("A", "Unknown", "AgentStatusNeverUpdated", never, "D", "Unknown", "AgentStatusUnknown", since), []string{"A delete"}},
		"the node was taken out":    {stateNone, silent, has("A", "True", "X", "", "B", "Unknown", "AgentStatusUnknown", since, "C", "True", "Z", ""), []string{"A delete", "B delete"}},
		"and another reports":       {stateNone, agent(2 * time.Hour), has("A", "True", "X", "", "B", "Unknown", "AgentStatusUnknown", since), []string{"B delete"}},
		"kubelet's, if ever listed": {stateSilent, agent(time.Minute, func(o *observation) { o.types = []string{"Ready"} }), has("Ready", "True", "KubeletReady", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range plan(c.state, c.o, c.has, []string{"A", "C"}, noon) {
				text := c.Type + " " + c.Patch
				if c.Patch == "" {
					text = fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
				}
				if c.Since != nil {
					text += " since"
				}
				got = append(got, text)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func BenchmarkAssess5000(b *testing.B) {
	nodes := map[string]*observation{}
	for i, o := range some(5000, time.Second) {
		o.zone = strconv.Itoa(i % 3)
		nodes[strconv.Itoa(i)] = o
	}
	for b.Loop() {
		assess(maps.Values(nodes), noon, usual)
	}
}
