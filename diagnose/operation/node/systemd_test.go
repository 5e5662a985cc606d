package node

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// fakeSystemd is org.freedesktop.systemd1 on its own message bus.
type fakeSystemd struct {
	conn *godbus.Conn

	mu      sync.Mutex
	units   map[string]map[string]any
	restart func(unit string) (result string) // "": the job never ends
	calls   []string
}

const systemdPath = "/org/freedesktop/systemd1"

// RestartUnit implements a method of the manager.
func (f *fakeSystemd) RestartUnit(name, mode string) (godbus.ObjectPath, *godbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "restart "+name+" "+mode)
	if f.restart == nil {
		return "", godbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"Permission denied"})
	}
	job := godbus.ObjectPath(systemdPath + "/job/42")
	if result := f.restart(name); result != "" {
		// After the reply, like systemd.
		go func() {
			_ = f.conn.Emit(systemdPath, "org.freedesktop.systemd1.Manager.JobRemoved", uint32(42), job, name, result)
		}()
	}
	return job, nil
}

// fakeUnit has the properties of a unit.
type fakeUnit struct {
	f    *fakeSystemd
	name string
}

// GetAll implements a method of org.freedesktop.DBus.Properties.
func (u fakeUnit) GetAll(string) (map[string]godbus.Variant, *godbus.Error) {
	u.f.mu.Lock()
	defer u.f.mu.Unlock()
	p := map[string]godbus.Variant{}
	for k, v := range u.f.units[u.name] {
		p[k] = godbus.MakeVariant(v)
	}
	return p, nil
}

// newBus starts a message bus, and returns the root folder with its socket.
func newBus(t *testing.T) (root string) {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	root = t.TempDir()
	socket := filepath.Join(root, systemBus)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(root, "bus.conf")
	text := `<busconfig><type>session</type><listen>unix:path=` + socket + `</listen><auth>EXTERNAL</auth><policy context="default">` +
		`<allow send_destination="*" eavesdrop="true"/><allow own="*"/><allow eavesdrop="true"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "--config-file="+config, "--nofork", "--nopidfile", "--nosyslog")
	if err := process.StartTied(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	testenv.Until(t, "message bus", operationtest.Longest, func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return root
}

// newSystemd starts a bus with a systemd that has these units.
func newSystemd(t *testing.T, units map[string]map[string]any) (*fakeSystemd, operation.Host) {
	t.Helper()
	root := newBus(t)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Within(operationtest.Longest))
	t.Cleanup(cancel)
	conn, err := godbus.Connect("unix:path="+filepath.Join(root, systemBus), godbus.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &fakeSystemd{conn: conn, units: units}
	errs := []error{conn.Export(f, systemdPath, "org.freedesktop.systemd1.Manager")}
	for name := range units {
		path := godbus.ObjectPath(systemdPath + "/unit/" + dbus.PathBusEscape(name))
		errs = append(errs, conn.Export(fakeUnit{f, name}, path, "org.freedesktop.DBus.Properties"))
	}
	reply, err := conn.RequestName("org.freedesktop.systemd1", godbus.NameFlagDoNotQueue)
	if err := errors.Join(append(errs, err)...); err != nil || reply != godbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	return f, operation.Host{FS: hostfs.New(root)}
}

// someUnits returns properties of services as in systemd 252, without those that aren't read.
func someUnits() map[string]map[string]any {
	since := uint64(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMicro())
	service := func(active, sub, result string, more map[string]any) map[string]any {
		p := map[string]any{
			"Id": "x", "LoadState": "loaded", "ActiveState": active, "SubState": sub, "Result": result, "Description": "text", "StateChangeTimestamp": since,
			"NRestarts": uint32(0), "MainPID": uint32(0), "ExecMainCode": int32(0), "ExecMainStatus": int32(0), "MemoryCurrent": uint64(math.MaxUint64),
		}
		maps.Copy(p, more)
		return p
	}
	return map[string]map[string]any{
		"kubelet.service":  service("active", "running", "success", map[string]any{"MainPID": uint32(811), "MemoryCurrent": uint64(104857600)}),
		"broken.service":   service("failed", "failed", "exit-code", map[string]any{"NRestarts": uint32(5), "ExecMainCode": int32(1), "ExecMainStatus": int32(203)}),
		"again.service":    service("activating", "auto-restart", "signal", map[string]any{"NRestarts": uint32(77), "ExecMainCode": int32(2), "ExecMainStatus": int32(9)}),
		"idle.service":     service("inactive", "dead", "success", nil),
		"bad.service":      service("inactive", "dead", "success", map[string]any{"LoadState": "bad-setting"}),
		"masked.service":   service("inactive", "dead", "success", map[string]any{"LoadState": "masked"}),
		"gone.service":     service("inactive", "dead", "", map[string]any{"LoadState": "not-found"}),
		"data.mount":       {"LoadState": "loaded", "ActiveState": "active", "SubState": "mounted", "Result": "success", "StateChangeTimestamp": since},
		"a@b\\x2dc.socket": {"LoadState": "loaded", "ActiveState": "active", "SubState": "list\x1bening", "StateChangeTimestamp": uint64(0)},
		"silent.service":   {},
		"agent.service":    service("active", "running", "success", map[string]any{"MainPID": uint32(os.Getpid())}),
		"odd.service":      {"LoadState": "loaded", "ActiveState": "active", "SubState": uint32(7), "NRestarts": "many", "StateChangeTimestamp": uint64(math.MaxUint64)},
	}
}

func TestSystemdUnit(t *testing.T) {
	_, h := newSystemd(t, someUnits())
	const since = "2026-11-21T10:00:00Z"
	for name, want := range map[string]map[string]string{
		"kubelet":         {"unit": "kubelet.service", "loadState": "loaded", "state": "active", "subState": "running", "result": "success", "restarts": "0", "since": since, "mainPID": "811", "memory": "104857600"},
		"broken":          {"unit": "broken.service", "loadState": "loaded", "state": "failed", "subState": "failed", "result": "exit-code", "ending": "exit code 203", "restarts": "5", "since": since},
		"again":           {"unit": "again.service", "loadState": "loaded", "state": "activating", "subState": "auto-restart", "result": "signal", "ending": "SIGKILL", "restarts": "77", "since": since},
		"data.mount":      {"unit": "data.mount", "loadState": "loaded", "state": "active", "subState": "mounted", "result": "success", "restarts": "0", "since": since},
		`a@b\x2dc.socket`: {"unit": `a@b\x2dc.socket`, "loadState": "loaded", "state": "active", "subState": `list\x1bening`, "result": "", "restarts": "0"},
		"odd":             {"unit": "odd.service", "loadState": "loaded", "state": "active", "subState": "", "result": "", "restarts": "0"},
	} {
		out, _, err := operationtest.Perform(t, SystemdUnit(h), map[string]string{"unit": name})
		if err != nil || !maps.Equal(out.Results, want) || out.Verdict != nil {
			t.Errorf("%s: %v, %v", name, out.Results, err)
		}
	}
	for name, want := range map[string]string{
		"gone": "systemd has no unit gone.service", "silent": "unit silent.service: systemd reports no state",
		"a b": `"a b": want the name of a unit, such as kubelet.service`, "../x": `"../x": want the name of a unit, such as kubelet.service`, "nosuch": "unit nosuch.service can't be read: ",
	} {
		if _, _, err := operationtest.Perform(t, SystemdUnit(h), map[string]string{"unit": name}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestCheckUnitFailed(t *testing.T) {
	_, h := newSystemd(t, someUnits())
	for name, want := range map[string]string{
		"broken": "broken.service is failed (failed) since 2026-11-21T10:00:00Z, result exit-code, exit code 203, restarted 5 times",
		"again":  "again.service is activating (auto-restart) since 2026-11-21T10:00:00Z, result signal, SIGKILL, restarted 77 times",
		"bad":    "bad.service is inactive (dead), bad-setting since 2026-11-21T10:00:00Z",
	} {
		out, _, err := operationtest.Perform(t, CheckUnitFailed(h), map[string]string{"unit": name})
		if err != nil || out.Verdict == nil || *out.Verdict != (operation.Verdict{Reason: "UnitFailed", Message: want}) || out.Results["unit"] != name+".service" {
			t.Errorf("%+v, %v", out.Verdict, err)
		}
	}
	for name, want := range map[string]string{
		"kubelet": "kubelet.service is active (running) since 2026-11-21T10:00:00Z",
		"idle":    "idle.service is inactive (dead) since 2026-11-21T10:00:00Z",
		"masked":  "masked.service is inactive (dead), masked since 2026-11-21T10:00:00Z",
	} {
		_, _, err := operationtest.Perform(t, CheckUnitFailed(h), map[string]string{"unit": name})
		if r, ok := errors.AsType[*operation.Refuted](err); !ok || *r != (operation.Refuted{Reason: "UnitNotFailed", Message: want}) {
			t.Error(err)
		}
	}
	if _, _, err := operationtest.Perform(t, CheckUnitFailed(h), map[string]string{"unit": "gone"}); err == nil || err.Error() != "systemd has no unit gone.service" {
		t.Error(err)
	}
}

func TestRestartUnit(t *testing.T) {
	f, h := newSystemd(t, someUnits())
	becomes := func(state, sub, result string) func(string) string {
		return func(unit string) string {
			f.units[unit]["ActiveState"], f.units[unit]["SubState"] = state, sub
			return result
		}
	}
	set := func(restart func(string) string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.restart = restart
	}
	asked := func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Join(f.calls, ";")
	}
	set(becomes("active", "running", "done"))
	out, _, err := operationtest.Perform(t, RestartUnit(h), map[string]string{"unit": "broken"})
	if err != nil || out.Results["state"] != "active" || out.Results["unit"] != "broken.service" {
		t.Errorf("%+v, %v", out, err)
	}
	if asked() != "restart broken.service replace" {
		t.Error(asked())
	}
	for _, tt := range []struct {
		unit    string
		restart func(string) string
		want    string
	}{
		{"broken", becomes("failed", "failed", "done"), "it was restarted, but broken.service is failed (failed) since 2026-11-21T10:00:00Z, result exit-code, exit code 203, restarted 5 times"},
		{"broken", becomes("failed", "failed", "failed"), `restart broken.service: the job ended as "failed"`},
		{"broken", nil, "restart broken.service: Permission denied"},
	} {
		set(tt.restart)
		if _, _, err := operationtest.Perform(t, RestartUnit(h), map[string]string{"unit": tt.unit}); err == nil || err.Error() != tt.want || operationtest.OutcomeUnknown(err) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	calls := asked()
	for unit, want := range map[string]string{
		"agent": "unit agent.service is the agent's own: the agent could not report the result", "gone": "systemd has no unit gone.service",
		"masked": "unit masked.service is masked: not restarted",
	} {
		if _, _, err := operationtest.Perform(t, RestartUnit(h), map[string]string{"unit": unit}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if asked() != calls {
		t.Error(asked())
	}
	// At the timeout, a job that never ends is left to systemd.
	set(becomes("deactivating", "stop-sigterm", ""))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Second)) // long enough to request it
	defer cancel()
	_, err = host(h).restartUnit(ctx, &operation.Call{Parameters: operation.Values{"unit": "broken"}})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "requested, but not completed") {
		t.Error(err)
	}
	// Systemd may have begun the job before it is gone.
	set(func(string) string { _ = f.conn.Close(); return "" })
	if _, _, err := operationtest.Perform(t, RestartUnit(h), map[string]string{"unit": "broken"}); err == nil || !operationtest.OutcomeUnknown(err) {
		t.Error(err)
	}
}

func TestWithoutSystemd(t *testing.T) {
	root := t.TempDir()
	h := operation.Host{FS: hostfs.New(root)}
	if _, _, err := operationtest.Perform(t, SystemdUnit(h), map[string]string{"unit": "x"}); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "can't query systemd: no message bus: ") {
		t.Error(err)
	}
	// A bus without systemd.
	h = operation.Host{FS: hostfs.New(newBus(t))}
	if _, _, err := operationtest.Perform(t, SystemdUnit(h), map[string]string{"unit": "x"}); err == nil || !strings.Contains(err.Error(), "org.freedesktop.systemd1") {
		t.Error(err)
	}
}

// silent listens on a unix socket, responds to the first bytes with text, and then reads everything
// without responding.
func silent(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 1024)); err == nil {
					_, _ = io.WriteString(c, text)
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
	})
}

// TestBusThatIsSilent: a silent listener is waited for until the timeout.
func TestBusThatIsSilent(t *testing.T) {
	for name, first := range map[string]string{"nothing": "", "rejects": "REJECTED ANONYMOUS\r\n", "accepts": "OK 1234deadbeef\r\n", "rubbish": "HTTP/1.1 200 OK\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			silent(t, filepath.Join(root, systemBus), first)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			b := SystemdUnit(operation.Host{FS: hostfs.New(root)})
			began := time.Now()
			_, err := b.Do(ctx, &operation.Call{Parameters: operation.Values{"unit": "x"}})
			if err == nil || time.Since(began) > operationtest.Longest/2 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if name == "nothing" && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}
