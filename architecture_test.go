// Package kernosis_test checks what holds for the whole module.
package kernosis_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kernosis/kernosis"

// mayImport is the architecture: which of our packages a folder may import,
// besides those below the folder of its row. The longest matching row decides. The
// reasons are in docs/architecture.md.
var mayImport = map[string][]string{
	"bpf":                     {},
	"collector":               {"bpf", "collector/event", "collector/hostfs", "collector/poller"},
	"collector/event":         {},
	"collector/logpattern":    {},
	"collector/logs":          {"collector/event", "collector/hostfs", "collector/poller"},
	"collector/logsource":     {"collector/bounded", "collector/event", "collector/hostfs", "collector/logpattern", "collector/logs", "collector/statefile"},
	"collector/hostfs":        {"collector/event"},
	"collector/bounded":       {},
	"collector/statefile":     {},
	"collector/poller":        {},
	"collector/netlook":       {"collector/bounded", "collector/hostfs"},
	"collector/netprobe":      {},
	"collector/staticpod":     {},
	"collector/dnsask":        {"collector/event"},
	"collector/cri":           {"collector/event", "collector/hostfs"},
	"collector/plugin":        {"collector/event", "collector/hostfs", "collector/process"},
	"collector/probe":         {"collector/event", "collector/hostfs"},
	"collector/probe/podspec": {"collector/event", "collector/probe", "collector/staticpod"},
	"collector/probe/active":  {"collector/cri", "collector/event", "collector/hostfs", "collector/netlook", "collector/netprobe", "collector/probe", "collector/process"},
	"collector/probe/service": {"collector/cri", "collector/dnsask", "collector/event", "collector/hostfs", "collector/netlook", "collector/netprobe", "collector/probe", "collector/process"},
	"collector/process":       {"collector/hostfs"},
	"collector/rights":        {"collector/hostfs"},
	"collector/selfcheck":     {"collector/event", "collector/hostfs"},
	"detector":                {"collector/event", "collector/logpattern", "detector/problem"},
	"detector/problem":        {"collector/event"},
	"detector/mistake":        {"collector/event"},
	"detector/ruletest":       {"collector/event", "detector/problem", "detector"},
	"detector/npd":            {"collector/event", "collector/logpattern", "detector"},
	"detector/lint":           {"collector/event", "collector/logpattern", "detector"},
	"reporter":                {"collector/event", "detector/problem"},
	"reporter/console":        {"collector/event", "detector/problem", "reporter/journal"},
	"reporter/metrics":        {"collector/bounded", "collector/event", "detector/problem", "reporter/journal"},
	"reporter/kube/outbox":    {"collector/event", "detector/problem", "reporter/journal"},
	"reporter/kube/pods":      {"collector/staticpod"},
	"reporter/kube/events":    {"collector/event", "collector/statefile", "detector/problem", "reporter/facts", "reporter/journal", "reporter/kube/outbox", "reporter/kube/pods"},
	"cmd/kernosis":            {"bpf", "collector", "deploy/alerts", "deploy/install", "detector", "diagnose", "docs/problems", "reporter", "cmd"},
	"cmd/kernosis/inject":     {},

	// What a person asks for: why.
	"reporter/facts":       {"collector/event"},
	"reporter/why":         {"collector/event", "detector/problem", "reporter/facts"},
	"reporter/why/local":   {"collector/event", "detector/problem", "reporter/facts", "reporter/journal", "reporter/why"},
	"reporter/why/cluster": {"collector/staticpod", "detector/problem", "diagnose/api", "reporter/facts", "reporter/kube/lease", "reporter/why"},
	"docs/problems":        {},

	// What daemons of others report; they import the client, which has little below it.
	"collector/ingest":        {"collector/event", "collector/hostfs"},
	"collector/ingest/report": {},
	"collector/ingest/client": {"collector/ingest/report"},
	// What talks to Kubernetes.
	"reporter/kube/conditions": {"collector/bounded", "collector/event", "collector/statefile", "detector/problem"},

	// Probes of containers, as kubelet makes them: what is seen of them.
	"collector/probe/observe":   {"collector/event", "collector/hostfs", "collector/probe", "collector/probe/unhealthy", "collector/probe/vitals"},
	"collector/probe/vitals":    {"collector/event", "collector/hostfs"},
	"collector/probe/unhealthy": {"collector/event", "collector/probe"},
	"collector/probe/podsource": {"collector/event", "collector/probe", "collector/staticpod"},
	"collector/probe/kubelet":   {"collector/probe", "collector/probe/observe", "collector/probe/podsource"},
	"reporter/kube/unhealthy":   {"collector/probe", "collector/probe/observe"},

	// Figures of the node, which are no events.
	"collector/systemstats": {"collector/event"},

	// What stays alive for the agent, and what speaks when it does not.
	"reporter/kube/lease":    {"reporter/kube/conditions"},
	"reporter/kube/liveness": {"reporter/kube/conditions", "reporter/kube/lease", "reporter/kube/leader"},
	"reporter/kube/leader":   {},

	// What finds causes.
	"diagnose/api":        {},
	"diagnose/graph":      {},
	"diagnose/yamldoc":    {"collector/event", "detector/mistake"},
	"diagnose/manifest":   {"deploy/crds", "detector/mistake", "diagnose/api", "diagnose/yamldoc"},
	"diagnose/policy":     {"diagnose/api"},
	"diagnose/convert":    {"collector/event", "detector/mistake", "diagnose/api", "diagnose/artifact", "diagnose/manifest", "diagnose/yamldoc"},
	"diagnose/artifact":   {"collector/event", "diagnose/operation"},
	"diagnose/operation":  {"collector/cri", "collector/dnsask", "collector/event", "collector/hostfs", "collector/netlook", "collector/netprobe", "collector/process", "collector/staticpod"},
	"diagnose/resolve":    {"detector/mistake", "diagnose/api", "diagnose/artifact", "diagnose/graph", "diagnose/manifest", "diagnose/operation", "diagnose/runner", "diagnose/yamldoc"},
	"diagnose/sets":       {},
	"diagnose/review":     {"detector/mistake", "diagnose/api", "diagnose/manifest", "diagnose/operation", "diagnose/policy", "diagnose/resolve", "diagnose/tenancy", "diagnose/trigger"},
	"diagnose/worker":     {"collector/event", "collector/statefile", "detector/problem", "diagnose/api", "diagnose/artifact", "diagnose/graph", "diagnose/manifest", "diagnose/operation", "diagnose/policy", "diagnose/resolve", "diagnose/runner", "diagnose/tenancy", "diagnose/trigger", "diagnose/yamldoc", "detector/mistake"},
	"diagnose/tenancy":    {"collector/event", "collector/staticpod", "diagnose/api", "diagnose/operation", "diagnose/resolve"},
	"diagnose/alerts":     {"collector/event", "diagnose/api", "diagnose/trigger", "reporter/web"},
	"diagnose/controller": {"collector/event", "detector/problem", "diagnose/api", "diagnose/graph", "diagnose/operation", "diagnose/policy", "diagnose/resolve", "diagnose/tenancy", "diagnose/trigger", "diagnose/alerts", "reporter/kube/leader", "reporter/kube/lease"},
	"diagnose/trigger":    {"collector/event", "collector/statefile", "detector/problem", "diagnose/api"},
	"diagnose/runner":     {"collector/event", "collector/statefile", "detector/problem", "diagnose/api", "diagnose/artifact", "diagnose/graph", "diagnose/operation"},

	// Where a node's worker knows of Diagnoses in a cluster.
	"diagnose/worker/kube": {"collector/event", "collector/statefile", "diagnose/api", "diagnose/worker", "reporter/kube/conditions"},

	// Definitions of the API's kinds, made from diagnose/api.
	"deploy/crds": {},

	// What makes the kinds known, and takes out of a cluster what was left in it.
	"deploy/install": {"deploy/crds", "diagnose/controller/start", "diagnose/policy", "reporter/kube/conditions", "reporter/kube/leader", "reporter/kube/lease", "reporter/kube/liveness"},

	// Manifests of a cluster: who may do what.
	"deploy/admission": {},
	"deploy/rbac":      {},
	"deploy/chart":     {},
	"deploy/kustomize": {},

	// What people see of it in Grafana and Prometheus.
	"deploy/alerts":  {"collector/event", "detector"},
	"deploy/grafana": {},

	// Packs programs; it imports nothing of what it packs.
	"deploy/image": {},

	// Only tests import these.
	"cmd/kernosis/agenttest": {"bpf", "collector/event", "detector/problem", "reporter/console", "reporter/journal", "vmtest/await", "vmtest/lockfile", "vmtest/logbuffer", "vmtest/netlab"},
	"deploy/monitoringtest":  {},
	"reporter/kubetest":      {"vmtest/await", "vmtest/lockfile", "vmtest/testall"},
	"vmtest":                 {"bpf", "collector", "detector", "reporter", "cmd"},
	"vmtest/await":           {},
	"vmtest/hardened":        {"bpf", "cmd/kernosis/agenttest", "cmd/kernosis/inject", "collector/event", "deploy/kustomize", "detector/problem", "reporter/journal", "vmtest/await", "vmtest/netlab"},
	"vmtest/fleet":           {"collector/event", "collector/hostfs", "detector", "diagnose", "reporter", "vmtest/await"},
	"vmtest/guest":           {},
	"vmtest/kernel":          {"vmtest/lockfile"},
	"vmtest/leakcheck":       {"vmtest/await"},
	"vmtest/lockfile":        {},
	"vmtest/logbuffer":       {"vmtest/await"},
	"vmtest/loopdisk":        {"vmtest/await"},
	"vmtest/netlab":          {"vmtest/await"},
	"vmtest/testprogram":     {},
	"vmtest/testrun":         {"reporter/kubetest"},
	"vmtest/testserver":      {},
	"vmtest/machine":         {"vmtest/guest", "vmtest/kernel"},
	"vmtest/vmrun":           {"vmtest/guest", "vmtest/kernel", "vmtest/machine"},
	"vmtest/vmmatrix":        {"vmtest/guest", "vmtest/kernel"},
}

func TestImportsPointOneWay(t *testing.T) {
	for dir, file := range goFiles(t) {
		for _, f := range file {
			for _, imp := range f.Imports {
				target, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
				if !ok {
					continue
				}
				rule, allowed := ruleFor(dir)
				if rule == "" {
					t.Errorf("%s is in no row of the import table", dir)
					continue
				}
				if within(target, rule) {
					continue
				}
				if !slices.ContainsFunc(allowed, func(a string) bool { return within(target, a) }) {
					t.Errorf("%s imports %s; it may import %v", dir, target, allowed)
				}
			}
		}
	}
}

// What only tests import is no part of the product.
func TestTheProductDoesNotImportWhatTestsAreMadeOf(t *testing.T) {
	tests := []string{"cmd/kernosis/agenttest", "deploy/monitoringtest", "diagnose/api/apitest", "reporter/kubetest", "vmtest"}
	ofTests := func(dir string) bool {
		return slices.ContainsFunc(tests, func(root string) bool { return within(dir, root) })
	}
	for dir, files := range goFiles(t) {
		for _, f := range files {
			for _, imp := range f.Imports {
				target, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/")
				if ok && ofTests(target) && !ofTests(dir) {
					t.Errorf("%s imports %s", dir, target)
				}
			}
		}
	}
}

func ruleFor(dir string) (rule string, allowed []string) {
	for r := range mayImport {
		if within(dir, r) && len(r) > len(rule) {
			rule = r
		}
	}
	return rule, mayImport[rule]
}

func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func TestEveryPackageHasADocComment(t *testing.T) {
	for dir, files := range goFiles(t) {
		var doc string
		for _, f := range files {
			if f.Doc != nil {
				doc = f.Doc.Text()
			}
		}
		name := files[0].Name.Name
		want := "Package " + strings.TrimSuffix(name, "_test") + " "
		if name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(doc, want) && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: package comment must begin with %q", dir, want)
		}
	}
}

// goFiles parses every Go file of the module but tests, by folder.
func goFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	fset := token.NewFileSet()
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(filepath.Dir(p))] = append(files[filepath.ToSlash(filepath.Dir(p))], f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestNoUtilityPackages(t *testing.T) {
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"util", "utils", "helper", "helpers", "common", "pkg", "misc"}, d.Name()) {
			t.Errorf("%s: a folder is named after what it is, not after how it is used", p)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
