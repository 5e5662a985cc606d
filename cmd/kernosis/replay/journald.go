package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/collector/logs/journald"
)

// maxMessage is how much of a message is kept, in bytes, as in an agent.
const maxMessage = 16 << 10

// exported replays the output of "journalctl -o export". Line numbers count entries.
func (r *Replay) exported(in io.Reader) error {
	d := journald.NewDecoder(in, maxMessage)
	var e journald.Entry
	for !r.ended && r.err == nil {
		r.line++
		switch err := d.Next(&e); {
		case errors.Is(err, io.EOF):
			return r.err
		case errors.Is(err, journald.ErrFormat):
			r.bad(err) // the beginning of the next entry is unknown
			return r.err
		case err != nil:
			return fmt.Errorf("%s: %w", r.file, err)
		}
		r.journalEntry(&e)
	}
	return r.err
}

// journalEntry replays one entry. It treats each line of the message separately.
func (r *Replay) journalEntry(e *journald.Entry) {
	from := e.Line()
	if e.Realtime == 0 {
		r.bad(fmt.Errorf("no __REALTIME_TIMESTAMP: %w", journald.ErrFormat))
		return
	}
	r.sum.Lines++
	if boot := string(e.BootID); boot != "" {
		if r.boot != "" && r.boot != boot && !r.rebooted(from.Time) {
			return
		}
		r.boot = boot
	}
	text := from.Text
	for more := true; more && !r.ended; {
		var one []byte
		one, text, more = bytes.Cut(text, []byte{'\n'})
		l := line{stamp: time.Duration(from.Time.UnixNano()), level: -1, facility: -1, text: one, origin: from.Origin, unit: from.Unit}
		l.identifier, l.kmsg = string(e.Identifier), string(e.Transport) == "kernel"
		for level := range 8 {
			if from.Priority == logs.PriorityName(level) {
				l.level = level
			}
		}
		r.count(&l)
		r.logged(&l)
	}
}

// rebooted starts over at the first entry of a new boot. It returns false if the replay has ended.
func (r *Replay) rebooted(at time.Time) bool {
	now := r.moment(time.Duration(at.UnixNano()))
	if !r.begin(now) {
		return false
	}
	r.advance(now)
	r.startOver(now)
	r.sourcesUp(now)
	return true
}
