package cri

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// A socket file outlives its runtime: the runtime that replaced it is asked first.
func TestDeadSocketsComeLast(t *testing.T) {
	host := hostfs.New(t.TempDir())
	listen := func(name string) *net.UnixListener {
		t.Helper()
		path := host.Path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		return l
	}
	tried := func(answer error) (names []string, err error) {
		err = Find(t.Context(), host, func(s Socket) error {
			names = append(names, s.Name)
			return answer
		})
		return names, err
	}
	if names, err := tried(nil); names != nil || !errors.Is(err, ErrNotFound) {
		t.Errorf("without a socket: %q, %v", names, err)
	}
	const first, second = "/run/containerd/containerd.sock", "/run/crio/crio.sock"
	l := listen(first)
	listen(second)
	if names, err := tried(nil); err != nil || !slices.Equal(names, []string{first}) {
		t.Errorf("both live: %q, %v", names, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := tried(nil); err != nil || !slices.Equal(names, []string{second}) {
		t.Errorf("the first is dead: %q, %v", names, err)
	}
	unknown := status.Error(codes.Unimplemented, "unknown service")
	if names, err := tried(unknown); !errors.Is(err, unknown) || !slices.Equal(names, []string{second, first}) {
		t.Errorf("the second serves no CRI: %q, %v", names, err)
	}
}
