package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/remote"
)

// systemBus is the socket of the node's message bus, which also activates systemd's interface.
const systemBus = "/run/dbus/system_bus_socket"

// systemd connects to the node's systemd. The connection ends with ctx.
func systemd(ctx context.Context, fs hostfs.FS) (*dbus.Conn, error) {
	path := fs.Path(systemBus)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("can't query systemd: no message bus: %w", err)
	}
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		c, err := godbus.Dial("unix:path="+godbus.EscapeBusAddressValue(path), godbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		// Authenticate by number, because the node's users differ from this container's.
		if err = c.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err == nil {
			err = c.Hello()
		}
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("can't query systemd: %w", remote.WhyEnded(ctx, err))
	}
	return conn, nil
}

// unitParameter is the parameter for the unit of an operation.
func unitParameter() operation.Parameter {
	return operation.Parameter{
		Name: "unit", Kind: operation.String, Required: true, Max: 255,
		Doc: "the unit: kubelet.service; without a type: a service",
	}
}

// unitName returns the full name of a unit.
func unitName(name string) (string, error) {
	const others = ":-_.\\@"
	for i := range len(name) {
		c := name[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && strings.IndexByte(others, c) < 0 {
			return "", fmt.Errorf("%s: want the name of a unit, such as kubelet.service", operation.Quoted(name))
		}
	}
	for _, kind := range []string{"service", "socket", "mount", "timer", "target", "slice", "scope", "path", "swap", "device", "automount"} {
		if strings.HasSuffix(name, "."+kind) {
			return name, nil
		}
	}
	return name + ".service", nil
}

// unit is the state of a unit according to systemd.
type unit struct {
	name, load, active, sub, result string
	since                           time.Time // start of the state
	restarts, mainPID               uint32
	exitCode, exitStatus            int32
	memory                          uint64 // bytes; unknown: MaxUint64
}

// readUnit reads a unit. It returns an error if systemd doesn't know the unit.
func readUnit(ctx context.Context, conn *dbus.Conn, name string) (unit, error) {
	p, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return unit{}, fmt.Errorf("unit %s can't be read: %w", name, remote.WhyEnded(ctx, err))
	}
	text := func(key string) string { s, _ := p[key].(string); return display.Safe(s, 256) }
	u := unit{
		name: name, load: text("LoadState"), active: text("ActiveState"), sub: text("SubState"), result: text("Result"),
		memory: math.MaxUint64,
	}
	if u.load == "" || u.active == "" {
		return unit{}, fmt.Errorf("unit %s: systemd reports no state", name)
	}
	if u.load == "not-found" {
		return unit{}, fmt.Errorf("systemd has no unit %s", name)
	}
	if µs, ok := p["StateChangeTimestamp"].(uint64); ok && µs > 0 && µs < math.MaxInt64 {
		u.since = time.UnixMicro(int64(µs)).UTC()
	}
	u.restarts, _ = p["NRestarts"].(uint32)
	u.mainPID, _ = p["MainPID"].(uint32)
	u.exitCode, _ = p["ExecMainCode"].(int32)
	u.exitStatus, _ = p["ExecMainStatus"].(int32)
	if m, ok := p["MemoryCurrent"].(uint64); ok {
		u.memory = m
	}
	return u, nil
}

// failed reports whether the unit has failed, or waits for an automatic restart.
func (u *unit) failed() bool {
	return u.active == "failed" || strings.HasPrefix(u.sub, "auto-restart") || u.load == "error" || u.load == "bad-setting"
}

// ending returns how the main process ended last; "": it did not, or this is unknown.
func (u *unit) ending() string {
	switch u.exitCode { // CLD_ of waitid(2)
	case 1:
		return fmt.Sprintf("exit code %d", u.exitStatus)
	case 2, 3:
		return cmp.Or(unix.SignalName(syscall.Signal(u.exitStatus)), fmt.Sprintf("signal %d", u.exitStatus))
	}
	return ""
}

func (u *unit) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s (%s)", u.name, u.active, u.sub)
	if u.load != "loaded" {
		fmt.Fprintf(&b, ", %s", u.load)
	}
	if !u.since.IsZero() {
		fmt.Fprintf(&b, " since %s", u.since.Format(time.RFC3339))
	}
	if u.result != "" && u.result != "success" {
		fmt.Fprintf(&b, ", result %s", u.result)
	}
	if e := u.ending(); e != "" && u.failed() {
		fmt.Fprintf(&b, ", %s", e)
	}
	if u.restarts > 0 {
		fmt.Fprintf(&b, ", restarted %d times", u.restarts)
	}
	return b.String()
}

// unitResults returns the results of operations about a unit.
func unitResults() []operation.Result {
	return []operation.Result{
		{Name: "unit", Doc: "its full name"},
		{Name: "loadState", Doc: "loaded, masked, error …"},
		{Name: "state", Doc: "active, failed, activating, inactive …"},
		{Name: "subState", Doc: "running, dead, auto-restart …"},
		{Name: "result", Doc: "last result: success, exit-code, signal, oom-kill, timeout …"},
		{Name: "ending", Doc: "last end of its main process: exit code 1, SIGKILL; missing: it runs"},
		{Name: "restarts", Doc: "automatic restarts by systemd"},
		{Name: "since", Doc: "start of its state"},
		{Name: "mainPID", Doc: "its main process; missing: none"},
		{Name: "memory", Doc: "bytes of its control group; missing: not accounted by systemd"},
	}
}

func (u *unit) results() map[string]string {
	r := map[string]string{
		"unit": u.name, "loadState": u.load, "state": u.active, "subState": u.sub, "result": u.result, "restarts": strconv.FormatUint(uint64(u.restarts), 10),
	}
	if e := u.ending(); e != "" {
		r["ending"] = e
	}
	if !u.since.IsZero() {
		r["since"] = u.since.Format(time.RFC3339)
	}
	if u.mainPID > 0 {
		r["mainPID"] = strconv.FormatUint(uint64(u.mainPID), 10)
	}
	if u.memory != math.MaxUint64 {
		r["memory"] = strconv.FormatUint(u.memory, 10)
	}
	return r
}

// unitOf connects to systemd and reads the unit of a call.
func (h host) unitOf(ctx context.Context, call *operation.Call) (unit, error) {
	name, err := unitName(call.Parameters["unit"])
	if err != nil {
		return unit{}, err
	}
	conn, err := systemd(ctx, h.FS)
	if err != nil {
		return unit{}, err
	}
	defer conn.Close()
	return readUnit(ctx, conn, name)
}

func SystemdUnit(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "systemd-unit", Doc: "Reports the state of a systemd unit: since when, last result, restarts, main process, memory.",
		Effect: operation.Collect, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			u, err := host(h).unitOf(ctx, call)
			if err != nil {
				return operation.Output{}, err
			}
			return operation.Output{Results: u.results()}, nil
		},
	}
}

func CheckUnitFailed(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "check-unit-failed", Doc: "Checks whether a systemd unit failed. Verdict UnitFailed: it failed, can't be loaded, or waits for its restart.",
		Effect: operation.Check, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			u, err := host(h).unitOf(ctx, call)
			if err != nil {
				return operation.Output{}, err
			}
			if !u.failed() {
				return operation.Output{}, &operation.Refuted{Reason: "UnitNotFailed", Message: u.String()}
			}
			return operation.Output{Results: u.results(), Verdict: &operation.Verdict{Reason: "UnitFailed", Message: u.String()}}, nil
		},
	}
}

func RestartUnit(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "restart-unit", Doc: "Restarts a systemd unit and waits for it. Fails if the unit does not run afterwards.",
		Effect: operation.Remediate, Parameters: []operation.Parameter{unitParameter()}, Results: unitResults(),
		Run: host(h).restartUnit,
	}
}

func (h host) restartUnit(ctx context.Context, call *operation.Call) (operation.Output, error) {
	name, err := unitName(call.Parameters["unit"])
	if err != nil {
		return operation.Output{}, err
	}
	conn, err := systemd(ctx, h.FS)
	if err != nil {
		return operation.Output{}, err
	}
	defer conn.Close()
	// A unit that isn't loaded must not be started.
	before, err := readUnit(ctx, conn, name)
	if err != nil {
		return operation.Output{}, err
	}
	if before.load != "loaded" {
		return operation.Output{}, fmt.Errorf("unit %s is %s: not restarted", name, before.load)
	}
	if int(before.mainPID) == os.Getpid() {
		return operation.Output{}, fmt.Errorf("unit %s is the agent's own: the agent could not report the result", name)
	}
	done := make(chan string, 1)
	if _, err := conn.RestartUnitContext(ctx, name, "replace", done); err != nil {
		failure := fmt.Errorf("restart %s: %w", name, remote.WhyEnded(ctx, err))
		if refused, ok := errors.AsType[godbus.Error](err); !ok || refused.Name == "org.freedesktop.DBus.Error.NoReply" {
			return operation.Output{}, &operation.OutcomeUnknown{Err: failure}
		}
		return operation.Output{}, failure
	}
	select {
	case result := <-done:
		if result != "done" {
			return operation.Output{}, fmt.Errorf("restart %s: the job ended as %s", name, operation.Quoted(result))
		}
	case <-ctx.Done():
		return operation.Output{}, fmt.Errorf("restart %s: requested, but not completed: %w", name, ctx.Err())
	}
	after, err := readUnit(ctx, conn, name)
	if err != nil {
		return operation.Output{}, &operation.OutcomeUnknown{Err: fmt.Errorf("it was restarted, but %w", err)}
	}
	if after.failed() {
		return operation.Output{}, fmt.Errorf("it was restarted, but %s", after.String())
	}
	return operation.Output{Results: after.results()}, nil
}
