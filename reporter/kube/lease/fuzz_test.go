package lease

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Whatever a Lease has, reading it gives only what an agent may have; the next renewal lists this
// agent, and the others that the Lease lists.
func FuzzAnnotations(f *testing.F) {
	f.Add("KernelDeadlock,ReadonlyFilesystem", "n7/0123456789abcdef=2026-11-21T12:00:00Z,n7/x=1", "2026-11-21T12:00:00Z", "no kprobes", "n7", int32(40))
	f.Add("B,A,Ready,,not a type,B", "a,=b,c==d,e=", "soon", "x"+strings.Repeat("ä", maxDegraded), "n8", int32(-1))
	f.Add(strings.Repeat("a,b,c,d,", 100), strings.Repeat("x", 300)+"=1,"+strings.Repeat("h=1,g=2,f=3,e=4,d=5,", 3), "9999-12-31T23:59:59Z", "\xff", "", int32(1<<31-1))
	f.Fuzz(func(t *testing.T, types, holders, draining, lacks, node string, duration int32) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name("n7"), Labels: map[string]string{LabelComponent: ComponentAgent}, Annotations: map[string]string{
			AnnotationTypes: types, AnnotationHolders: holders, AnnotationDraining: draining, AnnotationDegraded: lacks, "example.com/other": lacks,
		}}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &duration}}
		checkTypesOf(t, l)
		if of, ok := NodeOf(l); ok && of != "n7" || Patience(l) < 0 || Patience(l) > maxPatience {
			t.Errorf("node %q, patience %s", of, Patience(l))
		}
		k, err := New(Config{
			Client: &kubernetes.Clientset{}, Namespace: "k", Node: "n7", Version: lacks, Holder: func() string { return "n7/me" },
			Types: func() []string { return strings.Split(types, ",") }, Degraded: func() []string { return []string{lacks, lacks} },
		})
		if err != nil {
			t.Fatal(err)
		}
		k.last = l
		k.see(l, time.Time{})
		next := k.next(time.Unix(1795000000, 0))
		checkTypesOf(t, next)
		if !slices.Equal(TypesOf(l), TypesOf(next)) || DrainingSince(next).Unix() != 1795000000 || next.Annotations["example.com/other"] != lacks {
			t.Errorf("%+v", next.Annotations)
		}
		for key, text := range next.Annotations {
			if utf8.ValidString(types+" "+holders+" "+lacks) && !utf8.ValidString(text) || strings.HasPrefix(key, "kernosis.io/") && len(text) > max(maxDegraded, len(types), len(holders)+100) {
				t.Errorf("%s: %q", key, text)
			}
		}
		before, after := holdersIn(l), holdersIn(next)
		if after["n7/me"] == "" || len(after) > maxHolders {
			t.Errorf("%q are renewed as %q", holders, next.Annotations[AnnotationHolders])
		}
		for holder, stamp := range before {
			if len(before) < maxHolders && holder != "n7/me" && after[holder] != stamp {
				t.Errorf("%q: %q is renewed as %q", holders, holder+"="+stamp, after[holder])
			}
		}
	})
}

func checkTypesOf(t *testing.T, l *coordinationv1.Lease) {
	types := TypesOf(l)
	if !slices.IsSorted(types) || len(slices.Compact(slices.Clone(types))) != len(types) || len(types) > conditions.MaxTypes ||
		slices.ContainsFunc(types, func(name string) bool { return conditions.CheckType(name) != nil }) {
		t.Errorf("%q: types %q", l.Annotations[AnnotationTypes], types)
	}
}
