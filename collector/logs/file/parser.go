package file

import (
	"errors"
	"time"
)

// Parser parses single lines as a Reader does. It belongs to one goroutine.
type Parser struct{ dec *decoder }

// ErrLine is returned for a line that is not in the Format.
var ErrLine = errors.New("the line is not in the log's format")

// NewParser returns a Parser, or an error if the format or the texts to skip are invalid; see
// [Config].
func NewParser(f Format, skip []string) (*Parser, error) {
	dec, err := newDecoder(f, skip)
	if err != nil {
		return nil, err
	}
	return &Parser{dec: dec}, nil
}

// Parse returns the text and the time of a line that was read at the given time. wanted is false
// if the format or the texts to skip exclude the line. The text is a slice of line.
func (p *Parser) Parse(line []byte, read time.Time) (text []byte, at time.Time, wanted bool, err error) {
	text, at, v := p.dec.decode(line, read)
	if v == malformed {
		return nil, at, false, ErrLine
	}
	return text, at, v == take, nil
}
