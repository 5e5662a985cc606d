package main

import (
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// docTutorial is a page whose commands are run in order.
type docTutorial struct {
	page string
	// given has the files that the page assumes, and their sources: a file of the repository, a
	// file that another page shows (PAGE#FILE), or "text:" and the content itself.
	given map[string]string
	// exits has exit codes other than 0, by the beginning of the command; -1 for any.
	exits map[string]int
}

func docTutorials() []docTutorial {
	const monitors = "detector/npd/testdata/config/"
	const rule, ruleTest, log = "docs/first-rule.md#rules/payments.yaml", "docs/first-rule.md#rules/payments_test.yaml", "docs/first-rule.md#yesterday.log"
	return []docTutorial{
		{page: "README.md"},
		{page: "docs/quickstart.md"},
		{page: "docs/first-rule.md"},
		{page: "docs/first-diagnosis.md"},
		{page: "docs/configuration.md"},
		// The result depends on the machine's systemd.
		{page: "docs/diagnose.md", exits: map[string]int{"kernosis diagnose run -f set.yaml": -1}},
		{page: "docs/gitops.md", given: map[string]string{
			"rules/payments.yaml": rule, "rules/payments_test.yaml": ruleTest,
			"diagnose/refused.yaml": "docs/first-diagnosis.md#diagnose/refused.yaml", "diagnose/trigger.yaml": "docs/first-diagnosis.md#diagnose/trigger.yaml",
		}},
		{page: "docs/monitoring.md", given: map[string]string{"rules/payments.yaml": rule}},
		{page: "docs/npd.md", given: map[string]string{
			"kernel-monitor.json": monitors + "kernel-monitor.json",
		}, exits: map[string]int{"kernosis lint": output.ExitFailed}},
		{page: "docs/replay.md", given: map[string]string{
			"my-rules/payments.yaml": rule, "/var/log/myapp.log": log,
			"kernel-monitor.json": monitors + "kernel-monitor.json", "docker-monitor.json": monitors + "docker-monitor.json",
		}},
		{page: "docs/runbooks/KernosisDiagnosesFailing.md"},
		{page: "docs/runbooks/KernosisRuleErrors.md"},
		{page: "docs/troubleshooting.md", given: map[string]string{"rules/payments.yaml": rule, "rules/payments_test.yaml": ruleTest}},
	}
}

// docLeft are commands that no test runs, although TestCommandsOfDocs checks them. They are given by
// their beginning, for one page (a pattern for path.Match) or for all.
type docLeft struct {
	page     string
	commands []string
	why      string
}

func docCommandsLeft() []docLeft {
	return []docLeft{
		{commands: []string{"kubectl ", "helm ", "argocd ", "kind ", "k3s ", "oc ", "jq "}, why: "needs a cluster"},
		{commands: []string{"kernosis agent ", "kernosis controller ", "kernosis uninstall ", "kernosis why pod ", "kernosis why node n7"}, why: "needs a cluster"},
		{commands: []string{"ctr ", "skopeo ", "crane ", "docker ", "mkdir layout", "tar "}, why: "needs a container runtime or a registry"},
		{commands: []string{"cosign ", "gh ", "trivy ", "grype ", "sha256sum ", "cat dist/"}, why: "needs a release"},
		{commands: []string{"git ", "make ", "bin/vmrun "}, why: "takes minutes, or a network"},
		{commands: []string{"go test "}, why: "is a test"},
		{commands: []string{"ln ", "kernosis completion "}, why: "changes folders of the system"},
		{commands: []string{"kernosis lint rules/ --formats ", "extract-vmlinux "}, why: "needs a kernel with its printk index, or its image"},
		{page: "docs/logs.md", commands: []string{"kernosis run "}, why: "reads logs of the machine"},
		{page: "docs/diagnose.md", commands: []string{"kernosis diagnose run --shipped hung-task -p pid=811"}, why: "needs a database on a frozen filesystem"},
		{page: "docs/reports.md", commands: []string{"curl "}, why: "TestDocumentedReports sends the report"},
		{page: "docs/troubleshooting.md", commands: []string{"ls ", "df ", "cat ", "uname "}, why: "shows a node of a cluster"},
		{page: "docs/problems/*.md", commands: []string{""}, why: "shows a node with the problem"},
		{page: "docs/status.md", commands: []string{"kernosis "}, why: "needs an agent; the tests of the commands have one"},
		{page: "docs/web.md", commands: []string{"kernosis run "}, why: "needs a browser, as the tests of reporter/web have"},
	}
}

// maxDocLeft bounds docCommandsLeft.
const maxDocLeft = 15

// Commands on pages that can run on one machine work, and print what the pages show.
func TestTutorialsOfDocs(t *testing.T) {
	testenv.OnlyInTestAll(t)
	listed := docCommandsLeft()
	if len(listed) > maxDocLeft {
		t.Errorf("%d reasons to leave out commands, more than %d", len(listed), maxDocLeft)
	}
	used := make([]bool, len(listed))
	tutorials, followed := docTutorials(), 0
	for _, page := range docPages(t) {
		run := docRun{page: page, lines: map[int]bool{}}
		for _, b := range page.blocks {
			for _, s := range b.toRun() {
				if i := slices.IndexFunc(listed, func(l docLeft) bool { return l.has(page.path, &s) }); i >= 0 {
					used[i] = true
					continue
				}
				run.lines[s.line] = true
				run.commands = append(run.commands, commandTexts(&s)...)
				run.asRoot = run.asRoot || strings.HasPrefix(s.text, "sudo ")
			}
		}
		if i := slices.IndexFunc(tutorials, func(d docTutorial) bool { return d.page == page.path }); i >= 0 {
			followed++
			t.Run(strings.TrimSuffix(path.Base(page.path), ".md"), func(t *testing.T) { tutorials[i].follow(t, &run) })
		} else if len(run.commands) > 0 {
			t.Errorf("%s: is neither in a tutorial of this test nor listed with a reason: %s", page.path, strings.Join(run.commands, "; "))
		}
	}
	if followed != len(tutorials) {
		t.Errorf("%d tutorials, and the pages of %d", len(tutorials), followed)
	}
	for i, ok := range used {
		if !ok {
			t.Errorf("no command is left out because it %s", listed[i].why)
		}
	}
}

func (l *docLeft) has(page string, s *docStatement) bool {
	if matches, err := path.Match(l.page, page); l.page != "" && (err != nil || !matches) {
		return false
	}
	return slices.ContainsFunc(commandTexts(s), func(command string) bool {
		return slices.ContainsFunc(l.commands, func(begin string) bool { return strings.HasPrefix(command+" ", begin) })
	})
}

// commandTexts returns the commands of a statement, without sudo and variables.
func commandTexts(s *docStatement) []string {
	var all []string
	for _, words := range shellCommands(s.text) {
		for _, c := range newDocCommands(docCommand{}, words) {
			all = append(all, strings.Join(c.words, " "))
		}
	}
	return all
}

var readersPart = regexp.MustCompile(`^[A-Z]{2,}$|…|^<[a-z-]+>$`)

// toRun returns the statements of sh and console blocks without placeholders.
func (b *docBlock) toRun() []docStatement {
	if b.language == "text" || strings.HasPrefix(firstOf(b.lines), "#!") {
		return nil
	}
	return slices.DeleteFunc(b.statements(), func(s docStatement) bool {
		for _, words := range shellCommands(s.text) {
			if slices.ContainsFunc(words, func(w string) bool { return readersPart.MatchString(strings.ReplaceAll(w, "$(…)", "")) }) {
				return true
			}
		}
		return false
	})
}

// docRun has the statements of a page that are run.
type docRun struct {
	page     *docPage
	lines    map[int]bool // lines of statements
	commands []string
	asRoot   bool
}

func (d *docTutorial) follow(t *testing.T, run *docRun) {
	if run.asRoot {
		needKernel(t)
	} else {
		t.Parallel()
	}
	for _, command := range run.commands {
		program, _, _ := strings.Cut(command, " ")
		if slices.Contains(docOtherPrograms(), program) && exec.Command("sh", "-c", "command -v "+program).Run() != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	session := newDocSession(t)
	d.provide(t, session)
	for _, b := range run.page.blocks {
		place := fmt.Sprintf("%s:%d", b.page, b.line)
		switch name := b.file(); {
		case name != "":
			session.write(name, session.folder(), b.text())
		case b.language == "text" && session.agent != nil && ofAgent.MatchString(firstOf(b.lines)):
			session.agentShows(place, b.lines)
		default:
			all := b.toRun()
			for i, s := range all {
				if run.lines[s.line] {
					d.run(t, session, fmt.Sprintf("%s:%d", b.page, s.line), s, i+1 < len(all) && all[i+1].text == "echo $?")
				}
			}
		}
	}
	session.stopAgent()
}

// provide writes the given files into the session's folder.
func (d *docTutorial) provide(t *testing.T, session *docSession) {
	t.Helper()
	for to, from := range d.given {
		text, own := strings.CutPrefix(from, "text:")
		page, file, ofPage := strings.Cut(from, "#")
		switch {
		case own:
		case ofPage:
			blocks := readDocPage(t, page).blocks
			i := slices.IndexFunc(blocks, func(b docBlock) bool { return b.file() == file })
			if i < 0 {
				t.Fatalf("%s shows no file %s", page, file)
			}
			text = blocks[i].text()
		default:
			text = string(readRepository(t, from))
		}
		session.write(to, session.work(), text)
	}
}

var (
	startsAgent = regexp.MustCompile(`^(?:bin/)?kernosis run\b`)
	ofAgent     = regexp.MustCompile(`^(?:\d\d:\d\d:\d\d\.\d+|level=)`) // lines that the agent prints
	startsDrill = regexp.MustCompile(`^(?:bin/)?kernosis inject\b`)
)

// run runs a statement and compares its output and exit code, unless the page shows the code. A
// command whose shown output begins with an error may fail.
func (d *docTutorial) run(t *testing.T, session *docSession, place string, s docStatement, codeFollows bool) {
	t.Helper()
	commands := commandTexts(&s)
	switch {
	case startsAgent.MatchString(firstOf(commands)):
		session.startAgent(s)
		return
	case startsDrill.MatchString(firstOf(commands)) && session.agent != nil && s.output != nil:
		// The page continues while the fault lasts.
		session.endDrills()
		session.drills = append(session.drills, session.beside(s))
		return
	}
	out := session.run(s.text)
	session.compare(&s, out)
	want := 0
	if strings.HasPrefix(firstOf(s.output), "kernosis: ") {
		want = output.ExitInput
	}
	for begin, code := range d.exits {
		if slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, begin) }) {
			want = code
		}
	}
	if want >= 0 && session.code != want && !codeFollows {
		t.Errorf("%s: %s: exit code %d, want %d\n%s", place, s.text, session.code, want, out)
	}
}
