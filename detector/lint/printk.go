package lint

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Minimum fixed text of a format to prove that the kernel prints a line. Formats with less, such as
// "%s: %s failed", print almost anything.
const (
	minFixed = 10 // bytes of fixed text in a format with conversions
	minRun   = 4  // contiguous bytes of fixed text
	minPlain = 6  // bytes of any format
	// maxFormat is more than the kernel prints in one record (PRINTKRB_RECORD_MAX, 1 KiB).
	maxFormat = 4 << 10
)

// Formats holds the format strings of a kernel that may print some given lines.
type Formats struct{ exprs []*regexp.Regexp }

// conversion matches a conversion of printf or the kernel (%pI6c, %*pbl), where all letters and digits
// that follow %p belong to it.
var conversion = regexp.MustCompile(`%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|z|t|j|q)?(?:p[a-zA-Z0-9]*|[diuxXoscn%])`)

// ReplaceConversions returns a format string with the result of by for each of its conversions.
func ReplaceConversions(format string, by func(conversion string) string) string {
	return conversion.ReplaceAllStringFunc(format, by)
}

// ReadFormats reads strings, one a line, as strings(1) prints them for a kernel's image and
// modules. It keeps only the formats that may print one of lines, because a kernel has half a
// million strings. It also reads /sys/kernel/debug/printk/index, where each string follows its
// source location, in quotes with \n and \" as escapes.
func ReadFormats(r io.Reader, lines []string) (*Formats, error) {
	text := newLineText(lines)
	f := &Formats{}
	seen := make(map[string]bool)
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			for _, part := range formatLines(line) {
				if !seen[part] && text.mayPrint(part) {
					seen[part] = true
					f.exprs = append(f.exprs, formatExpr(part))
				}
			}
		}
		if err == io.EOF { //nolint:errorlint // of a bufio.Reader it is bare
			return f, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// formatLines returns the log lines that a string of the file prints, without level and newlines.
func formatLines(line []byte) []string {
	s := strings.TrimSuffix(string(line), "\n")
	if _, quoted, ok := strings.Cut(s, ` "`); ok && strings.HasPrefix(s, "<") && strings.HasSuffix(s, `"`) {
		s = strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(strings.TrimSuffix(quoted, `"`))
	}
	if len(s) > 2 && s[0] == 1 { // KERN_SOH and the level
		s = s[2:]
	}
	return strings.Split(s, "\n")
}

// lineText holds the lines to look for, with all substrings of minRun bytes: most formats contain
// none of these, so they are skipped fast.
type lineText struct {
	text string
	runs map[string]bool
}

func newLineText(lines []string) *lineText {
	t := &lineText{text: strings.Join(lines, "\n"), runs: make(map[string]bool)}
	for i := 0; i+minRun <= len(t.text); i++ {
		t.runs[t.text[i:i+minRun]] = true
	}
	return t
}

// mayPrint reports whether the format has enough fixed text, and the lines contain its longest part.
func (t *lineText) mayPrint(format string) bool {
	format = strings.TrimSpace(format)
	if len(format) < minPlain || len(format) > maxFormat || !utf8.ValidString(format) {
		return false // the latter are data of a binary file
	}
	longest, all, parts := "", 0, conversion.Split(format, -1)
	for _, fixed := range parts {
		all += len(fixed)
		if fixed = strings.TrimSpace(fixed); len(fixed) > len(longest) {
			longest = fixed
		}
	}
	if len(longest) < minRun || len(parts) > 1 && all < minFixed {
		return false
	}
	return t.runs[longest[:minRun]] && strings.Contains(t.text, longest)
}

// formatExpr converts a format to a regular expression. The prefix that drivers and filesystems add
// to a message (dev_err: "nvme nvme0: ") is in no format string, so the message may follow a colon,
// bracket or asterisk and a space.
func formatExpr(format string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)(?:^|[:)\]*] )\s*`)
	format = strings.TrimSpace(format)
	at := 0
	for _, c := range conversion.FindAllStringIndex(format, -1) {
		b.WriteString(regexp.QuoteMeta(format[at:c[0]]))
		at = c[1]
		switch spec := format[c[0]:c[1]]; {
		case strings.Contains(spec, "p"), strings.HasSuffix(spec, "s"):
			b.WriteString(`.*`)
		case strings.HasSuffix(spec, "%"):
			b.WriteString(`%`)
		case strings.HasSuffix(spec, "c"):
			b.WriteString(`.?`)
		case strings.ContainsAny(spec[len(spec)-1:], "xXo"):
			b.WriteString(`\s*(?:0x)?[0-9a-fA-F]+`)
		default:
			b.WriteString(`\s*[-+]?\d+`)
		}
	}
	b.WriteString(regexp.QuoteMeta(format[at:]))
	b.WriteString(`\s*$`)
	return regexp.MustCompile(b.String())
}

// Print reports whether one of the formats prints the whole line, apart from a prefix before the
// format's own text.
func (f *Formats) Print(line string) bool {
	for _, e := range f.exprs {
		if e.MatchString(line) {
			return true
		}
	}
	return false
}

// OfKernel reports patterns for which a kernel has no format string: no string of the kernel (see
// [ReadFormats]) prints a corpus line that the pattern matches. A line that the kernel assembles
// from parts has no format string, so its pattern is reported too. An error means that reading
// failed.
func OfKernel(in Input, c *Corpus, kernel io.Reader) ([]Finding, error) {
	rules := in.judged(c)
	var lines []string
	for _, r := range rules {
		if r.judge != nil {
			for _, m := range r.matched {
				lines = append(lines, r.fill(m.form, m.word)...)
			}
		}
	}
	f, err := ReadFormats(kernel, lines)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, r := range rules {
		if r.judge == nil || r.Context || len(r.matched) == 0 || slices.ContainsFunc(r.matched, func(m match) bool {
			return slices.ContainsFunc(r.fill(m.form, m.word), f.Print)
		}) {
			continue
		}
		out = append(out, Finding{File: r.File, Line: r.Line, Level: Warning, Code: NotThisKernel,
			Message: r.Reason + ": this kernel has no format string for any known line that the pattern matches"})
	}
	return out, nil
}
