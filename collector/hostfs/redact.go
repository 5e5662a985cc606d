package hostfs

import (
	"regexp"
	"slices"
	"strings"
)

// Redacted stands in place of a secret.
const Redacted = "[redacted]"

var (
	// secretName is of flags and variables whose values are secrets: a word anywhere, or a part
	// between dashes.
	secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|key[-_.]?data|authorization)` +
		`|(?i)(^|[-_.])(pass|pwd|pw|token|auth|jwt|bearer|cookie)($|[-_.])`) //nolint:gochecknoglobals // a constant
	// secretCamel is the same of names as accessToken.
	secretCamel = regexp.MustCompile(`[a-z](Token|Pass|Pwd)$`) //nolint:gochecknoglobals // a constant
	// ofFile is of names that are of a file, and not of what it has.
	ofFile = regexp.MustCompile(`(?i)(file|path|dir|name)$`) //nolint:gochecknoglobals // a constant
	// userInfo is a password in a URL, up to the last @.
	userInfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*):[^/\s]+@`) //nolint:gochecknoglobals // a constant
	// header is of HTTP, as of curl.
	header = regexp.MustCompile(`(?i)^((?:proxy-)?authorization|x-[a-z-]*(?:token|key)|cookie):.*$`) //nolint:gochecknoglobals // a constant
	// headerText is the same within a text, to the end of its line or of a quotation.
	headerText = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization:|x-[a-z-]*(?:token|key):|cookie:)[ \t]*[^"'\n]+`) //nolint:gochecknoglobals // a constant
	// pair is a name and its value; of one in escaped quotes only how it begins.
	pair = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_.-]*)\\*["']?[ \t]*[:=][ \t]*(\\+"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;}\]]+)`) //nolint:gochecknoglobals // a constant
	// opening is what a value in quotes begins with.
	opening = regexp.MustCompile(`^\\*["']`) //nolint:gochecknoglobals // a constant
	// privateKey is one in PEM.
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`) //nolint:gochecknoglobals // a constant
	// jwt is a token of service accounts and others, wherever it stands.
	jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`) //nolint:gochecknoglobals // a constant
)

// Redact returns the arguments of a process without what looks like a secret: values of flags and
// variables with such names, passwords in URLs, headers that authorise, tokens. What has another
// name is not seen: programs should take secrets from files.
func Redact(args []string) []string {
	out := make([]string, len(args))
	next := "" // what the argument before says of this one
	for i, a := range args {
		name := next
		next = ""
		flag, value, given := strings.Cut(a, "=")
		bare := strings.TrimLeft(flag, "-")
		switch {
		case name == "user" && strings.Contains(a, ":"):
			user, _, _ := strings.Cut(a, ":")
			out[i] = user + ":" + Redacted
		case name == "secret" && strings.HasPrefix(a, Redacted):
			out[i] = a
		case name == "secret" && scheme(a):
			out[i], next = a, "secret"
		case name == "secret" && !strings.HasPrefix(a, "-"):
			out[i] = Redacted
		case header.MatchString(a):
			head, rest, _ := strings.Cut(a, ":")
			if rest == "" { // it is a word of a text, and the next ones are its value
				out[i], next = a, "secret"
				continue
			}
			out[i] = head + ": " + Redacted
		case given && !strings.ContainsAny(flag, " \t\n/:") && isSecret(bare) && value != "" && !strings.HasPrefix(value, "/") && !strings.HasPrefix(strings.TrimLeft(value, `\"'`), Redacted):
			out[i] = flag + "=" + Redacted
		case strings.ContainsAny(a, " \t\n"):
			// A shell's script, or a title that a process has given itself.
			out[i] = redactWords(a)
		default:
			out[i] = jwt.ReplaceAllString(userInfo.ReplaceAllString(a, "$1:"+Redacted+"@"), Redacted)
			switch {
			case scheme(a):
				next = "secret"
			case given || bare == flag:
			case bare == "u" || bare == "user":
				next = "user"
			case isSecret(bare):
				next = "secret"
			}
		}
	}
	return out
}

// RedactText is [Redact] for a text of lines, such as a log or a file of settings. It also takes
// out what stands behind such a name and a colon, and private keys.
func RedactText(text string) string {
	text = privateKey.ReplaceAllString(text, Redacted)
	var b strings.Builder
	for line := range strings.SplitAfterSeq(text, "\n") {
		if !mayHaveSecret(line) {
			b.WriteString(line)
			continue
		}
		line = headerText.ReplaceAllString(line, "$1 "+Redacted)
		b.WriteString(redactWords(redactPairs(line)))
	}
	return b.String()
}

// mayHaveSecret is false for most lines, and quick.
func mayHaveSecret(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{
		"pass", "pw", "secret", "credential", "key", "auth", "token", "jwt", "bearer", "cookie", "basic", "://", "eyj", "-u", "user",
	}, func(part string) bool { return strings.Contains(line, part) })
}

// RedactValue is [RedactText] for a value that has a name.
func RedactValue(name, value string) string {
	if value != "" && !strings.HasPrefix(value, "/") && isSecret(name) {
		return Redacted
	}
	return RedactText(value)
}

// redactPairs takes out the values behind names of secrets: password: x, "token": "x".
func redactPairs(line string) string {
	var b strings.Builder
	for {
		m := pair.FindStringSubmatchIndex(line)
		if m == nil {
			return b.String() + line
		}
		if value := line[m[4]:m[5]]; value[0] == '\\' && strings.HasSuffix(value, `"`) {
			m[5] = m[4] + escaped(line[m[4]:])
		}
		name, value := line[m[2]:m[3]], strings.Trim(line[m[4]:m[5]], `\"'`)
		b.WriteString(line[:m[4]])
		if value == "" || strings.HasPrefix(value, "/") || value == strings.TrimSuffix(Redacted, "]") || !isSecret(name) {
			line = line[m[4]:] // it may have pairs in it
			continue
		}
		quote := opening.FindString(line[m[4]:m[5]])
		b.WriteString(quote + Redacted + quote)
		line = line[m[5]:]
	}
}

// escaped returns the length of the value in escaped quotes with which a text begins: to the quote
// behind no more backslashes, as those within have more.
func escaped(text string) int {
	first := strings.IndexByte(text, '"')
	backslashes := 0
	for i := first + 1; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			backslashes++
		case text[i] == '"' && backslashes <= first:
			return i + 1
		default:
			backslashes = 0
		}
	}
	return len(text)
}

// redactWords takes the words of a text for arguments, and leaves what is between them.
func redactWords(text string) string {
	words := strings.Fields(text)
	var b strings.Builder
	for i, clean := range Redact(words) {
		at := strings.Index(text, words[i])
		b.WriteString(text[:at])
		b.WriteString(clean)
		text = text[at+len(words[i]):]
	}
	b.WriteString(text)
	return b.String()
}

// scheme reports whether a word of a header is followed by what authorises.
func scheme(word string) bool {
	word = strings.Trim(word, `"'`)
	return strings.EqualFold(word, "Bearer") || strings.EqualFold(word, "Basic")
}

func isSecret(name string) bool {
	return (secretName.MatchString(name) || secretCamel.MatchString(name)) && !ofFile.MatchString(name)
}
