package admission_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kernosis/kernosis/diagnose/api/apitest"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}
}

func TestApproval(t *testing.T) {
	server := installedServer(t)
	admin := apitest.Client(t, server.Admin())
	may := func(verbs []string, names ...string) client.Client {
		t.Helper()
		name := "writer-" + rand.String(6)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"diagnoses"}, Verbs: []string{"get", "create", "update", "patch"}},
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"diagnoses"}, Verbs: verbs, ResourceNames: names},
		}}
		must(t, admin, role)
		grant(t, server, user(name), system, name)
		return apitest.Client(t, server.Config(t, name))
	}
	d := nodeDiagnosis("n1")
	must(t, admin, d)
	writer, approver, other := may([]string{"get"}), may([]string{"approve"}, d.Name), may([]string{"approve"}, "another")
	approve := func(c client.Client, of *v1alpha1.Diagnosis, value string) error {
		return c.Patch(t.Context(), of.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"approval":`+value+`}}`)))
	}
	const (
		first, second = `{"planDigest":"` + string(digest) + `"}`, `{"planDigest":"1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}`
		refused       = "may not approve diagnoses"
	)
	outcome(t, "set by who may write", approve(writer, d, first), refused)
	outcome(t, "set by who may approve another", approve(other, d, first), refused)
	outcome(t, "set by who may approve", approve(approver, d, first), "")
	outcome(t, "changed by who may write", approve(writer, d, second), refused)
	outcome(t, "taken away by who may write", approve(writer, d, "null"), refused)
	cancel := client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"cancel":true}}`))
	outcome(t, "another field by who may write", writer.Patch(t.Context(), d.DeepCopy(), cancel), "")
	outcome(t, "taken away by who may approve", approve(approver, d, "null"), "")

	fresh := nodeDiagnosis("n1")
	outcome(t, "made by who may write", writer.Create(t.Context(), fresh.DeepCopy()), "")
	fresh = nodeDiagnosis("n1")
	fresh.Spec.Approval = &v1alpha1.Approval{PlanDigest: digest}
	outcome(t, "made with an approval by who may write", writer.Create(t.Context(), fresh.DeepCopy()), refused)
	outcome(t, "made with an approval by who may approve another", approver.Create(t.Context(), fresh.DeepCopy()), refused)
	outcome(t, "made with an approval by an administrator", admin.Create(t.Context(), fresh.DeepCopy()), "")
	fresh.Name, fresh.GenerateName = "", d.Name
	outcome(t, "of a name that is made up", approver.Create(t.Context(), fresh.DeepCopy()), refused)
}

func TestAgentsDiagnoses(t *testing.T) {
	server := installedServer(t)
	node, elsewhere, ns := server.Node(t), server.Node(t), server.Namespace(t)
	admin, own := apitest.Client(t, server.Admin()), bound(t, server, node)
	const (
		ofNode  = "an agent may only use Diagnoses of its own node"
		unbound = "the agent's token is not bound to a node"
		writes  = "an agent may only create Diagnoses and write their status"
	)
	mine, theirs := nodeDiagnosis(node), nodeDiagnosis(elsewhere)
	outcome(t, "of its node", own.Create(t.Context(), mine), "")
	outcome(t, "of another node", own.Create(t.Context(), theirs.DeepCopy()), ofNode)
	must(t, admin, theirs)
	tenants := podDiagnosis(ns)
	outcome(t, "of no node", own.Create(t.Context(), func() *v1alpha1.Diagnosis { d := podDiagnosis(system); return d }()), ofNode)
	outside := nodeDiagnosis(node)
	outside.Namespace, outside.Spec.PodReference = ns, &v1alpha1.PodReference{Name: "web-0"}
	outcome(t, "in another namespace, which two policies refuse", own.Create(t.Context(), outside), "denied request")
	approved := nodeDiagnosis(node)
	outcome(t, "with a spec", own.Patch(t.Context(), mine.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"cancel":true}}`))), writes)
	outcome(t, "with labels", own.Patch(t.Context(), mine.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"a":"b"}}}`))), writes)
	outcome(t, "deleted", own.Delete(t.Context(), mine.DeepCopy()), "kernosis-agent-diagnoses")
	loose := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: agent})))
	outcome(t, "by an unbound token", loose.Create(t.Context(), approved), unbound)

	// Its Diagnosis for a tenant is in the tenant's namespace, after the controller has set the
	// node.
	must(t, admin, tenants)
	found := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	if err := found.Patch(t.Context(), tenants, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"nodeName":"`+node+`"}}`))); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	condition := func(kind, status string) string {
		return `{"type":"` + kind + `","status":"` + status + `","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	}
	status := func(c client.Client, of *v1alpha1.Diagnosis, patch string) error {
		return c.Status().Patch(t.Context(), of.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"status":`+patch+`}`)))
	}
	for _, d := range []*v1alpha1.Diagnosis{mine, tenants} {
		outcome(t, "its status", status(own, d, `{"phase":"Running","conditions":[`+condition("Complete", "False")+`],"problem":{"state":"Lasts","since":"`+now+`"}}`), "")
		outcome(t, "a decision", status(own, d, `{"remediations":[{"id":1,"planDigest":"`+string(digest)+`","verb":"Run","time":"`+now+`"}]}`), "status.remediations")
		outcome(t, "a plan", status(own, d, `{"plan":{"digest":"`+string(digest)+`","steps":[{"id":1,"operation":"cordon"}]}}`), "status.plan")
		outcome(t, "that it may", status(own, d, `{"conditions":[`+condition("Complete", "False")+`,`+condition("RemediationAllowed", "True")+`]}`), "Placed, RemediationAllowed and Verified")
		outcome(t, "that it is placed", status(own, d, `{"conditions":[`+condition("Complete", "False")+`,`+condition("Placed", "True")+`]}`), "Placed, RemediationAllowed and Verified")
		outcome(t, "that it has helped", status(own, d, `{"conditions":[`+condition("Verified", "True")+`]}`), "Placed, RemediationAllowed and Verified")
		outcome(t, "a decision by the controller", status(found, d, `{"remediations":[{"id":1,"planDigest":"`+string(digest)+`","verb":"WouldRun","time":"`+now+`"}],"conditions":[`+
			condition("Complete", "False")+`,`+condition("RemediationAllowed", "False")+`]}`), "")
		outcome(t, "its status beside a decision", status(own, d, `{"phase":"Succeeded"}`), "")
		outcome(t, "a decision that is taken back", status(own, d, `{"remediations":null}`), "status.remediations")
		outcome(t, "a condition that is taken back", status(own, d, `{"conditions":[`+condition("Complete", "True")+`]}`), "Placed, RemediationAllowed and Verified")
	}
	outcome(t, "another node's status", status(own, theirs, `{"phase":"Running"}`), ofNode)
	outcome(t, "a status by an unbound token", status(loose, mine, `{"phase":"Running"}`), unbound)
}

func TestTenantsDiagnoses(t *testing.T) {
	server := installedServer(t)
	ns, name := server.Namespace(t), "tenant-"+rand.String(6)
	admin := apitest.Client(t, server.Admin())
	grant(t, server, user(name), ns, "test-writer")
	grant(t, server, user(name), system, "test-writer") // for the differences in that namespace
	tenant := apitest.Client(t, server.Config(t, name))
	control := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	change := func(f func(*v1alpha1.DiagnosisSpec)) *v1alpha1.Diagnosis {
		d := podDiagnosis(ns)
		f(&d.Spec)
		return d
	}
	for what, c := range map[string]struct {
		d    *v1alpha1.Diagnosis
		want string
	}{
		"its own pod":                {podDiagnosis(ns), ""},
		"its own pod, in full":       {change(func(s *v1alpha1.DiagnosisSpec) { s.PodReference.Namespace = ns }), ""},
		"a pod of another namespace": {change(func(s *v1alpha1.DiagnosisSpec) { s.PodReference.Namespace = "kube-system" }), "spec.podReference.namespace"},
		"a node":                     {change(func(s *v1alpha1.DiagnosisSpec) { s.PodReference, s.NodeName = nil, "n1" }), "spec.nodeName: may only be set by the controller"},
		"its own pod on a node":      {change(func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "n1" }), "spec.nodeName: may only be set by the controller"},
		"many": {change(func(s *v1alpha1.DiagnosisSpec) {
			s.PodReference, s.TargetSelector = nil, &v1alpha1.TargetSelector{NodeNames: []string{"n1"}}
		}), "spec.targetSelector"},
		"a node, in the system's":     {nodeDiagnosis("n1"), ""},
		"any pod, in the system's":    {func() *v1alpha1.Diagnosis { d := podDiagnosis(system); d.Spec.PodReference.Namespace = ns; return d }(), ""},
		"an administrator is no more": {nil, "spec.nodeName: may only be set by the controller"},
	} {
		by, d := tenant, c.d
		if d == nil {
			by, d = admin, change(func(s *v1alpha1.DiagnosisSpec) { s.NodeName = "n1" })
		}
		outcome(t, what, by.Create(t.Context(), d), c.want)
	}
	d := podDiagnosis(ns)
	must(t, tenant, d)
	node := client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"nodeName":"n1"}}`))
	outcome(t, "nodeName by the tenant", tenant.Patch(t.Context(), d.DeepCopy(), node), "spec.nodeName: may only be set by the controller")
	outcome(t, "nodeName by the controller", control.Patch(t.Context(), d.DeepCopy(), node), "")
	outcome(t, "the end", tenant.Patch(t.Context(), d.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"cancel":true}}`))), "")
	outcome(t, "its deletion", tenant.Delete(t.Context(), d), "")
}

// The controller and the agents hold tenants' Diagnoses in memory, so their size is bounded.
func TestSizeOfTenantsDiagnoses(t *testing.T) {
	server := installedServer(t)
	ns, name := server.Namespace(t), "tenant-"+rand.String(6)
	for _, in := range []string{ns, system} {
		grant(t, server, user(name), in, "test-writer")
	}
	tenant := apitest.Client(t, server.Config(t, name))
	// parameters and annotations return some with size bytes, names included.
	parameters := func(size int, text string) v1alpha1.Parameters {
		out := v1alpha1.Parameters{}
		for i := 0; size > 0; i++ {
			n := min(size, 4096)
			out[fmt.Sprintf("p%03d", i)] = strings.Repeat(text, (n-4)/len(text))
			size -= n
		}
		return out
	}
	annotations := func(size int) map[string]string {
		return map[string]string{"kernosis.io/a": strings.Repeat("a", size-13)}
	}
	labels := func(count int) map[string]string {
		out := map[string]string{}
		for i := range count {
			out[fmt.Sprintf("example.com/a%05d", i)] = ""
		}
		return out
	}
	const (
		ofParameters  = "spec.parameters: names and values may have at most 16 KiB together"
		ofAnnotations = "metadata.annotations: names and values may have at most 16 KiB together"
		ofOthers      = "metadata: at most 64 labels, finalizers and owners"
	)
	for what, c := range map[string]struct {
		change func(*v1alpha1.Diagnosis)
		want   string
	}{
		"parameters of 16 KiB":                {func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = parameters(16<<10, "a") }, ""},
		"parameters of more":                  {func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = parameters(16<<10+5, "a") }, ofParameters},
		"as many parameters as the API has":   {func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = parameters(64*4096, "a") }, ofParameters},
		"parameters of more bytes than runes": {func(d *v1alpha1.Diagnosis) { d.Spec.Parameters = parameters(20<<10, "\u00e9") }, ofParameters},
		"annotations of 16 KiB":               {func(d *v1alpha1.Diagnosis) { d.Annotations = annotations(16 << 10) }, ""},
		"annotations of more":                 {func(d *v1alpha1.Diagnosis) { d.Annotations = annotations(16<<10 + 1) }, ofAnnotations},
		"10,000 annotations":                  {func(d *v1alpha1.Diagnosis) { d.Annotations = labels(10_000) }, ofAnnotations},
		"an owner": {func(d *v1alpha1.Diagnosis) {
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "u"}}
		}, ""},
		"an owner with a long name": {func(d *v1alpha1.Diagnosis) {
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("a", 254), UID: "u"}}
		}, ofOthers},
		"64 labels":                 {func(d *v1alpha1.Diagnosis) { d.Labels = labels(64) }, ""},
		"65 labels":                 {func(d *v1alpha1.Diagnosis) { d.Labels = labels(65) }, ofOthers},
		"65 finalizers":             {func(d *v1alpha1.Diagnosis) { d.Finalizers = slices.Sorted(maps.Keys(labels(65))) }, ofOthers},
		"in the system's namespace": {func(d *v1alpha1.Diagnosis) { d.Namespace, d.Spec.Parameters = system, parameters(64*4096, "a") }, ""},
	} {
		d := podDiagnosis(ns)
		c.change(d)
		outcome(t, what, tenant.Create(t.Context(), d), c.want)
	}

	// One that was made before the policy can still be ended and deleted.
	control := apitest.Client(t, server.WithToken(server.Token(t, kubetest.TokenFor{Namespace: system, ServiceAccount: controller})))
	old := podDiagnosis(ns)
	old.Spec.Parameters, old.Annotations = parameters(17<<10, "a"), annotations(17<<10)
	must(t, control, old)
	patch := func(what, patch, want string) {
		t.Helper()
		outcome(t, what, tenant.Patch(t.Context(), old.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(patch))), want)
	}
	patch("its end", `{"spec":{"cancel":true}}`, "")
	patch("more annotations", `{"metadata":{"annotations":{"b":"c"}}}`, ofAnnotations)
	patch("fewer annotations", `{"metadata":{"annotations":{"kernosis.io/a":null}}}`, "")
	outcome(t, "its deletion", tenant.Delete(t.Context(), old), "")
}

// The ResourceQuota of docs/security.md limits how many Diagnoses a namespace has.
func TestQuotaOfTenantsDiagnoses(t *testing.T) {
	const count = "count/diagnoses.kernosis.io"
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil || !strings.Contains(string(page), "`"+count+":") {
		t.Fatalf("the page has no %s, %v", count, err)
	}
	server := installedServer(t)
	ns, name := server.Namespace(t), "tenant-"+rand.String(6)
	grant(t, server, user(name), ns, "test-writer")
	admin, tenant := apitest.Client(t, server.Admin()), apitest.Client(t, server.Config(t, name))
	limit := corev1.ResourceList{count: resource.MustParse("2")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: limit}}
	must(t, admin, quota)
	// In a cluster, a controller counts what is there.
	quota.Status = corev1.ResourceQuotaStatus{Hard: limit, Used: corev1.ResourceList{count: resource.MustParse("0")}}
	if err := admin.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testenv.UntilShown(t, "one Diagnosis too many", time.Minute, func() (bool, string) {
		err := tenant.Create(t.Context(), podDiagnosis(ns))
		return err != nil && strings.Contains(err.Error(), "exceeded quota: few"), fmt.Sprint(err)
	})
}
