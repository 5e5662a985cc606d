package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func (b *bench) getSet(name string) *v1alpha1.OperationSet {
	b.t.Helper()
	s := &v1alpha1.OperationSet{}
	if err := b.client.Get(context.Background(), client.ObjectKey{Name: name}, s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// waitSet waits until a set's status for the current spec is as wanted.
func (b *bench) waitSet(name, want string) (s *v1alpha1.OperationSet, message string) {
	b.t.Helper()
	testenv.UntilShown(b.t, fmt.Sprintf("%s is %q", name, want), deadline, func() (bool, string) {
		s = b.getSet(name)
		var have string
		have, message = accepted(s.Status.Conditions)
		return have == want && s.Status.Conditions[0].ObservedGeneration == s.Generation, fmt.Sprintf("%q (%s)", have, message)
	})
	return s, message
}

func list(nodes ...v1alpha1.Node) []v1alpha1.Node { return nodes }

func node(id int32, operation string, to ...int32) v1alpha1.Node {
	return v1alpha1.Node{ID: id, Operation: operation, To: to}
}

func after(n v1alpha1.Node, dependences ...int32) v1alpha1.Node {
	n.Dependences = dependences
	return n
}

const op = "kernel-facts" // a built-in

// Each reason to reject a graph, or what it names, is in the set's status with the names, unless
// the API server rejects the object itself.
func TestEveryRefusalShowsInTheStatus(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	wide := list(node(0, "", 1))
	for i := int32(1); i < 256; i++ {
		n := node(i, op)
		for to := i + 1; to <= min(i+10, 255); to++ {
			n.To = append(n.To, to)
		}
		wide = append(wide, n)
	}
	builtin, parameter := b.name("builtin"), b.name("parameter")
	b.create(
		&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: builtin}, Spec: v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "kernel-fact"}}}},
		&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: parameter}, Spec: v1alpha1.OperationSpec{Processor: v1alpha1.Processor{Builtin: &v1alpha1.Builtin{Name: "blocked-stacks", Parameters: map[string]string{"pid": "abc"}}}}},
	)
	for reason, c := range map[string]struct {
		nodes   []v1alpha1.Node
		byAPI   bool   // rejected by the CRD
		as      string // reason of another mistake that always comes with it
		message string
	}{
		graph.Empty:                     {nodes: list(node(0, "")), byAPI: true},
		graph.TooLarge:                  {nodes: wide, message: "2048"},
		graph.WrongID:                   {nodes: list(node(0, "", 1), node(2, op)), message: "spec.adjacencyList[1]"},
		graph.StartHasOperation:         {nodes: list(node(0, op, 1), node(1, op)), byAPI: true},
		graph.NoOperation:               {nodes: list(node(0, "", 1), node(1, "")), byAPI: true},
		graph.UnknownNode:               {nodes: list(node(0, "", 1), node(1, op, 7)), byAPI: true},
		graph.DoubledEdge:               {nodes: list(node(0, "", 1, 1), node(1, op)), byAPI: true},
		graph.SecondSource:              {nodes: list(node(0, "", 1), node(1, op), node(2, op, 1)), message: "2"},
		graph.Unreachable:               {nodes: list(node(0, "", 1), node(1, op), node(2, op, 3), node(3, op, 2)), as: graph.Cycle, message: "nodes 2, 3: no path from the start leads there"},
		graph.Cycle:                     {nodes: list(node(0, "", 1), node(1, op, 2), node(2, op, 3), node(3, op, 1)), message: "1 → 2 → 3 → 1"},
		graph.UnknownDependence:         {nodes: list(node(0, "", 1), after(node(1, op), 0)), message: "spec.adjacencyList[1].dependences"},
		graph.DoubledDependence:         {nodes: list(node(0, "", 1), node(1, op, 2), after(node(2, op), 1, 1)), byAPI: true},
		graph.DependenceNotOnAPath:      {nodes: list(node(0, "", 1, 2), node(1, op, 3), node(2, op, 3), after(node(3, op), 1)), message: "spec.adjacencyList[3]"},
		v1alpha1.ReasonUnknownOperation: {nodes: list(node(0, "", 1), node(1, "kernel-fact")), message: "kernel-facts"},
		v1alpha1.ReasonUnknownBuiltin:   {nodes: list(node(0, "", 1), node(1, builtin)), message: "Operation " + builtin + ": spec.processor.builtin.name"},
		v1alpha1.ReasonInvalidParameter: {nodes: list(node(0, "", 1), node(1, parameter)), message: "spec.processor.builtin.parameters.pid"},
	} {
		t.Run(reason, func(t *testing.T) {
			b := &bench{t: t, server: b.server, client: b.client, namespace: b.namespace}
			s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(b.name(reason))}, Spec: v1alpha1.OperationSetSpec{AdjacencyList: c.nodes}}
			if err := b.client.Create(t.Context(), s); c.byAPI {
				if !apierrors.IsInvalid(err) {
					t.Errorf("the API server says %v", err)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			have, message := b.waitSet(s.Name, "False "+cmp.Or(c.as, reason))
			contains(t, message, c.message)
			if have.Status.Ready {
				t.Error("it is ready")
			}
			graph := reason != v1alpha1.ReasonUnknownOperation && reason != v1alpha1.ReasonUnknownBuiltin && reason != v1alpha1.ReasonInvalidParameter
			if graph != (have.Status.PathCount == "") {
				t.Errorf("%q paths", have.Status.PathCount)
			}
		})
	}
}

// A set's status follows the Operations that it names.
func TestSetFollowsItsOperations(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	name := b.name("later")
	set := b.set("kernel-facts", name)
	_, message := b.waitSet(set, "False "+v1alpha1.ReasonUnknownOperation)
	contains(t, message, "spec.adjacencyList[2].operation", name)

	o := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OperationSpec{
		Processor: v1alpha1.Processor{HTTPServer: &v1alpha1.HTTPServer{Scheme: "https", Address: "example.invalid", ClientCertificateSecret: &v1alpha1.SecretReference{Name: "whatever"}}},
	}}
	b.create(o)
	s, _ := b.waitSet(set, "True "+v1alpha1.ReasonAccepted)
	if !s.Status.Ready || s.Status.PathCount != "1" || len(s.Status.Paths) != 1 || fmt.Sprint(s.Status.Paths[0]) != "[1 2]" {
		t.Errorf("%+v", s.Status)
	}
	o.Spec.Dependences = []string{"disk-identity"}
	if err := b.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	_, message = b.waitSet(set, "False "+graph.DependenceNotOnAPath)
	contains(t, message, "disk-identity")
	b.delete(o)
	b.waitSet(set, "False "+v1alpha1.ReasonUnknownOperation)

	b.waitFor("the set is changed", func() bool { // its status may be written meanwhile
		s = b.getSet(set)
		s.Spec.AdjacencyList = s.Spec.AdjacencyList[:2]
		s.Spec.AdjacencyList[1].To = nil
		return b.client.Update(t.Context(), s) == nil
	})
	b.waitSet(set, "True "+v1alpha1.ReasonAccepted)
}

// ladder returns a chain of diamonds, which has 2^diamonds paths.
func ladder(diamonds int) []v1alpha1.Node {
	nodes := list(node(0, "", 1), node(1, op))
	for range diamonds {
		last := int32(len(nodes) - 1)
		nodes[last].To = []int32{last + 1, last + 2}
		nodes = append(nodes, node(last+1, op, last+3), node(last+2, op, last+3), node(last+3, op))
	}
	return nodes
}

func TestLadderIsCountedAndNotListed(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	b.waitSet(b.set(), "True "+v1alpha1.ReasonAccepted) // the controller works
	for diamonds, count := range map[int]string{40: "1099511627776", 84: "19342813113834066795298816"} {
		s := &v1alpha1.OperationSet{ObjectMeta: metav1.ObjectMeta{Name: b.name("ladder")}, Spec: v1alpha1.OperationSetSpec{AdjacencyList: ladder(diamonds)}}
		b.create(s)
		began := time.Now()
		have, _ := b.waitSet(s.Name, "True "+v1alpha1.ReasonAccepted)
		took := time.Since(began)
		if have.Status.PathCount != count || len(have.Status.Paths) != v1alpha1.MaxPaths {
			t.Errorf("%s paths, %d listed", have.Status.PathCount, len(have.Status.Paths))
		}
		if took > testenv.Within(5*time.Second) {
			t.Errorf("took %s", took)
		}
		raw, err := json.Marshal(have.Status)
		if err != nil || len(raw) > v1alpha1.MaxStatusBytes {
			t.Errorf("status has %d bytes, %v", len(raw), err)
		}
		t.Logf("%d diamonds: accepted after %s, status %d bytes", diamonds, took.Round(time.Millisecond), len(raw))
	}
}

// Messages are bounded, and count the mistakes that they omit.
func TestManyMistakesAreCounted(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("nothing-%d-%s", i, strings.Repeat("x", 100)))
	}
	_, message := b.waitSet(b.set(names...), "False "+v1alpha1.ReasonUnknownOperation)
	if len(message) > v1alpha1.MaxMessageBytes {
		t.Errorf("message of %d bytes", len(message))
	}
	reported := strings.Count(message, "spec.adjacencyList[")
	contains(t, message, fmt.Sprintf("and %d more", 200-reported))
}

func TestTriggers(t *testing.T) {
	b := newBench(t)
	b.control(nil)
	cron := func(set, schedule string) *v1alpha1.Trigger {
		return &v1alpha1.Trigger{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("t-%d", time.Now().UnixNano())}, Spec: v1alpha1.TriggerSpec{
			OperationSet: set, NodeName: "n1", SourceTemplate: v1alpha1.SourceTemplate{CronTemplate: &v1alpha1.CronTemplate{Schedule: schedule}},
		}}
	}
	wait := func(object *v1alpha1.Trigger, want string, parts ...string) {
		t.Helper()
		message := ""
		b.waitFor(object.Name+" is "+want, func() bool {
			have := &v1alpha1.Trigger{}
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(object), have); err != nil {
				t.Fatal(err)
			}
			var as string
			as, message = accepted(have.Status.Conditions)
			return as == want
		})
		contains(t, message, parts...)
	}
	later := b.name("set")
	wrong, early := cron(later, "0 5-2 * * *"), cron(later, "0 2 * * *")
	b.create(wrong, early)
	wait(wrong, "False "+v1alpha1.ReasonInvalidSchedule, "spec.sourceTemplate.cronTemplate.schedule", "5-2")
	wait(early, "False "+v1alpha1.ReasonUnknownOperationSet, "spec.operationSet", later)

	// Fields that others write are kept.
	have := &v1alpha1.Trigger{}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(early), have); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	have.Status.LastScheduleTime = &at
	if err := b.client.Status().Update(t.Context(), have); err != nil {
		t.Fatal(err)
	}
	set := apitest.SetOf(later, "nothing-of-that-name")
	b.create(set)
	wait(early, "False "+v1alpha1.ReasonOperationSetNotReady, later, v1alpha1.ReasonUnknownOperation)
	b.waitFor("the set is changed", func() bool { // its status is written meanwhile
		set := b.getSet(later)
		set.Spec.AdjacencyList[1].Operation = op
		return b.client.Update(t.Context(), set) == nil
	})
	wait(early, "True "+v1alpha1.ReasonAccepted)
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(early), have); err != nil || !have.Status.LastScheduleTime.Equal(&at) {
		t.Errorf("lastScheduleTime is %v, %v", have.Status.LastScheduleTime, err)
	}
	b.delete(set)
	wait(early, "False "+v1alpha1.ReasonUnknownOperationSet)
}
