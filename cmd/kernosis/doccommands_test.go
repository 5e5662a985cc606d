package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/catalog"
)

// docCommand is a command of the documentation.
type docCommand struct {
	page  string
	line  int
	words []string // without variables and sudo before the program
	env   []string // the variables before the program
	whole bool     // it is a complete command; one in a sentence may lack arguments
}

// docCommands returns the commands of a page. In sentences it only recognises commands of our own
// programs.
func (p *docPage) docCommands() []docCommand {
	var all []docCommand
	add := func(line int, text string, whole bool) {
		for _, words := range shellCommands(text) {
			all = append(all, newDocCommands(docCommand{page: p.path, line: line, whole: whole}, words)...)
		}
	}
	for i := range p.blocks {
		if len(p.blocks[i].lines) > 0 && strings.HasPrefix(p.blocks[i].lines[0], "#!") {
			continue // a script
		}
		for _, s := range p.blocks[i].statements() {
			add(s.line, s.text, p.blocks[i].language != "text")
		}
	}
	for _, code := range p.inline {
		if inlineCommand.MatchString(code.text) {
			add(code.line, code.text, false)
		}
	}
	return all
}

var (
	inlineCommand = regexp.MustCompile(`^(sudo |[A-Z_]+=\S+ )*(bin/)?(kernosis|make|kubectl|helm|go test|--set) `)
	shellVariable = regexp.MustCompile(`^[A-Z_]+=`)
)

// newDocCommands removes sudo and variables before the program from the words of c, and returns
// commands that kubectl or a shell runs as separate commands.
func newDocCommands(c docCommand, words []string) []docCommand {
	for len(words) > 0 && (words[0] == "sudo" || shellVariable.MatchString(words[0])) {
		if words[0] != "sudo" {
			c.env = append(c.env, words[0])
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	var inner []docCommand
	if i := slices.Index(words, "--"); i > 0 && words[0] == "kubectl" {
		inner = newDocCommands(docCommand{page: c.page, line: c.line, whole: c.whole}, words[i+1:])
		words = words[:i]
	} else if len(words) > 2 && words[0] == "sh" && words[1] == "-c" {
		for _, words := range shellCommands(words[2]) {
			inner = append(inner, newDocCommands(docCommand{page: c.page, line: c.line, whole: c.whole}, words)...)
		}
	}
	c.words = words
	return append(inner, c)
}

// docPlaceholder matches what a reader replaces: NAME, <name>, $NAME, or an ellipsis.
var docPlaceholder = regexp.MustCompile(`^[A-Z][A-Z0-9_|-]*(…|$)|…|^<[a-z-]+>$|\$|=<|=[A-Z]+$`)

// All commands in the documentation, and in the examples of help texts, use existing programs,
// commands, flags, values, targets, kinds and files.
func TestCommandsOfDocs(t *testing.T) {
	known := newDocPrograms(t)
	commands := 0
	for _, page := range docPages(t) {
		files := page.files()
		for _, c := range page.docCommands() {
			commands++
			if err := errors.Join(known.check(&c), known.paths(&c, files)); err != nil {
				t.Errorf("%s:%d: %s\n%v", c.page, c.line, strings.Join(c.words, " "), err)
			}
		}
	}
	if commands < 400 {
		t.Errorf("found %d commands", commands)
	}
	for _, cmd := range eachCommand(newRoot()) {
		for line := range strings.Lines(cmd.Example) {
			for _, words := range shellCommands(line) {
				for _, c := range newDocCommands(docCommand{whole: true}, words) {
					if err := known.check(&c); err != nil {
						t.Errorf("example of %s: %s%v", cmd.CommandPath(), line, err)
					}
				}
			}
		}
	}
}

// eachCommand returns a command and all below it.
func eachCommand(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, eachCommand(sub)...)
	}
	return all
}

// checkKernosis checks the arguments of kernosis.
func checkKernosis(c *docCommand, args []string) error {
	root := newRoot()
	args = withoutBrackets(args)
	if err := unknownCommand(root, args); err != nil {
		return err
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if cmd == root {
		cmd.InitDefaultVersionFlag()
	}
	kept, placeholders, lacks := withoutPlaceholders(cmd, rest)
	if lacks && c.whole {
		return errors.New("the last flag needs a value")
	}
	if err := cmd.ParseFlags(kept); err != nil {
		return flagError(cmd, err)
	}
	if err := setByEnv(cmd, c.env); err != nil {
		return err
	}
	if c.whole && !placeholders {
		if !cmd.Runnable() {
			return fmt.Errorf("%s needs one of its commands", cmd.CommandPath())
		}
		if err := errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return err
		}
	}
	return errors.Join(checkNames(cmd), checkSettings(cmd))
}

// withoutBrackets removes brackets that mark optional arguments: [--count N].
func withoutBrackets(args []string) []string {
	var out []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "[") || strings.HasSuffix(arg, "]") && !strings.Contains(arg, "[") {
			arg = strings.Trim(arg, "[]")
		}
		out = append(out, arg)
	}
	return out
}

// withoutPlaceholders removes flags whose value is a placeholder or missing; a missing value is an
// error in a complete command. The flags must exist.
func withoutPlaceholders(cmd *cobra.Command, args []string) (kept []string, some, lacks bool) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		some = some || docPlaceholder.MatchString(arg)
		name, value, set := strings.Cut(arg, "=")
		var flag *pflag.Flag
		if long, ok := strings.CutPrefix(name, "--"); ok {
			flag = cmd.Flag(long)
		} else if short, ok := strings.CutPrefix(name, "-"); ok && len(short) == 1 {
			flag = cmd.Flags().ShorthandLookup(short)
		}
		switch {
		case flag == nil:
			kept = append(kept, arg) // an argument, or an unknown flag
		case !set && flag.NoOptDefVal == "" && i+1 < len(args):
			i++
			if value = args[i]; docPlaceholder.MatchString(value) {
				some = true
			} else {
				kept = append(kept, arg, value)
			}
		case !set && flag.NoOptDefVal == "":
			lacks = true
		case !docPlaceholder.MatchString(value):
			kept = append(kept, arg)
		}
	}
	return kept, some, lacks
}

// setByEnv sets flags from the variables before the command.
func setByEnv(cmd *cobra.Command, env []string) error {
	for _, assignment := range env {
		name, value, _ := strings.Cut(assignment, "=")
		key, ours := strings.CutPrefix(name, "KERNOSIS_")
		if !ours {
			continue
		}
		if err := cmd.Flags().Set(strings.ToLower(strings.ReplaceAll(key, "_", "-")), value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// checkNames checks arguments and flags that name shipped objects, and output formats.
func checkNames(cmd *cobra.Command) error {
	var errs []error
	check := func(name, what string, known []string) {
		if !docPlaceholder.MatchString(name) && !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("%s: no %s %q, want one of %s", cmd.CommandPath(), what, name, strings.Join(known, ", ")))
		}
	}
	for _, name := range cmd.Flags().Args() {
		switch cmd.CommandPath() {
		case "kernosis inject":
			check(name, "fault", faultNames())
		case "kernosis diagnose sets":
			check(name, "set", manifest.ShippedNames())
		case "kernosis diagnose operations":
			var known []string
			for _, o := range catalog.All(operation.Host{}) {
				known = append(known, o.Name)
			}
			check(name, "operation", known)
		case "kernosis mute":
			rules, err := agent.LoadRules("")
			if err != nil {
				return err
			}
			var known []string
			for _, r := range rules.Rules() {
				known = append(known, r.Name)
			}
			check(name, "rule", known)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "shipped":
			check(f.Value.String(), "set", manifest.ShippedNames())
		case "output", "format":
			check(f.Value.String(), f.Name, strings.FieldsFunc(f.Usage, func(r rune) bool { return strings.ContainsRune(" ,;:`", r) }))
		}
	})
	return errors.Join(errs...)
}

// checkSettings makes the checks that the agent and the controller make at their start.
func checkSettings(cmd *cobra.Command) error {
	if f := cmd.Flag("config"); f == nil || f.Changed {
		return nil // the configuration file is the reader's
	}
	var err error
	switch cmd.CommandPath() {
	case "kernosis run", "kernosis agent", "kernosis config print":
		_, err = agent.Load(cmd.Flags(), os.Environ())
	case "kernosis controller":
		_, err = loadController(cmd)
	}
	return err
}

// Mistakes in commands are found.
func TestWrongCommandsOfDocs(t *testing.T) {
	known := newDocPrograms(t)
	for text, want := range map[string]string{
		"sudo bin/kernosis rnu": `unknown command "rnu"`,
		"kubectl -n kernosis exec POD -- kernosis features --oops":       "unknown flag: --oops",
		"cat x | kernosis rules chekc":                                   "did you mean check?",
		"kernosis rules":                                                 "needs one of its commands",
		"kernosis run --hung-task-after 5":                               "want a duration",
		"kernosis run --log kmgs":                                        `did you mean "kmsg"?`,
		"KERNOSIS_LOGG=kmsg kernosis run":                                "no such flag",
		"kernosis controller --namespace Kernosis":                       "namespace",
		"kernosis why node a b":                                          "wrong number of arguments: 2",
		"kernosis why pod shop/web-1 --container":                        "needs a value",
		"kernosis why node -o yml":                                       "want table, wide, json or yaml",
		"kernosis inject oops --dry-run":                                 `no fault "oops"`,
		"kernosis mute oops --for 1h --reason x":                         `no rule "oops"`,
		"kernosis graph --shipped oops":                                  `no set "oops"`,
		"kernosis diagnose operations oops":                              `no operation "oops"`,
		"bin/oops -x":                                                    "no program bin/oops",
		"oops":                                                           "no program oops",
		"make tets":                                                      "the Makefile has no tets",
		"make test PAKAGES=x":                                            "the Makefile has no PAKAGES",
		"go test -run TestOops ./cmd/kernosis":                           "no test or benchmark TestOops",
		"go test ./cmd/oops":                                             "no such file",
		"kubectl apply -f deploy/oops.yaml":                              "no such file",
		"helm install kernosis deploy/chart/kernosis --set agent.oops=1": "there is no oops",
		"helm oops":                                                      "helm: want one of",
		"kubectl get oops":                                               "no kind oops",
		"kubectl get dx":                                                 "want -n or -A",
		"kubectl -n monitoring get dx":                                   `namespace "monitoring"`,
		"kubectl logs daemonset/kernosis-agent":                          "want -n or -A",
		"kubectl -n shop logs deployment/kernosis-x":                     "not in shop",
		"kubectl gett nodes":                                             "no such command",
	} {
		var errs []error
		for _, words := range shellCommands(text) {
			for _, c := range newDocCommands(docCommand{whole: true}, words) {
				errs = append(errs, known.check(&c), known.paths(&c, nil))
			}
		}
		if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
