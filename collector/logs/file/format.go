package file

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"
	"unicode/utf8"
)

// Format defines where the time and the text are in a line, like node-problem-detector's filelog
// configuration: the last group of each expression counts, or the whole match if it has no groups.
//
// The zero Format takes the whole line as text and the time of reading as time.
type Format struct {
	// Timestamp is an RE2 expression that finds the time; it requires TimestampFormat.
	Timestamp string
	// TimestampFormat is a layout of package time. A missing year or day is the latest not in the future.
	TimestampFormat string
	// Location is the zone of times without one; nil: the host's, or the local one if that is unknown.
	Location *time.Location
	// Message is an RE2 expression that finds the text. Lines that it does not match are skipped,
	// so it also selects lines. Empty: the whole line.
	Message string
	// Kernel is set for lines of the kernel's log as syslog daemons write them. Without expressions, the
	// header is RFC 3339's or the traditional one, and lines of other programs are skipped. With Message,
	// its match begins with the kernel's time stamp. Lines without one are malformed. A message of
	// several lines is skipped as a whole if one of its lines is.
	Kernel bool
}

// Parser parses single lines as a Reader does. It belongs to one goroutine.
type Parser struct {
	timestamp *extractor // nil: use the time of reading
	layout    layout
	message   *extractor // nil: the whole line
	skip      [][]byte   // lines that contain one of these are skipped

	kernel *kernelLines // nil: not the kernel's log

	// Lines of the same second have the same time text, so the last one is cached.
	lastText []byte
	lastTime time.Time
	lastRead time.Time
}

// keepTime is how long a cached time text is valid: one without a date means another day tomorrow.
const keepTime = time.Minute

// NewParser returns a Parser, or an error if the format or the texts to skip are invalid.
func NewParser(f Format, skip []string) (*Parser, error) {
	p := &Parser{}
	var errs []error
	if f.Kernel {
		p.kernel = &kernelLines{}
		p.kernel.traditional, _ = parseLayout(time.Stamp, f.Location)
		p.kernel.rfc3339, _ = parseLayout(time.RFC3339Nano, f.Location)
	}
	if (f.Timestamp == "") != (f.TimestampFormat == "") {
		errs = append(errs, errors.New("timestamp and timestampFormat must be set together"))
	} else if f.Timestamp != "" {
		var err error
		if p.timestamp, err = newExtractor(f.Timestamp); err != nil {
			errs = append(errs, fmt.Errorf("timestamp: %w", err))
		}
		var ok bool
		if p.layout, ok = parseLayout(f.TimestampFormat, f.Location); !ok {
			errs = append(errs, fmt.Errorf("timestampFormat: %.100q: not a time layout (an example: Jan _2 15:04:05)", f.TimestampFormat))
		}
	}
	if f.Message != "" {
		var err error
		if p.message, err = newExtractor(f.Message); err != nil {
			errs = append(errs, fmt.Errorf("message: %w", err))
		}
	}
	for _, s := range skip {
		if s == "" {
			errs = append(errs, errors.New("skipList: an empty text matches every line"))
			continue
		}
		p.skip = append(p.skip, []byte(s))
	}
	return p, errors.Join(errs...)
}

// verdict is what to do with a line.
type verdict int

const (
	take verdict = iota
	passBy
	leaveOut // an unwanted kernel line: its whole record is unwanted as well
	malformed
)

// decode returns text and time of a line that was read now. The text is a slice of line.
func (p *Parser) decode(line []byte, now time.Time) (text []byte, at time.Time, v verdict) {
	for _, s := range p.skip {
		if bytes.Contains(line, s) {
			return nil, now, p.unwanted(line)
		}
	}
	text = line
	var stamp []byte
	var ok bool
	by := &p.layout
	if p.kernel != nil && (p.message == nil || p.timestamp == nil) {
		if stamp, by, text, ok = p.kernel.header(line); !ok {
			return nil, now, malformed
		}
		if text = ofKernel(text); text == nil && p.message == nil {
			return nil, now, passBy
		}
	}
	if p.message != nil {
		if text, ok = p.message.extract(line); !ok {
			return nil, now, p.unwanted(line)
		}
	}
	if p.kernel != nil {
		if text, ok = p.kernel.message(text); !ok {
			return nil, now, malformed
		}
	}
	if p.timestamp != nil {
		by = &p.layout
		if stamp, ok = p.timestamp.extract(line); !ok {
			return nil, now, malformed
		}
	} else if p.kernel == nil {
		return text, now, take
	}
	if bytes.Equal(stamp, p.lastText) && len(stamp) > 0 && now.Sub(p.lastRead) < keepTime {
		return text, p.lastTime, take
	}
	at, err := by.parse(string(stamp), now)
	if err != nil {
		return nil, now, malformed
	}
	p.lastText, p.lastTime, p.lastRead = append(p.lastText[:0], stamp...), at, now
	return text, at, take
}

// unwanted returns the verdict on a line that contains a text to skip, or has no message. For a
// kernel line it notes the time stamp, because the next line may belong to the same record.
func (p *Parser) unwanted(line []byte) verdict {
	if p.kernel == nil {
		return passBy
	}
	text := line
	if p.message == nil {
		_, _, text, _ = p.kernel.header(line)
		text = ofKernel(text)
	}
	// A custom template may have the time stamp anywhere. No text of a process precedes it.
	for i, c := range text {
		if c != '[' {
			continue
		}
		if _, ok := p.kernel.stamped(text[i:]); ok {
			return leaveOut
		}
	}
	return passBy
}

// ErrLine is returned for a line that is not in the Format.
var ErrLine = errors.New("the line is not in the log's format")

// Parse returns the text and the time of a line that was read at the given time. wanted is false
// if the format or the texts to skip exclude the line. The text is a slice of line.
func (p *Parser) Parse(line []byte, read time.Time) (text []byte, at time.Time, wanted bool, err error) {
	text, at, v := p.decode(line, read)
	if v == malformed {
		return nil, at, false, ErrLine
	}
	return text, at, v == take, nil
}

// extractor finds a part of a line.
type extractor struct {
	re *regexp.Regexp
	// first is set for "^.{15}" and the like, the usual expression for the time of a syslog file:
	// it takes that many characters without running the regexp, which allocates.
	first int
	// wildcard is set for an expression of texts and ".*"; else nil.
	wildcard *wildcard
}

func newExtractor(expr string) (*extractor, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	return &extractor{re: re, first: leading(expr), wildcard: parseWildcard(expr)}, nil
}

// extract returns the last group of the match, or the match if the expression has no group; a
// group that did not participate is empty.
func (x *extractor) extract(line []byte) ([]byte, bool) {
	if x.first > 0 {
		end := 0
		for range x.first {
			r, size := utf8.DecodeRune(line[end:])
			if size == 0 || r == '\n' {
				return nil, false
			}
			end += size
		}
		return line[:end], true
	}
	if x.wildcard != nil {
		return x.wildcard.find(line)
	}
	at := x.re.FindSubmatchIndex(line)
	if at == nil {
		return nil, false
	}
	start, end := at[len(at)-2], at[len(at)-1]
	if start < 0 {
		return nil, true
	}
	return line[start:end], true
}

// leading returns n if expr is ^.{n} or ^(.{n}), and 0 for any other.
func leading(expr string) int {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || re.Op != syntax.OpConcat || len(re.Sub) != 2 || re.Sub[0].Op != syntax.OpBeginText {
		return 0
	}
	rest := re.Sub[1]
	if rest.Op == syntax.OpCapture {
		rest = rest.Sub[0]
	}
	if rest.Op != syntax.OpRepeat || rest.Min != rest.Max || rest.Sub[0].Op != syntax.OpAnyCharNotNL {
		return 0
	}
	return rest.Min
}
