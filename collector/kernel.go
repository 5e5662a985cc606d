package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/poller"
)

// Emit handles one event, which is valid only during the call. Calls come from several goroutines.
// A record is committed to the kernel after the call with its event has returned.
type Emit func(*event.Event)

// decoder turns the records of one stem into events. One goroutine calls its functions, except
// reportLasting. All but decode may be nil.
type decoder struct {
	// decode fills ev from a record of its stem; Time, BootTime and CPU are set already. The next
	// call may reuse what ev points to. ok is false if the record reports nothing new.
	decode func(h *bpf.Header, raw []byte, ev *event.Event) (ok bool, err error)
	// poll checks the kernel and returns the time to the next check.
	poll func(ctx context.Context, now time.Time, emit func(*event.Event)) (next time.Duration, err error)
	// blind returns why the stem does not detect its faults, as of the latest poll; nil: it does.
	blind func() error
	// unhurried: in a storm records may be read later, because nothing is looked up that passes.
	unhurried bool
	// waits reports whether records stay in the ring for a while.
	waits func(now time.Time) bool
	// end reports what is left when the stem stops.
	end func(emit func(*event.Event)) error
	// prove causes a real fault and reports whether it did. decode turns the record of that fault into
	// the canary with this nonce, which tests more than the ring.
	prove func(nonce uint64) bool
	// reportLasting makes the next poll report to emit, once more, the faults that still last.
	reportLasting func(emit Emit)
}

// stem is one running fault family.
type stem struct {
	name    string
	loaded  *bpf.Loaded
	decoder decoder
	err     error // why it can't run
	log     *slog.Logger
	env     *environment

	source string
	ev     event.Event
	// taken: run uses the memory that loaded has mapped, or Close has closed it.
	taken atomic.Bool

	canaryMu sync.Mutex
	canary   canaryState
}

// lossEvery is how often the counters of lost records are read: soon enough for people, at no cost.
const lossEvery = 5 * time.Second

// In a storm, records follow each other within stormWithin on average. They are then read at most every
// stormGather; the longer the storm lasts the more rarely, down to every stormSeldom, because each
// wake-up of an idle process costs several times as much as the record. The delay is harmless, and the
// ring has room for the records that arrive meanwhile. There is no pause for a ring that has stormMost
// records at a time, nor for a stem that must look for a fault's cause while it is visible.
const (
	stormWithin = 100 * time.Millisecond
	stormGather = 50 * time.Millisecond
	stormSeldom = 200 * time.Millisecond
	stormMost   = 32
)

// openStems loads and attaches every stem. If a stem can't run, its reports and an [event.Source]
// event say so, and the others run. The only error is that another agent owns the pins.
func (s *Sources) openStems() error {
	s.env.kernel, s.kernelErr = bpf.OpenKernel()
	if root := s.env.cfg.PinRoot; root != "" && s.kernelErr == nil {
		var err error
		s.pins, err = bpf.OpenPinRoot(root)
		switch {
		case errors.Is(err, bpf.ErrBusy):
			s.env.kernel.Forget()
			return err
		case err != nil:
			s.noPins = err
			s.env.log.Warn("faults during a restart will be missed: nothing can be pinned", "error", err)
		}
	}
	for _, blueprint := range bpf.Stems() {
		s.stems = append(s.stems, s.openStem(blueprint))
	}
	if s.kernelErr == nil {
		s.env.kernel.Forget()
	}
	return nil
}

func (s *Sources) openStem(blueprint bpf.Stem) *stem {
	st := &stem{
		name: blueprint.Name, env: s.env, log: s.env.log.With("stem", blueprint.Name), source: "bpf/" + blueprint.Name,
		loaded: new(bpf.Loaded), err: s.kernelErr,
	}
	if st.err == nil {
		st.loaded, st.err = bpf.Open(blueprint, s.env.kernel, s.pins)
	}
	if st.err == nil {
		st.decoder, st.err = newDecoder(s.env, st.loaded)
	}
	return st
}

// newDecoder returns the decoder of a stem.
func newDecoder(env *environment, l *bpf.Loaded) (decoder, error) {
	switch l.Stem {
	case bpf.StemOOMKill:
		return decoder{decode: newOOMKill(env).decode, unhurried: true}, nil
	case bpf.StemHungTask:
		h, err := newHungTask(env, l)
		if err != nil {
			return decoder{}, err
		}
		return decoder{decode: h.decode, poll: h.poll, blind: h.blind, reportLasting: h.asked.add}, nil
	case bpf.StemDiskIO:
		d := newDiskIO(env, l)
		return decoder{decode: d.decode, poll: d.poll, end: d.end}, nil
	case bpf.StemFSError:
		f := newFSError(env, l)
		_ = f.look() // before the first look at mounts, which asks filesystems that are not watched
		return decoder{decode: f.decode, poll: f.poll, blind: f.blind}, nil
	case bpf.StemHWError:
		h := newHWError(env.kernel)
		return decoder{decode: h.decode, unhurried: true, poll: h.poll, end: h.end}, nil
	case bpf.StemSockFail:
		s, err := openSockFail(env, l)
		if err != nil {
			return decoder{}, err
		}
		return decoder{decode: s.decode, poll: s.poll, waits: s.waits, blind: s.blind, prove: s.canary.send}, nil
	}
	return decoder{}, fmt.Errorf("stem %s has no decoder", l.Stem)
}

// runStems reads all stems until ctx is done, and then returns nil. First it reports for each stem
// whether it detects its faults.
func (s *Sources) runStems(ctx context.Context, emit Emit, settle func()) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, st := range s.stems {
		if st.err != nil && s.kernelErr == nil { // else Open has logged it
			st.log.Error("stem can't detect its faults", "error", st.err)
		}
		st.reportSource(st.err, emit)
		settle()
		if st.err != nil {
			continue
		}
		if !st.taken.CompareAndSwap(false, true) {
			continue // closed meanwhile
		}
		st.loaded.Settle = settle
		g.Go(func() error {
			defer st.taken.Store(false)
			if err := st.run(ctx, emit); err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
			return nil
		})
	}
	<-ctx.Done()
	return g.Wait()
}

func (s *stem) reportSource(err error, emit Emit) {
	ev := sourceEvent(s.name, err)
	ev.SourceUp.Fallback = display.Safe(strings.Join(bpf.Fallbacks(s.loaded.Reports()), "; "), 500)
	emit(ev)
}

// run reads one stem's ring until ctx is done.
func (s *stem) run(ctx context.Context, emit Emit) error {
	p, err := poller.New(s.loaded.Ring().FD())
	if err != nil {
		return err
	}
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.Close() }) // run closes it as well
	defer stop()

	r := &ringReader{stem: s, emit: emit, gathering: stormGather}
	for {
		now := time.Now()
		left := s.decoder.waits != nil && ctx.Err() == nil && s.decoder.waits(now)
		if !left {
			now = r.drain(ctx)
		}
		r.doDue(ctx, now)
		wait := r.untilDue()
		if left {
			pause(ctx, min(wait, stormGather)) // Wait would return at once while the ring has records
			continue
		}
		if err := p.Wait(wait); errors.Is(err, os.ErrClosed) {
			return r.end()
		} else if err != nil {
			return err
		}
	}
}

// ringReader is the state of run between two reads of its ring.
type ringReader struct {
	*stem
	emit                                   Emit
	nextLook, nextLoss, nextCanary, latest time.Time
	gathering                              time.Duration
	down                                   string // why the stem was reported as blind; empty: it was not
	warned                                 string // why the latest poll failed; empty: it did not
}

// drain handles the ring's records, and in a storm pauses to let more arrive. It returns the time.
func (r *ringReader) drain(ctx context.Context) time.Time {
	n, err := r.loaded.Drain(func(raw []byte) { r.handle(raw, r.emit) })
	if err != nil {
		r.log.Warn("can't remove predecessor's pins", "error", err)
	}
	now := time.Now()
	if n == 0 {
		return now
	}
	wait := r.gather(now, n)
	if wait == 0 {
		return now
	}
	pause(ctx, wait)
	return time.Now()
}

// gather returns how long to let records arrive after n of them were read, 0 if there is no storm.
func (r *ringReader) gather(now time.Time, n int) time.Duration {
	since := now.Sub(r.latest)
	r.latest = now
	if !r.decoder.unhurried || n >= stormMost || since >= time.Duration(n)*stormWithin {
		r.gathering = stormGather
		return 0
	}
	wait := r.gathering
	r.gathering = min(2*wait, stormSeldom)
	return wait
}

// doDue makes the periodic checks that are due.
func (r *ringReader) doDue(ctx context.Context, now time.Time) {
	if r.decoder.poll != nil && !now.Before(r.nextLook) {
		every, err := r.decoder.poll(ctx, now, r.emit)
		r.reportBlind()
		r.loaded.Settled()
		if ctx.Err() == nil {
			r.warn(err)
		}
		// A check at a particular moment has an interval that is not in whole seconds.
		if now := time.Now(); every%time.Second == 0 {
			r.nextLook = now.Add(hostfs.UntilBeat(every))
		} else {
			r.nextLook = now.Add(every)
		}
	}
	if !now.Before(r.nextLoss) {
		r.reportLosses(r.emit)
		r.nextLoss = now.Add(hostfs.UntilBeat(lossEvery))
	}
	if !now.Before(r.nextCanary) {
		r.exercise(now)
		r.nextCanary = now.Add(hostfs.UntilBeat(canaryEvery))
	}
}

// reportBlind reports each change of whether the stem detects its faults. When it does again, faults
// that were reported before are reported again if they still last.
func (r *ringReader) reportBlind() {
	if r.decoder.blind == nil {
		return
	}
	err := r.decoder.blind()
	why := errorText(err)
	if why == r.down {
		return
	}
	r.down = why
	r.reportSource(err, r.emit)
	if err == nil && r.decoder.reportLasting != nil {
		r.decoder.reportLasting(r.emit)
	}
}

// warn logs why a poll failed, once as long as it fails for the same reason: polls follow each other
// several times a second.
func (r *ringReader) warn(err error) {
	why := errorText(err)
	if why != "" && why != r.warned {
		r.log.Warn("can't read the kernel's state", "error", err)
	}
	r.warned = why
}

// errorText returns an error's text, which tells whether an error is still the same one. It is empty
// without an error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// untilDue returns the time until doDue has something to do.
func (r *ringReader) untilDue() time.Duration {
	wait := min(time.Until(r.nextLoss), time.Until(r.nextCanary))
	if r.decoder.poll != nil {
		wait = min(wait, time.Until(r.nextLook))
	}
	return max(wait, 0)
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// end reads the records that arrived before the stop, so that a detach loses none.
func (r *ringReader) end() error {
	_, err := r.loaded.Drain(func(raw []byte) { r.handle(raw, r.emit) })
	if r.decoder.end != nil {
		err = errors.Join(err, r.decoder.end(r.emit))
	}
	r.reportLosses(r.emit)
	r.loaded.Settled()
	return err
}

// handle decodes one record and emits its event.
func (s *stem) handle(raw []byte, emit Emit) {
	h, err := bpf.ParseHeader(raw)
	if err != nil {
		reason := "malformed"
		if errors.Is(err, bpf.ErrForeignWire) {
			reason = "foreign-wire"
		}
		s.reportLost(reason, 1, emit)
		return
	}
	boot := time.Duration(h.BootNS)
	s.ev = event.Event{}
	s.ev.Time, s.ev.BootTime, s.ev.CPU, s.ev.Source = s.env.clock.Wall(boot), event.Duration(boot), h.CPU, s.source
	ok := true
	if h.Kind == bpf.KindCanary {
		err = s.decodeCanary(raw, &s.ev)
	} else {
		ok, err = s.decoder.decode(h, raw, &s.ev)
	}
	if err != nil {
		s.log.Warn("record skipped", "error", err)
		s.reportLost("malformed", 1, emit)
		return
	}
	if ok {
		emit(&s.ev)
	}
}

// reportLosses emits and settles the losses that are not reported yet.
func (s *stem) reportLosses(emit Emit) {
	lost, err := s.loaded.Losses()
	if err != nil {
		s.log.Warn("can't read losses", "error", err)
		return
	}
	if lost.RingFull == 0 && lost.Skipped == 0 && lost.Unread == nil {
		return
	}
	if lost.Unread != nil {
		s.log.Warn("can't read another build's records or counts", "error", lost.Unread)
		s.reportLost("foreign-wire", 0, emit) // the number is unknown
	}
	if lost.RingFull > 0 {
		s.reportLost("ring-full", lost.RingFull, emit)
	}
	if lost.Skipped > 0 {
		s.reportLost("recursion", lost.Skipped, emit)
	}
	s.loaded.Settled()
	if err := s.loaded.ReportedLosses(lost); err != nil {
		s.log.Warn("losses may be reported again", "error", err)
	}
}

func (s *stem) reportLost(reason string, n uint64, emit Emit) {
	emit(lostEvent(s.name, reason, n))
}
