package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shellCommands returns the words of each simple command of a statement, commands in $(…) first. It
// supports the shell syntax that the documentation uses: quotes, pipes, lists, groups, loops,
// redirections, here-documents and comments.
func shellCommands(text string) [][]string {
	l := &shellLexer{text: text}
	l.read()
	return l.commands
}

type shellLexer struct {
	text     string
	at       int
	word     strings.Builder
	inWord   bool
	target   bool // the word is a redirection's target
	words    []string
	commands [][]string
}

// read reads to the end, or past the parenthesis that ends a $(…).
func (l *shellLexer) read() {
	for l.at < len(l.text) {
		c := l.text[l.at]
		rest := l.text[l.at:]
		l.at++
		switch {
		case strings.HasPrefix(rest, "\\\n"):
			l.at++
		case c == '\\' && l.at < len(l.text):
			l.add(l.text[l.at : l.at+1])
			l.at++
		case c == '\'':
			l.add(l.until('\''))
		case c == '"':
			l.quoted()
		case strings.HasPrefix(rest, "$("):
			l.substitution()
		case c == '#' && !l.inWord:
			l.until('\n')
			l.endCommand()
		case c == ' ' || c == '\t':
			l.endWord()
		case c == ')':
			l.endCommand()
			return
		case c == '\n' || c == ';' || c == '&' || c == '(' || c == '|' && l.operator(rest):
			l.endCommand()
		case c == '<' && shellPlaceholder.MatchString(rest):
			l.add("<" + l.until('>') + ">")
		case c == '<' || c == '>':
			l.redirection(rest)
		default:
			l.add(rest[:1])
		}
	}
	l.endCommand()
}

// shellPlaceholder is a name in angle brackets.
var shellPlaceholder = regexp.MustCompile(`^<[a-z-]+>`)

// operator reports whether a bar is a pipe, and not part of a synopsis: FILE|DIR.
func (l *shellLexer) operator(rest string) bool {
	return !l.inWord || len(rest) > 1 && strings.ContainsRune("| \n", rune(rest[1]))
}

func (l *shellLexer) add(text string) {
	l.inWord = true
	l.word.WriteString(text)
}

// until returns the text up to a byte, and moves past it.
func (l *shellLexer) until(end byte) string {
	text, _, found := strings.Cut(l.text[l.at:], string(end))
	l.at += len(text)
	if found {
		l.at++
	}
	return text
}

func (l *shellLexer) quoted() {
	l.inWord = true
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		l.at++
		switch {
		case rest[0] == '"':
			return
		case rest[0] == '\\' && len(rest) > 1:
			l.add(rest[1:2])
			l.at++
		case strings.HasPrefix(rest, "$("):
			l.substitution()
		default:
			l.add(rest[:1])
		}
	}
}

// substitution reads $(…), whose output is represented by the word "$(…)".
func (l *shellLexer) substitution() {
	inner := &shellLexer{text: l.text, at: l.at + 1}
	if strings.HasPrefix(l.text[l.at:], "((") { // arithmetic
		_, after, _ := strings.Cut(l.text[l.at:], "))")
		l.at = len(l.text) - len(after)
	} else {
		inner.read()
		l.at = inner.at
		l.commands = append(l.commands, inner.commands...)
	}
	l.add("$(…)")
}

func (l *shellLexer) redirection(rest string) {
	if l.inWord && strings.Trim(l.word.String(), "0123456789") == "" {
		l.word.Reset()
		l.inWord = false
	}
	l.endWord()
	if m := hereDocument.FindStringSubmatch(rest); m != nil {
		line, document, _ := strings.Cut(rest, "\n")
		_, after, _ := strings.Cut("\n"+document, "\n"+m[1])
		l.text = l.text[:l.at-1] + strings.Replace(line, m[0], "", 1) + after
		l.at--
		return
	}
	operator := rest[:len(rest)-len(strings.TrimLeft(rest, "<>&"))]
	l.at += len(operator) - 1
	l.target = true
}

func (l *shellLexer) endWord() {
	if !l.inWord {
		return
	}
	if !l.target {
		l.words = append(l.words, l.word.String())
	}
	l.word.Reset()
	l.inWord, l.target = false, false
}

func (l *shellLexer) endCommand() {
	l.endWord()
	words := l.words
	l.words = nil
	for len(words) > 0 && slices.Contains([]string{"do", "then", "else", "if", "while", "{", "}", "!"}, words[0]) {
		words = words[1:]
	}
	if len(words) > 0 && !slices.Contains([]string{"for", "done", "fi"}, words[0]) {
		l.commands = append(l.commands, words)
	}
}

func TestShellCommands(t *testing.T) {
	for text, want := range map[string][][]string{
		"make demo                 # every fault; one": {{"make", "demo"}},
		`a 'b c' "d \"e\"" f\ g`:                       {{"a", "b c", `d "e"`, "f g"}},
		"a >b 2>&1 | c --d <e && f; g":                 {{"a"}, {"c", "--d"}, {"f"}, {"g"}},
		"a \\\n  b |\n  c":                             {{"a", "b"}, {"c"}},
		"ln -s \"$(command -v kernosis)\" x":           {{"command", "-v", "kernosis"}, {"ln", "-s", "$(…)", "x"}},
		"for i in 1 2; do echo \"$i\" >> b; done":      {{"echo", "$i"}},
		"kubectl apply -f - <<EOF | c\na: b\nEOF":      {{"kubectl", "apply", "-f", "-"}, {"c"}},
		"make STEM=<stem> KERNEL=\"5.10 7.2\"":         {{"make", "STEM=<stem>", "KERNEL=5.10 7.2"}},
		"kernosis x [FILE|DIR…]":                       {{"kernosis", "x", "[FILE|DIR…]"}},
		"(a; b) >c":                                    {{"a"}, {"b"}},
		"A=$((1 + 2)) b":                               {{"A=$(…)", "b"}},
		"find . -exec sh -c 'x \"$1\" | y' _ {} \\;":   {{"find", ".", "-exec", "sh", "-c", `x "$1" | y`, "_", "{}", ";"}},
	} {
		if diff := cmp.Diff(want, shellCommands(text)); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
}
