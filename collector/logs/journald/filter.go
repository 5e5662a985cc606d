package journald

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// Filter selects entries that match one value of each list that is not empty.
type Filter struct {
	// Identifiers are values of SYSLOG_IDENTIFIER (NPD's "source"), which the writer chooses.
	Identifiers []string
	// Units are systemd units; ".service" may be left out.
	Units []string
}

// The ids of journald's messages about dropped messages; see sd-messages.h.
const (
	messageDropped = "a596d6fe7bfa4994828e72309e95d61e"
	messageMissed  = "e9bf28e6e834481bb6f48f548ad13606"
)

// normal returns the filter with complete unit names, or an error if it is invalid.
func (f Filter) normal() (Filter, error) {
	units := make([]string, len(f.Units))
	for i, u := range f.Units {
		if !strings.Contains(u, ".") && u != "" {
			u += ".service"
		}
		units[i] = u
	}
	f.Units = units
	var errs []error
	for _, v := range slices.Concat(f.Identifiers, f.Units) {
		if v == "" || len(v) > maxValue || strings.ContainsAny(v, "\x00\n") {
			errs = append(errs, fmt.Errorf("filter %.100q: want 1 to %d characters", v, maxValue))
		}
	}
	return f, errors.Join(errs...)
}

// matches returns the filter as arguments of journalctl: values of one field are alternatives,
// different fields must all match, and "+" separates alternatives. machine is this machine's id;
// if empty, entries of any machine match.
func (f Filter) matches(machine string) []string {
	var own []string
	if machine != "" {
		own = []string{"_MACHINE_ID=" + machine}
	}
	args := slices.Clone(own)
	for _, v := range f.Identifiers {
		args = append(args, "SYSLOG_IDENTIFIER="+v)
	}
	for _, v := range f.Units {
		args = append(args, "_SYSTEMD_UNIT="+v)
	}
	if len(f.Identifiers)+len(f.Units) > 0 {
		args = append(args, "+", "MESSAGE_ID="+messageDropped, "MESSAGE_ID="+messageMissed, "_TRANSPORT=driver")
		args = append(args, own...)
	}
	return args
}

// sum returns a checksum that differs between filters.
func (f Filter) sum() string {
	h := fnv.New64a()
	for _, arg := range f.matches("") {
		_, _ = h.Write(append([]byte(arg), 0)) // it never fails
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// wants reports whether an entry of journald itself matches; journalctl has filtered the others.
func (f Filter) wants(e *Entry) bool {
	in := func(list []string, v []byte) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return s == string(v) })
	}
	return in(f.Identifiers, e.Identifier) && in(f.Units, e.Unit)
}

// onlyKernel reports whether only the kernel's messages are wanted.
func (f Filter) onlyKernel() bool {
	return len(f.Identifiers) > 0 && !slices.ContainsFunc(f.Identifiers, func(i string) bool { return i != event.OriginKernel })
}

// dropped returns the loss that e reports: [logs.Suppressed] are messages of a unit, [logs.Overrun] those of
// the kernel. It returns nil if e reports none, or none that matches.
func (f Filter) dropped(e *Entry) *logs.Loss {
	if string(e.Transport) != "driver" {
		return nil
	}
	loss, number := logs.Suppressed, string(e.Dropped)
	switch string(e.MessageID) {
	case messageDropped:
		// "Suppressed 12 messages from kubelet.service"
		_, unit, _ := bytes.Cut(e.Message, []byte(" messages from "))
		if len(f.Units) > 0 && !slices.Contains(f.Units, string(unit)) || f.onlyKernel() {
			return nil
		}
	case messageMissed:
		// "Missed 12 kernel messages"
		if len(f.Units) > 0 || len(f.Identifiers) > 0 && !slices.Contains(f.Identifiers, event.OriginKernel) {
			return nil
		}
		loss = logs.Overrun
		number, _, _ = strings.Cut(strings.TrimPrefix(string(e.Message), "Missed "), " ")
	default:
		return nil
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil
	}
	return &logs.Loss{Reason: loss, Lines: n}
}
