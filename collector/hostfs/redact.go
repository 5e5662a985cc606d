package hostfs

import (
	"regexp"
	"slices"
	"strings"
)

// Redacted replaces a secret.
const Redacted = "[redacted]"

var (
	// secretName matches names of secrets: words anywhere in them, or parts between dashes.
	secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|key[-_.]?data|authorization)` +
		`|(?i)(^|[-_.])(pass|pwd|pw|token|auth|jwt|bearer|cookie)($|[-_.])`) //nolint:gochecknoglobals // a constant
	// secretCamel does the same for names like accessToken.
	secretCamel = regexp.MustCompile(`[a-z](Token|Pass|Pwd)$`) //nolint:gochecknoglobals // a constant
	// ofFile matches names whose value is a file name rather than a secret.
	ofFile = regexp.MustCompile(`(?i)(file|path|dir|name)$`) //nolint:gochecknoglobals // a constant
	// userInfo matches a password in a URL, up to the last @.
	userInfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*):[^/\s]+@`) //nolint:gochecknoglobals // a constant
	// header matches an HTTP header, as an argument of curl.
	header = regexp.MustCompile(`(?i)^((?:proxy-)?authorization|x-[a-z-]*(?:token|key)|cookie):.*$`) //nolint:gochecknoglobals // a constant
	// headerText matches the beginning of such a header within a text.
	headerText = regexp.MustCompile(`(?i)\b(?:(?:proxy-)?authorization|x-[a-z-]*(?:token|key)|cookie):`) //nolint:gochecknoglobals // a constant
	// pair matches a name and its value; if the value is in escaped quotes, only the opening quote. The
	// closing quote may be missing in a text that was cut.
	pair = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_.-]*)\\*["']?[ \t]*[:=][ \t]*(\\+"|"(?:[^"\\]|\\.)*(?:"|\\?$)|'[^']*(?:'|$)|[^\s"',;}\]]+)`) //nolint:gochecknoglobals // a constant
	// quotedFlag matches a flag and the opening quote of the value in the next word.
	quotedFlag = regexp.MustCompile(`(?:^|[\s\\"'])--?([A-Za-z][A-Za-z0-9_.-]*)[ \t]+(\\*["'])`) //nolint:gochecknoglobals // a constant
	// opening matches the opening quote of a value.
	opening = regexp.MustCompile(`^\\*["']`) //nolint:gochecknoglobals // a constant
	// further matches text behind a pair's unquoted value that may still belong to the value.
	further = regexp.MustCompile(`^[,;}\]]+[^\s"',;}\]:=]+`) //nolint:gochecknoglobals // a constant
	// cutUserInfo matches a password in a URL whose end is missing, in arguments separated by NUL.
	cutUserInfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@\x00]*):[^/\s\x00]*$`) //nolint:gochecknoglobals // a constant
	// privateKey matches a private key in PEM, encrypted or not. In a text that was cut, its beginning
	// or end may be missing.
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\\rn]*(?:Proc-Type|DEK-Info): [A-Za-z0-9,-]*)*[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?` +
		`|\A(?:[A-Za-z0-9+/=]*\r?\n)*-----END [A-Z ]*PRIVATE KEY-----`) //nolint:gochecknoglobals // a constant
	// jwt matches a token, of a service account or another, anywhere.
	jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`) //nolint:gochecknoglobals // a constant
)

// Redact returns the arguments of a process without apparent secrets: values of flags and variables
// with such names, passwords in URLs, authorization headers, tokens. Secrets under other names are
// not detected: programs should read secrets from files.
func Redact(args []string) []string {
	out := make([]string, len(args))
	next := "" // what the previous argument says about this one
	for i, a := range args {
		name := next
		next = ""
		flag, value, given := strings.Cut(a, "=")
		bare := strings.TrimLeft(flag, "-")
		switch {
		case name == "user" && strings.Contains(a, ":"):
			user, password, _ := strings.Cut(a, ":")
			if out[i] = a; !strings.HasPrefix(password, Redacted) {
				out[i] = user + ":" + Redacted
			}
		case name == "secret" && strings.HasPrefix(strings.TrimLeft(a, `\"'`), Redacted):
			out[i] = a
		case name == "secret" && scheme(a):
			out[i], next = a, "secret"
		case name == "secret" && !strings.HasPrefix(a, "-"):
			out[i] = Redacted
		case header.MatchString(a):
			head, rest, _ := strings.Cut(a, ":")
			if rest == "" { // a word of a text, whose value is in the next words
				out[i], next = a, "secret"
				continue
			}
			out[i] = head + ": " + Redacted
		case given && !strings.ContainsAny(flag, " \t\n/:") && isSecret(bare) && value != "" && !strings.HasPrefix(value, "/") && !strings.HasPrefix(strings.TrimLeft(value, `\"'`), Redacted):
			out[i] = flag + "=" + Redacted
		case strings.ContainsAny(a, " \t\n"):
			// A shell script, or a title that a process has set for itself.
			out[i] = redactLine(a)
		case given && bare != flag && strings.HasPrefix(value, Redacted): // a word of a text
			out[i] = flag + "=" + Redacted + afterValue(value[len(Redacted):])
		default:
			out[i] = jwt.ReplaceAllString(userInfo.ReplaceAllString(redactPairs(a), "$1:"+Redacted+"@"), Redacted)
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

// RedactText is [Redact] for a text of lines, such as a log or a settings file. It also removes
// values after such a name and a colon, and private keys.
func RedactText(text string) string {
	lines := strings.Split(privateKey.ReplaceAllString(text, Redacted), "\n")
	for i, line := range lines {
		if mayHaveSecret(line) {
			lines[i] = redactLine(line)
		}
	}
	return strings.Join(lines, "\n")
}

// mayHaveSecret is a quick check that returns false for most lines.
func mayHaveSecret(line string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc([]string{
		"pass", "pw", "secret", "credential", "key", "auth", "token", "jwt", "bearer", "cookie", "basic", "://", "eyj", "-u", "user",
	}, func(part string) bool { return strings.Contains(line, part) })
}

// RedactValue is [RedactText] for a value with a name.
func RedactValue(name, value string) string {
	if value != "" && !strings.HasPrefix(value, "/") && isSecret(name) {
		return Redacted
	}
	return RedactText(value)
}

func redactLine(line string) string {
	return redactWords(redactPairs(redactFlags(redactHeaders(line))))
}

// redactFlags removes quoted values behind flags with names of secrets, and the password in a quoted
// value of --user: curl -u 'web:x'.
func redactFlags(line string) string {
	var b strings.Builder
	for {
		m := quotedFlag.FindStringSubmatchIndex(line)
		if m == nil {
			return b.String() + line
		}
		name, quote := line[m[2]:m[3]], line[m[4]:m[5]]
		b.WriteString(line[:m[5]])
		line = line[m[5]:]
		if isUser := name == "u" || name == "user"; isUser || isSecret(name) {
			end, _ := closing(line, []string{quote})
			user, _, given := strings.Cut(line[:end], ":")
			switch {
			case !isUser:
				b.WriteString(Redacted)
				line = line[end:]
			case given:
				b.WriteString(user + ":" + Redacted)
				line = line[end:]
			}
		}
	}
}

// redactHeaders removes the values of headers, up to the end of the line or of the quotation that
// contains the header. Quotes within a value, such as a cookie, end nothing.
func redactHeaders(text string) string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(text, "\n") {
		at := 0 // everything before is written
		for _, m := range headerText.FindAllStringIndex(line, -1) {
			if m[0] < at {
				continue // inside the value of another header
			}
			value := strings.TrimSuffix(line[m[1]:], "\n")
			if end, _ := closing(value, quotations(line[:m[0]])); strings.TrimSpace(value[:end]) != "" {
				b.WriteString(line[at:m[1]] + " " + Redacted)
				at = m[1] + end
			}
		}
		b.WriteString(line[at:])
	}
	return b.String()
}

// quotations returns the quotes that are open at the end of a text, each with the backslashes
// before it. An apostrophe within a word opens nothing.
func quotations(text string) (open []string) {
	backslashes := 0
	for i := range len(text) {
		c := text[i]
		if c == '\\' {
			backslashes++
			continue
		}
		if c == '"' || c == '\'' {
			closed := slices.IndexFunc(open, func(o string) bool { return closes(c, backslashes, o) })
			switch {
			case closed >= 0:
				open = open[:closed]
			case c == '"' || i == 0 || !isLetter(text[i-1]):
				open = append(open, text[i-backslashes:i+1])
			}
		}
		backslashes = 0
	}
	return open
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// closes reports whether a quote after this number of backslashes ends the quotation that open
// began: nested quotes have more backslashes.
func closes(quote byte, backslashes int, open string) bool {
	return open[len(open)-1] == quote && backslashes < len(open)
}

// closing returns the position of the first quote, with its backslashes, that ends one of the open
// quotations, or the end of the text if there is none.
func closing(text string, open []string) (from, to int) {
	backslashes := 0
	for i := range len(text) {
		switch {
		case text[i] == '\\':
			backslashes++
		case slices.ContainsFunc(open, func(o string) bool { return closes(text[i], backslashes, o) }):
			return i - backslashes, i + 1
		default:
			backslashes = 0
		}
	}
	return len(text), len(text)
}

// redactPairs removes the values after names of secrets: password: x, "token": "x",
// {"name":"token","value":"x"}.
func redactPairs(line string) string {
	var b strings.Builder
	object := "" // the value of the name before
	for {
		m := pair.FindStringSubmatchIndex(line)
		if m == nil {
			return b.String() + line
		}
		if value := line[m[4]:m[5]]; value[0] == '\\' && strings.HasSuffix(value, `"`) {
			_, to := closing(line[m[5]:], []string{value})
			m[5] += to
		}
		name, value := line[m[2]:m[3]], strings.Trim(line[m[4]:m[5]], `\"'`)
		b.WriteString(line[:m[4]])
		if strings.EqualFold(name, "value") {
			name = object
		}
		object = ""
		if strings.EqualFold(name, "name") {
			object = value
		}
		if slices.Contains([]string{"", "true", "false", strings.TrimSuffix(Redacted, "]")}, value) || strings.HasPrefix(value, "/") || !isSecret(name) {
			line = line[m[4]:] // the value may contain pairs
			continue
		}
		quote := opening.FindString(line[m[4]:m[5]])
		b.WriteString(quote + Redacted + quote)
		if line = line[m[5]:]; quote == "" {
			line = line[furtherValue(line):]
		}
	}
}

// furtherValue returns the length of the parts at the beginning of text that belong to the unquoted
// value before it: parts without a name, after a comma or similar.
func furtherValue(text string) (n int) {
	for {
		part := len(further.FindString(text[n:]))
		if rest := text[n+part:]; part == 0 || rest != "" && strings.ContainsRune(":=", rune(rest[0])) {
			return n
		}
		n += part
	}
}

// afterValue returns what stays of the text behind a flag's redacted value in the same word: the
// text from the first quote on, or punctuation. The rest may belong to the value.
func afterValue(text string) string {
	quote := strings.IndexAny(text, `\"'`)
	if quote < 0 {
		quote = len(text)
	}
	if strings.Trim(text[:quote], ",;}]") == "" {
		return text
	}
	return text[quote:]
}

// redactWords redacts the words of a text like arguments, and keeps what is between them.
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

// scheme reports whether a word is an authentication scheme; a credential follows it.
func scheme(word string) bool {
	word = strings.Trim(word, `"'`)
	return strings.EqualFold(word, "Bearer") || strings.EqualFold(word, "Basic")
}

func isSecret(name string) bool {
	return (secretName.MatchString(name) || secretCamel.MatchString(name)) && !ofFile.MatchString(name)
}
