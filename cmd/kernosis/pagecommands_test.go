package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/deploy/monitoring"
)

// agentOfNode finds the agent's pod on a node, as pages and alerts do before they use it.
const agentOfNode = "AGENT=$(kubectl -n kernosis get pods -o name -l app.kubernetes.io/component=agent --field-selector spec.nodeName=NODE)"

// Runbooks have the same parts. TestCommandsOfDocs checks their commands.
func TestRunbookPages(t *testing.T) {
	for path, page := range pagesOf(t, "runbooks") {
		text := string(readRepository(t, path))
		for _, part := range []string{"**What it means.** ", "**Impact.** ", "**How to look.**\n\n```sh\n", "\n```\n\n**What to do.**"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q", path, part)
			}
		}
		checkLooks(t, path, page.blocks[0].statements())
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(text, -1) {
			agent, controller := newAgentCommand(), newController()
			if agent.Flags().Lookup(flag[1]) == nil && controller.Flags().Lookup(flag[1]) == nil {
				t.Errorf("%s: no program has the flag --%s", path, flag[1])
			}
		}
	}
}

// Pages of problems say what to check with kubectl. Commands for the node are in a separate block,
// after how to get a shell there.
func TestProblemPages(t *testing.T) {
	const shell = "On the node, in a root shell (`kubectl debug node/NODE -it --image=busybox --profile=sysadmin -- chroot /host sh`):"
	explained := 0
	for path, page := range pagesOf(t, "problems") {
		_, check, _ := strings.Cut(string(readRepository(t, path)), "\n## Check now\n\n")
		check, _, _ = strings.Cut(check, "\n## ")
		blocks := strings.Count(check, "```sh\n")
		if blocks == 0 || blocks > 2 || !strings.HasPrefix(check, "```sh\n") || (blocks == 2) != strings.Contains(check, shell) {
			t.Errorf("%s: want one block of commands, then one of the node's:\n%s", path, check)
			continue
		}
		checkLooks(t, path, page.blocks[0].statements())
		if blocks == 2 && regexp.MustCompile(`(?m)^(kubectl|kernosis) `).MatchString(strings.Join(page.blocks[1].lines, "\n")) {
			t.Errorf("%s: a command of the cluster in a shell of the node", path)
		}
		if strings.Contains(check, "kubectl kernosis why ") {
			explained++
		}
	}
	if explained < 95 {
		t.Errorf("only %d pages have a problem explained", explained)
	}
}

// The command of each alert exists, and is for the node that the alert names.
func TestAlertCommands(t *testing.T) {
	var file monitoring.AlertFile
	if err := yaml.Unmarshal(readRepository(t, "deploy/chart/kernosis/files/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	known, n := newDocPrograms(t), 0
	for _, g := range file.Groups {
		for i := range g.Rules {
			a := &g.Rules[i]
			command := regexp.MustCompile(`\{\{ \$labels\.\w+ \}\}`).ReplaceAllString(a.Annotations[monitoring.Command], "NODE")
			// As on pages, but in one line.
			command = strings.ReplaceAll(command, "$(kubectl -n kernosis get pods -l app.kubernetes.io/component=agent --field-selector spec.nodeName=NODE -o name)", "$AGENT")
			checkLooks(t, a.Alert, []docStatement{{text: agentOfNode}, {text: command}})
			for _, words := range shellCommands(command) {
				for _, c := range newDocCommands(docCommand{page: a.Alert, whole: true}, words) {
					if err := known.check(&c); err != nil {
						t.Errorf("%s: %s: %v", a.Alert, command, err)
					}
				}
			}
			n++
		}
	}
	if n < 100 {
		t.Errorf("%d alerts", n)
	}
}

// pagesOf returns the pages of a folder of docs.
func pagesOf(t *testing.T, folder string) map[string]*docPage {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "docs", folder, "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	all := map[string]*docPage{}
	for _, path := range paths {
		path = filepath.ToSlash(filepath.Join("docs", folder, filepath.Base(path)))
		all[path] = readDocPage(t, path)
	}
	return all
}

// checkLooks checks that kubectl commands only read, and that commands for an agent use the node's
// agent.
func checkLooks(t *testing.T, where string, commands []docStatement) {
	t.Helper()
	verbs := []string{"get", "describe", "logs", "top", "exec", "auth", "rollout", "kernosis"}
	found := false
	for _, s := range commands {
		if s.text == agentOfNode {
			found = true
			continue
		}
		if strings.Contains(s.text, "$AGENT") && !found {
			t.Errorf("%s: nothing sets AGENT before %s", where, s.text)
		}
		words := strings.Fields(s.text)
		if words[0] == "kernosis" {
			continue
		}
		if words[0] != "kubectl" {
			t.Errorf("%s: %s", where, s.text)
			continue
		}
		if words = words[1:]; words[0] == "-n" {
			words = words[2:]
		}
		if !slices.Contains(verbs, words[0]) {
			t.Errorf("%s: kubectl %s", where, words[0])
		}
		if slices.Contains([]string{"logs", "exec"}, words[0]) && strings.HasPrefix(words[1], "daemonset/") {
			t.Errorf("%s: %s is any agent, want that of the node", where, words[1])
		}
	}
	if len(commands) == 0 {
		t.Errorf("%s: no commands", where)
	}
}
