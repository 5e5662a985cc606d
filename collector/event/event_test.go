package event

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fill sets every field that can be reached, so that fields added later are tested too.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("10.9.0.2:80")))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(f)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("value"))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	}
}

func filled() *Event {
	var e Event
	fill(reflect.ValueOf(&e).Elem())
	return &e
}

func TestJSONRoundTrip(t *testing.T) {
	want := filled()
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("came back different (-want +got):\n%s", diff)
	}
}

// shared lists the paths at which two values point to the same memory.
func shared(a, b reflect.Value, path string) []string {
	if a.Type() == reflect.TypeFor[time.Time]() || a.Type() == reflect.TypeFor[netip.AddrPort]() {
		return nil
	}
	var found []string
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() {
			return nil
		}
		if a.Pointer() == b.Pointer() {
			return []string{path}
		}
		found = shared(a.Elem(), b.Elem(), path)
	case reflect.Struct:
		for i := range a.NumField() {
			found = append(found, shared(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)...)
		}
	case reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			found = []string{path}
		}
	}
	return found
}

// Each payload is known, and what it points to is copied.
func TestCloneSharesNothing(t *testing.T) {
	payloads := 0
	for f := range reflect.TypeFor[Event]().Fields() {
		if !f.Type.Implements(reflect.TypeFor[payload]()) {
			continue
		}
		payloads++
		e := filled()
		for of := range reflect.TypeFor[Event]().Fields() {
			if of.Name != f.Name && of.Type.Implements(reflect.TypeFor[payload]()) {
				reflect.ValueOf(e).Elem().FieldByIndex(of.Index).SetZero()
			}
		}
		if have := e.payload(); have == nil || reflect.TypeOf(have) != f.Type {
			t.Errorf("the payload of %s is %T", f.Name, have)
		}
		c := e.Clone()
		if diff := cmp.Diff(e, c, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s: clone differs (-original +clone):\n%s", f.Name, diff)
		}
		if s := shared(reflect.ValueOf(e), reflect.ValueOf(c), "Event"); len(s) > 0 {
			t.Errorf("%s: shared with the original: %v", f.Name, s)
		}
	}
	if want := len(Families()); payloads != want {
		t.Errorf("%d payloads, and %d families", payloads, want)
	}
}

// Each family has a stem, and a signal's begin and end are among its kinds.
func TestFamilies(t *testing.T) {
	for _, f := range Families() {
		if f.Stem == "" || f.Faults == "" || len(f.Kinds) == 0 || FaultsOf(f.Stem) != f.Faults {
			t.Errorf("%+v", f)
		}
		for _, k := range f.Kinds {
			if k.Stem() != f.Stem {
				t.Errorf("%s is of %s", k, f.Stem)
			}
		}
		if f.Begins != "" && (!slices.Contains(f.Kinds, f.Ends) || f.Begins.EndedBy() != f.Ends) {
			t.Errorf("%+v", f)
		}
	}
	if got := OOMKill.EndedBy(); got != "" {
		t.Errorf("an OOM kill ends with %s", got)
	}
}

func TestDuration(t *testing.T) {
	var d Duration
	if err := d.UnmarshalText([]byte("2m5s")); err != nil || d != Duration(125*time.Second) {
		t.Errorf("2m5s is %v (%v)", d, err)
	}
	if err := d.UnmarshalText([]byte("5")); err == nil || !strings.Contains(err.Error(), `"5"`) {
		t.Errorf("a number without unit: %v", err)
	}
}

func TestSubject(t *testing.T) {
	task := &Task{PID: 7, Comm: "sh"}
	tests := []struct {
		want string
		ev   Event
	}{
		{"pod u container 0123456789ab", Event{Task: task, Container: &Container{ID: "0123456789abcdef", PodUID: "u"}}},
		{"pod u", Event{Task: task, Container: &Container{PodUID: "u"}}},
		{"container abc", Event{Task: task, Container: &Container{ID: "abc"}}},
		{"shop/web-1 app", Event{Container: &Container{ID: "abc", PodUID: "u"}, Probe: &ProbeData{Name: "shop/web-1 app"}}},
		{"web", Event{Task: task, SockFail: &SockFailData{Target: "web"}}},
		{"sda1 at /", Event{Task: task, Device: &Device{Name: "sda1", Mounts: []Mount{{Path: "/"}}}}},
		{"sda", Event{Task: task, Device: &Device{Name: "sda"}}},
		{"unit a.service", Event{Task: task, Unit: "a.service", Cgroup: &Cgroup{Path: "/a"}}},
		{"cgroup /a", Event{Task: task, Cgroup: &Cgroup{Path: "/a"}}},
		{"sh[7]", Event{Task: task, Cgroup: &Cgroup{Path: "/"}}},
		{"unit a.service", Event{Unit: "a.service", Log: &LogData{Log: "journald", Origin: "a"}}},
		{"unit b.service", Event{Log: &LogData{Log: "journald", Origin: "b", Unit: "b.service"}}},
		{"kernel", Event{Log: &LogData{Log: "kmsg", Origin: "kernel"}}},
		{"audit", Event{Log: &LogData{Log: "audit"}}},
		{"sh[7]", Event{Task: task, Log: &LogData{Log: "kmsg"}}},
		{"ntp", Event{Check: &CheckData{Check: "ntp", Status: CheckOK}}},
		{"", Event{}},
	}
	for _, tt := range tests {
		if got := tt.ev.Subject(); got != tt.want {
			t.Errorf("subject %q, want %q", got, tt.want)
		}
	}
}

func TestProgress(t *testing.T) {
	for want, d := range map[string]ProbeData{
		"liveness 2 of 3 towards restart":                  {Probe: "liveness", Failures: 2, Threshold: 3},
		"liveness 3 of 3: kubelet restarts the container":  {Probe: "liveness", Failures: 3, Threshold: 3},
		"startup 30 of 30: kubelet restarts the container": {Probe: "startup", Failures: 31, Threshold: 30},
		"readiness 1 of 3 towards not ready":               {Probe: "readiness", Failures: 1, Threshold: 3},
		"readiness 3 of 3: not ready":                      {Probe: "readiness", Failures: 4000000000, Threshold: 3},
		"service 1 of 2":                                   {Probe: ProbeService, Failures: 1, Threshold: 2},
		"liveness":                                         {Probe: "liveness", Failures: 1},
	} {
		if got := d.Progress(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestKindStem(t *testing.T) {
	for k, want := range map[Kind]string{HungTaskResumed: "hungtask", OOMKill: "oomkill", MountWritable: "mount"} {
		if got := k.Stem(); got != want {
			t.Errorf("stem of %s is %q, want %q", k, got, want)
		}
	}
}
